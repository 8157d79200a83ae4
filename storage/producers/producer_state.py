"""Producers, their open transactions, and the snapshot file that keeps them across restarts.

A pure state machine over the batches that carry a producer id, and the codec of `<offset>.snapshot`.
Source: Apache Kafka 4.3.0, ProducerStateManager, ProducerAppendInfo, ProducerStateEntry, ProducerSnapshot.json.
"""

from __future__ import annotations

import io
from array import array
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple, Self

from storage.base.errors import BatchCorrupt, SnapshotCorrupt, UnsupportedFormat
from storage.base.layout import Layout
from storage.base.rows import ABORT, CONTROL_EMPTY, CONTROL_NONE, CONTROL_UNREADABLE, ProducerEvent, control_parts
from storage.base.units import INT32_MAX, Offset
from storage.index.txn_index import AbortedTxn
from storage.kernel.scan import crc32c

SNAPSHOT_HEADER: Final = Layout(
    ("h", "version"),
    ("I", "crc"),
    ("i", "entry count"),
)
SNAPSHOT_ENTRY: Final = Layout(
    ("q", "producer id"),
    ("h", "producer epoch"),
    ("i", "last sequence"),
    ("q", "last offset"),
    ("i", "offset delta"),
    ("q", "timestamp"),
    ("i", "coordinator epoch"),
    ("q", "current transaction first offset"),
)

_VERSION: Final = 1
_CRC_FROM: Final = 6
_PACKED: Final = 1024
_TRANSACTIONAL: Final = 0x10
_START: Final = Offset(0)


