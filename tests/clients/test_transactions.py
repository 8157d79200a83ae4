"""Stock clients write in transactions: what is committed is read, what is aborted is not, positions move with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clients.running import TRANSACTIONS, ClientError, Drivers, able

pytestmark = pytest.mark.txn

EACH = 10
OTHERS = {"confluent": "java", "kafka-python-3": "confluent", "aiokafka": "kafkajs", "kafkajs": "aiokafka"}
"""Who reads what a client wrote, besides itself; kafka-python 3 where nobody is named."""
who_has_them = pytest.mark.parametrize("client", able(TRANSACTIONS))


def values(*starts: int) -> list[str]:
    return [f"r{number}" for start in starts for number in range(start, start + EACH)]


@who_has_them
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    client: str, clients: Drivers, topic: Callable[..., str]
) -> None:
    name = topic(2)
    steps = [[0, EACH, "commit"], [EACH, EACH, "abort"], [2 * EACH, EACH, "commit"], [3 * EACH, EACH, "abort"]]
    clients(client).ask("transact", name=f"id-{name}", topic=name, partitions=[0, 1], steps=steps)
    for reader in (client, OTHERS.get(client, "kafka-python-3")):
        request = {"topic": name, "partitions": [0, 1]}
        committed = clients(reader).ask("consume", count=2 * EACH, isolation="committed", **request)
        every = clients(reader).ask("consume", count=4 * EACH, **request)
        for partition in (0, 1):
            assert [value for _, value in committed[str(partition)]] == values(0, 2 * EACH)[partition::2]
            assert [value for _, value in every[str(partition)]] == values(0, EACH, 2 * EACH, 3 * EACH)[partition::2]


@who_has_them
def test_positions_of_a_group_move_with_a_transaction(client: str, clients: Drivers, topic: Callable[..., str]) -> None:
    source, to = topic(), topic()
    clients("confluent").ask("produce", topic=source, partitions=[0], first=0, count=3 * EACH)
    group = f"moves-{source}"
    request = {"name": f"id-{source}", "group": group, "source": source, "to": to, "count": EACH}
    positions = []
    for outcome in ("commit", "abort", "commit"):
        clients(client).ask("move", outcome=outcome, **request)
        positions += clients("java").ask("committed", group=group, topic=source, partitions=[0])
    assert positions == [EACH, EACH, 2 * EACH]
    found = clients("java").ask("consume", topic=to, partitions=[0], count=2 * EACH, isolation="committed")
    assert [value for _, value in found["0"]] == values(0, EACH)


@who_has_them
def test_a_second_producer_of_the_same_name_fences_the_first(
    client: str, clients: Drivers, topic: Callable[..., str]
) -> None:
    name = topic()
    with pytest.raises(ClientError) as refused:
        clients(client).ask("fence", name=f"id-{name}", topic=name)
    kinds = (
        "_FENCED",
        "ProducerFenced",
        "InvalidProducerEpoch",
        "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED",
        "_PURGE_QUEUE",
    )
    assert any(map(refused.value.is_kind, kinds)), refused.value
    clients("confluent").ask("transact", name=f"id-{name}", topic=name, partitions=[0], steps=[[90, 1, "commit"]])
    found = clients("confluent").ask("consume", topic=name, partitions=[0], count=1, isolation="committed")
    assert [value for _, value in found["0"]] == ["r90"]


def test_a_transaction_whose_producer_is_gone_is_listed_times_out_and_frees_readers(
    clients: Drivers, topic: Callable[..., str]
) -> None:
    name, java = topic(), clients("java")
    java.ask("hang", name=f"id-{name}", topic=name)
    assert java.ask("transactions")[f"id-{name}"] == "Ongoing"
    assert java.ask("describe_transaction", name=f"id-{name}") == {"state": "Ongoing", "partitions": 1}
    assert java.ask("producers", topic=name, partition=0) == 1
    clients("confluent").ask("produce", topic=name, partitions=[0], first=50, count=EACH)
    found = clients("confluent").ask("consume", topic=name, partitions=[0], count=EACH, isolation="committed")
    assert [value for _, value in found["0"]] == values(50)
    assert java.ask("transactions")[f"id-{name}"] == "CompleteAbort"
