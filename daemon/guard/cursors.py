"""How far the flushed bytes of each partition are verified, in memory and in the ledger, and where that is on disk."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.ledger.page import Cursor, Page, PartitionRow
from daemon.verify.context import ScrubContext
from storage.base.errors import FileVanished, ReadFault
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset, TopicPartition


class Cursors:
    """One cursor a partition of a log directory. One thread."""

    def __init__(self, context: ScrubContext, page: Page) -> None:
        self._context, self._page = context, page
        self._by_name: dict[TopicPartition, tuple[int, Cursor]] = {}

    def __getitem__(self, row: PartitionRow) -> Cursor:
        return self._by_name[row.name][1]

    def __contains__(self, row: PartitionRow) -> bool:
        """Tell whether the cursor of this very partition is in memory, not of an earlier one of the same name."""
        number, _ = self._by_name.get(row.name, (None, None))
        return number == row.id

    def get(self, row: PartitionRow) -> Cursor | None:
        """Return the cursor of a partition, None where the ledger has none either."""
        if row not in self:
            cursor = self._page.cursor(row.id)
            if cursor is None:
                return None
            self.keep(row, cursor)
        return self[row]

    def keep(self, row: PartitionRow, cursor: Cursor) -> None:
        """Move a cursor in memory only."""
        self._by_name[row.name] = (row.id, cursor)

    def put(self, row: PartitionRow, cursor: Cursor) -> None:
        """Move a cursor, in the ledger as well."""
        self.keep(row, cursor)
        self._page.set_cursor(row.id, cursor)

    def put_all(self, cursors: Mapping[int, Cursor]) -> None:
        """Write cursors that are in memory to the ledger, by the ids of their partitions."""
        self._page.set_cursors(cursors)

    # ---- on disk

    def of_new(self, row: PartitionRow, point: int, catch_up_bytes: int) -> Cursor:
        """Return where to begin with a new partition: `catch_up_bytes` before its recovery point, at most.

        A replica that moved here from another log directory brings all its old segments; the scrubber reads those.
        """
        try:
            logs = self._context.disk.listed(self._context.log_dir / row.directory).logs
        except ReadFault:
            return Cursor(0)
        size = 0
        begin = point
        for base in reversed(logs):
            size += logs[base].size
            if size > catch_up_bytes:
                break
            begin = min(base, point)
        return Cursor(begin)

    def bytes_behind(self, row: PartitionRow, cursor: Cursor) -> int:
        """Return the bytes of the cursor's segment that are not verified, 0 where that is unknown."""
        if cursor.base is None:
            return 0
        try:
            return max(self._context.disk.stat(self._context.log_of(row, cursor.base)).size - cursor.position, 0)
        except ReadFault:
            return 0

    def placed(self, row: PartitionRow, cursor: Cursor) -> Cursor:
        """Return the cursor with the place of its offset in the present files; `base` None if there are none."""
        directory, disk = self._context.log_dir / row.directory, self._context.disk
        if cursor.base is not None and cursor.inode:
            try:
                stat = disk.stat(self._context.log_of(row, cursor.base))
                if stat.inode == cursor.inode and stat.size >= cursor.position:
                    return cursor
            except FileVanished:
                pass  # compacted away, or deleted by retention
        bases = disk.bases(directory)
        if not bases:
            return Cursor(cursor.offset)
        base = max((base for base in bases if base <= cursor.offset), default=bases[0])
        offset = max(cursor.offset, base)
        index = directory / segment_file_name(Offset(base), FileRole.INDEX)
        position = 0 if offset == base else disk.floor_position(index, offset - base)
        inode = disk.stat(self._context.log_of(row, base)).inode if offset == base else 0
        return Cursor(offset, base, position, inode)
