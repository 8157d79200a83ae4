"""Static members, who keep their place while they are away: an instance has it, whatever its member id is."""

from __future__ import annotations

from support.group_world import Asked, Room, subscription

from server.api.errors import ErrorCode
from server.groups.classic.member import JoinAnswer, SyncRequest
from server.groups.classic.world import GroupSettings, GroupState

NONE = ErrorCode.NONE


def static(room: Room, instance: str = "i", **more: object) -> Asked:
    return room.join(instance_id=instance, client_id=instance, **more)


def static_members(*instances: str) -> tuple[Room, list[JoinAnswer]]:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    asked = [static(room, each) for each in instances]
    room.world.pass_ms(30)
    joined = [each.join for each in asked]
    given = {each.member_id: each.member_id.encode() for each in joined}
    syncs = [Asked() for _ in joined]
    for each, name, done in zip(joined, instances, syncs, strict=True):
        room.group.sync(SyncRequest(each.member_id, name, each.generation, None, None, given), done)
    assert room.group.facts.state is GroupState.STABLE
    return room, joined


def test_a_static_member_needs_no_second_request() -> None:
    _, (one,) = static_members("i")
    assert one.member_id.startswith("i-")


def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance() -> None:
    room, (leader, other) = static_members("i", "j")
    back = static(room, "j").join
    assert room.group.facts.state is GroupState.STABLE
    assert (back.generation, back.leader) == (1, leader.member_id)
    assert back.member_id != other.member_id
    assert room.sync(back, "j").sync.assignment == other.member_id.encode()
    assert back.member_id in [each.member_id for each in room.world.stored[-1].members]
    assert room.beat(other, "j") is ErrorCode.FENCED_INSTANCE_ID
    assert room.beat(other) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_leader_that_comes_back_is_told_to_assign_nothing() -> None:
    room, (leader, _) = static_members("i", "j")
    back = static(room, "i").join
    assert (back.skip_assignment, back.leader, len(back.members)) == (True, back.member_id, 2)
    assert back.member_id != leader.member_id


def test_an_older_static_leader_that_comes_back_is_not_told_that_it_leads() -> None:
    room, (leader, _) = static_members("i", "j")
    back = static(room, "i", can_skip_assignment=False).join
    assert (back.skip_assignment, back.leader, back.members) == (False, leader.member_id, ())


def test_a_static_member_whose_return_cannot_be_stored_keeps_its_former_id() -> None:
    room, (_, other) = static_members("i", "j")
    room.world.fails = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert static(room, "j").join.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.beat(other, "j") is NONE


def test_of_two_with_one_instance_the_former_is_fenced_while_it_waits() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    first, second = static(room), static(room)
    assert first.join.error is ErrorCode.FENCED_INSTANCE_ID
    room.world.pass_ms(30)
    assert (second.join.error, len(second.join.members)) == (NONE, 1)


def test_a_static_member_that_comes_back_while_the_leader_assigns_begins_a_rebalance() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    asked = [static(room, "i"), static(room, "j")]
    room.world.pass_ms(30)
    waits = room.sync(asked[1].join, "j")
    static(room, "i")
    assert waits.sync.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.group.facts.state is GroupState.PREPARING


def test_static_members_may_be_away_longer_than_the_rebalance_timeout() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    asked = [static(room, each, session_timeout_ms=600_000) for each in "ij"]
    room.world.pass_ms(30)
    joined = [each.join for each in asked]
    for each, name in zip(joined, "ij", strict=True):
        room.sync(each, name)
    room.join(joined[0].member_id, instance_id="i", session_timeout_ms=600_000)  # it leads: a rebalance
    room.world.pass_ms(60_000)
    assert joined[1].member_id in room.group.facts.roster.members
    assert room.group.facts.generation == 2


def test_while_a_static_leader_is_away_another_one_leads() -> None:
    room, (leader, other) = static_members("i", "j")
    waits = room.join(other.member_id, instance_id="j", protocols=(("range", subscription("clicks")),))
    while not waits.is_answered:
        room.world.pass_ms(1_000)
        room.group.saw(leader.member_id)
    assert (waits.join.leader, len(waits.join.members)) == (other.member_id, 2)


def test_a_static_member_that_comes_back_before_it_asked_for_its_assignment_is_not_missed() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    asked = [static(room, each, session_timeout_ms=600_000) for each in "ij"]
    room.world.pass_ms(30)
    room.sync(asked[0].join, "i")
    assert room.group.facts.state is GroupState.STABLE
    static(room, "j", session_timeout_ms=600_000)
    room.world.pass_ms(60_000)
    assert (room.group.facts.state, len(room.group.facts.roster)) == (GroupState.STABLE, 2)


def test_a_static_member_can_be_removed_by_its_instance_alone() -> None:
    room, (_, other) = static_members("i", "j")
    assert room.group.leave([("", "j")]) == [NONE]
    assert other.member_id not in room.group.facts.roster.members
