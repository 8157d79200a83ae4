"""GroupFacts: the state of a group as a value that others ask: state, generation, protocol, members.

Nothing here waits, answers or stores. Source: Apache Kafka 4.3.0, ClassicGroup.
"""

from __future__ import annotations

from server.api.errors import ErrorCode
from server.groups.classic.member import CONSUMER, JoinAnswer, JoinRequest, Member, SyncAnswer, SyncRequest
from server.groups.classic.roster import Roster
from server.groups.classic.world import GroupState
from server.groups.format.records import GroupValue


class GroupFacts:
    """A new group is empty; `now_ms` is the time of its state."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = self.previous = GroupState.EMPTY
        self.state_timestamp = now_ms
        self.generation = 0
        self.protocol: str | None = None
        self.roster = Roster()
        self.topics: frozenset[str] | None = None
        """Topics that the members subscribe to; None where that is not known."""

    @classmethod
    def restored(cls, group_id: str, value: GroupValue) -> GroupFacts:
        """Return a group as the log has it: stable if it has members."""
        facts = cls(group_id, value.state_timestamp)
        facts.generation, facts.protocol = value.generation, value.protocol
        facts.roster = Roster.restored(value)
        facts.topics = facts.roster.topics(value.protocol)
        if facts.roster.members:
            facts.state = GroupState.STABLE
        return facts

    def enter(self, state: GroupState, now_ms: int) -> None:
        """Change the state."""
        self.previous, self.state = self.state, state
        self.state_timestamp = now_ms

    def begin_generation(self) -> None:
        """Count the generation up, with the protocol that its members agree on."""
        self.generation += 1
        self.protocol = self.roster.elect_protocol() if self.roster.members else None
        self.topics = self.roster.topics(self.protocol)

    def value(self, assignments: dict[str, bytes]) -> GroupValue:
        """Return the group as it is stored, with the assignments by member id."""
        return GroupValue(
            self.roster.protocol_type or "",
            self.generation,
            self.protocol,
            self.roster.leader,
            self.state_timestamp,
            tuple(
                member.stored(self.protocol, assignments.get(member_id, b""))
                for member_id, member in self.roster.members.items()
            ),
        )

    # What a request may do

    def member_fault(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode | None:
        """Return why a client is not the member that it names, or not in this generation; None if it is."""
        is_current = generation == self.generation
        return self.roster.fault(member_id, instance_id) or (None if is_current else ErrorCode.ILLEGAL_GENERATION)

    def sync_fault(self, request: SyncRequest) -> ErrorCode | None:
        """Return why a SyncGroup request is refused; None if it is not."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.member_fault(request.member_id, request.instance_id, request.generation):
            return error
        if not (_agree(request.protocol_type, self.roster.protocol_type) and _agree(request.protocol, self.protocol)):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else None

    def commit_fault(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
    ) -> ErrorCode | None:
        """Return why a client, member or not, may not commit offsets now; None if it may."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return None
        if generation >= 0 or member_id or instance_id is not None:
            if error := self.member_fault(member_id, instance_id, generation):
                return error
        elif not transactional and self.state is not GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.state is GroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return None

    def has_room(self, member_id: str, limit: int) -> bool:
        """Return whether a member may join a group of at most `limit` members."""
        if self.state is GroupState.EMPTY:
            return True
        member = self.roster.members.get(member_id)
        if self.state is GroupState.PREPARING:
            return (member is not None and member.awaits_join is not None) or self.roster.waiting() < limit
        return member is not None or len(self.roster) < limit

    def supports(self, request: JoinRequest) -> bool:
        """Return whether the members and the one that asks to join share a protocol."""
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return self.roster.supports(request)

    # What a member or an operator sees

    def joined(self, member: Member) -> JoinAnswer:
        """Return the answer to a member that has joined; the leader gets the list of members."""
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

    def synced(self, member: Member) -> SyncAnswer:
        """Return the answer to a member that has its assignment."""
        return SyncAnswer(ErrorCode.NONE, member.assignment, self.roster.protocol_type, self.protocol)

    def subscribes(self, topic: str) -> bool:
        """Return whether members may be reading a topic; true where consumers' subscriptions cannot be read."""
        return self.is_of_consumers if self.topics is None else topic in self.topics

    @property
    def is_of_consumers(self) -> bool:
        """Whether the members are consumers that share out topics."""
        return self.roster.protocol_type == CONSUMER


def _agree(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other
