"""The producer snapshots of a partition directory: which there are, taking one, and loading a state back from them.

Source: Apache Kafka 4.3.0, ProducerStateManager, UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final

from storage.base.errors import BatchCorrupt, EnvironmentFault, FileVanished, SnapshotCorrupt
from storage.base.names import FileRole, FileState, segment_file_name
from storage.base.rows import BatchRows, Stop
from storage.base.units import Offset
from storage.disk.fs import Fs, read_all
from storage.producers.producer_state import ProducerState, decode_snapshot
from storage.producers.producers import Producers, events_of
from storage.reading.log_reader import LogReader
from storage.segment.segment import LogSegment

_LIMIT: Final = 1 << 31


class ProducerFiles:
    """The snapshots of one log by their end offsets; `last_taken` is the offset that the next one must exceed."""

    def __init__(self, fs: Fs, directory: PurePath, offsets: Iterable[int]) -> None:
        self._fs, self._directory = fs, directory
        self.offsets = sorted(offsets)
        self.last_taken = 0
        self._unsynced: set[int] = set()

    def _path(self, offset: int, state: FileState = FileState.LIVE) -> PurePath:
        return self._directory / segment_file_name(Offset(offset), FileRole.SNAPSHOT, state)

    def take(self, state: ProducerState) -> None:
        """Write the snapshot of `state`, which `sync` makes durable, unless one was taken there or above.

        After a failed write, which is raised, there is no such file.
        """
        offset = state.map_end_offset
        if offset <= self.last_taken:
            return
        path = self._path(offset)
        with contextlib.suppress(FileVanished):
            self._fs.remove(path)
        try:
            with self._fs.create(path) as file:
                file.append(state.encode_snapshot())
        except EnvironmentFault:
            with contextlib.suppress(EnvironmentFault):
                self._fs.remove(path)
            raise
        self._note(offset)

    def _note(self, offset: int) -> None:
        self.offsets = sorted({*self.offsets, offset})
        self._unsynced.add(offset)
        self.last_taken = offset

    def sync(self) -> bool:
        """Make the content of all snapshots taken since the last call durable; tell whether there were any."""
        if not self._unsynced:
            return False
        for offset in sorted(self._unsynced):
            self._fs.sync_file(self._path(offset))
        self._unsynced.clear()
        return True

    def remove(self, offsets: Iterable[int]) -> None:
        """Take away the snapshots at these offsets, where there are any."""
        for offset in sorted({*offsets}.intersection(self.offsets)):
            self._fs.remove(self._path(offset))
            self._forget(offset)

    def mark_deleted(self, offsets: Iterable[int]) -> list[PurePath]:
        """Rename the snapshots at these offsets to `.deleted`; return where they are now."""
        renamed = []
        for offset in sorted({*offsets}.intersection(self.offsets)):
            renamed.append(self._path(offset, FileState.DELETED))
            self._fs.rename(self._path(offset), renamed[-1])
            self._forget(offset)
        return renamed

    def _forget(self, offset: int) -> None:
        self.offsets.remove(offset)
        self._unsynced.discard(offset)

    def remove_strays(self, bases: Sequence[int]) -> None:
        """Take away snapshots that belong to no segment; the highest of them stays if it covers the last one's."""
        strays = [offset for offset in self.offsets if offset not in bases]
        keeps_last = bool(strays) and (not bases or strays[-1] >= bases[-1])
        self.remove(strays[:-1] if keeps_last else strays)

    def load_newest(self, log_start: Offset, now_ms: int, expiration_ms: int) -> ProducerState:
        """Return the state of the newest sound snapshot, an empty one at `log_start` without; bad ones are removed."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                state = decode_snapshot(read_all(self._fs, self._path(offset), _LIMIT), Offset(offset))
            except SnapshotCorrupt:
                self.remove([offset])
                continue
            state.expire(now_ms, expiration_ms)
            self.last_taken = offset
            return state
        self.last_taken = log_start
        return ProducerState((), log_start)

    def after_log_start(self, log_start: Offset) -> None:
        """Note that the log begins at `log_start` now."""
        self.last_taken = self.offsets[-1] if self.offsets else log_start


def rebuild(
    files: ProducerFiles,
    producers: Producers,
    segments: Sequence[LogSegment],
    log_start: Offset,
    end: Offset,
    *,
    now_ms: int,
    expiration_ms: int,
) -> Producers:
    """Return the producers of the log from `log_start` to `end`, and leave the snapshots that a broker would leave.

    It begins with the newest snapshot, unless `producers` are those of `end` already, and replays the batches behind
    it. What is written is synced by the next `files.sync`. Raises `BatchCorrupt` where the log does not parse.
    """
    is_empty_before = producers.is_empty and producers.state.map_end_offset >= end
    files.remove([offset for offset in files.offsets if offset > end or offset <= log_start])
    if producers.state.map_end_offset == end:
        producers.forget_decided(log_start)
        files.after_log_start(log_start)
    else:
        producers = producers.reloaded(files.load_newest(log_start, now_ms, expiration_ms), end)
    state = producers.state
    if end > state.map_end_offset and not is_empty_before:
        newest = {segment.base_offset for segment in segments[-2:]}
        for segment in _reaching(segments, state.map_end_offset, end):
            start = max(segment.base_offset, state.map_end_offset, log_start)
            state.map_end_offset = Offset(start)
            if segment.base_offset in newest:
                files.take(state)
            _replay(segment, producers, Offset(start), end)
    state.map_end_offset = end
    files.take(state)
    return producers


def _reaching(segments: Sequence[LogSegment], start: int, end: int) -> Iterator[LogSegment]:
    """Yield the segments that may hold offsets from `start` up to below `end`."""
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if segment.base_offset < end and next_base > start:
            yield segment


def _replay(segment: LogSegment, producers: Producers, start: Offset, end: Offset) -> None:
    """Fold the batches of one segment from the one that holds `start` up to below the one that holds `end`."""
    first, behind = segment.find(start), segment.find(end)
    if first is None:
        return
    size = segment.size if behind is None else behind.position

    def fold(rows: BatchRows, count: int, _window: memoryview, _origin: int) -> None:
        producers.apply(events_of(rows, count))

    path = segment.path(FileRole.LOG)
    done = LogReader().walk(segment.reader(), path, size, first.base_offset, fold, start=first.position)
    if done.stop is not Stop.END:
        raise BatchCorrupt(done.stop.name, path=path, position=done.valid_size)
