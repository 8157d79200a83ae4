"""Follows the ends of all logs of a log directory, so that a crash leaves little to read.

A look at a partition is two stats, of its directory and of its last log. With the default settings ten thousand idle
ones took 2.5 s of processor time a minute (docs/operate/guarding.md). A watch on each would wake the guard at every
write. What grew is read at once, a piece a step; a segment with much to read waits for its turn behind all others.
Nothing that is found here is an alarm: a broker is at work on these very bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from daemon.ends.following import Followed, Follower, doubt_about
from daemon.ends.keeping import Keeper
from daemon.ends.syncing import Syncer
from daemon.ends.tail import NotInMemory, Stamp, TailFile, look_at
from daemon.scrub.census import live_partition
from daemon.scrub.pace import Pressure
from daemon.status.model import Exposure
from daemon.verify.context import ScrubContext
from daemon.verify.options import GuardOptions
from recovery.segment.marks import Circumstances
from storage.base.errors import FileVanished, ReadFault
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset, TopicPartition
from storage.disk.boot import read_boot_id

_SHARE: Final = 0.6
"""Share of the time within which marks are promised until the next look at all partitions."""
_LOOKS: Final = 250
"""Looks of one step."""
_STEP_BYTES: Final = 8 << 20
_RETRY_SECONDS: Final = 60.0
_MOST_RETRIES: Final = 6
_PATIENCE: Final = 3
_SETTLED_NS: Final = 3_000_000_000
_IDLE_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Partition:
    """A partition directory: its inode and modification time when it was listed, and the segments that are followed."""

    directory: str
    name: TopicPartition
    inode: int = 0
    mtime_ns: int | None = None
    topic_id: str | None = None
    segments: dict[int, Followed] = field(default_factory=dict)


class Ends:
    """The ends of one log directory. One thread. Nothing is raised: what cannot be read now is read later, or never."""

    def __init__(
        self, context: ScrubContext, options: GuardOptions, pressure: Callable[[], float | None],
        topic_id_of: Callable[[str], str],
    ) -> None:  # fmt: skip
        self._context, self.options, self._topic_id_of = context, options, topic_id_of
        self._pressure = Pressure(context.clock, pressure)
        self._keeper = Keeper(context)
        self._syncer = Syncer(context, self._keeper)
        self._follower = Follower()
        self._boot_id = read_boot_id()
        self._partitions: dict[str, _Partition] = {}
        self._points: Mapping[TopicPartition, int] | None = None
        self._root_mtime: int | None = None
        self._looks: deque[str] = deque()
        self._behind: deque[tuple[str, int]] = deque()
        self._is_round = False
        self._look_at = self._rest_until = context.clock.monotonic()
        self.exposure: Exposure | None = None

    # ---- from the guard

    def take_points(self, points: Mapping[TopicPartition, int]) -> None:
        """Take over what the broker's checkpoint declares flushed: recovery does not read below."""
        before, self._points = self._points or {}, points
        for partition in self._partitions.values():
            if before.get(partition.name) != points.get(partition.name):
                partition.mtime_ns = None

    def restart(self) -> None:
        """Prove everything again, from what is kept: the log directory was away."""
        self._partitions, self._root_mtime = {}, None
        self._looks.clear()
        self._behind.clear()
        self._keeper.restart()
        self._look_at = self._context.clock.monotonic()

    def step(self) -> float:
        """Do a bounded piece of work; return after how many seconds there is more to do."""
        now = self._context.clock.monotonic()
        if not self.options.mark_within_seconds:
            self.exposure = None
            return _IDLE_SECONDS
        if now < self._rest_until:
            return self._rest_until - now
        size = self._work(now)
        self._syncer.step(self.options.sync_within_seconds, is_busy=self._is_busy, candidates=self._candidates)
        self._rest_until = now + size / self.options.max_bytes_per_second
        if self._looks or self._behind:
            return self._rest_until - now
        return max(min(self._look_at - now, self._syncer.wait_seconds()), 0.0)

    def close(self) -> None:
        """Keep what was read; wait for a sync that is under way."""
        self._syncer.close()
        self._keeper.flush()
        self._keeper.close()

    # ---- a round

    def _work(self, now: float) -> int:
        self._pressure.renew()
        if not self._looks and now >= self._look_at:
            self._begin_round(now)
        size = looks = 0
        while self._looks and looks < _LOOKS and size < _STEP_BYTES:
            looks += 1
            size += self._look(self._looks.popleft())
        if not self._looks and size < _STEP_BYTES and self._behind:
            directory, base = self._behind.popleft()
            size += self._catch_up(directory, base)
        if self._is_round and not self._looks:
            self._end_round()
        return size

    @property
    def _is_busy(self) -> bool:
        return self._pressure.percent >= self._context.options.pressure_high

    def _begin_round(self, now: float) -> None:
        self._look_at = now + self.options.mark_within_seconds * _SHARE
        self._is_round = True
        try:
            self._look_at_root()
        except ReadFault:
            return  # the guard tells of it
        self._looks = deque(self._partitions)

    def _look_at_root(self) -> None:
        log_dir = self._context.log_dir
        mtime = self._context.disk.stat(log_dir).mtime_ns
        if mtime == self._root_mtime:
            return
        names = set(self._context.disk.directories(log_dir))
        for directory in [directory for directory in self._partitions if directory not in names]:
            self._forget(self._partitions.pop(directory))
        for directory in names:
            if directory not in self._partitions and (name := live_partition(directory)) is not None:
                self._partitions[directory] = _Partition(directory, name)
        self._keeper.drop_strangers(self._partitions)
        is_settled = abs(self._context.clock.now_ms() * 1_000_000 - mtime) > _SETTLED_NS
        self._root_mtime = mtime if is_settled else None

    def _end_round(self) -> None:
        self._is_round = False
        self._keeper.flush()
        left = marked = not_durable = partitions = 0
        for partition in self._partitions.values():
            for segment in partition.segments.values():
                left, marked = left + segment.left, marked + segment.position
                not_durable += segment.not_durable
                partitions += segment.left > 0
        self.exposure = Exposure(left, not_durable, marked, partitions)

    # ---- one partition

    def _look(self, directory: str) -> int:
        """Look at a partition; return the bytes that were read."""
        partition = self._partitions.get(directory)
        if partition is None:
            return 0
        try:
            self._list(partition)
        except ReadFault:
            partition.mtime_ns = None  # it is gone, or the guard tells of it
            return 0
        return sum(self._look_at_segment(partition, segment) for segment in list(partition.segments.values()))

    def _list(self, partition: _Partition) -> None:
        """List a directory that has changed, and choose the segments that a recovery would read. Raises `ReadFault`."""
        path = f"{self._context.log_dir}/{partition.directory}"
        inode, mtime_ns = self._context.disk.mark_of(path)
        if inode == partition.inode and mtime_ns == partition.mtime_ns:
            return
        topic_id = self._topic_id_of(partition.directory) or None
        if partition.inode and (inode, topic_id) != (partition.inode, partition.topic_id):
            self._forget(partition)
        partition.inode, partition.topic_id = inode, topic_id
        directory = self._context.log_dir / partition.directory
        bases = self._in_scope(self._context.disk.bases(directory), partition)
        for base in [base for base in partition.segments if base not in bases]:
            del partition.segments[base]
            self._keeper.drop(partition.directory, base)
        for base in bases:
            if base not in partition.segments:
                log = directory / segment_file_name(Offset(base), FileRole.LOG)
                stored = self._keeper.stored(partition.directory, base)
                partition.segments[base] = Followed(base, str(log), stored=stored)
            else:
                partition.segments[base].stamp = None
        is_settled = abs(self._context.clock.now_ms() * 1_000_000 - mtime_ns) > _SETTLED_NS
        partition.mtime_ns = mtime_ns if is_settled else None

    def _in_scope(self, bases: list[int], partition: _Partition) -> list[int]:
        """Return the segments from the recovery point on; while no checkpoint was read, from the last one on."""
        if self._points is None:
            first = min(partition.segments, default=max(bases, default=0))
        else:
            point = self._points.get(partition.name, 0)
            first = max((base for base in bases if base <= point), default=0)
        return [base for base in bases if base >= first]

    def _forget(self, partition: _Partition) -> None:
        for base in partition.segments:
            self._keeper.drop(partition.directory, base)
        partition.segments, partition.mtime_ns = {}, None

    # ---- one segment

    def _look_at_segment(self, partition: _Partition, segment: Followed) -> int:
        try:
            stamp = look_at(segment.place)
        except ReadFault:
            partition.mtime_ns = None  # deleted, or renamed: the next look lists again
            return 0
        if segment.stamp == stamp:
            return 0
        segment.size = stamp.size
        if self._context.clock.monotonic() < segment.retry_at:
            return 0
        if segment.left > _STEP_BYTES:
            place = (partition.directory, segment.base)
            if place not in self._behind:
                self._behind.append(place)
            return 0
        return self._advance(partition, segment)

    def _catch_up(self, directory: str, base: int) -> int:
        partition = self._partitions.get(directory)
        segment = None if partition is None else partition.segments.get(base)
        if partition is None or segment is None or self._context.clock.monotonic() < segment.retry_at:
            return 0
        before = segment.position
        size = self._advance(partition, segment)
        if segment.stamp is None and segment.position > before:
            self._behind.append((directory, base))
        return size

    def _advance(self, partition: _Partition, segment: Followed) -> int:
        """Read a piece of a segment; return its bytes."""
        before = segment.position
        try:
            with TailFile(segment.log, memory_only=self._is_busy) as file:
                segment.size = file.stat.size
                self._read(file, partition, segment)
        except FileVanished:
            partition.mtime_ns = None
        except ReadFault:
            self._refuse(segment)
        except NotInMemory:
            pass  # the next look tries again
        return max(segment.position - before, 0)

    def _read(self, file: TailFile, partition: _Partition, segment: Followed) -> None:
        options = self._context.options
        now = Circumstances(
            partition.directory, partition.topic_id, options.index_interval_bytes, options.segment_index_bytes,
            self._boot_id,
        )  # fmt: skip
        if segment.mark is not None and (doubt := doubt_about(segment.mark, file, now)):
            self._begin_again(partition, segment, doubt)
        while segment.mark is None and segment.stored:
            mark = segment.stored.pop(0)
            if doubt_about(mark, file, now) is None:
                segment.mark = mark
                segment.durable = mark if mark.is_durable else segment.durable
                segment.durable = segment.durable or next((each for each in segment.stored if each.is_durable), None)
        step = self._follower.step(file, segment.base, segment.mark, now, self._context.clock.now_ms())
        if step.mark is None and step.doubt:
            self._begin_again(partition, segment, step.doubt)
            self._refuse(segment)
            return
        if step.mark is not segment.mark and step.mark is not None:
            segment.mark, segment.refusals = step.mark, 0
            self._keeper.put(step.mark)
        if step.is_end:
            segment.stamp = Stamp.of(file.stat)
        if step.is_odd:
            segment.refusals += 1
            if segment.refusals > _PATIENCE:
                segment.retry_at = self._context.clock.monotonic() + _RETRY_SECONDS

    def _begin_again(self, partition: _Partition, segment: Followed, reason: str) -> None:
        """Drop the mark; the durable one, made earlier, may still hold."""
        if segment.mark is not None:
            self._context.tell(
                "mark_dropped", topic=partition.name.topic, partition=partition.name.partition,
                base_offset=segment.base, reason=reason,
            )  # fmt: skip
            durable = segment.durable
            segment.stored = [durable] if durable is not None and durable.position < segment.position else []
        segment.mark = segment.durable = segment.stamp = None
        self._keeper.drop(partition.directory, segment.base)

    def _refuse(self, segment: Followed) -> None:
        """Leave a segment alone for a while, longer each time: reading it again and again would not help."""
        segment.refusals += 1
        seconds = _RETRY_SECONDS * 2 ** min(segment.refusals - 1, _MOST_RETRIES)
        segment.retry_at = self._context.clock.monotonic() + seconds

    def _candidates(self) -> list[Followed]:
        """Return the segments of which more is marked than is durable."""
        return [
            segment
            for partition in self._partitions.values()
            for segment in partition.segments.values()
            if segment.mark is not None and segment.position > (segment.durable.position if segment.durable else 0)
        ]
