"""Group: what the members of one group of the classic protocol ask, and what they are answered.

No sockets, no threads, no clock of its own: `World` gives the time, makes calls later, draws ids and stores. Answers go
to the callbacks that came with the requests, each exactly once. The group changes at once; what must be in the log
first (an assignment, a static member that came back) is answered when `World.store` reports that it counts.

Source: Apache Kafka 4.3.0, GroupMetadataManager (the classic half), ClassicGroup, ClassicGroupMember.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from server.api.errors import ErrorCode
from server.groups.classic.facts import GroupFacts
from server.groups.classic.member import JoinAnswer, JoinRequest, Member, SyncAnswer, SyncRequest
from server.groups.classic.rebalance import AFTER_JOIN, Rebalance
from server.groups.classic.world import GroupSettings, GroupState, Identity, World
from server.groups.format.records import GroupValue


class Group:
    """A group: requests of members, `facts` for readers, and a `Rebalance` for everything that follows."""

    def __init__(self, facts: GroupFacts, world: World, settings: GroupSettings) -> None:
        self.facts, self._world, self._settings = facts, world, settings
        self._rebalance = Rebalance(facts, world, settings)
        self._sessions = self._rebalance.sessions

    @classmethod
    def new(cls, group_id: str, world: World, settings: GroupSettings) -> Group:
        """Return an empty group."""
        return cls(GroupFacts(group_id, world.now_ms()), world, settings)

    @classmethod
    def restored(cls, group_id: str, value: GroupValue, world: World, settings: GroupSettings) -> Group:
        """Return a group as the log has it; the sessions of its members begin at `wake`."""
        return cls(GroupFacts.restored(group_id, value), world, settings)

    def wake(self) -> None:
        """Begin the sessions of members that were restored; a group that is too large by now rebalances."""
        for member in self.facts.roster:
            self._sessions.extend(member)
            self._world.kept.charge(member)
        if len(self.facts.roster) > self._settings.max_size:
            self._rebalance.prepare()

    def join(self, request: JoinRequest, answer: Callable[[JoinAnswer], None]) -> None:
        """Take a member in, give one an id, or answer with the generation that it is in already."""
        facts = self.facts
        if facts.state is GroupState.DEAD:
            answer(JoinAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id))
        elif not facts.has_room(request.member_id, self._settings.max_size):
            self._rebalance.remove(request.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
            answer(JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
            self._rebalance.complete_if_all_are_in()  # a broker lets the others wait for the rebalance timeout
        elif not facts.supports(request):
            answer(JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif not request.member_id:
            self._join_new(request, answer)
        elif self._sessions.is_reserved(request.member_id) and request.instance_id is None:
            self._rebalance.add(Member.of(request, request.member_id, answer))
        elif error := facts.roster.fault(request.member_id, request.instance_id):
            answer(JoinAnswer(error, request.member_id))
        else:
            self._join_again(request, facts.roster.members[request.member_id], answer)

    def sync(self, request: SyncRequest, answer: Callable[[SyncAnswer], None]) -> None:
        """Answer with the assignment of a member, once the leader has brought it."""
        if error := self.facts.sync_fault(request):
            answer(SyncAnswer(error))
            return
        member = self.facts.roster.members[request.member_id]
        if self.facts.state is GroupState.STABLE:
            self._rebalance.syncs.synced(request.member_id)
            answer(self.facts.synced(member))
        else:
            member.answer_sync(SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))  # an earlier request, of a lost connection
            member.awaits_sync = answer
            self._rebalance.syncs.synced(request.member_id)
            if request.member_id == self.facts.roster.leader:
                self._rebalance.store_assignment(request.assignments)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Begin the session of a member again; return whether it must join again."""
        if self.facts.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.facts.member_fault(member_id, instance_id, generation):
            return error
        self._sessions.extend(self.facts.roster.members[member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if self.facts.state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, identities: Iterable[Identity]) -> list[ErrorCode]:
        """Take members out, of which some may be known by their instance id alone; return an error code for each."""
        answers = [self._leave_one(*identity) for identity in identities]
        if ErrorCode.NONE in answers:
            if self.facts.state in AFTER_JOIN:
                self._rebalance.request()
            else:
                self._rebalance.complete_if_all_are_in()
        return answers

    def saw(self, member_id: str) -> None:
        """Take a commit for a heartbeat."""
        member = self.facts.roster.members.get(member_id)
        if member is not None and self.facts.state is not GroupState.COMPLETING:
            self._sessions.extend(member)

    def die(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """End: every waiting client is answered, no timer is left."""
        self._rebalance.die()
        for member in self.facts.roster:
            self._world.kept.release(member)
            member.dismiss(error)

    def kept_of(self, request: JoinRequest) -> int:
        """Return the bytes that are kept already of the one that asks to join."""
        member_id = request.member_id or self.facts.roster.static.get(request.instance_id or "", "")
        member = self.facts.roster.members.get(member_id)
        return 0 if member is None else member.charged

    def abandon(self, answer: Callable[[JoinAnswer], None]) -> None:
        """Take out the new member whose request to join had this `answer`: its connection is gone before there was one.

        A member that has been in a generation stays until its session ends.
        """
        for member in self.facts.roster:
            if member.awaits_join is answer and member.is_new:
                self._rebalance.remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
                self._rebalance.complete_if_all_are_in()

    def _join_new(self, request: JoinRequest, answer: Callable[[JoinAnswer], None]) -> None:
        name = request.client_id if request.instance_id is None else request.instance_id
        member_id = f"{name}-{self._world.new_id()}"
        if request.instance_id in self.facts.roster.static:
            self._replace_static(request, member_id, answer)
        elif request.instance_id is not None or not request.needs_known_id:
            self._rebalance.add(Member.of(request, member_id, answer))
        else:
            self._sessions.reserve(member_id, request.session_timeout_ms)
            answer(JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _join_again(self, request: JoinRequest, member: Member, answer: Callable[[JoinAnswer], None]) -> None:
        has_news = request.protocols != member.protocols
        if self.facts.state is GroupState.STABLE:
            has_news = has_news or member.member_id == self.facts.roster.leader
        if has_news or self.facts.state is GroupState.PREPARING:
            member.ask_again(request, answer)
            self._world.kept.charge(member)
            self._rebalance.request()
        else:  # the answer was lost, or the rebalance that it joins is over
            answer(self.facts.joined(member))

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id:
            member_id = self.facts.roster.static.get(instance_id or "", "") if instance_id is not None else ""
        elif self._sessions.is_reserved(member_id):
            self._sessions.release(member_id)
            return ErrorCode.NONE
        if error := self.facts.roster.fault(member_id, instance_id):
            return error
        self._rebalance.remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return ErrorCode.NONE

    # Static members that come back

    def _replace_static(self, request: JoinRequest, member_id: str, answer: Callable[[JoinAnswer], None]) -> None:
        """Give a static member that came back the place, and the assignment, of its former self."""
        facts = self.facts
        leader, old = facts.roster.leader, self._rename(request.instance_id or "", member_id)
        member = facts.roster.members[member_id]
        member.ask_again(request, answer)
        self._world.kept.charge(member)
        self._sessions.extend(member)
        if facts.state is GroupState.COMPLETING:
            self._rebalance.prepare()
        elif facts.state is not GroupState.STABLE:
            self._rebalance.complete_if_all_are_in()
        elif facts.roster.elect_protocol() != facts.protocol:
            self._rebalance.request()
        else:

            def done(error: ErrorCode) -> None:
                if error:
                    self._undo_return(old, error)
                elif member.awaits_join is not None:
                    member.answer_join(self._returned(request, member, leader))
                    self._sessions.extend(member)

            assignments = {member.member_id: member.assignment for member in facts.roster}
            self._world.store(facts.group_id, facts.value(assignments), done)

    def _rename(self, instance_id: str, member_id: str) -> Member:
        """Give the member of an instance another id, and fence the former one, which is returned."""
        old = self.facts.roster.rename(instance_id, member_id)
        self._rebalance.syncs.missing.discard(old.member_id)
        old.dismiss(ErrorCode.FENCED_INSTANCE_ID)
        return old

    def _returned(self, request: JoinRequest, member: Member, leader: str | None) -> JoinAnswer:
        """Return the answer to a static member that came back to a stable group, now that it is stored."""
        answer = self.facts.joined(member)
        if not request.can_skip_assignment:  # with the former leader's id it does not take itself for the leader
            return answer._replace(leader=leader or "", members=())
        return answer._replace(skip_assignment=member.member_id == self.facts.roster.leader)

    def _undo_return(self, old: Member, error: ErrorCode) -> None:
        """Give a static member its former id back, because the new one could not be stored."""
        roster = self.facts.roster
        current = roster.members.get(roster.static.get(old.instance_id or "", ""))
        if self.facts.state is GroupState.DEAD or current is None:
            return
        current.answer_join(JoinAnswer(error))
        current.protocols = old.protocols
        current.session_timeout_ms, current.rebalance_timeout_ms = old.session_timeout_ms, old.rebalance_timeout_ms
        self._rename(old.instance_id or "", old.member_id)
        self._sessions.extend(roster.members[old.member_id])
        self._world.kept.charge(roster.members[old.member_id])
