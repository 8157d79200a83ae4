"""MemberBytes: what all groups keep of members in memory, and how much that may be.

A broker has no such bound: what members say is kept until their sessions end.
"""

from __future__ import annotations

from typing import Final

from server.groups.classic.member import JoinRequest, Member, Protocols

_MEMBER: Final = 1024
"""What a member takes with empty fields."""
_PROTOCOL: Final = 128


class MemberBytes:
    """The bytes of all members, and of ids that were given to clients; `most` is what they may be together."""

    def __init__(self, most: int) -> None:
        self.most, self.total = most, 0

    def has_room(self, more: int) -> bool:
        """Return whether so many more bytes may be kept; fewer than now always may."""
        return more <= 0 or self.total + more <= self.most

    def charge(self, member: Member) -> None:
        """Count a member as large as it is by now."""
        size = bytes_of(member) + len(member.assignment)
        self.total += size - member.charged
        member.charged = size

    def release(self, member: Member) -> None:
        """Count a member no longer."""
        self.total -= member.charged
        member.charged = 0

    def reserve(self, member_id: str) -> None:
        """Count an id that a client was given."""
        self.total += _MEMBER + len(member_id)

    def forget(self, member_id: str) -> None:
        """Count such an id no longer."""
        self.total -= _MEMBER + len(member_id)


def bytes_of(member: Member | JoinRequest) -> int:
    """Return what is kept of a member, or of one that asks to join, without its assignment."""
    protocols: Protocols = member.protocols
    texts = (member.member_id, member.instance_id or "", member.client_id, member.protocol_type)
    return _MEMBER + sum(map(len, texts)) + sum(_PROTOCOL + len(name) + len(data) for name, data in protocols)
