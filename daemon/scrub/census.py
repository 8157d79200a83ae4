"""Keeps the ledger's list of partitions and segments in line with a log directory, without listing it all each time.

A directory's modification time shows whether files appeared or vanished, so a round over ten thousand idle partitions
costs ten thousand stats and no listing. Bytes that change within a file do not show there; the scrubber reads them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, ValuesView
from typing import Final

from checkpoint.markers import decode_partition_metadata
from daemon.ledger.page import Page, PartitionRow
from daemon.verify.context import ScrubContext
from storage.base.errors import CorruptData, FileVanished, ReadFault, UnsupportedFormat
from storage.base.names import FileRole, is_legal_topic, parse_directory_name
from storage.base.units import TopicPartition
from storage.disk.fs import FileKind

_STATS: Final = 500
_LISTINGS: Final = 40
"""Stats and listings of one call of `work`."""
_SETTLED_NS: Final = 3_000_000_000
"""A listing made so soon after a change may have missed the next change within the same tick of the clock."""
_SMALL: Final = 4096
_NO_ID: Final = ""


class PartitionTable:
    """The partitions of a log directory by directory name, by their id in the ledger, and by topic and number."""

    def __init__(self, rows: list[PartitionRow]) -> None:
        self._by_directory = {row.directory: row for row in rows}
        self.by_id = {row.id: row for row in rows}
        self.by_name = {row.name: row for row in rows}

    def get(self, directory: str) -> PartitionRow | None:
        """Return the partition of a directory, None if it is unknown."""
        return self._by_directory.get(directory)

    def __getitem__(self, directory: str) -> PartitionRow:
        return self._by_directory[directory]

    def __contains__(self, directory: str) -> bool:
        return directory in self._by_directory

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_directory)

    def __len__(self) -> int:
        return len(self._by_directory)

    def values(self) -> ValuesView[PartitionRow]:
        """Return all partitions."""
        return self._by_directory.values()

    def put(self, row: PartitionRow) -> None:
        """Add a partition, or replace what is known of it."""
        self._by_directory[row.directory] = self.by_id[row.id] = self.by_name[row.name] = row

    def drop(self, directory: str) -> PartitionRow | None:
        """Remove and return the partition of a directory, None if it is unknown."""
        row = self._by_directory.pop(directory, None)
        if row is not None:
            self.by_name.pop(row.name, None)
            self.by_id.pop(row.id, None)
        return row


class Census:
    """The partitions of a log directory, and the queue of directories to be checked for changes. One thread."""

    def __init__(self, context: ScrubContext, page: Page, first_due_ms: Callable[[], int]) -> None:
        self._context, self._page, self._first_due_ms = context, page, first_due_ms
        self.partitions = PartitionTable(page.partitions())
        self._changed = {row.id for row in self.partitions.values()}
        self._queue: deque[str] = deque()
        self._root_mtime: int | None = None
        self.is_complete = False
        """Every directory has been checked at least once since the start."""

    def take_changed(self) -> set[int]:
        """Return the ids of the partitions whose segments have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def note_change(self, partition_id: int) -> None:
        """Note that the ledger's rows of a partition have changed."""
        self._changed.add(partition_id)

    @property
    def is_idle(self) -> bool:
        """No directory is left to check in this round."""
        return not self._queue

    def begin_round(self) -> None:
        """Look for directories that appeared or vanished, and queue all of them to be checked.

        Raises `ReadFault` where the log directory cannot be listed.
        """
        self.look_at_root()
        self._queue = deque(self.partitions)

    def look_at_root(self) -> None:
        """Add directories that appeared and drop those that vanished, if there are any; raises `ReadFault`."""
        mtime = self._context.disk.stat(self._context.log_dir).mtime_ns
        if mtime == self._root_mtime:
            return
        names = self._context.disk.directories(self._context.log_dir)
        live = {directory: name for directory in names if (name := live_partition(directory))}
        for directory in [directory for directory in self.partitions if directory not in live]:
            self.forget(directory, "its directory is gone")
        for directory, name in live.items():
            if directory not in self.partitions and self._add(directory, name):
                self._queue.append(directory)
        # Kafka writes its checkpoints here every minute, so this is seldom equal.
        self._root_mtime = mtime if self._is_settled(mtime) else None

    def ask(self, directory: str, *, listing: bool = False) -> None:
        """Check a directory before its turn; with `listing` list it, changed or not."""
        row = self.partitions.get(directory)
        if row is not None:
            if listing:
                self.partitions.put(row._replace(mtime_ns=None))
            self._queue.appendleft(directory)

    def work(self) -> bool:
        """Check some directories; return whether any was listed."""
        stats = listings = 0
        while self._queue and stats < _STATS and listings < _LISTINGS:
            directory = self._queue.popleft()
            stats += 1
            try:
                listings += self._check(directory)
            except FileVanished:
                self.forget(directory, "its directory is gone")
            except ReadFault:
                continue  # reading its files will fail as well, and be reported
        if not self._queue:
            self.is_complete = True
        return listings > 0

    def _check(self, directory: str) -> bool:
        """List a directory if it has changed; return whether it had. Raises `ReadFault`."""
        row = self.partitions.get(directory)
        if row is None:
            return False
        inode, mtime_ns = self._mark_of(directory)
        if inode == row.inode and mtime_ns == row.mtime_ns:
            return False
        topic_id = self.topic_id(directory)
        if inode != row.inode or (row.topic_id and topic_id != row.topic_id):
            renewed = self.renew(directory)
            if renewed is None:
                return False
            row = renewed
        self._list(row._replace(topic_id=topic_id), mtime_ns)
        return True

    def _list(self, row: PartitionRow, mtime_ns: int) -> None:
        listed = self._context.disk.listed(self._context.log_dir / row.directory)
        is_settled = self._is_settled(mtime_ns)
        gone = self._page.store_listing(
            row, listed, mtime_ns if is_settled else None, self._context.clock.now_ms(), self._first_due_ms
        )
        for base in gone:
            self._context.findings.close_segment(row.directory, base, "its file is gone")
        kept = (listed.kept_items, listed.kept_bytes, listed.kept_oldest_ms)
        row = row._replace(
            mtime_ns=mtime_ns if is_settled else None, kept_items=kept[0], kept_bytes=kept[1], kept_oldest_ms=kept[2]
        )
        self.partitions.put(row)
        self._changed.add(row.id)

    def _is_settled(self, mtime_ns: int) -> bool:
        """Tell whether the next change is sure to show. A time in the future was not set by the present clock."""
        return abs(self._context.clock.now_ms() * 1_000_000 - mtime_ns) > _SETTLED_NS

    def _mark_of(self, directory: str) -> tuple[int, int]:
        return self._context.disk.mark_of(f"{self._context.log_dir}/{directory}")

    def _add(self, directory: str, name: TopicPartition) -> PartitionRow | None:
        try:
            inode, _ = self._mark_of(directory)
        except ReadFault:
            return None
        row = self._page.add_partition(directory, name, inode)
        self.partitions.put(row)
        self._changed.add(row.id)
        self._context.tell("partition_appeared", topic=name.topic, partition=name.partition)
        return row

    def renew(self, directory: str) -> PartitionRow | None:
        """Replace a partition whose directory is another one: the topic was deleted and created again, or moved."""
        name = self.partitions[directory].name
        self.forget(directory, "another directory took its place")
        return self._add(directory, name)

    def forget(self, directory: str, reason: str) -> None:
        """Drop a partition that is gone."""
        row = self.partitions.drop(directory)
        if row is None:
            return
        self._changed.add(row.id)
        self._page.forget_partition(row.id)
        self._context.findings.close_directory(directory, reason)
        self._context.tell("partition_vanished", topic=row.name.topic, partition=row.name.partition)

    def set_compacted(self, row: PartitionRow) -> None:
        """Note that a broker's cleaner works on a partition."""
        if not row.is_compacted:
            self._page.set_compacted(row.id)
            self.partitions.put(self.partitions[row.directory]._replace(is_compacted=True))

    def topic_id(self, directory: str) -> str:
        """Return the id in `partition.metadata` in hex, empty where there is none."""
        path = self._context.log_dir / directory / FileRole.PARTITION_METADATA.value
        try:
            return decode_partition_metadata(self._context.disk.read_small(path, _SMALL)).topic_id.hex()
        except (ReadFault, CorruptData, UnsupportedFormat):
            return _NO_ID

    def has_same_topic(self, row: PartitionRow) -> bool:
        """Tell whether a directory is still the same, by inode and topic id; raises `ReadFault`."""
        inode, _ = self._mark_of(row.directory)
        return inode == row.inode and (not row.topic_id or self.topic_id(row.directory) == row.topic_id)

    def has_anything(self) -> bool:
        """Tell whether the log directory looks like one, and not like an empty mount point; raises `ReadFault`."""
        entries = self._context.disk.entries(self._context.log_dir)
        return any(
            (stat.kind is FileKind.FILE and name != FileRole.LOCK.value) or live_partition(name) is not None
            for name, stat in entries.items()
        )


def live_partition(name: str) -> TopicPartition | None:
    """Return the partition of a directory, None if it is not a live one."""
    try:
        parsed = parse_directory_name(name)
    except CorruptData:
        return None
    if parsed.state is not None or not parsed.is_canonical or not is_legal_topic(parsed.partition.topic):
        return None
    return parsed.partition
