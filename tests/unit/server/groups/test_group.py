"""A group through its states: who is told what, when, and what is stored."""

from __future__ import annotations

import pytest
from support.group_world import RANGE, Asked, Room, request, subscription

from server.api.errors import ErrorCode
from server.groups.classic.group import Group
from server.groups.classic.member import JoinAnswer, subscribed_topics
from server.groups.classic.world import GroupSettings, GroupState
from server.groups.format.records import GroupValue, MemberValue

NONE = ErrorCode.NONE
ROUND_ROBIN = (("roundrobin", subscription("orders")),)


# ---- joining


def test_a_first_request_only_gets_an_id_and_the_second_one_waits_for_the_group() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=3_000))
    first = room.join().join
    assert first == JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, "c-1")
    second = room.join("c-1")
    assert not second.is_answered
    room.world.pass_ms(2_999)
    assert not second.is_answered
    room.world.pass_ms(1)
    assert (second.join.error, second.join.generation, second.join.protocol, second.join.leader) == (
        NONE,
        1,
        "range",
        "c-1",
    )
    assert [each.member_id for each in second.join.members] == ["c-1"]


def test_an_old_client_is_taken_in_at_its_first_request() -> None:
    room = Room()
    asked = room.join(needs_known_id=False)
    room.world.pass_ms(0)
    assert (asked.join.member_id, asked.join.generation) == ("c-1", 1)


def test_while_members_keep_coming_the_first_generation_waits_on() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=3_000))
    asked = [room.enter("a")]
    for client in "bcd":
        room.world.pass_ms(2_000)
        asked.append(room.enter(client))
    assert not any(each.is_answered for each in asked)
    room.world.pass_ms(6_000)
    assert {each.join.generation for each in asked} == {1}
    assert len(asked[0].join.members) == 4


def test_the_first_generation_waits_no_longer_than_the_rebalance_timeout() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=3_000))
    asked = [room.enter("a", rebalance_timeout_ms=7_000)]
    for client in "bcdef":
        room.world.pass_ms(1_500)
        asked.append(room.enter(client, rebalance_timeout_ms=7_000))
    assert asked[0].join.generation == 1


def test_an_id_that_is_not_used_is_forgotten_after_the_session_timeout() -> None:
    room = Room()
    room.join()
    room.world.pass_ms(10_000)
    assert room.join("c-1").join.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.world.waiting == 0


def test_a_rebalance_waits_for_those_who_were_given_an_id() -> None:
    room = Room()
    (one,) = room.stable("a")
    late = room.join(client_id="b").join.member_id
    again = room.join(one.member_id)
    assert not again.is_answered
    room.join(late)
    assert again.join.generation == 2


@pytest.mark.parametrize("more", [{"protocol_type": ""}, {"protocols": ()}], ids=["no type of protocol", "no protocol"])
def test_who_has_no_protocol_cannot_join(more: dict[str, object]) -> None:
    assert Room().join(**more).join.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_who_has_no_protocol_in_common_with_all_cannot_join() -> None:
    room = Room()
    room.stable("a")
    assert room.join(protocols=ROUND_ROBIN).join.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join(protocol_type="connect").join.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_one_that_all_have_and_most_like_best() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    both = RANGE + ROUND_ROBIN
    asked = [
        room.enter("a", protocols=both),
        room.enter("b", protocols=both[::-1]),
        room.enter("c", protocols=both[::-1]),
    ]
    room.world.pass_ms(20)
    assert {each.join.protocol for each in asked} == {"roundrobin"}
    room.enter("d", protocols=RANGE)
    again = [room.join(each.join.member_id, protocols=both) for each in asked]
    assert {each.join.protocol for each in again} == {"range"}


def test_a_protocol_that_one_lacks_is_out_however_many_like_it_best() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    both = RANGE + ROUND_ROBIN
    asked = [room.enter("a", protocols=both), room.enter("b", protocols=both), room.enter("c", protocols=ROUND_ROBIN)]
    room.world.pass_ms(30)
    assert {each.join.protocol for each in asked} == {"roundrobin"}
    assert room.join(protocols=RANGE).join.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_leader_is_told_of_all_members_and_the_others_of_none() -> None:
    room = Room()
    leader, other = room.stable("a", "b")
    assert [(each.member_id, each.metadata) for each in leader.members] == [
        (leader.member_id, RANGE[0][1]),
        (other.member_id, RANGE[0][1]),
    ]
    assert other.members == ()


