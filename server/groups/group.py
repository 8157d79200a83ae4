"""The state machine of one group of the classic protocol: who is in, which generation, who leads, who waits for what.

No sockets, no threads, no clock of its own: `World` gives the time, makes calls later, draws ids and stores. Answers go
to the callbacks that came with the requests, each exactly once. What is in a `Group` changes at once; what has to be in
the log first (an assignment, a static member that came back) is answered when `World.store` says that it counts.

    EMPTY -> PREPARING (members come in) -> COMPLETING (leader assigns) -> STABLE -> PREPARING ... ; DEAD from any

Source: Apache Kafka 4.3.0, GroupMetadataManager (the classic half), ClassicGroup, ClassicGroupMember.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from server.api.clock import Handle
from server.api.errors import ErrorCode
from server.groups.member import (
    CONSUMER,
    JoinAnswer,
    JoinRequest,
    Member,
    SyncAnswer,
    SyncRequest,
)
from server.groups.records import GroupValue
from server.groups.roster import Roster
from server.groups.world import GroupSettings, GroupState, Identity, World

_CAN_REBALANCE: Final = frozenset((GroupState.STABLE, GroupState.COMPLETING, GroupState.EMPTY))
_AFTER_SYNC: Final = frozenset((GroupState.STABLE, GroupState.COMPLETING))


class Group:
    """See the module."""

    def __init__(self, group_id: str, world: World, settings: GroupSettings) -> None:
        self.group_id, self._world, self._settings = group_id, world, settings
        self.state = self._previous = GroupState.EMPTY
        self.state_timestamp = world.now_ms()
        self.generation = 0
        self.protocol: str | None = None
        self.roster = Roster()
        self.topics: frozenset[str] | None = None
        """What the members subscribe to, where that is known."""
        self._pending: dict[str, Handle] = {}
        """Members that were given an id and have not come back with it."""
        self._pending_sync: set[str] = set()
        self._was_joined = False
        self._join_timer: Handle | None = None
        self._sync_timer: Handle | None = None

    @classmethod
    def restored(cls, group_id: str, value: GroupValue, world: World, settings: GroupSettings) -> Group:
        """Return a group as the log has it: stable where it has members, whose sessions begin anew at `wake`."""
        group = cls(group_id, world, settings)
        group.generation, group.state_timestamp, group.protocol = (
            value.generation,
            value.state_timestamp,
            value.protocol,
        )
        group.roster = Roster.restored(value)
        group.topics = group.roster.topics(value.protocol)
        if group.roster.members:
            group.state = GroupState.STABLE
        return group

    def wake(self) -> None:
        """Begin the sessions of members that were restored; a group that is too large by now rebalances."""
        for member in self.roster:
            self._expect(member)
        if len(self.roster) > self._settings.max_size:
            self._prepare()

    # What is asked of it

    def join(self, request: JoinRequest, answer: Callable[[JoinAnswer], None]) -> None:
        """Take a member in, give one an id, or tell one the generation that there is already."""
        if self.state is GroupState.DEAD:
            answer(JoinAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id))
        elif not self._has_room(request.member_id):
            self._remove(request.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
            answer(JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
            self._complete_if_all_are_in()  # a broker lets the others wait for the rebalance timeout
        elif not self._supports(request):
            answer(JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif not request.member_id:
            self._join_new(request, answer)
        elif request.member_id in self._pending and request.instance_id is None:
            self._add(request, request.member_id, answer)
        elif error := self.roster.fault(request.member_id, request.instance_id):
            answer(JoinAnswer(error, request.member_id))
        else:
            self._join_again(request, self.roster.members[request.member_id], answer)

    def sync(self, request: SyncRequest, answer: Callable[[SyncAnswer], None]) -> None:
        """Tell a member its assignment, once the leader has brought it."""
        if error := self._sync_fault(request):
            answer(SyncAnswer(error))
        elif self.state is GroupState.STABLE:
            self._has_synced(request.member_id)
            answer(self._assignment_of(self.roster.members[request.member_id]))
        else:
            member = self.roster.members[request.member_id]
            member.answer_sync(SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))  # an earlier request, of a lost connection
            member.awaits_sync = answer
            self._has_synced(request.member_id)
            if request.member_id == self.roster.leader:
                self._store_assignment(request.assignments)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return how things stand for a member, whose session begins anew."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.roster.fault(member_id, instance_id) or self._other_generation(generation):
            return error
        self._expect(self.roster.members[member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, identities: Iterable[Identity]) -> list[ErrorCode]:
        """Let members go, of which some may be known by their instance id alone; return what became of each."""
        answers = [self._leave_one(*identity) for identity in identities]
        if ErrorCode.NONE in answers:
            if self.state in _AFTER_SYNC:
                self._rebalance()
            else:
                self._complete_if_all_are_in()
        return answers

    def commit_fault(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
    ) -> ErrorCode | None:
        """Return why a member, or somebody who is none, may not commit offsets now; None: it may."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return None
        if generation >= 0 or member_id or instance_id is not None:
            if error := self.roster.fault(member_id, instance_id) or self._other_generation(generation):
                return error
        elif not transactional and self.state is not GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.state is GroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return None

    def saw(self, member_id: str) -> None:
        """Take a commit for a heartbeat."""
        if (member := self.roster.members.get(member_id)) is not None and self.state is not GroupState.COMPLETING:
            self._expect(member)

    def subscribes(self, topic: str) -> bool:
        """Tell whether members may be reading a topic; yes where consumers' subscriptions cannot be read."""
        return self.is_of_consumers if self.topics is None else topic in self.topics

    @property
    def is_of_consumers(self) -> bool:
        """Whether its members are consumers that share out topics."""
        return self.roster.protocol_type == CONSUMER

    def die(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """End: all who wait are answered, no timer is left."""
        self._enter(GroupState.DEAD)
        for handle in (*self._pending.values(), self._join_timer, self._sync_timer):
            if handle is not None:
                handle.cancel()
        self._pending.clear()
        for member in self.roster:
            member.dismiss(error)

    def value(self, assignments: dict[str, bytes]) -> GroupValue:
        """Return its state as it is stored, with what is assigned to whom."""
        return GroupValue(
            self.roster.protocol_type or "",
            self.generation,
            self.protocol,
            self.roster.leader,
            self.state_timestamp,
            tuple(
                member.stored(self.protocol, assignments.get(id_, b"")) for id_, member in self.roster.members.items()
            ),
        )

    # Joining

    def _join_new(self, request: JoinRequest, answer: Callable[[JoinAnswer], None]) -> None:
        name = request.client_id if request.instance_id is None else request.instance_id
        member_id = f"{name}-{self._world.new_id()}"
        if request.instance_id in self.roster.static:
            self._replace_static(request, member_id, answer)
        elif request.instance_id is not None or not request.needs_known_id:
            self._add(request, member_id, answer)
        else:
            self._pending[member_id] = self._world.call_later(
                request.session_timeout_ms, lambda: self._pending_expired(member_id)
            )
            answer(JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _join_again(self, request: JoinRequest, member: Member, answer: Callable[[JoinAnswer], None]) -> None:
        has_news = request.protocols != member.protocols
        if self.state is GroupState.STABLE:
            has_news = has_news or member.member_id == self.roster.leader
        if has_news or self.state is GroupState.PREPARING:
            self._update(member, request, answer)
            self._rebalance()
        else:  # the answer was lost, or it heard of a rebalance that is over
            answer(self._joined(member))

    def _add(self, request: JoinRequest, member_id: str, answer: Callable[[JoinAnswer], None]) -> None:
        self._forget_pending(member_id)
        member = Member.of(request, member_id)
        if self.state is GroupState.PREPARING and self._previous is GroupState.EMPTY:
            self._was_joined = True
        self.roster.add(member)
        member.awaits_join = answer
        self._expect(member, self._settings.new_member_timeout_ms)
        self._rebalance()

    def _update(self, member: Member, request: JoinRequest, answer: Callable[[JoinAnswer], None]) -> None:
        member.answer_join(JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))  # of a lost connection
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaits_join = answer

    def _replace_static(self, request: JoinRequest, member_id: str, answer: Callable[[JoinAnswer], None]) -> None:
        """Let a static member that came back take the place, and the assignment, of its former self."""
        leader, old = self.roster.leader, self._rename(request.instance_id or "", member_id)
        member = self.roster.members[member_id]
        self._update(member, request, answer)
        self._expect(member)
        if self.state is GroupState.COMPLETING:
            self._prepare()
        elif self.state is not GroupState.STABLE:
            self._complete_if_all_are_in()
        elif self.roster.elect_protocol() != self.protocol:
            self._rebalance()
        else:

            def done(error: ErrorCode) -> None:
                if error:
                    self._undo_return(old, error)
                elif member.awaits_join is not None:
                    member.answer_join(self._returned(request, member, leader))
                    self._expect(member)

            assignments = {each.member_id: each.assignment for each in self.roster}
            self._world.store(self.group_id, self.value(assignments), done)

    def _rename(self, instance_id: str, member_id: str) -> Member:
        """Give the member of an instance another id, and fence the former one, which is returned."""
        old = self.roster.rename(instance_id, member_id)
        self._pending_sync.discard(old.member_id)
        old.dismiss(ErrorCode.FENCED_INSTANCE_ID)
        return old

    def _returned(self, request: JoinRequest, member: Member, leader: str | None) -> JoinAnswer:
        """Return what a static member that came back to a stable group is told, now that it is stored."""
        answer = self._joined(member)
        if not request.can_skip_assignment:  # told the former leader's id, it does not take itself for the leader
            return answer._replace(leader=leader or "", members=())
        return answer._replace(skip_assignment=member.member_id == self.roster.leader)

    def _undo_return(self, old: Member, error: ErrorCode) -> None:
        """Give a static member its former id back, because the new one could not be stored."""
        current = self.roster.members.get(self.roster.static.get(old.instance_id or "", ""))
        if self.state is GroupState.DEAD or current is None:
            return
        current.answer_join(JoinAnswer(error))
        current.protocols = old.protocols
        current.session_timeout_ms, current.rebalance_timeout_ms = old.session_timeout_ms, old.rebalance_timeout_ms
        self._rename(old.instance_id or "", old.member_id)
        self._expect(self.roster.members[old.member_id])

    # Rebalancing

    def _rebalance(self) -> None:
        if self.state in _CAN_REBALANCE:
            self._prepare()
        else:
            self._complete_if_all_are_in()

    def _prepare(self) -> None:
        """Ask all members to join again: those that wait for an assignment now, the others at their next heartbeat."""
        if self.state is GroupState.COMPLETING:
            self._hand_out({}, ErrorCode.REBALANCE_IN_PROGRESS)
        self._end_sync_phase()
        is_first = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING)
        if is_first:
            delay = self._settings.initial_rebalance_delay_ms
            remaining = max(self.roster.rebalance_timeout_ms() - delay, 0)
            self._put_off_join(delay, lambda: self._first_members_came(delay, remaining))
        elif self._are_all_in():
            self._complete_join()
        else:
            self._put_off_join(self.roster.rebalance_timeout_ms(), self._complete_join)

    def _first_members_came(self, delay: int, remaining: int) -> None:
        """Wait on while new members keep coming, up to the rebalance timeout."""
        if self.state is not GroupState.PREPARING:
            return
        if self._was_joined and remaining:
            self._was_joined = False
            again = min(self._settings.initial_rebalance_delay_ms, remaining)
            left = max(remaining - delay, 0)
            self._put_off_join(again, lambda: self._first_members_came(again, left))
        else:
            self._complete_join()

    def _complete_if_all_are_in(self) -> None:
        if self.state is GroupState.PREPARING and self._previous is not GroupState.EMPTY and self._are_all_in():
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation with those who came; dynamic members that did not are out."""
        if self.state is not GroupState.PREPARING:
            return
        self._stop_join_timer()
        for member in [each for each in self.roster if each.awaits_join is None and each.instance_id is None]:
            self._remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if self.roster.members and not self.roster.elect_leader():
            # Only static members are left, and none of them came back.
            self._put_off_join(self.roster.rebalance_timeout_ms(), self._complete_join)
            return
        self.generation += 1
        self._pending_sync.clear()
        self.protocol = self.roster.elect_protocol() if self.roster.members else None
        self.topics = self.roster.topics(self.protocol)
        if not self.roster.members:
            self._enter(GroupState.EMPTY)
            self._world.store(self.group_id, self.value({}), lambda _: None)
            return
        self._enter(GroupState.COMPLETING)
        for member in self.roster:
            self._pending_sync.add(member.member_id)
            member.is_new = False
            self._expect(member)
            member.answer_join(self._joined(member))
        generation = self.generation
        self._sync_timer = self._world.call_later(
            self.roster.rebalance_timeout_ms(), lambda: self._sync_expired(generation)
        )

    # Assigning

    def _store_assignment(self, assignments: dict[str, bytes]) -> None:
        generation = self.generation

        def done(error: ErrorCode) -> None:
            if self.state is not GroupState.COMPLETING or self.generation != generation:
                return
            if error:
                self._hand_out({}, error)
                self._rebalance()
            else:
                self._hand_out(assignments, ErrorCode.NONE)
                self._enter(GroupState.STABLE)

        self._world.store(self.group_id, self.value(assignments), done)

    def _hand_out(self, assignments: dict[str, bytes], error: ErrorCode) -> None:
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
            if member.awaits_sync is not None:
                member.answer_sync(SyncAnswer(error) if error else self._assignment_of(member))
                self._expect(member)

    def _assignment_of(self, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, member.assignment, self.roster.protocol_type, self.protocol)

    def _has_synced(self, member_id: str) -> None:
        self._pending_sync.discard(member_id)
        if not self._pending_sync:
            self._end_sync_phase()

    def _end_sync_phase(self) -> None:
        self._pending_sync.clear()
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        self._sync_timer = None

    def _sync_expired(self, generation: int) -> None:
        """Go on without the members that joined and did not ask for their assignment."""
        if self.generation == generation and self.state in _AFTER_SYNC and self._pending_sync:
            for member_id in tuple(self._pending_sync):
                self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            self._prepare()

    # Sessions

    def _expect(self, member: Member, timeout_ms: int | None = None) -> None:
        member.stop_timer()
        delay = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.timer = self._world.call_later(delay, lambda: self._session_ended(member))

    def _session_ended(self, member: Member) -> None:
        if self.roster.members.get(member.member_id) is not member or member.is_alive:
            return
        self._remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state in _AFTER_SYNC:
            self._rebalance()
        elif self.state is GroupState.PREPARING and self._are_all_in():
            self._complete_join()

    def _pending_expired(self, member_id: str) -> None:
        if self._pending.pop(member_id, None) and self.state is GroupState.PREPARING and self._are_all_in():
            self._complete_join()

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id:
            member_id = self.roster.static.get(instance_id or "", "") if instance_id is not None else ""
        elif member_id in self._pending:
            self._forget_pending(member_id)
            return ErrorCode.NONE
        if error := self.roster.fault(member_id, instance_id):
            return error
        self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return ErrorCode.NONE

    def _remove(self, member_id: str, error: ErrorCode) -> None:
        self._forget_pending(member_id)
        if (member := self.roster.remove(member_id)) is not None:
            member.dismiss(error)

    def _forget_pending(self, member_id: str) -> None:
        if (handle := self._pending.pop(member_id, None)) is not None:
            handle.cancel()

    # Looking

    def _other_generation(self, generation: int) -> ErrorCode | None:
        return None if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def _sync_fault(self, request: SyncRequest) -> ErrorCode | None:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.roster.fault(request.member_id, request.instance_id)
        if error := error or self._other_generation(request.generation):
            return error
        if not (_agree(request.protocol_type, self.roster.protocol_type) and _agree(request.protocol, self.protocol)):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else None

    def _has_room(self, member_id: str) -> bool:
        if self.state is GroupState.EMPTY:
            return True
        member, limit = self.roster.members.get(member_id), self._settings.max_size
        if self.state is GroupState.PREPARING:
            return (member is not None and member.awaits_join is not None) or self.roster.waiting() < limit
        return member is not None or len(self.roster) < limit

    def _supports(self, request: JoinRequest) -> bool:
        """Return whether the group can still have one protocol with this member in it."""
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return self.roster.supports(request)

    def _joined(self, member: Member) -> JoinAnswer:
        """Return the answer to one that is in; the leader is told of all members."""
        is_leader = member.member_id == self.roster.leader
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.roster.protocol_type,
            self.protocol,
            self.roster.leader or "",
            self.roster.described(self.protocol) if is_leader else (),
        )

    def _are_all_in(self) -> bool:
        return not self._pending and self.roster.waiting() == len(self.roster)

    def _enter(self, state: GroupState) -> None:
        self._previous, self.state = self.state, state
        self.state_timestamp = self._world.now_ms()

    def _put_off_join(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._stop_join_timer()
        self._join_timer = self._world.call_later(delay_ms, callback)

    def _stop_join_timer(self) -> None:
        if self._join_timer is not None:
            self._join_timer.cancel()
        self._join_timer = None


def _agree(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other
