"""Shard: the groups of one partition of `__consumer_offsets`, and the way of their records into its log.

Protocol: made while its partition is read, `open` once, `close` once. For the thread of the listener's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from engine.settings.identity import draw_id
from server.api.clock import Handle, Timers
from server.api.errors import ErrorCode, code_of
from server.groups.classic.group import Group
from server.groups.classic.kept import MemberBytes
from server.groups.format.records import (
    GroupKey,
    GroupValue,
    Key,
    NewerKey,
    OffsetKey,
    OffsetValue,
    Protocol,
    encode_group,
    encode_key,
    encode_offset,
)
from server.groups.image import Image
from server.groups.settings import CoordinatorSettings
from server.store.store import Store
from storage.base.errors import LogmendError
from storage.base.units import TopicPartition
from storage.batch.batch import TRANSACTIONAL_BIT
from storage.batch.record import Record, encode_batch
from storage.log.log_types import Appended
from storage.producers.producers import Origin

Change: TypeAlias = tuple[Key, OffsetValue | GroupValue | None]
"""A record to write: its key, and its value or None for a tombstone."""


class NotStored(LogmendError):
    """A change could not be written; `code` is the answer to the client."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class Shard:
    """One partition: its image, its groups, and the `World` that they call."""

    def __init__(
        self, name: TopicPartition, store: Store, timers: Timers, settings: CoordinatorSettings, kept: MemberBytes
    ) -> None:
        self.name, self._store, self._timers, self.settings, self.kept = name, store, timers, settings, kept
        self.image = Image()
        self.groups: dict[str, Group] = {}
        self.fault: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """Why it does not answer; None once it does."""
        self._opened_ms = 0

    def open(self, image: Image) -> None:
        """Begin to answer, with the image of the log."""
        self.image, self._opened_ms = image, self.now_ms()
        for group_id, value in image.groups.items():
            self.groups[group_id] = Group.restored(group_id, value, self, self.settings.group)
        image.groups.clear()
        self.fault = None
        if not self._store.is_read_only:
            for group in tuple(self.groups.values()):
                group.wake()

    def close(self) -> None:
        """Answer every client that waits; later requests are refused."""
        self.fault = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for group in self.groups.values():
            group.die()
        self.groups.clear()

    # The `World` of groups

    def now_ms(self) -> int:
        return self._timers.now_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Handle:
        return self._timers.call_later(delay_ms, callback)

    def new_id(self) -> str:
        drawn = draw_id().hex()
        return "-".join(drawn[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))

    def store(self, group_id: str, value: GroupValue, done: Callable[[ErrorCode], None]) -> None:
        def report(written: asyncio.Future[None]) -> None:
            error = written.exception() if not written.cancelled() else None
            done(error.code if isinstance(error, NotStored) else ErrorCode.NONE)

        self.write([(GroupKey(group_id), value)]).add_done_callback(report)

    # Groups

    def has(self, group_id: str) -> bool:
        """Return whether its log has records of a group."""
        return group_id in self.groups or group_id in self.image.newer or self.image.offsets.has(group_id)

    def known(self, group_id: str) -> Group | None:
        """Return a group, None if it is unknown; one that has committed offsets alone is an empty group."""
        group = self.groups.get(group_id)
        if group is None and group_id not in self.image.newer and self.image.offsets.has(group_id):
            group = self.make(group_id)
        return group

    def all_known(self) -> list[Group]:
        """Return all groups."""
        for group_id in self.image.offsets.groups():
            self.known(group_id)
        return list(self.groups.values())

    def make(self, group_id: str) -> Group:
        """Return a new group, of which the log knows nothing yet."""
        return self.groups.setdefault(group_id, Group.new(group_id, self, self.settings.group))

    def remove(self, group_id: str) -> list[Change]:
        """Remove an empty group of any kind; return the changes that remove it, and its offsets, from the log."""
        if (group := self.groups.pop(group_id, None)) is not None:
            group.die()
        changes: list[Change] = [(key, None) for key in sorted(self.image.offsets.keys_of(group_id))]
        return changes + (self.replace_newer(group_id) or [(GroupKey(group_id), None)])

    def is_taken(self, group_id: str) -> bool:
        """Return whether a group of another protocol has this name, and may not be replaced by a classic one."""
        newer = self.image.newer.get(group_id)
        if newer is None:
            return False
        session_ends = self._opened_ms + self.settings.newer_session_ms
        return newer.protocol is not Protocol.CONSUMER or (newer.has_members and self.now_ms() < session_ends)

    def replace_newer(self, group_id: str) -> list[Change]:
        """Return the changes that remove an empty group of the consumer protocol, for a classic one of its name."""
        newer = self.image.newer.pop(group_id, None)
        return [] if newer is None else [(key, None) for key in _last_first(newer.keys)]

    # Records

    def write(
        self, changes: Sequence[Change], *, producer_id: int = -1, producer_epoch: int = -1
    ) -> asyncio.Future[None]:
        """Append records as one batch; what they change is changed once they count. Raises `NotStored` in the future.

        With a producer they are part of its transaction.
        """
        now_ms = self.now_ms()
        records = [
            Record(number, now_ms, key=encode_key(key), value=_encode(value))
            for number, (key, value) in enumerate(changes)
        ]
        batch = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            flags=TRANSACTIONAL_BIT if producer_id >= 0 else 0,
        )
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def counts(appended: asyncio.Future[Appended]) -> None:
            if appended.cancelled() or (error := appended.exception()) is not None:
                fault = ErrorCode.NOT_COORDINATOR if appended.cancelled() else refused(error)
                _settle(answer, NotStored(fault))
                return
            first = appended.result().first_offset
            for number, (key, value) in enumerate(changes):
                self._changed(key, value, first + number, producer_id)
            _settle(answer)

        self._store.append(self.name, batch, origin=Origin.COORDINATOR).add_done_callback(counts)
        return answer

    def _changed(self, key: Key, value: OffsetValue | GroupValue | None, offset: int, producer_id: int) -> None:
        if isinstance(key, OffsetKey):
            if isinstance(value, OffsetValue):
                self.image.offsets.put(key, value, offset, producer_id)
            else:
                self.image.offsets.forget(key, offset)


async def stored(shard: Shard, changes: Sequence[Change], producer: tuple[int, int] = (-1, -1)) -> ErrorCode:
    """Write changes, if any, as part of the transaction of a producer (id and epoch); return NONE once they count."""
    if not changes:
        return ErrorCode.NONE
    try:
        await shard.write(changes, producer_id=producer[0], producer_epoch=producer[1])
    except NotStored as refusal:
        return refusal.code
    return ErrorCode.NONE


def refused(error: BaseException | None) -> ErrorCode:
    """Return the error code for a change of a group that could not be written.

    Source: Apache Kafka 4.3.0, CoordinatorOperationExceptionHelper.
    """
    code = code_of(error) if isinstance(error, Exception) else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return _CODES.get(code, code)


_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def _settle(answer: asyncio.Future[None], error: NotStored | None = None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)


def _encode(value: OffsetValue | GroupValue | None) -> bytes | None:
    match value:
        case None:
            return None
        case OffsetValue():
            return encode_offset(value)
        case GroupValue():
            return encode_group(value)


def _last_first(keys: set[NewerKey]) -> list[NewerKey]:
    """Return the keys in the order in which a broker takes such a group apart: the group itself at last."""
    return sorted(keys, key=lambda key: (-key.version, key.raw))