def test_a_full_group_takes_nobody_more() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=0, max_size=1))
    (one,) = room.stable("a")
    assert room.join(client_id="b").join.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.beat(one) is NONE


def test_of_more_members_than_there_is_room_for_those_who_join_again_first_stay() -> None:
    room = Room()
    members = room.stable("a", "b", "c")
    small = GroupSettings(initial_rebalance_delay_ms=0, max_size=2)
    restored = Group.restored("g", room.world.stored[-1], room.world, small)
    restored.wake()
    assert restored.facts.state is GroupState.PREPARING
    asked = [Asked() for _ in members]
    for each, member in zip(asked, members, strict=True):
        restored.join(request(member.member_id), each)
    assert asked[2].join.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [each.join.generation for each in asked[:2]] == [2, 2]


# ---- syncing


def test_members_get_what_the_leader_assigned_once_it_is_stored() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    asked = [room.enter("a"), room.enter("b")]
    room.world.pass_ms(30)
    leader, other = asked[0].join, asked[1].join
    room.world.holds = True
    waits = room.sync(other)
    brings = room.sync(leader, a_1=b"x", b_2=b"y")
    assert not waits.is_answered
    assert not brings.is_answered
    assert room.group.facts.state is GroupState.COMPLETING
    room.world.settle()
    assert (waits.sync.assignment, brings.sync.assignment) == (b"y", b"x")
    assert room.group.facts.state is GroupState.STABLE
    assert [each.assignment for each in room.world.stored[-1].members] == [b"x", b"y"]


def test_a_member_that_the_leader_left_out_gets_nothing() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    asked = [room.enter("a"), room.enter("b")]
    room.world.pass_ms(30)
    waits = room.sync(asked[1].join)
    room.sync(asked[0].join, a_1=b"x")
    assert (waits.sync.error, waits.sync.assignment) == (NONE, b"")


def test_an_assignment_that_cannot_be_stored_begins_another_rebalance() -> None:
    room = Room()
    one = room.enter("a")
    room.world.pass_ms(0)
    room.world.fails = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.sync(one.join, a_1=b"x").sync.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.group.facts.state is GroupState.PREPARING
    room.world.fails = NONE
    again = room.join(one.join.member_id)
    assert again.join.generation == 2


def test_who_asks_again_in_a_stable_group_gets_the_same() -> None:
    room = Room()
    members = room.stable("a", "b")
    for member in members:
        assert room.sync(member).sync.assignment == member.member_id.encode()


def test_what_is_of_another_generation_member_or_protocol_is_refused() -> None:
    room = Room()
    (one,) = room.stable("a")
    assert room.sync(one._replace(generation=7)).sync.error is ErrorCode.ILLEGAL_GENERATION
    assert room.sync(one._replace(member_id="x")).sync.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.sync(one._replace(protocol="other")).sync.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_who_joins_and_never_asks_for_its_assignment_is_out_after_the_rebalance_timeout() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    asked = [room.enter("a", session_timeout_ms=100_000), room.enter("b", session_timeout_ms=100_000)]
    room.world.pass_ms(30)
    waits = room.sync(asked[1].join)
    room.world.pass_ms(60_000)
    assert waits.sync.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(room.group.facts.roster.members) == ["b-2"]
    assert room.join("b-2").join.leader == "b-2"


# ---- heartbeats and sessions


