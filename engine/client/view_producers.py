"""The producers of a log that another process owns: the newest sound snapshot, and what the batches behind it add."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from storage.base.errors import CorruptData
from storage.base.names import FileRole, FileState, parse_file_name, snapshot_file_name
from storage.base.rows import BatchRows
from storage.base.units import INT64_MAX, Offset
from storage.disk.fs import FileKind, ReadFs, read_all
from storage.index.txn_index import AbortedTxn
from storage.producers.producer_state import ProducerState, decode_snapshot
from storage.producers.producers import events_of
from storage.reading.log_reader import LogReader
from storage.segment.segment import LogSegment

_SNAPSHOT_LIMIT: Final = 1 << 31


class ViewedProducers:
    """`state` is that at the log end, and `aborted` the transactions whose ABORT markers lie behind the snapshot."""

    def __init__(self, fs: ReadFs, directory: PurePath, log_start: Offset, newest: int = INT64_MAX) -> None:
        """Load the newest snapshot up to offset `newest`; without one it begins at `log_start`. Raises `ReadFault`.

        With the recovery point as `newest`, the transaction indexes and `aborted` together have all that were aborted:
        an engine that runs writes these indexes when it flushes, but snapshots when it rolls.
        """
        self.state = _newest_snapshot(fs, directory, newest) or ProducerState((), log_start)
        self.aborted: list[AbortedTxn] = []

    def follow(self, segments: Sequence[LogSegment], log_end: Offset) -> None:
        """Take in the batches up to below `log_end`. Raises `BatchCorrupt` for one that cannot be, and `ReadFault`."""
        for number, segment in enumerate(segments):
            behind = segments[number + 1].base_offset if number + 1 < len(segments) else log_end
            if behind > self.state.map_end_offset:
                self._fold(segment, log_end)
        self.state.map_end_offset = max(self.state.map_end_offset, log_end)

    def _fold(self, segment: LogSegment, log_end: Offset) -> None:
        start = self.state.map_end_offset
        first = segment.find(start)
        if first is None:
            return

        def fold(rows: BatchRows, count: int, _window: memoryview, _origin: int) -> None:
            for event in events_of(rows, count):
                if start <= event.base_offset < log_end:
                    aborted = self.state.add_batch(event)
                    self.aborted += () if aborted is None else (aborted,)

        path = segment.path(FileRole.LOG)
        LogReader().walk(segment.reader(), path, segment.size, first.base_offset, fold, start=first.position)


def _newest_snapshot(fs: ReadFs, directory: PurePath, newest: int) -> ProducerState | None:
    names = [parse_file_name(name) for name, stat in fs.entries(directory).items() if stat.kind is FileKind.FILE]
    offsets = [
        name.base_offset for name in names
        if name is not None and name.role is FileRole.SNAPSHOT and name.state is FileState.LIVE
    ]  # fmt: skip
    for offset in sorted((o for o in offsets if o is not None and o <= newest), reverse=True):
        with contextlib.suppress(CorruptData):
            return decode_snapshot(read_all(fs, directory / snapshot_file_name(offset), _SNAPSHOT_LIMIT), offset)
    return None
