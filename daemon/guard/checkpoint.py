"""The recovery point checkpoint of a broker, read when it has changed."""

from __future__ import annotations

from collections.abc import Mapping

from checkpoint.offsets import LIMIT, RECOVERY_POINTS, decode_offsets
from daemon.scrub.context import ScrubContext
from recovery.plan.findings import Damage, Finding
from storage.base.errors import CorruptData, FileVanished, UnsupportedFormat
from storage.base.units import TopicPartition

_Mark = tuple[int, int, int]


class Checkpoint:
    """Reads the file again where its size, modification time or inode has changed. One thread."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self.path = context.log_dir / RECOVERY_POINTS
        self._mark: _Mark | None = None
        self._bad_mark: _Mark | None = None

    def forget(self) -> None:
        """Read it with the next call, changed or not."""
        self._mark = None

    def read(self) -> Mapping[TopicPartition, int] | None:
        """Return the recovery points, None where the file has not changed or cannot be decoded; raises `ReadFault`."""
        try:
            stat = self._context.disk.stat(self.path)
        except FileVanished:
            self._mark = None  # a broker that has not flushed anything yet, or one that was killed
            return None
        mark = (stat.size, stat.mtime_ns, stat.inode)
        if mark == self._mark:
            return None
        try:
            points = decode_offsets(self._context.disk.read_small(self.path, LIMIT))
        except (CorruptData, UnsupportedFormat) as error:
            self._report_corrupt(mark, str(error))
            return None
        self._context.findings.close_path(self.path, "sound")
        self._mark, self._bad_mark = mark, None
        return points

    def _report_corrupt(self, mark: _Mark, reason: str) -> None:
        """Open a finding at the second look; brokers replace the file whole, so it is never half written."""
        if mark != self._bad_mark:
            self._bad_mark = mark
            return
        self._mark = mark
        finding = Finding(Damage.CHECKPOINT_CORRUPT, self.path, reason)
        self._context.findings.put(None, [finding], "on disk")
