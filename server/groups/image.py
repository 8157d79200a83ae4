"""Offsets and groups of one partition of `__consumer_offsets`, read from its log.

Source: Apache Kafka 4.3.0, CoordinatorLoaderImpl, GroupCoordinatorShard.replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from server.groups.format.records import GroupKey, GroupValue, NewerKey, OffsetKey, Protocol, decode_group, decode_key
from server.groups.format.records import decode_offset as decode_value
from server.groups.offsets import Offsets
from server.store.loading import load
from storage.batch.batch import CONTROL_BIT, LOG_OVERHEAD, TRANSACTIONAL_BIT, BatchHeader, parse_header
from storage.batch.control import ControlType, EndTxnMarker, decode_control
from storage.batch.record import Record, records_of
from storage.log.log_types import ReadableLog

_PIECE: Final = 1 << 20


@dataclass(slots=True)
class NewerGroup:
    """A group of a newer protocol: the keys of its records that are there."""

    protocol: Protocol
    keys: set[NewerKey] = field(default_factory=set)

    @property
    def has_members(self) -> bool:
        """Whether members were in it when its records were written."""
        return any(key.is_member for key in self.keys)


@dataclass(slots=True)
class Image:
    """Offsets, classic groups, groups of newer protocols; `next_offset` is where reading goes on."""

    offsets: Offsets = field(default_factory=Offsets)
    groups: dict[str, GroupValue] = field(default_factory=dict)
    newer: dict[str, NewerGroup] = field(default_factory=dict)
    next_offset: int = 0

    def take(self, record: Record, producer_id: int = -1) -> None:
        """Take a record. Raises `BatchCorrupt` and `UnsupportedFormat`."""
        key, value = decode_key(record.key), record.value
        match key:
            case OffsetKey() if value is None:
                self.offsets.forget(key, record.offset)
            case OffsetKey():
                self.offsets.put(key, decode_value(value or b""), record.offset, producer_id)
            case GroupKey(group) if value is None:
                self.groups.pop(group, None)
            case GroupKey(group):
                self.groups[group] = decode_group(value or b"")
            case NewerKey():
                self._take_newer(key, is_there=value is not None)

    def ids(self) -> set[str]:
        """Return the ids of all groups that are spoken of."""
        return self.offsets.groups() | self.groups.keys() | self.newer.keys()

    def _take_newer(self, key: NewerKey, *, is_there: bool) -> None:
        if is_there:
            self.newer.setdefault(key.group, NewerGroup(key.protocol)).keys.add(key)
        elif (group := self.newer.get(key.group)) is not None:
            group.keys.discard(key)
            if not group.keys:
                del self.newer[key.group]

    def take_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Take a whole batch: its records, or the end of a transaction. Raises as `take` does."""
        if header.attributes & CONTROL_BIT:
            for record in records_of(batch):
                control = decode_control(record.key, record.value)
                if isinstance(control, EndTxnMarker):
                    self.offsets.end(header.producer_id, is_committed=control.type is ControlType.COMMIT)
        else:
            producer_id = header.producer_id if header.attributes & TRANSACTIONAL_BIT else -1
            for record in records_of(batch):
                self.take(record, producer_id)
        self.next_offset = header.last_offset + 1


def read_image(log: ReadableLog) -> Image:
    """Return what a log says up to its high watermark; for a thread that may wait.

    Raises `BatchCorrupt`, `UnsupportedFormat`, `ReadFault`, and `NotServing` for a log that is closed.
    """
    image = Image(next_offset=log.log_start)
    read_on(log, image)
    return image


def read_on(log: ReadableLog, image: Image) -> None:
    """Take what has come since, up to the high watermark; raises as `read_image` does."""
    for header, batch in batches(log, image.next_offset):
        image.take_batch(header, batch)


def batches(log: ReadableLog, start: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a log from `start` up to its high watermark; raises `ReadFault` and `NotServing`."""
    position = start
    while position < log.high_watermark:
        data, before = load(log, position, _PIECE), position
        while (header := _whole(data)) is not None:
            if header.last_offset >= position:
                yield header, data[: header.size]
                position = header.last_offset + 1
            data = data[header.size :]
        if position == before:
            return


def _whole(data: memoryview) -> BatchHeader | None:
    """Return the header of the batch that `data` begins with; None where not all of it is there."""
    if len(data) < LOG_OVERHEAD or int.from_bytes(data[8:LOG_OVERHEAD], "big") > len(data) - LOG_OVERHEAD:
        return None
    return parse_header(data)