class ProducerEntry(NamedTuple):
    """What is known of one producer: a snapshot entry, field for field, with the codec's -1 for "none".

    `last_offset` and `offset_delta` (last - base offset) are those of the last data batch, `last_sequence` is its last
    sequence number; `txn_first_offset` is the first offset of the open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class ProducerState:
    """The producers of one partition as of `map_end_offset`, the offset up to which the log has been folded, exclusive.

    `entries` is for reading: change it by `add_batch` and `expire` only. Events may come in any order that keeps those
    of one producer, and the openings of transactions, in the order of the log. One thread at a time.
    """

    __slots__ = ("_open", "entries", "map_end_offset")

    def __init__(self, entries: Iterable[ProducerEntry] = (), map_end_offset: Offset = _START) -> None:
        self.entries = {entry.producer_id: entry for entry in entries}
        self.map_end_offset = map_end_offset
        opened = [(e.txn_first_offset, e.producer_id) for e in self.entries.values() if e.txn_first_offset >= 0]
        self._open = OrderedDict((producer_id, Offset(first)) for first, producer_id in sorted(opened))
        """Producer id -> first offset of its open transaction, in ascending order of these offsets."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerState):
            return NotImplemented
        return self.entries == other.entries and self.map_end_offset == other.map_end_offset

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ProducerState({list(self.entries.values())!r}, map_end_offset={self.map_end_offset})"

    def copy(self) -> Self:
        """Return a state that goes its own way from here."""
        return type(self)(self.entries.values(), self.map_end_offset)

    def advance(self, next_offset: Offset) -> None:
        """Note that the log was folded up to `next_offset`; for batches that have no producer id."""
        self.map_end_offset = max(self.map_end_offset, next_offset)

    def add_batch(self, event: ProducerEvent) -> AbortedTxn | None:
        """Take in one batch as a broker does on replication and recovery; return the transaction that it aborts.

        No sequence is checked, and a lower epoch is stored. Raises `BatchCorrupt`, with the state unchanged, for a
        batch without transaction while one is open, and for a control batch that is no transaction marker.
        """
        if event.control == CONTROL_NONE:
            self._add_data(event)
            aborted = None
        elif event.control == CONTROL_EMPTY:
            # Compaction took the marker and left the header: nothing is known but that the producer existed.
            self.entries.setdefault(event.producer_id, _unknown(event.producer_id))
            aborted = None
        elif event.control <= CONTROL_UNREADABLE:
            raise BatchCorrupt(f"control batch at offset {event.base_offset} holds no transaction marker")
        else:
            aborted = self._add_marker(event)
        self.advance(Offset(event.last_offset + 1))
        return aborted

    def add_plain(self, events: array[int]) -> bool:
        """Take in data batches outside of transactions: eight numbers each, in the order of `ProducerEvent`.

        Nothing but the last one of each producer counts then. Returns False, and does nothing, where a transaction is
        open or one of them is anything else: then each has to go through `add_batch`.
        """
        width = len(ProducerEvent._fields)
        bases, lasts, attributes, times, ids, epochs, sequences, controls = (events[n::width] for n in range(width))
        if self._open or set(controls) - {CONTROL_NONE} or any(bits & _TRANSACTIONAL for bits in set(attributes)):
            return False
        known = self.entries
        for producer_id, row in dict(zip(ids, range(len(ids)), strict=True)).items():
            before, delta = known.get(producer_id), lasts[row] - bases[row]
            known[producer_id] = ProducerEntry(
                producer_id,
                epochs[row],
                _last_sequence(sequences[row], delta),
                lasts[row],
                delta,
                times[row],
                -1 if before is None else before.coordinator_epoch,
                -1,
            )
        self.advance(Offset(max(lasts, default=-1) + 1))
        return True

    def _add_data(self, event: ProducerEvent) -> None:
        producer_id = event.producer_id
        is_transactional = bool(event.attributes & _TRANSACTIONAL)
        first = self._open.get(producer_id, -1)
        if first >= 0 and not is_transactional:
            raise BatchCorrupt(
                f"batch at offset {event.base_offset} of producer {producer_id} is not transactional, "
                f"but its transaction of offset {first} is open"
            )
        before = self.entries.get(producer_id)
        if first < 0 and is_transactional:
            first = event.base_offset
            self._begin(producer_id, Offset(first))
        self.entries[producer_id] = ProducerEntry(
            producer_id,
            event.producer_epoch,
            _last_sequence(event.base_sequence, event.last_offset - event.base_offset),
            event.last_offset,
            event.last_offset - event.base_offset,
            event.max_timestamp,
            -1 if before is None else before.coordinator_epoch,
            first,
        )

    def _begin(self, producer_id: int, first: Offset) -> None:
        is_latest = not self._open or next(reversed(self._open.values())) <= first
        self._open[producer_id] = first
        if not is_latest:  # a snapshot that claims transactions above its own end
            self._open = OrderedDict(sorted(self._open.items(), key=lambda item: item[1]))

    def _add_marker(self, event: ProducerEvent) -> AbortedTxn | None:
        producer_id = event.producer_id
        kind, coordinator_epoch = control_parts(event.control)
        before = self.entries.get(producer_id)
        if before is None or before.producer_epoch != event.producer_epoch:
            before = _unknown(producer_id)
        self.entries[producer_id] = before._replace(
            producer_epoch=event.producer_epoch,
            timestamp=event.max_timestamp,
            coordinator_epoch=coordinator_epoch,
            txn_first_offset=-1,
        )
        first = self._open.pop(producer_id, None)
        if first is None or kind != ABORT:
            return None
        marker = Offset(event.base_offset)
        return AbortedTxn(producer_id, first, marker, self.last_stable_offset(Offset(marker + 1)))

    def first_unstable_offset(self) -> Offset | None:
        """Return the smallest first offset of an open transaction, None without one."""
        try:
            return next(iter(self._open.values()), None)
        except RuntimeError:  # another thread began or ended one in between
            return self.first_unstable_offset()

    def last_stable_offset(self, end: Offset) -> Offset:
        """Return the smallest first offset of an open transaction, else `end`.

        For a transaction that has just been completed, with its marker's offset + 1 as `end`, this is the last stable
        offset of its index entry: only other producers' transactions can be open.
        """
        first = self.first_unstable_offset()
        return end if first is None else first

    def open_transactions(self) -> dict[int, Offset]:
        """Return producer id -> first offset of its open transaction, lowest offset first."""
        return dict(self._open)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers without open transaction that were silent for `expiration_ms`; return their number.

        A broker does it while it runs, and on loading a snapshot (`producer.id.expiration.ms`, one day by default).
        """
        silent = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset < 0 and now_ms - entry.timestamp >= expiration_ms
        ]
        for producer_id in silent:
            del self.entries[producer_id]
        return len(silent)

    def forget_all_but(self, known: Container[int]) -> None:
        """Forget the producers that are not among `known` and have no open transaction."""
        gone = [pid for pid, entry in self.entries.items() if pid not in known and entry.txn_first_offset < 0]
        for producer_id in gone:
            del self.entries[producer_id]

    def encode_snapshot(self) -> bytes:
        """Return the snapshot file of this state, in ascending order of producer ids; any order is right."""
        out, crc = io.BytesIO(), crc32c(memoryview(SNAPSHOT_HEADER.pack(_VERSION, 0, len(self.entries)))[_CRC_FROM:])
        out.write(bytes(SNAPSHOT_HEADER.size))
        for piece in self._packed():
            out.write(piece)
            crc = crc32c(memoryview(piece), crc)
        out.seek(0)
        out.write(SNAPSHOT_HEADER.pack(_VERSION, crc, len(self.entries)))
        return out.getvalue()

    def is_in_snapshot(self, data: bytes) -> bool:
        """Tell whether `data` is what `encode_snapshot` returns, without making that."""
        at = SNAPSHOT_HEADER.size
        if len(data) != at + len(self.entries) * SNAPSHOT_ENTRY.size:
            return False
        crc = crc32c(memoryview(data)[_CRC_FROM:])
        if data[:at] != SNAPSHOT_HEADER.pack(_VERSION, crc, len(self.entries)):
            return False
        for piece in self._packed():
            if data[at : at + len(piece)] != piece:
                return False
            at += len(piece)
        return True

    def _packed(self) -> Iterator[bytes]:
        """Yield the entries in pieces: of hundreds of thousands a list would take more than all of the rest."""
        ordered = sorted(self.entries.values())
        for first in range(0, len(ordered), _PACKED):
            yield b"".join([SNAPSHOT_ENTRY.pack(*entry) for entry in ordered[first : first + _PACKED]])


def decode_snapshot(data: bytes | memoryview, map_end_offset: Offset = _START) -> ProducerState:
    """Return the state that a snapshot file holds; its end offset is in the file's name, so the caller gives it.

    Raises as `check_snapshot` does.
    """
    check_snapshot(data)
    rows = SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEADER.size :])
    return ProducerState([_normal(ProducerEntry(*row)) for row in rows], map_end_offset)


def check_snapshot(data: bytes | memoryview) -> None:
    """Raise where a snapshot file cannot be read.

    `SnapshotCorrupt` if the checksum does not hold or the entry count is not that of the bytes present, and
    `UnsupportedFormat` for a version other than 1 with a checksum that holds.
    """
    if len(data) < SNAPSHOT_HEADER.size:
        raise SnapshotCorrupt(f"{len(data)} bytes; a snapshot has {SNAPSHOT_HEADER.size} at least", position=len(data))
    version, crc, count = SNAPSHOT_HEADER.unpack_from(data)
    if crc != (found := crc32c(memoryview(data)[_CRC_FROM:])):
        raise SnapshotCorrupt(f"checksum {crc:08x} is stored, the bytes give {found:08x}", position=2)
    if version != _VERSION:
        raise UnsupportedFormat(f"producer snapshot of version {version}; 1 is known", position=0)
    size = len(data) - SNAPSHOT_HEADER.size
    if count * SNAPSHOT_ENTRY.size != size:
        raise SnapshotCorrupt(f"{count} entries are announced, {size} bytes are there for them", position=_CRC_FROM)


def find_snapshot_fault(state: ProducerState) -> str | None:
    """Return what contradicts the end offset of a decoded snapshot, None if nothing does."""
    end = state.map_end_offset
    for entry in state.entries.values():
        if entry.last_offset >= end:
            return f"last offset {entry.last_offset} of producer {entry.producer_id} is not below {end}"
        if entry.txn_first_offset > end:
            return f"transaction of producer {entry.producer_id} begins at {entry.txn_first_offset}, above {end}"
    return None


def _unknown(producer_id: int) -> ProducerEntry:
    return ProducerEntry(producer_id, -1, -1, -1, 0, -1, -1, -1)


def _normal(entry: ProducerEntry) -> ProducerEntry:
    """Return the entry as a broker keeps it: any negative offset means none, and then there is no batch at all."""
    if entry.txn_first_offset < -1:
        entry = entry._replace(txn_first_offset=-1)
    if entry.last_offset < 0:
        entry = entry._replace(last_sequence=-1, last_offset=-1, offset_delta=0)
    return entry


def _last_sequence(first: int, delta: int) -> int:
    """Return the sequence number of the last record, `delta` behind the first; they wrap from 2147483647 to 0."""
    if first == -1:
        return -1
    last = first + delta
    return last - INT32_MAX - 1 if last > INT32_MAX else last
