"""Why a partition is as it is: from its files alone, without a lock and without changing anything.

Which segments stay and by which numbers, what compaction would do, epochs, producers, open transactions, holes. The
settings are those in our list of topics, and in a broker's metadata log; what neither has is as in the given defaults.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NamedTuple

from checkpoint.leader_epoch import FILE_NAME as EPOCHS
from checkpoint.leader_epoch import EpochStart, read_epochs
from checkpoint.offsets import CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from engine.client.view import LogView
from engine.client.view_producers import ViewedProducers
from engine.logdir.partition import dirty_segments, retained_segments
from engine.logdir.partitions import read_topic_id
from engine.manager.catalog import read_catalog
from engine.settings.broker_settings import read_broker_settings
from storage.base.config import LogConfig
from storage.base.errors import FileVanished
from storage.base.names import FileRole, parse_directory_name
from storage.base.rows import BatchRows, Stop
from storage.base.units import Offset, TopicPartition
from storage.cleanup.cleanable import Cleanable, LogState, assess
from storage.cleanup.retention import LogEnds, RetentionPolicy, Verdict, retain
from storage.disk.fs import ReadFs
from storage.producers.producer_state import ProducerState
from storage.reading.log_reader import LogReader, find_sound_batch
from storage.segment.segment import LogSegment

_SNAPSHOT_LIMIT: Final = 1 << 31


class SegmentStory(NamedTuple):
    """One segment: what retention says of it, and why it is not compacted (or that it is)."""

    verdict: Verdict
    compaction: str


class Hole(NamedTuple):
    """Offsets that the log jumps over, or bytes that are no batch; `next_offset` is the first good one behind it.

    None: there is none in this segment. `position` is where the hole begins in the file of the segment.
    """

    base_offset: Offset
    position: int
    offset: Offset
    next_offset: Offset | None
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is known of one partition. Checkpointed values are None where there is no entry."""

    partition: TopicPartition
    directory: PurePath
    config: LogConfig
    is_listed: bool
    ends: LogEnds
    recovery_point: Offset | None
    high_watermark: Offset | None
    segments: tuple[SegmentStory, ...]
    cleaned_up_to: Offset | None
    cleanable: Cleanable | None
    """None for a log that is not compacted."""
    epochs: tuple[EpochStart, ...]
    producers: ProducerState
    last_stable_offset: Offset


def explain(
    fs: ReadFs, directory: PurePath, defaults: LogConfig, now_ms: int, log_dirs: Sequence[PurePath] = ()
) -> Explanation:
    """Return the explanation of the partition in `directory`; one of `log_dirs`, or its own, may have the metadata log.

    Raises `CorruptData` and `ReadFault`.
    """
    partition = parse_directory_name(directory.name).partition
    log_dir = directory.parent
    config, is_listed = _config_of(fs, directory, defaults, dict.fromkeys([log_dir, *log_dirs]))
    with contextlib.closing(LogView(fs, directory)) as view:
        watermark = _entry(fs, log_dir, HIGH_WATERMARKS, partition)
        # Without a checkpoint a leader takes everything for replicated, as this engine and single brokers do.
        ends = LogEnds(view.log_start, view.log_end, view.log_end if watermark is None else watermark)
        segments = view.segments
        cleaned = _entry(fs, log_dir, CLEANER_OFFSETS, partition)
        followed = ViewedProducers(fs, directory, view.log_start)
        followed.follow(segments, view.log_end)
        producers = followed.state
        stable = producers.last_stable_offset(view.log_end)
        retention = retain(retained_segments(segments), RetentionPolicy.of(config), ends, now_ms) if segments else None
        cleanable = None
        if config.is_compacted and segments:
            state = LogState(view.log_start, view.log_end, stable, cleaned)
            cleanable = assess(dirty_segments(segments), state, config, now_ms)
        verdicts = () if retention is None else retention.verdicts
        stories = tuple(SegmentStory(each, _compaction(each, config, cleanable, stable)) for each in verdicts)
        return Explanation(
            partition, directory, config, is_listed, ends, _entry(fs, log_dir, RECOVERY_POINTS, partition), watermark,
            stories, cleaned, cleanable, _epochs_of(fs, directory),
            producers, stable,
        )  # fmt: skip


def _epochs_of(fs: ReadFs, directory: PurePath) -> tuple[EpochStart, ...]:
    try:
        return tuple(read_epochs(fs, directory / EPOCHS))
    except FileVanished:
        return ()


