"""`leader-epoch-checkpoint`: under which leader epoch the records of a partition were written.

Source: Apache Kafka 4.3.0, LeaderEpochFileCache, LeaderEpochCheckpointFile.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from checkpoint import text
from storage.base.errors import CheckpointCorrupt
from storage.base.numerals import parse_int32, parse_int64
from storage.base.units import Epoch, Offset
from storage.disk.fs import FileStat, Fs, ReadFs, replace_atomically

FILE_NAME: Final = "leader-epoch-checkpoint"
LIMIT: Final = 64 << 20
"""Bytes of the largest file that is read."""


class EpochStart(NamedTuple):
    """`start_offset` is that of the first record written under `epoch`; an idle leader's is the log end offset."""

    epoch: Epoch
    start_offset: Offset


# ---- what the functions below take and return: entries whose epochs and offsets both rise strictly


def assign(entries: Sequence[EpochStart], epoch: Epoch, start_offset: Offset) -> list[EpochStart]:
    """Return the entries once `epoch` is known to begin at `start_offset`.

    Nothing changes if it is the newest epoch and began earlier. Else whatever is not older in both columns goes: the
    log is believed, not the note. Raises `CheckpointCorrupt` for a negative number.
    """
    return assign_all(entries, [EpochStart(epoch, start_offset)])


def assign_all(entries: Sequence[EpochStart], starts: Iterable[EpochStart]) -> list[EpochStart]:
    """Return the entries after one `assign` for each of `starts`, in time linear in both."""
    changed = list(entries)
    for start in starts:
        _assign(changed, *start)
    return changed


def _assign(entries: list[EpochStart], epoch: Epoch, start_offset: Offset) -> None:
    if epoch < 0 or start_offset < 0:
        raise CheckpointCorrupt(f"epoch {epoch} at offset {start_offset}: neither may be negative")
    if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
        return
    while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
        entries.pop()
    entries.append(EpochStart(epoch, start_offset))


def truncate_from_end(entries: Sequence[EpochStart], end_offset: Offset) -> list[EpochStart]:
    """Return the entries that begin below `end_offset`, where the log is to end."""
    return list(entries[: bisect_left(entries, int(end_offset), key=_start)])


def truncate_from_start(entries: Sequence[EpochStart], start_offset: Offset) -> list[EpochStart]:
    """Return the entries of a log that is to begin at `start_offset`: the epoch in force there begins there."""
    older = bisect_right(entries, int(start_offset), key=_start)
    kept = list(entries[older:])
    return [EpochStart(entries[older - 1].epoch, start_offset), *kept] if older else kept


def epoch_at(entries: Sequence[EpochStart], offset: Offset) -> Epoch | None:
    """Return the epoch of the record at `offset`, None if it lies before all entries."""
    index = bisect_right(entries, int(offset), key=_start)
    return entries[index - 1].epoch if index else None


def end_offset_for(entries: Sequence[EpochStart], epoch: Epoch, log_end: Offset) -> tuple[Epoch, Offset] | None:
    """Return the newest epoch up to `epoch` and where it ends: what a leader tells a follower.

    None for an epoch above all known ones. One below all of them ends where the first known begins.
    """
    if entries and entries[-1].epoch == epoch:
        return epoch, log_end
    index = bisect_right(entries, int(epoch), key=_epoch)
    if index == len(entries):
        return None
    return entries[index - 1].epoch if index else epoch, entries[index].start_offset


def _start(entry: EpochStart) -> int:
    return entry.start_offset


def _epoch(entry: EpochStart) -> int:
    return entry.epoch


# ---- codec


def decode_epochs(data: bytes) -> list[EpochStart]:
    """Return what a broker makes of the file: each line is assigned, and so drops what it contradicts.

    Raises `CheckpointCorrupt` and `UnsupportedFormat`.
    """
    return assign_all((), decode_lines(data))


def decode_lines(data: bytes) -> list[EpochStart]:
    """Return the lines as they stand in the file, in whatever order; raises as `decode_epochs` does."""
    fields = text.decode(data, 2)
    return [EpochStart(Epoch(text.int32_field(epoch)), Offset(text.int64_field(start))) for epoch, start in fields]


def decode_leading(data: bytes) -> tuple[list[EpochStart], bool]:
    """Return the entries of the leading lines that are whole and rise, and whether these are all there were.

    What is left of a torn file: behind the last of them the history is unknown.
    """
    lines, whole = text.decode_leading(data, 2)
    entries: list[EpochStart] = []
    for line in lines:
        epoch, start = parse_int32(line[0]), parse_int64(line[1])
        newest = entries[-1] if entries else EpochStart(Epoch(-1), Offset(-1))
        if epoch is None or start is None or epoch <= newest.epoch or start <= newest.start_offset:
            return entries, False
        entries.append(EpochStart(Epoch(epoch), Offset(start)))
    return entries, whole


def encode_epochs(entries: Iterable[EpochStart]) -> bytes:
    """Return the file that holds the entries, oldest first."""
    return text.encode(entries)


def read_epochs(fs: ReadFs, path: PurePath) -> list[EpochStart]:
    """Return what the file holds; raises as `decode_epochs` does, and `FileVanished` and `ReadFault`."""
    return text.read(fs, path, LIMIT, decode_epochs)


def write_epochs(fs: Fs, path: PurePath, entries: Iterable[EpochStart], like: FileStat | None = None) -> None:
    """Replace the file durably; a crash leaves the old content or the new."""
    replace_atomically(fs, path, encode_epochs(entries), like)
