"""Keeps the ledger's list of partitions and segments in line with a log directory, without listing it all each time.

A directory's own modification time tells whether a file came or went, so that a look at ten thousand partitions that
rest is ten thousand stats and no listing. Bytes that change within a file do not show there: reading is for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from checkpoint.markers import decode_partition_metadata
from daemon.ledger.disk import Disk
from daemon.ledger.page import Page, PartitionRow
from daemon.scrub.open_findings import OpenFindings
from daemon.status.model import Clock, Events
from storage.base.errors import CorruptData, FileVanished, ReadFault, UnsupportedFormat
from storage.base.names import FileRole, is_legal_topic, parse_directory_name
from storage.base.units import TopicPartition
from storage.disk.fs import FileKind

_STATS: Final = 500
_LISTINGS: Final = 40
"""How much of it is done at once."""
_SETTLED_NS: Final = 3_000_000_000
"""A listing that is made so soon after a change may have missed the next one within the same tick of the clock."""
_SMALL: Final = 4096
_NO_ID: Final = ""


class Census:
    """See the module. One thread.

    `changed` holds the ids of partitions whose segments are not what they were, until somebody clears it.
    """

    def __init__(
        self,
        page: Page,
        disk: Disk,
        clock: Clock,
        events: Events,
        findings: OpenFindings,
        first_due_ms: Callable[[], int],
    ) -> None:
        self._page, self._disk, self._clock, self._events = page, disk, clock, events
        self._findings, self._first_due_ms = findings, first_due_ms
        self.partitions: dict[str, PartitionRow] = {row.directory: row for row in page.partitions()}
        self.by_id: dict[int, PartitionRow] = {row.id: row for row in self.partitions.values()}
        self.by_name: dict[TopicPartition, PartitionRow] = {row.name: row for row in self.partitions.values()}
        self.changed: set[int] = {row.id for row in self.partitions.values()}
        self._queue: deque[str] = deque()
        self._prefix = f"{page.log_dir}/"
        self._root_mtime: int | None = None
        self.has_news = False
        """Something was listed since somebody cleared this."""
        self.is_complete = False
        """Every directory has been asked at least once since the start."""

    @property
    def is_idle(self) -> bool:
        """Nothing is left to ask in this round."""
        return not self._queue

    def begin_round(self) -> None:
        """Look for directories that came or went, and ask each whether it has changed.

        Raises `ReadFault` where the log directory cannot be listed.
        """
        self.look_at_root()
        self._queue = deque(self.partitions)

    def look_at_root(self) -> None:
        """Look for directories that came or went, if the log directory has changed at all; raises `ReadFault`."""
        mtime = self._disk.stat(self._page.log_dir).mtime_ns
        if mtime == self._root_mtime:
            return
        found = {name: parsed for name in self._disk.directories(self._page.log_dir) if (parsed := _live(name))}
        for directory in [name for name in self.partitions if name not in found]:
            self.forget(directory, "its directory is gone")
        for directory, name in found.items():
            if directory not in self.partitions and self._add(directory, name):
                self._queue.append(directory)
        # Kafka writes its checkpoints here every minute, so this is seldom equal; what counts is that it may be.
        self._root_mtime = mtime if self._is_settled(mtime) else None

    def ask(self, directory: str, *, listing: bool = False) -> None:
        """Ask a directory before its turn; with `listing` list it, changed or not."""
        row = self.partitions.get(directory)
        if row is not None:
            if listing:
                self._keep(row._replace(mtime_ns=None))
            self._queue.appendleft(directory)

    def work(self) -> None:
        """Ask some directories."""
        stats = listings = 0
        while self._queue and stats < _STATS and listings < _LISTINGS:
            directory = self._queue.popleft()
            stats += 1
            try:
                listed = self._ask(directory)
                listings += listed
                self.has_news |= listed
            except FileVanished:
                self.forget(directory, "its directory is gone")
            except ReadFault:
                continue  # its files will say so when they are to be read
        if not self._queue:
            self.is_complete = True

    def _ask(self, directory: str) -> bool:
        """List a directory if it has changed; return whether it had. Raises `ReadFault`."""
        row = self.partitions.get(directory)
        if row is None:
            return False
        inode, mtime_ns = self._disk.mark_of(f"{self._prefix}{directory}")
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
        listed = self._disk.listed(self._page.log_dir / row.directory)
        is_settled = self._is_settled(mtime_ns)
        gone = self._page.store_listing(
            row, listed, mtime_ns if is_settled else None, self._clock.now_ms(), self._first_due_ms
        )
        for base in gone:
            self._findings.close_segment(row.directory, base, "its file is gone")
        kept = (listed.kept_items, listed.kept_bytes, listed.kept_oldest_ms)
        row = row._replace(
            mtime_ns=mtime_ns if is_settled else None, kept_items=kept[0], kept_bytes=kept[1], kept_oldest_ms=kept[2]
        )
        self._keep(row)
        self.changed.add(row.id)

    def _is_settled(self, mtime_ns: int) -> bool:
        """Tell whether the next change is sure to show; a time to come was not set by the clock that would."""
        return abs(self._clock.now_ms() * 1_000_000 - mtime_ns) > _SETTLED_NS

    def _add(self, directory: str, name: TopicPartition) -> PartitionRow | None:
        try:
            inode, _ = self._disk.mark_of(f"{self._prefix}{directory}")
        except ReadFault:
            return None
        row = self._page.add_partition(directory, name, inode)
        self._keep(row)
        self.changed.add(row.id)
        self._events.tell("partition_appeared", log_dir=self._page.log_dir, topic=name.topic, partition=name.partition)
        return row

    def _keep(self, row: PartitionRow) -> None:
        self.partitions[row.directory] = self.by_id[row.id] = self.by_name[row.name] = row

    def renew(self, directory: str) -> PartitionRow | None:
        """Begin anew with a directory that is not the one it was: the topic was deleted and made again, or moved."""
        name = self.partitions[directory].name
        self.forget(directory, "another directory took its place")
        return self._add(directory, name)

    def forget(self, directory: str, reason: str) -> None:
        """Drop a partition that is gone."""
        row = self.partitions.pop(directory, None)
        if row is None:
            return
        self.by_name.pop(row.name, None)
        self.by_id.pop(row.id, None)
        self.changed.add(row.id)
        self._page.forget_partition(row.id)
        self._findings.close_directory(directory, reason)
        self._events.tell(
            "partition_vanished", log_dir=self._page.log_dir, topic=row.name.topic, partition=row.name.partition
        )

    def set_compacted(self, row: PartitionRow) -> None:
        """Note that a broker's cleaner works on a partition."""
        if not row.is_compacted:
            self._page.set_compacted(row.id)
            self._keep(self.partitions[row.directory]._replace(is_compacted=True))

    def topic_id(self, directory: str) -> str:
        """Return the id in `partition.metadata` in hex, empty where there is none."""
        path = self._page.log_dir / directory / FileRole.PARTITION_METADATA.value
        try:
            return decode_partition_metadata(self._disk.read_small(path, _SMALL)).topic_id.hex()
        except (ReadFault, CorruptData, UnsupportedFormat):
            return _NO_ID

    def has_same_topic(self, row: PartitionRow) -> bool:
        """Tell whether a directory is still the one that was taken in, by inode and topic id; raises `ReadFault`."""
        inode, _ = self._disk.mark_of(f"{self._prefix}{row.directory}")
        return inode == row.inode and (not row.topic_id or self.topic_id(row.directory) == row.topic_id)

    def has_anything(self) -> bool:
        """Tell whether the log directory looks like one, and not like an empty mount point; raises `ReadFault`."""
        entries = self._disk.entries(self._page.log_dir)
        return any(
            (stat.kind is FileKind.FILE and name != FileRole.LOCK.value) or _live(name) is not None
            for name, stat in entries.items()
        )


def _live(name: str) -> TopicPartition | None:
    """Return the partition that a directory is, None for whatever is no live partition."""
    try:
        parsed = parse_directory_name(name)
    except CorruptData:
        return None
    if parsed.state is not None or not parsed.is_canonical or not is_legal_topic(parsed.partition.topic):
        return None
    return parsed.partition
