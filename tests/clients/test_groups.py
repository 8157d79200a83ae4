"""Stock clients share topics as groups: they join, are given partitions, commit, leave, and are administered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clients.members import Member, wait_for_shares, wait_for_values
from clients.running import CLIENTS, DELETE_GROUP, DELETE_OFFSET, SET_OFFSET, ClientError, Drivers, able
from support.waiting import until

pytestmark = pytest.mark.groups

EACH = 40
MIXED = {
    "range": ("confluent", "kafka-python-3", "java"),
    "roundrobin": ("aiokafka", "kafka-python-2", "confluent"),
    "sticky": ("java", "kafka-python-3", "aiokafka"),
    "cooperative-sticky": ("confluent", "java", "confluent"),
}
every_client = pytest.mark.parametrize("client", CLIENTS)


def values(first: int, count: int) -> list[str]:
    return [f"r{number}" for number in range(first, first + count)]


def send(clients: Drivers, topic: str, partitions: int, first: int, count: int) -> list[str]:
    clients("confluent").ask("produce", topic=topic, partitions=list(range(partitions)), first=first, count=count)
    return values(first, count)


@every_client
def test_a_member_reads_commits_and_the_next_one_goes_on(
    client: str, clients: Drivers, topic: Callable[..., str]
) -> None:
    name = topic(3)
    group, strategy = f"goes-on-{name}", CLIENTS[client].strategies[0]
    sent = send(clients, name, 3, 0, EACH)
    first = Member(clients(client), group, name, strategy)
    wait_for_shares([first], [3])
    wait_for_values([first], sent)
    first.driver.ask("commit")
    first.leave()
    positions = [len(range(partition, EACH, 3)) for partition in range(3)]
    assert clients(client).ask("committed", group=group, topic=name, partitions=[0, 1, 2]) == positions
    more = send(clients, name, 3, EACH, EACH)
    second = Member(clients(client), group, name, strategy)
    wait_for_values([second], more)
    second.leave()
    assert sorted(second.values()) == sorted(more)


@every_client
def test_two_members_share_and_the_one_that_stays_takes_all(
    client: str, clients: Drivers, topic: Callable[..., str]
) -> None:
    name = topic(4)
    group, strategy = f"share-{name}", CLIENTS[client].strategies[-1]
    first = Member(clients(client), group, name, strategy)
    wait_for_shares([first], [4])
    second = Member(clients(client, 1), group, name, strategy)
    wait_for_shares([first, second], [2, 2])

    def is_settled() -> bool:
        described = clients("java").ask("describe_group", group=group)
        return (described["state"], described["members"]) == ("Stable", 2)

    assert until(is_settled, 60)  # a cooperative strategy may rebalance once more, with the shares that are there
    wait_for_values([first, second], send(clients, name, 4, 0, EACH))
    first.leave()
    wait_for_shares([second], [4])
    wait_for_values([second], send(clients, name, 4, EACH, EACH))
    second.leave()


@pytest.mark.parametrize("strategy", MIXED)
def test_members_of_different_clients_share(strategy: str, clients: Drivers, topic: Callable[..., str]) -> None:
    name = topic(6)
    group, kinds = f"mixed-{name}", MIXED[strategy]
    members: list[Member] = []
    for number, client in enumerate(kinds):
        members.append(Member(clients(client, number), group, name, strategy))
        shares = [6 // len(members)] * len(members)
        wait_for_shares(members, shares)
        wait_for_values(members, send(clients, name, 6, number * EACH, EACH))
    assert clients("java").ask("describe_group", group=group)["strategy"] == strategy
    members.pop(0).leave()
    wait_for_shares(members, [3, 3])
    wait_for_values(members, send(clients, name, 6, 3 * EACH, EACH))
    for member in members:
        member.leave()


def test_a_member_that_was_killed_is_replaced(clients: Drivers, topic: Callable[..., str]) -> None:
    name = topic(2)
    group = f"killed-{name}"
    lost = Member(clients("confluent", 7), group, name, "range", settings={"session.timeout.ms": 6000})
    wait_for_shares([lost], [2])
    lost.driver.kill()
    heir = Member(clients("confluent"), group, name, "range")
    wait_for_shares([heir], [2])
    wait_for_values([heir], send(clients, name, 2, 0, EACH))
    heir.leave()
    assert sorted(heir.values()) == sorted(values(0, EACH))


@pytest.mark.parametrize("client", ["confluent", "java"])
def test_a_member_with_a_name_of_its_own_comes_back_to_its_partitions(
    client: str, clients: Drivers, topic: Callable[..., str]
) -> None:
    name = topic(4)
    group = f"static-{name}"
    first = Member(clients(client), group, name, "range", instance="one")
    second = Member(clients(client, 1), group, name, "range", instance="two")
    wait_for_shares([first, second], [2, 2])
    had = second.assigned()
    second.leave()
    again = Member(clients(client, 1), group, name, "range", instance="two")
    wait_for_shares([first, again], [2, 2])
    assert again.assigned() == had
    first.leave()
    again.leave()


@every_client
def test_groups_are_listed_described_and_deleted(client: str, clients: Drivers, topic: Callable[..., str]) -> None:
    name, driver = topic(), clients(client)
    group = f"listed-{name}"
    member = Member(clients("confluent", 1), group, name, "range")
    wait_for_values([member], send(clients, name, 1, 0, EACH))
    assert group in driver.ask("groups")
    described = driver.ask("describe_group", group=group)
    assert (described["state"].upper(), described["members"]) == ("STABLE", 1)
    if CLIENTS[client].can(DELETE_GROUP):
        with pytest.raises(ClientError) as refused:
            driver.ask("delete_group", group=group)
        kinds = ("NON_EMPTY_GROUP", "NonEmptyGroup", "GroupNotEmpty")
        assert any(map(refused.value.is_kind, kinds)), refused.value
    member.driver.ask("commit")
    member.leave()
    assert driver.ask("committed", group=group, topic=name, partitions=[0]) == [EACH]
    if CLIENTS[client].can(DELETE_GROUP):
        driver.ask("delete_group", group=group)
        assert group not in driver.ask("groups")
        assert driver.ask("committed", group=group, topic=name, partitions=[0]) == [None]


@pytest.mark.parametrize("client", able(SET_OFFSET))
def test_positions_are_set_from_outside(client: str, clients: Drivers, topic: Callable[..., str]) -> None:
    name, driver = topic(), clients(client)
    send(clients, name, 1, 0, EACH)
    driver.ask("set_offset", group=f"set-{name}", topic=name, partition=0, to=25)
    member = Member(clients("kafka-python-2"), f"set-{name}", name, "range")
    wait_for_values([member], values(25, EACH - 25))
    member.leave()
    assert member.values() == values(25, EACH - 25)


@pytest.mark.parametrize("client", able(DELETE_OFFSET))
def test_a_position_is_deleted(client: str, clients: Drivers, topic: Callable[..., str]) -> None:
    name, driver = topic(2), clients(client)
    for partition in (0, 1):
        clients("java").ask("set_offset", group=f"gone-{name}", topic=name, partition=partition, to=partition + 3)
    driver.ask("delete_offset", group=f"gone-{name}", topic=name, partition=0)
    assert driver.ask("committed", group=f"gone-{name}", topic=name, partitions=[0, 1]) == [None, 4]
