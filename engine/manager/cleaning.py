"""Compacts one open partition: chooses the range, runs the round, takes the result into the log and the checkpoint.

Source: Apache Kafka 4.3.0, LogCleaner, LogCleanerManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from engine.logdir.log_dir import LogDir
from engine.logdir.partition import Partition
from storage.base.errors import ExitStatus, LogmendError, UnsupportedFormat
from storage.base.units import TopicPartition
from storage.cleanup.compaction import Compaction, OffsetsOverflow, Round, Uncleanable, last_records_of
from storage.cleanup.offset_map import OffsetMap
from storage.disk.fs import Fs
from storage.segment.segment import LogSegment
from storage.segment.splitting import split_overflowed

RETRY_MS: Final = 900_000
"""How long a partition that cannot be compacted is left alone."""


class RoundAborted(LogmendError):
    """The segments of a round were changed under it; what it had swapped in stays, and a later round goes on."""

    status = ExitStatus.TERMINATED


class _Bad(NamedTuple):
    reason: str
    until_ms: int


@dataclass(slots=True)
class Cleaner:
    """Compacts one partition at a time; keeps the offset map, and which partitions cannot be compacted and why.

    Those are tried again after `RETRY_MS`: what is wrong may have been put right. `throttle` is called between the
    pieces of a round and may let others change the log meanwhile: appends and rolls do not matter, and where segments
    of the round went, or the log was closed, it is aborted. While it is at one, nothing else is due.
    """

    fs: Fs
    memory_bytes: int
    throttle: Callable[[int], None]
    _bad: dict[TopicPartition, _Bad] = field(default_factory=dict)
    _offsets: OffsetMap | None = None
    _is_busy: bool = False

    @property
    def uncleanable(self) -> Mapping[TopicPartition, str]:
        """The partitions that could not be compacted when it was last tried, and why."""
        return {name: bad.reason for name, bad in self._bad.items()}

    def due_ratio(self, log_dir: LogDir, partition: Partition, now_ms: int) -> float | None:
        """Return how dirty a partition is if it is to be compacted, else None. Raises `ReadFault`."""
        config = partition.log.config
        bad = self._bad.get(partition.name)
        if self._is_busy or not config.is_compacted or not partition.has_settings:
            return None
        if bad is not None and now_ms < bad.until_ms:
            return None
        found = partition.assess_compaction(log_dir.cleaned_up_to(partition.name), now_ms)
        return found.dirty_ratio if found.is_due(config.min_cleanable_dirty_ratio) else None

    def clean(self, log_dir: LogDir, partition: Partition, now_ms: int) -> None:
        """Compact a partition as far as the offset map takes, unless it was closed or another round is under way.

        Raises `Uncleanable` and `UnsupportedFormat` where the log holds what must not be rewritten: it is left alone
        then for a while. And `ReadFault` and `WriteFault`.
        """
        if self._is_busy or log_dir.partitions.get(partition.name) is not partition:
            return
        self._is_busy = True
        try:
            self._clean(log_dir, partition, now_ms)
        except RoundAborted:
            return
        finally:
            self._is_busy = False

    def _clean(self, log_dir: LogDir, partition: Partition, now_ms: int) -> None:
        log = partition.log
        # What is merged away must not be waited for by a later flush; so no segment that it reads is unflushed.
        partition.flush(now_ms, log.segments.active.base_offset)
        cleanable = partition.assess_compaction(log_dir.cleaned_up_to(partition.name), now_ms)
        if self._offsets is None:
            self._offsets = OffsetMap(self.memory_bytes)
        delay_ms = log.config.file_delete_delay_ms
        segments = log.segments.all
        closed = [*segments[:-1]]

        def swap(cleaned: LogSegment, sources: Sequence[LogSegment]) -> None:
            log_dir.remove_later(log.replace_segments([cleaned], sources), now_ms + delay_ms)
            at = closed.index(sources[0])
            closed[at : at + len(sources)] = [cleaned]

        def throttle(size: int) -> None:
            self.throttle(size)
            is_open = log_dir.offline is None and log_dir.partitions.get(partition.name) is partition
            if not is_open or [*log.segments.all[: len(closed)]] != closed:
                raise RoundAborted(f"{partition.name}: changed while it was compacted")

        how = Compaction(
            fs=self.fs, directory=partition.directory, config=log.config, swap=swap,
            last_records=lambda: last_records_of(log.producers.state.entries.values()), throttle=throttle,
        )  # fmt: skip
        task = Round(cleanable.first_dirty, cleanable.first_uncleanable, now_ms)
        try:
            outcome = how.run(segments, task, self._offsets)
        except OffsetsOverflow as overflow:  # as a broker: the next round takes the pieces
            pieces = split_overflowed(self.fs, partition.directory, overflow.segment, now_ms)
            log_dir.remove_later(log.replace_segments(pieces, [overflow.segment]), now_ms + delay_ms)
            return
        except (Uncleanable, UnsupportedFormat) as fault:
            self._bad[partition.name] = _Bad(str(fault), now_ms + RETRY_MS)
            raise
        self._bad.pop(partition.name, None)
        log_dir.write_cleaned(partition.name, outcome.next_dirty)
