"""The rows of the ledger on one log directory: its partitions, their segments, and how far each is verified.

`Page` is one thing, however long: the statements on the two tables, a method each. Who changes a column sees here all
that read or write it, and no method calls another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from daemon.ledger.disk import Listed, LogStat
from daemon.ledger.ledger import MOST_TRUNCATIONS, Ledger, as_text
from storage.base.units import TopicPartition

_SEGMENT: Final = (
    "s.partition, p.directory, p.topic, p.partition, s.base, s.inode, s.size, s.mtime_ns, s.is_active, s.suspect, "
    "s.verified_ms, s.verdict, s.digest, s.digest_size, p.is_compacted"
)
_FROM: Final = "FROM segments s JOIN partitions p ON p.id = s.partition"
_CELL: Final = (
    "s.partition, COUNT(*), SUM(s.size), MIN(s.verified_ms), SUM(s.verified_ms IS NULL), "
    "SUM(s.verdict = 'damaged'), SUM(s.verdict = 'unreadable'), SUM(s.suspect > 1)"
)
ASKED, SUSPECT = 1, 2
"""Values of `suspect`: an operator requested it; it looked bad."""


class PartitionRow(NamedTuple):
    """A partition directory as it was last listed. `mtime_ns` is None where the listing may have missed something."""

    id: int
    directory: str
    name: TopicPartition
    inode: int
    topic_id: str
    mtime_ns: int | None
    is_compacted: bool
    kept_items: int = 0
    kept_bytes: int = 0
    kept_oldest_ms: int | None = None
    verified_offset: int | None = None


class SegmentRow(NamedTuple):
    """A segment and its last verification."""

    partition_id: int
    directory: str
    topic: str
    partition: int
    base: int
    inode: int
    size: int
    mtime_ns: int
    is_active: int
    suspect: int
    verified_ms: int | None
    verdict: str
    digest: str | None
    digest_size: int | None
    is_compacted: int


class Cursor(NamedTuple):
    """How far newly flushed bytes are verified: up to `offset`, which begins at `position` of the segment `base`."""

    offset: int
    base: int | None = None
    position: int = 0
    inode: int = 0


class Totals(NamedTuple):
    """The segments of a log directory, all together."""

    segments: int
    bytes: int
    bytes_due: int
    never: int
    """Segments that were not verified yet."""
    oldest_ms: int | None


class CellRow(NamedTuple):
    """The segments of one partition, all together."""

    partition_id: int
    segments: int
    size: int
    verified_ms: int | None
    damaged: int
    unreadable: int
    suspect: int


class Page:
    """The rows of one log directory. Used by one worker."""

    def __init__(self, ledger: Ledger, log_dir: PurePath) -> None:
        self.ledger, self.log_dir = ledger, log_dir
        self.generation = ledger.generation
        key = as_text(log_dir)
        ledger.write("INSERT OR IGNORE INTO log_dirs (path) VALUES (?)", key)
        ((self.id, self.device, paused, self.pass_started_ms),) = ledger.read(
            "SELECT id, device, paused, pass_started_ms FROM log_dirs WHERE path = ?", key
        )
        self.is_paused = bool(paused)

    # ---- the directory

    def set_paused(self, *, paused: bool) -> None:
        """Note that an operator paused the scrubber, or resumed it."""
        self.is_paused = paused
        self.ledger.write("UPDATE log_dirs SET paused = ? WHERE id = ?", int(paused), self.id)
        self.ledger.commit()

    def set_device(self, device: int) -> None:
        """Note the device of the log directory."""
        self.device = device
        self.ledger.write("UPDATE log_dirs SET device = ? WHERE id = ?", device, self.id)

    def begin_pass(self, now_ms: int) -> None:
        """Note that every segment was read, and a new pass begins."""
        self.pass_started_ms = now_ms
        self.ledger.write("UPDATE log_dirs SET pass_started_ms = ? WHERE id = ?", now_ms, self.id)

    # ---- partitions

    def partitions(self) -> list[PartitionRow]:
        """Return all partitions."""
        rows = self.ledger.read(
            "SELECT id, directory, topic, partition, inode, topic_id, mtime_ns, is_compacted, kept_items, kept_bytes, "
            "kept_oldest_ms, verified_offset FROM partitions WHERE log_dir = ?",
            self.id,
        )
        return [PartitionRow._make((*r[:2], TopicPartition(r[2], r[3]), *r[4:7], bool(r[7]), *r[8:])) for r in rows]

    def add_partition(self, directory: str, name: TopicPartition, inode: int) -> PartitionRow:
        """Add a partition; its topic id comes with the first listing."""
        number = self.ledger.write(
            "INSERT INTO partitions (log_dir, directory, topic, partition, inode, topic_id) VALUES (?, ?, ?, ?, ?, '')",
            self.id, directory, *name, inode,
        )  # fmt: skip
        return PartitionRow(number, directory, name, inode, "", None, is_compacted=False)

    def forget_partition(self, partition_id: int) -> None:
        """Drop a partition that is gone, with its segments."""
        self.ledger.write("DELETE FROM segments WHERE partition = ?", partition_id)
        self.ledger.write("DELETE FROM partitions WHERE id = ?", partition_id)

    def set_compacted(self, partition_id: int) -> None:
        """Note that a broker's cleaner has worked on it: its closed segments may change."""
        self.ledger.write("UPDATE partitions SET is_compacted = 1 WHERE id = ?", partition_id)

    def set_cursor(self, partition_id: int, cursor: Cursor) -> None:
        """Note how far it is verified."""
        self.ledger.write(
            "UPDATE partitions SET verified_offset = ?, cursor_base = ?, cursor_position = ?, cursor_inode = ? "
            "WHERE id = ?",
            *cursor, partition_id,
        )  # fmt: skip

    def note_truncation(self, name: TopicPartition, first: int, last: int, now_ms: int) -> None:
        """Record that a broker truncated verified data, offsets inclusive; above the limit the oldest record goes."""
        self.ledger.write(
            "INSERT INTO truncations (log_dir, topic, partition, first_offset, last_offset, noticed_ms) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            as_text(self.log_dir), name.topic, name.partition, first, last, now_ms,
        )  # fmt: skip
        self.ledger.write(
            "DELETE FROM truncations WHERE rowid <= (SELECT MAX(rowid) FROM truncations) - ?", MOST_TRUNCATIONS
        )

    def set_cursors(self, cursors: Mapping[int, Cursor]) -> None:
        """Note how far many are verified."""
        self.ledger.write_all(
            "UPDATE partitions SET verified_offset = ?, cursor_base = ?, cursor_position = ?, cursor_inode = ? "
            "WHERE id = ?",
            [(*cursor, number) for number, cursor in cursors.items()],
        )

    def cursor(self, partition_id: int) -> Cursor | None:
        """Return how far it is verified; None if that was never noted."""
        rows = self.ledger.read(
            "SELECT verified_offset, cursor_base, cursor_position, cursor_inode FROM partitions WHERE id = ?",
            partition_id,
        )
        return Cursor(*rows[0]) if rows and rows[0][0] is not None else None

    # ---- listings

    def store_listing(
        self, row: PartitionRow, listed: Listed, mtime_ns: int | None, now_ms: int, due_ms: Callable[[], int]
    ) -> list[int]:
        """Update the segments of a partition from its directory; return the bases that are gone.

        `due_ms` returns when a new segment is due for its first verification.
        """
        rows = self.ledger.read(
            "SELECT base, inode, size, mtime_ns, is_active FROM segments WHERE partition = ?", row.id
        )
        known = {r[0]: (LogStat(r[2], r[3], r[1]), r[4]) for r in rows}
        active = max(listed.logs, default=None)
        new, changed = [], []
        for base, stat in listed.logs.items():
            is_active = int(base == active)
            if base not in known:
                new.append((row.id, base, self.id, stat.inode, stat.size, stat.mtime_ns, is_active, due_ms(), now_ms))
            elif known[base] != (stat, is_active):
                changed.append((stat.inode, stat.size, stat.mtime_ns, is_active, row.id, base))
        gone = [base for base in known if base not in listed.logs]
        self.ledger.write_all(
            "INSERT OR IGNORE INTO segments "
            "(partition, base, log_dir, inode, size, mtime_ns, is_active, due_ms, first_seen_ms) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            new,
        )
        self.ledger.write_all(
            "UPDATE segments SET inode = ?, size = ?, mtime_ns = ?, is_active = ? WHERE partition = ? AND base = ?",
            changed,
        )
        self.ledger.write_all(
            "DELETE FROM segments WHERE partition = ? AND base = ?", [(row.id, base) for base in gone]
        )
        self.ledger.write(
            "UPDATE partitions SET mtime_ns = ?, topic_id = ?, kept_items = ?, kept_bytes = ?, kept_oldest_ms = ? "
            "WHERE id = ?",
            mtime_ns, row.topic_id, listed.kept_items, listed.kept_bytes, listed.kept_oldest_ms, row.id,
        )  # fmt: skip
        return gone

    # ---- segments

    def next_due(self) -> SegmentRow | None:
        """Return the segment to be read next: a bad one, else a requested one, else the one that is due first."""
        rows = self.ledger.read(
            f"SELECT {_SEGMENT} {_FROM} WHERE s.log_dir = ? ORDER BY s.suspect DESC, s.due_ms LIMIT 1",
            self.id,
        )
        return SegmentRow(*rows[0]) if rows else None

    def segment(self, partition_id: int, base: int) -> SegmentRow | None:
        """Return one segment, None if it is not known."""
        rows = self.ledger.read(
            f"SELECT {_SEGMENT} {_FROM} WHERE s.partition = ? AND s.base = ?",
            partition_id,
            base,
        )
        return SegmentRow(*rows[0]) if rows else None

    def next_base(self, partition_id: int, base: int) -> int | None:
        """Return the base offset of the segment after `base`, None if it is the last."""
        rows = self.ledger.read("SELECT MIN(base) FROM segments WHERE partition = ? AND base > ?", partition_id, base)
        return rows[0][0] if rows else None

    def neighbours(self, partition_id: int, base: int) -> list[int]:
        """Return the bases of the segments before and after one."""
        rows = self.ledger.read(
            "SELECT MAX(base) FROM segments WHERE partition = ?1 AND base < ?2 "
            "UNION SELECT MIN(base) FROM segments WHERE partition = ?1 AND base > ?2",
            partition_id,
            base,
        )
        return [row[0] for row in rows if row[0] is not None]

    def set_verified(self, row: SegmentRow, stat: LogStat, verdict: str, source: str, now_ms: int, due_ms: int) -> None:
        """Note the outcome of a verification, which ends a suspicion."""
        self.ledger.write(
            "UPDATE segments SET inode = ?, size = ?, mtime_ns = ?, verified_ms = ?, verdict = ?, source = ?, "
            "version = ?, due_ms = ?, suspect = 0 WHERE partition = ? AND base = ?",
            stat.inode, stat.size, stat.mtime_ns, now_ms, verdict, source, self.ledger.version, due_ms,
            row.partition_id, row.base,
        )  # fmt: skip

    def set_digest(self, row: SegmentRow, digest: str, size: int) -> None:
        """Note the digest of the batches in the first `size` bytes of a closed segment."""
        self.ledger.write(
            "UPDATE segments SET digest = ?, digest_size = ? WHERE partition = ? AND base = ?",
            digest, size, row.partition_id, row.base,
        )  # fmt: skip

    def postpone(self, row: SegmentRow, due_ms: int) -> None:
        """Put off a segment that cannot be verified now, and drop its suspicion."""
        self.ledger.write(
            "UPDATE segments SET due_ms = ?, suspect = 0 WHERE partition = ? AND base = ?",
            due_ms, row.partition_id, row.base,
        )  # fmt: skip

    def set_suspect(self, partition_id: int, bases: Collection[int], level: int = SUSPECT) -> None:
        """Have segments read next."""
        self.ledger.write_all(
            "UPDATE segments SET suspect = MAX(suspect, ?) WHERE partition = ? AND base = ?",
            [(level, partition_id, base) for base in bases],
        )

    def ask_for_all(self, topic: str | None) -> int:
        """Have every segment, or those of one topic, read next; return how many."""
        where = (
            "" if topic is None else " AND partition IN (SELECT id FROM partitions WHERE log_dir = ?2 AND topic = ?3)"
        )
        self.ledger.write(
            f"UPDATE segments SET suspect = MAX(suspect, ?1) WHERE log_dir = ?2{where}",  # noqa: S608
            ASKED,
            self.id,
            *([] if topic is None else [topic]),
        )
        rows = self.ledger.read("SELECT COUNT(*) FROM segments WHERE log_dir = ? AND suspect > 0", self.id)
        return int(rows[0][0])

    def not_after(self, due_ms: int) -> None:
        """Move due times to `due_ms` that are later: the clock was set back."""
        self.ledger.write("UPDATE segments SET due_ms = ? WHERE log_dir = ? AND due_ms > ?", due_ms, self.id, due_ms)

    # ---- sums

    def demand(self, now_ms: int, bucket_ms: int) -> list[tuple[int, int]]:
        """Return (ms from now, bytes due by then and not before), in rising order."""
        rows = self.ledger.read(
            "SELECT MAX(due_ms - ?1, 0) / ?2, SUM(size) FROM segments WHERE log_dir = ?3 GROUP BY 1 ORDER BY 1",
            now_ms, bucket_ms, self.id,
        )  # fmt: skip
        return [(bucket * bucket_ms, size) for bucket, size in rows]

    def totals(self, since_ms: int) -> Totals:
        """Return the sums over all segments; `bytes_due` are those not verified since `since_ms`."""
        ((segments, size, due, never, oldest),) = self.ledger.read(
            "SELECT COUNT(*), COALESCE(SUM(size), 0), "
            "COALESCE(SUM(CASE WHEN verified_ms IS NULL OR verified_ms < ? THEN size END), 0), "
            "COALESCE(SUM(verified_ms IS NULL), 0), MIN(verified_ms) FROM segments WHERE log_dir = ?",
            since_ms, self.id,
        )  # fmt: skip
        return Totals(segments, size, due, never, oldest)

    def left_since(self, since_ms: int) -> int:
        """Return how many segments that were known at `since_ms` were not verified since."""
        rows = self.ledger.read(
            "SELECT COUNT(*) FROM segments WHERE log_dir = ?1 AND first_seen_ms <= ?2 "
            "AND (verified_ms IS NULL OR verified_ms < ?2)",
            self.id, since_ms,
        )  # fmt: skip
        return int(rows[0][0])

    def cells(self, partition_ids: Collection[int] | None = None) -> list[CellRow]:
        """Return the sums by partition, of all or of some."""
        if partition_ids is None:
            rows = self.ledger.read(f"SELECT {_CELL} FROM segments s WHERE log_dir = ? GROUP BY 1", self.id)  # noqa: S608
        else:
            rows = [
                row for number in partition_ids
                for row in self.ledger.read(f"SELECT {_CELL} FROM segments s WHERE partition = ? GROUP BY 1", number)  # noqa: S608
            ]  # fmt: skip
        return [CellRow(r[0], r[1], r[2], None if r[4] else r[3], *r[5:]) for r in rows]
