"""How a log manager works: everything besides the directories themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from engine.settings.identity import DrawId, draw_id
from recovery.logdir.survey import Reporter, SilentReporter
from recovery.plan.plan import PlanOptions
from storage.base.config import LogConfig
from storage.base.errors import LogmendError
from storage.disk.fs import lock_log_dir


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often `LogManager.run_due` does what, ms; the defaults are a broker's."""

    flush_ms: int = 1_000
    recovery_points_ms: int = 60_000
    log_starts_ms: int = 60_000
    high_watermarks_ms: int = 5_000
    retention_ms: int = 300_000
    compaction_ms: int = 15_000
    removal_ms: int = 1_000
    producers_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """What a log manager is given.

    `defaults` are the settings of topics that set nothing else; of its `file.delete.delay.ms` go the directories of
    deleted topics. `jobs`: threads that scan in a recovery. `version` stands in the manifests of what recovery sets
    aside. `draw_jitter` returns a number from 0 up to below the one it is given. `lock` and `draw_id` are there for
    tests.
    """

    defaults: LogConfig = field(default_factory=LogConfig)
    knows_broker: bool = False
    """`defaults` are those of the broker whose log directories these are: what it deleted, we may delete."""
    intervals: Intervals = field(default_factory=Intervals)
    recovery: PlanOptions = field(default_factory=PlanOptions)
    reporter: Reporter = field(default_factory=SilentReporter)
    jobs: int = 1
    version: str = ""
    producer_expiration_ms: int = 86_400_000
    cleaner_memory_bytes: int = 134_217_728
    """Of the offset map: `log.cleaner.dedupe.buffer.size`."""
    compacts: bool = True
    """`log.cleaner.enable`: without it, what is to be compacted stays as it is."""
    cleaner_throttle: Callable[[int], None] = lambda _size: None
    """Receives the number of bytes that compaction reads and writes, and may wait."""
    sets_aside: tuple[type[LogmendError], ...] = ()
    """Refusals of one log directory that take it offline alone, while the others are opened."""
    draw_jitter: Callable[[int], int] = lambda _bound: 0
    lock: Callable[[PurePath], AbstractContextManager[Any]] = lock_log_dir
    draw_id: DrawId = draw_id
