"""LogState: what the parts of one log share: its directory, segments, ends, producers and epochs.

`storage.log.log.Log` owns it and hands it to the parts that append, flush, roll and truncate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

from storage.base.config import LogConfig
from storage.base.errors import EnvironmentFault
from storage.base.refusals import LogUnusable
from storage.base.units import Epoch, Offset
from storage.disk.fs import Fs
from storage.log.log_types import EpochKeeper, LogSetup
from storage.log.producer_files import ProducerFiles, rebuild
from storage.producers.producer_state import ProducerState
from storage.producers.producers import Producers
from storage.segment.segment_list import SegmentList


class NotedEpochs:
    """The epochs that the keeper has noted; `newest` spares a call for each append, None if it is not known."""

    __slots__ = ("_keeper", "newest")

    def __init__(self, keeper: EpochKeeper) -> None:
        self._keeper = keeper
        self.newest: int | None = None

    def assign(self, epoch: int, base_offset: int) -> None:
        """Note that `epoch` begins at `base_offset`, unless it is the newest already."""
        if epoch == self.newest:
            return
        self.newest = None  # a call that fails leaves it open what is noted
        if epoch < 0:  # batches of magic 0 and 1
            self._keeper.clear()
        else:
            self._keeper.assign(Epoch(epoch), Offset(base_offset))
        self.newest = epoch

    def truncate_from_end(self, end: Offset) -> None:
        """Drop the entries that begin at `end` or above."""
        self.newest = None
        self._keeper.truncate_from_end(end)

    def truncate_from_start(self, start: Offset) -> None:
        """Let the epoch in force at `start` begin there, and drop those before."""
        self._keeper.truncate_from_start(start)

    def clear(self) -> None:
        """Drop all entries, durably."""
        self.newest = None
        self._keeper.clear()


class LogState:
    """Segments, ends and producers of a log. Offsets are exclusive ends where they are called end or point.

    `unusable_since`: why the log takes no change any more, None while it does.
    """

    __slots__ = (
        "_producer_expiration_ms", "config", "directory", "epochs", "fs", "high_watermark", "log_end", "log_start",
        "producers", "recovery_point", "segments", "snapshots", "unusable_since",
    )  # fmt: skip

    def __init__(self, fs: Fs, directory: PurePath, config: LogConfig, setup: LogSetup) -> None:
        self.fs, self.directory, self.config = fs, directory, config
        self.segments = SegmentList()
        self.log_start = self.log_end = self.recovery_point = self.high_watermark = Offset(0)
        self.producers = Producers(ProducerState())
        self.snapshots = ProducerFiles(fs, directory, ())
        self.epochs = NotedEpochs(setup.epochs)
        self.unusable_since: str | None = None
        self._producer_expiration_ms = setup.producer_expiration_ms

    def ensure_usable(self) -> None:
        """Raise `LogUnusable` if the log takes no change any more."""
        if self.unusable_since is not None:
            raise LogUnusable(f"{self.directory}: {self.unusable_since}")

    @contextmanager
    def unusable_on_fault(self) -> Iterator[None]:
        """Make the log unusable if a sync in here fails: the kernel may have dropped the pages, and reports it once."""
        try:
            yield
        except EnvironmentFault as fault:
            self.unusable_since = str(fault)
            raise

    @property
    def last_stable_offset(self) -> Offset:
        """The first offset that a committed read may not see; at most the high watermark."""
        first = self.producers.first_unstable_offset()
        return self.high_watermark if first is None else min(self.high_watermark, max(first, self.log_start))

    def set_high_watermark(self, offset: Offset) -> Offset:
        """Note what is replicated, within log start and log end; return what it is now."""
        self.high_watermark = max(min(offset, self.log_end), self.log_start)
        self.producers.forget_decided(self.high_watermark)
        return self.high_watermark

    def load_producers(self, now_ms: int) -> None:
        """Set the producers to those of the log end: kept if they are, else rebuilt from snapshots and the log."""
        self.producers = rebuild(
            self.snapshots, self.producers, self.segments.all, self.log_start, self.log_end,
            now_ms=now_ms, expiration_ms=self._producer_expiration_ms,
        )  # fmt: skip

    def expire_producers(self, now_ms: int) -> int:
        """Forget the producers that were silent for too long; return their number."""
        return self.producers.expire(now_ms, self._producer_expiration_ms)
