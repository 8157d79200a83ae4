"""The members of a group by id and by instance, the leader, and the protocols that they share.

Source: Apache Kafka 4.3.0, ClassicGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from server.api.errors import ErrorCode
from server.groups.classic.member import CONSUMER, JoinedMember, JoinRequest, Member, subscribed_topics
from server.groups.format.records import GroupValue


class Roster:
    """The members in the order they came. The leader is one of them whenever there are any."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Member id of each instance id."""
        self.leader: str | None = None
        self.protocol_type: str | None = None

    @classmethod
    def restored(cls, value: GroupValue) -> Roster:
        """Return the members that the log has."""
        roster = cls()
        roster.protocol_type, roster.leader = value.protocol_type or None, value.leader
        for stored in value.members:
            member = Member.restored(stored, value.protocol_type, value.protocol)
            roster.members[member.member_id] = member
            if member.instance_id is not None:
                roster.static[member.instance_id] = member.member_id
        if roster.leader not in roster.members:
            roster.leader = next(iter(roster.members), None)
        return roster

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        """Yield the members of now; they may be removed meanwhile."""
        return iter(tuple(self.members.values()))

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads and says what kind of group it is."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member and return it, None if it is unknown; another one leads if it did."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, instance_id: str, member_id: str) -> Member:
        """Give the member of an instance another id and nothing to wait for; return the former one."""
        old = self.members.pop(self.static[instance_id])
        self.members[member_id] = old.renamed(member_id)
        self.static[instance_id] = member_id
        if self.leader == old.member_id:
            self.leader = member_id
        return old

    def fault(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Return why a client is not the member that it names; None if it is."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, request: JoinRequest) -> bool:
        """Return whether all members and this one have a protocol in common."""
        counts = self._counts()
        return request.protocol_type == self.protocol_type and any(
            counts[name] == len(self.members) for name, _ in request.protocols
        )

    def elect_protocol(self) -> str:
        """Return the protocol that all members have and most of them like best."""
        candidates = {name for name, count in self._counts().items() if count == len(self.members)}
        return Counter(member.vote(candidates) for member in self.members.values()).most_common(1)[0][0]

    def elect_leader(self) -> bool:
        """Make a member that waits to have joined the leader; return False if none waits."""
        came = [member.member_id for member in self.members.values() if member.awaits_join is not None]
        if came and self.leader not in came:
            self.leader = came[0]
        return bool(came)

    def waiting(self) -> int:
        """Return the number of members that wait to have joined."""
        return sum(member.awaits_join is not None for member in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        """Return how long the slowest of them may take to join again."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def described(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """Return the members as the leader sees them."""
        return tuple(
            JoinedMember(each.member_id, each.instance_id, each.metadata(protocol)) for each in self.members.values()
        )

    def topics(self, protocol: str | None) -> frozenset[str] | None:
        """Return the topics they subscribe to under a protocol; None where that is not known."""
        if self.protocol_type != CONSUMER or (self.members and protocol is None):
            return None
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata(protocol))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    def _counts(self) -> Counter[str]:
        return Counter(name for member in self.members.values() for name, _ in member.protocols)
