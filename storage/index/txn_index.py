"""`.txnindex`: the aborted transactions whose ABORT marker lies in a segment.

Entries of 34 bytes in the order of their markers, no header and no checksum.
Source: Apache Kafka 4.3.0, TransactionIndex and AbortedTxn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from storage.base.errors import IndexCorrupt, UnsupportedFormat
from storage.base.layout import Layout
from storage.base.units import Offset

ENTRY: Final = Layout(
    ("h", "version"),
    ("q", "producer id"),
    ("q", "first offset"),
    ("q", "last offset"),
    ("q", "last stable offset"),
)

_VERSION: Final = 0


class AbortedTxn(NamedTuple):
    """One aborted transaction of a producer, all numbers int64.

    `first_offset` may lie in an earlier segment; `last_offset` is that of the ABORT marker; `last_stable_offset` is the
    smallest first offset of a transaction that was still open then, else the marker's offset + 1.
    """

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class Aborted(NamedTuple):
    """What a read-committed fetch is told; with `is_complete` later segments need not be asked."""

    transactions: list[AbortedTxn]
    is_complete: bool


class LoadSanity(Enum):
    """What a broker does on load because of a `.txnindex`, clean shutdown or not."""

    SOUND = "it is used as it is"
    SCANS_SEGMENT = "the segment is recovered"
    FAILS_LOAD = "the log is not loaded"


def decode_txn_index(data: bytes | memoryview) -> list[AbortedTxn]:
    """Return the whole entries in `data`; a partial one at the end is ignored, as by a broker.

    Raises `UnsupportedFormat` if two entries or more agree on a version above 0, which no rot would do, and
    `IndexCorrupt` for any other version than 0.
    """
    whole = memoryview(data)[: len(data) // ENTRY.size * ENTRY.size]
    versions, entries = [], []
    for version, *fields in ENTRY.iter_unpack(whole):
        versions.append(version)
        entries.append(AbortedTxn(*fields))
    if any(versions):
        _refuse(versions)
    return entries


def _refuse(versions: list[int]) -> None:
    if len(versions) > 1 and versions[0] > _VERSION and len(set(versions)) == 1:
        raise UnsupportedFormat(f"transaction index of version {versions[0]}; 0 is known", position=0)
    index = next(i for i, version in enumerate(versions) if version != _VERSION)
    raise IndexCorrupt(f"entry of version {versions[index]}; 0 is known", position=index * ENTRY.size)


def encode_txn_index(entries: Iterable[AbortedTxn]) -> bytes:
    """Return the file that holds `entries`, which are in the order of their markers."""
    return b"".join([ENTRY.pack(_VERSION, *entry) for entry in entries])


def collect_aborted(entries: Sequence[AbortedTxn], start: Offset, end: Offset) -> Aborted:
    """Return the transactions of one segment that matter to a read of the offsets from `start` up to below `end`."""
    found = []
    for entry in entries:
        if entry.last_offset >= start and entry.first_offset < end:
            found.append(entry)
        if entry.last_stable_offset >= end:
            return Aborted(found, is_complete=True)
    return Aborted(found, is_complete=False)


def size_below(entries: Sequence[AbortedTxn], offset: Offset) -> int:
    """Return the bytes to keep when the log is truncated to `offset`: those before the first marker from there."""
    for index, entry in enumerate(entries):
        if entry.last_offset >= offset:
            return index * ENTRY.size
    return len(entries) * ENTRY.size


def check_as_on_load(data: bytes | memoryview, base_offset: Offset) -> LoadSanity:
    """Return what a broker would do with a segment of `base_offset` because of this file.

    It reads the version's first byte only, so that version 1 passes and version 256 keeps the broker from starting.
    """
    whole = memoryview(data)[: len(data) // ENTRY.size * ENTRY.size]
    for version, _, _, last_offset, _ in ENTRY.iter_unpack(whole):
        if version >> 8 > 0:
            return LoadSanity.FAILS_LOAD
        if last_offset < base_offset:
            return LoadSanity.SCANS_SEGMENT
    return LoadSanity.SOUND