def _config_of(
    fs: ReadFs, directory: PurePath, defaults: LogConfig, log_dirs: Iterable[PurePath]
) -> tuple[LogConfig, bool]:
    """Return the settings in force, and whether anybody has said what those of the topic are."""
    topic = parse_directory_name(directory.name).partition.topic
    entry = read_catalog(fs, directory.parent).get(topic)
    broker = read_broker_settings(fs, log_dirs, defaults)
    of_broker = None if broker is None else broker.of(topic, read_topic_id(fs, directory))
    settings = {**(of_broker or {}), **({} if entry is None else entry.config)}
    return (
        LogConfig.from_properties(settings, defaults if broker is None else broker.defaults),
        entry is not None or of_broker is not None,
    )


def _entry(fs: ReadFs, log_dir: PurePath, name: str, partition: TopicPartition) -> Offset | None:
    try:
        return read_offsets(fs, log_dir / name).get(partition)
    except FileVanished:
        return None


def _compaction(verdict: Verdict, config: LogConfig, cleanable: Cleanable | None, stable: Offset) -> str:
    """Return why a segment is not compacted, or that it is."""
    segment = verdict.segment
    if cleanable is None:
        return f"never compacted: cleanup.policy is {','.join(config.cleanup_policy) or 'empty'}"
    if segment.next_base is None:
        return "not compacted: it is the active segment"
    if segment.next_base <= cleanable.first_dirty:
        return f"compacted: the cleaner has been up to {cleanable.first_dirty}"
    if segment.base_offset >= cleanable.first_uncleanable:
        lag = f" and min.compaction.lag.ms {config.min_compaction_lag_ms}" if config.min_compaction_lag_ms else ""
        bound = f"nothing from {cleanable.first_uncleanable} on may be"
        return f"not compacted yet: {bound}, by the last stable offset {stable}{lag}"
    total = cleanable.clean_bytes + cleanable.cleanable_bytes
    ratio = f"{cleanable.cleanable_bytes} of {total} bytes are dirty, {cleanable.dirty_ratio:.3f}"
    if cleanable.is_due(config.min_cleanable_dirty_ratio):
        late = f", and the oldest is overdue by {cleanable.overdue_ms} ms" if cleanable.overdue_ms else ""
        return (
            f"to be compacted next: {ratio}, above min.cleanable.dirty.ratio {config.min_cleanable_dirty_ratio}{late}"
        )
    return f"not compacted yet: {ratio}, not above min.cleanable.dirty.ratio {config.min_cleanable_dirty_ratio}"


# ---- holes


def find_holes(fs: ReadFs, directory: PurePath) -> Iterator[Hole]:
    """Yield the holes of a log in order: every batch is read and checked. Raises `ReadFault`.

    Compaction leaves holes too, as do transactions that were compacted away.
    """
    with contextlib.closing(LogView(fs, directory)) as view:
        expected: Offset | None = None
        for segment in view.segments:
            if expected is not None and segment.base_offset > expected:
                reason = "the next segment begins behind the last batch"
                yield Hole(segment.base_offset, 0, expected, segment.base_offset, reason)
            expected = segment.base_offset
            scan = _HoleScan(segment)
            yield from scan.run()
            expected = Offset(scan.expected)


class _HoleScan:
    """Scans one segment, on and on behind what is no batch."""

    def __init__(self, segment: LogSegment) -> None:
        self._segment = segment
        self.expected = int(segment.base_offset)
        self._found: list[Hole] = []

    def run(self) -> list[Hole]:
        segment, path, position = self._segment, self._segment.path(FileRole.LOG), 0
        while position < segment.size:
            scan = LogReader().scan(segment.reader(), path, segment.size, self.expected, self._take, start=position)
            if scan.stop is Stop.END:
                break
            after = find_sound_batch(segment.reader(), segment.size, scan.valid_size + 1, self.expected)
            reason = f"no sound batch: {scan.stop.name}"
            self._add(scan.valid_size, self.expected, None if after is None else self._base_at(after), reason)
            if after is None:
                break
            position = after
            self.expected = self._base_at(after)
        return self._found

    def _base_at(self, position: int) -> int:
        base = memoryview(bytearray(8))
        self._segment.reader().read_into(position, base)
        return int.from_bytes(base, "big", signed=True)

    def _add(self, position: int, offset: int, behind: int | None, reason: str) -> None:
        base = self._segment.base_offset
        self._found.append(Hole(base, position, Offset(offset), None if behind is None else Offset(behind), reason))

    def _take(self, rows: BatchRows, count: int, _window: memoryview, _origin: int) -> None:
        for row in range(count):
            if rows.magic[row] == 2 and rows.base_offset[row] > self.expected:
                self._add(rows.position[row], self.expected, rows.base_offset[row], "the offsets jump")
            self.expected = rows.last_offset[row] + 1