def test_a_heartbeat_tells_of_a_rebalance() -> None:
    room = Room()
    (one,) = room.stable("a")
    assert room.beat(one) is NONE
    room.enter("b")
    assert room.beat(one) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_heartbeat_of_a_stranger_or_of_another_generation_is_refused() -> None:
    room = Room()
    (one,) = room.stable("a")
    assert room.beat(one._replace(member_id="x")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.beat(one._replace(generation=0)) is ErrorCode.ILLEGAL_GENERATION


def test_a_silent_member_is_out_after_its_session_and_the_others_share_its_part() -> None:
    room = Room()
    leader, other = room.stable("a", "b")
    room.world.pass_ms(9_000)
    assert room.beat(leader) is NONE
    room.world.pass_ms(1_000)
    assert room.beat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.beat(other) is ErrorCode.UNKNOWN_MEMBER_ID
    again = room.join(leader.member_id)
    assert len(again.join.members) == 1


def test_a_commit_counts_as_a_heartbeat() -> None:
    room = Room()
    (one,) = room.stable("a")
    for _ in range(3):
        room.world.pass_ms(9_000)
        room.group.saw(one.member_id)
    assert room.beat(one) is NONE


def test_who_waits_for_the_others_needs_no_heartbeat() -> None:
    room = Room()
    leader, other = room.stable("a", "b")
    waits = room.join(leader.member_id)
    for _ in range(6):
        room.world.pass_ms(5_000)
        assert room.beat(other) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not waits.is_answered
    room.join(other.member_id)
    assert len(waits.join.members) == 2


def test_the_session_of_one_that_waited_begins_when_it_is_answered() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=10))
    asked = [room.enter("a"), room.enter("b")]
    room.world.pass_ms(30)
    leader, other = asked[0].join, asked[1].join
    waits = room.sync(other)
    for _ in range(4):
        room.world.pass_ms(5_000)
        room.beat(leader)
    room.sync(leader, a_1=b"x", b_2=b"y")
    assert waits.sync.assignment == b"y"
    room.world.pass_ms(9_999)
    assert other.member_id in room.group.facts.roster.members
    room.world.pass_ms(1)
    assert other.member_id not in room.group.facts.roster.members


def test_when_the_last_one_waited_for_is_out_the_others_go_on_at_once() -> None:
    room = Room()
    leader, other = room.stable("a", "b")
    waits = room.join(leader.member_id)
    room.world.pass_ms(10_000)
    assert [each.member_id for each in waits.join.members] == [leader.member_id]
    assert room.beat(other) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_join_again_in_time_is_out() -> None:
    room = Room()
    leader, other = room.stable("a", "b", session_timeout_ms=100_000)
    waits = room.join(leader.member_id, session_timeout_ms=100_000)
    room.world.pass_ms(60_000)
    assert waits.join.generation == 2
    assert room.beat(other) is ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_leader_does_not_come_back_another_one_leads() -> None:
    room = Room()
    leader, other = room.stable("a", "b", session_timeout_ms=100_000)
    room.enter("c", session_timeout_ms=100_000)
    waits = room.join(other.member_id, session_timeout_ms=100_000)
    room.world.pass_ms(60_000)
    assert waits.join.leader == other.member_id
    assert leader.member_id not in room.group.facts.roster.members


def test_a_member_that_waits_for_its_first_generation_is_out_after_five_minutes() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=0, new_member_timeout_ms=300_000))
    members = room.stable("a", session_timeout_ms=1_000_000, rebalance_timeout_ms=900_000)
    waits = room.enter("b")
    room.world.pass_ms(300_000)
    assert waits.join.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(room.group.facts.roster.members) == [members[0].member_id]


# ---- leaving


def test_when_all_have_left_the_group_is_empty_and_stored_as_such() -> None:
    room = Room()
    members = room.stable("a", "b")
    assert room.group.leave([(each.member_id, None) for each in members]) == [NONE, NONE]
    assert (room.group.facts.state, room.group.facts.generation) == (GroupState.EMPTY, 2)
    assert room.world.stored[-1] == GroupValue("consumer", 2, None, None, room.world.now_ms())
    assert room.world.waiting == 0


def test_each_that_leaves_is_told_what_became_of_it() -> None:
    room = Room()
    (one,) = room.stable("a")
    pending = room.join(client_id="b").join.member_id
    gone = room.group.leave([("x", None), (pending, None), (one.member_id, "no-instance"), ("", "nobody"), ("", None)])
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert gone == [unknown, NONE, unknown, unknown, unknown]


def test_who_leaves_while_it_waits_is_answered() -> None:
    room = Room()
    leader, other = room.stable("a", "b")
    waits = room.join(leader.member_id)
    room.group.leave([(leader.member_id, None)])
    assert waits.join.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.join(other.member_id).join.generation == 2


def test_an_empty_group_begins_again_with_the_next_generation() -> None:
    room = Room()
    (one,) = room.stable("a")
    room.group.leave([(one.member_id, None)])
    (two,) = room.stable("b")
    assert two.generation == 3


# ---- joining again


