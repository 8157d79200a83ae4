"""Holds the files of producers and transactions on the disk against what the log gives."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from recovery.plan.findings import Damage, Finding
from storage.base.errors import IndexCorrupt, SnapshotCorrupt, UnsupportedFormat
from storage.base.units import Offset
from storage.disk.fs import ReadFs, read_all
from storage.index.txn_index import decode_txn_index
from storage.producers.producer_state import ProducerState, decode_snapshot

_LIMIT: Final = 64 << 20


def refuse_unknown_version(data: bytes, path: PurePath) -> None:
    """Raise `UnsupportedFormat`, with the path, for a `.txnindex` that a newer broker may have written."""
    try:
        decode_txn_index(data)
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.reason, path=path) from None
    except IndexCorrupt:
        return  # rot, which is rebuilt


def find_difference(fs: ReadFs, path: PurePath, offset: int, state: ProducerState, log_start: int) -> Finding | None:
    """Return what is wrong with a snapshot that should hold `state`, None if nothing is.

    Raises `UnsupportedFormat`, with the path, for a version that a newer broker may have written; and `ReadFault`.
    """
    data = read_all(fs, path, _LIMIT)
    if state.is_in_snapshot(data):  # as a recovery writes it; a second state of so many producers is costly
        return None
    try:
        found = decode_snapshot(data, Offset(offset))
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.reason, path=path) from None
    except SnapshotCorrupt as error:
        return Finding(Damage.SNAPSHOT_CORRUPT, path, error.reason)
    if _is_valid(found, state, log_start):
        return None
    evidence = f"{len(found.entries)} producers there, {len(state.entries)} from the log, and they differ"
    return Finding(Damage.SNAPSHOT_DIFFERS, path, evidence)


def _is_valid(found: ProducerState, ours: ProducerState, log_start: int) -> bool:
    """Tell whether a snapshot agrees with the log, though it may know more or less than the log tells.

    A running broker forgets producers that were silent for long, and it remembers some whose records are gone.
    """
    fewer = (ours.entries[p] for p in ours.entries.keys() - found.entries.keys())
    more = (found.entries[p] for p in found.entries.keys() - ours.entries.keys())
    return (
        all(found.entries[p] == ours.entries[p] for p in found.entries.keys() & ours.entries.keys())
        and all(entry.txn_first_offset < 0 for entry in fewer)
        and all(entry.txn_first_offset < 0 and entry.last_offset < log_start for entry in more)
    )
