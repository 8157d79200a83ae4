"""Requests of members, their answers, and what a group keeps of each member."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from server.api.clock import Handle
from server.api.errors import ErrorCode
from server.groups.format.records import MemberValue

CONSUMER: Final = "consumer"
"""The protocol type of members that share out topics among one another."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names of assignors with the metadata of the member for each, in its order of preference."""


class JoinRequest(NamedTuple):
    """A JoinGroup request; timeouts in ms. `member_id` is empty for one that has none yet."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool = True
    """Whether the first request only gets an id, as from version 4 on."""
    can_skip_assignment: bool = True
    """Whether a leader that came back understands that nothing is to be assigned, as from version 9 on."""


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """The answer to a JoinGroup request; `members` is for the leader alone."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A SyncGroup request; `assignments` (by member id) come from the leader."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class SyncAnswer(NamedTuple):
    """The answer to a SyncGroup request."""

    error: ErrorCode = ErrorCode.NONE
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(slots=True, eq=False)
class Member:
    """One member. `awaits_join` and `awaits_sync` are where its answer goes while it waits for one."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaits_join: Callable[[JoinAnswer], None] | None = None
    awaits_sync: Callable[[SyncAnswer], None] | None = None
    is_new: bool = False
    """Whether it has never been in a generation: then it may expire while it waits."""
    timer: Handle | None = None
    charged: int = 0
    """The bytes that `MemberBytes` counts for it."""

    @classmethod
    def of(cls, request: JoinRequest, member_id: str, answer: Callable[[JoinAnswer], None]) -> Member:
        """Return a member that has just asked to join, and waits for the answer."""
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            request.protocols,
            awaits_join=answer,
            is_new=True,
        )

    @classmethod
    def restored(cls, value: MemberValue, protocol_type: str, protocol: str | None) -> Member:
        """Return a member as it was stored; without a rebalance timeout it has that of its session."""
        timeout = value.session_timeout_ms if value.rebalance_timeout_ms == -1 else value.rebalance_timeout_ms
        return cls(
            value.member_id,
            value.instance_id,
            value.client_id,
            value.client_host,
            value.session_timeout_ms,
            timeout,
            protocol_type,
            ((protocol or "", value.subscription),),
            value.assignment,
        )

    def stored(self, protocol: str | None, assignment: bytes) -> MemberValue:
        """Return how it is stored with what the leader assigned to it."""
        return MemberValue(
            self.member_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.instance_id,
            self.metadata(protocol),
            assignment,
        )

    def renamed(self, member_id: str) -> Member:
        """Return the same member under another id; it waits for nothing and has no session yet."""
        return replace(self, member_id=member_id, awaits_join=None, awaits_sync=None, is_new=False, timer=None)

    def metadata(self, protocol: str | None) -> bytes:
        """Return its metadata for a protocol; empty for one that it does not have."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that it prefers; it has at least one of them."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def is_alive(self) -> bool:
        """Whether it needs no heartbeat now, because it waits for us."""
        return not self.is_new and (self.awaits_join is not None or self.awaits_sync is not None)

    def ask_again(self, request: JoinRequest, answer: Callable[[JoinAnswer], None]) -> None:
        """Take what a newer request to join says, and wait for its answer."""
        self.answer_join(JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, self.member_id))  # of a lost connection
        self.protocols = request.protocols
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
        self.awaits_join = answer

    def answer_join(self, answer: JoinAnswer) -> None:
        """Answer its request to join, if it waits for one."""
        waiting, self.awaits_join = self.awaits_join, None
        if waiting is not None:
            waiting(answer)

    def answer_sync(self, answer: SyncAnswer) -> None:
        """Answer its request for an assignment, if it waits for one."""
        waiting, self.awaits_sync = self.awaits_sync, None
        if waiting is not None:
            waiting(answer)

    def dismiss(self, error: ErrorCode) -> None:
        """Answer its open requests with an error, and end its session."""
        self.stop_timer()
        self.answer_join(JoinAnswer(error))
        self.answer_sync(SyncAnswer(error))

    def stop_timer(self) -> None:
        """End its session without a timeout."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in a consumer's subscription; None where it cannot be read.

    All versions begin as version 0 does. Source: Apache Kafka 4.3.0, ConsumerProtocolSubscription.
    """
    try:
        _, count = struct.unpack_from(">hi", metadata)
        position, topics = 6, set()
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            name = metadata[position + 2 : position + 2 + size]
            if size < 0 or len(name) != size:
                return None
            topics.add(name.decode())
            position += 2 + size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