def test_a_member_that_missed_the_answer_gets_it_again() -> None:
    room = Room()
    leader, other = room.stable("a", "b")
    again = room.join(other.member_id).join
    assert (again.error, again.generation, again.members) == (NONE, leader.generation, ())
    assert room.group.facts.state is GroupState.STABLE


def test_a_leader_that_joins_again_begins_a_rebalance() -> None:
    room = Room()
    leader, _ = room.stable("a", "b")
    assert not room.join(leader.member_id).is_answered
    assert room.group.facts.state is GroupState.PREPARING


def test_a_member_with_another_subscription_begins_a_rebalance() -> None:
    room = Room()
    _, other = room.stable("a", "b")
    room.join(other.member_id, protocols=(("range", subscription("clicks")),))
    assert room.group.facts.state is GroupState.PREPARING


def test_a_request_that_is_sent_twice_is_answered_twice() -> None:
    room = Room()
    leader, other = room.stable("a", "b")
    lost, heard = room.join(leader.member_id), room.join(leader.member_id)
    room.join(other.member_id)
    assert lost.join.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert heard.join.error is NONE


# ---- commits


def test_who_may_commit_and_when() -> None:
    room = Room()
    assert fault(room, "", -1) is None
    (one,) = room.stable("a")
    assert fault(room, one.member_id, one.generation) is None
    assert fault(room, one.member_id, 9) is ErrorCode.ILLEGAL_GENERATION
    assert fault(room, "x", one.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fault(room, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fault(room, "", -1, transactional=True) is None
    room.enter("b")
    assert fault(room, one.member_id, one.generation) is None  # what it read before the rebalance
    again = room.join(one.member_id).join
    assert room.group.facts.state is GroupState.COMPLETING
    assert fault(room, again.member_id, again.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert fault(room, again.member_id, again.generation, transactional=True) is None


def fault(room: Room, member_id: str, generation: int, *, transactional: bool = False) -> ErrorCode | None:
    return room.group.facts.commit_fault(member_id, None, generation, transactional=transactional)


def test_a_group_knows_what_its_consumers_subscribe_to() -> None:
    room = Room()
    members = room.stable("a")
    assert room.group.facts.subscribes("orders")
    assert not room.group.facts.subscribes("clicks")
    room.group.leave([(members[0].member_id, None)])
    assert not room.group.facts.subscribes("orders")


def test_where_a_subscription_cannot_be_read_consumers_may_read_anything() -> None:
    room = Room()
    room.stable("a", protocols=(("range", b"\0"),))
    assert room.group.facts.subscribes("clicks")
    assert subscribed_topics(b"\0\0\0\0\0\1\0\x09abc") is None
    assert subscribed_topics(subscription("a", "b")) == {"a", "b"}


# ---- restarts and the end


def test_a_restored_group_has_its_members_whose_sessions_begin_anew() -> None:
    room = Room()
    leader, other = room.stable("a", "b")
    restored = Group.restored("g", room.world.stored[-1], room.world, room.settings)
    room.world.pass_ms(100_000)
    assert room.group.facts.state is GroupState.EMPTY
    restored.wake()
    assert restored.heartbeat(leader.member_id, None, 1) is NONE
    assert (restored.facts.state, restored.facts.roster.leader, restored.facts.topics) == (
        GroupState.STABLE,
        leader.member_id,
        {"orders"},
    )
    room.world.pass_ms(10_000)
    assert restored.heartbeat(other.member_id, None, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_old_brokers_stored_have_the_timeout_of_their_session_to_rebalance() -> None:
    room = Room()
    member = MemberValue("m", "c", "h", 6_000, -1, None, RANGE[0][1])
    restored = Group.restored("g", GroupValue("consumer", 4, "range", "gone", -1, (member,)), room.world, room.settings)
    assert restored.facts.roster.leader == "m"
    assert restored.facts.roster.rebalance_timeout_ms() == 6_000


def test_when_a_group_ends_all_who_wait_are_answered_and_no_timer_is_left() -> None:
    room = Room()
    leader, other = room.stable("a", "b")
    waits = room.join(leader.member_id)
    room.join(client_id="c")
    room.group.die()
    assert waits.join.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.world.waiting == 0
    assert room.beat(other) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.join(other.member_id).join.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.sync(other).sync.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fault(room, other.member_id, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
