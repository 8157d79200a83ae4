"""Runs the parts of a recovery in process, as `logmend recover` does, for tests that look at what it leaves."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from recovery.apply.execute import Executed, execute
from recovery.apply.hand_over import hand_over
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from recovery.plan.plan import LogDirPlan, PlanOptions
from recovery.plan.results import HandedOver
from storage.disk.fs import Fs, OsFs

LOCK = ".lock"


def options_of(config: dict[str, str], **more: Any) -> PlanOptions:
    """Return the options that fit the settings of a broker."""
    return PlanOptions(
        index_interval_bytes=int(config.get("log.index.interval.bytes", 4096)),
        segment_index_bytes=int(config.get("log.index.size.max.bytes", 10 << 20)),
        **more,
    )


def plan(log_dir: Path, options: PlanOptions | None = None, fs: Fs | None = None) -> LogDirPlan:
    """Return the plan for a log directory."""
    return plan_log_dir(fs or OsFs(), log_dir, options or PlanOptions()).plan


def recover(log_dir: Path, options: PlanOptions | None = None, fs: Fs | None = None, **orders: Any) -> Executed:
    """Plan and carry out; the plan's time of creation is a constant."""
    fs = fs or OsFs()
    planned = plan_log_dir(fs, log_dir, options or PlanOptions())
    how = Orders(planned.plan.plan_id, orders.pop("created_ms", 1_700_000_000_000), "test", **orders)
    return execute(fs, planned.plan, planned.content_of, how, SilentReporter())


def recover_and_hand_over(log_dir: Path, options: PlanOptions | None = None, created_ms: int = 1) -> HandedOver:
    """Do all that the command does, the raising of the recovery points included."""
    recover(log_dir, options, created_ms=created_ms)
    done = plan(log_dir, options)
    return hand_over(OsFs(), done, Orders(done.plan_id, created_ms + 1, "test"), SilentReporter())


def tree(directory: Path) -> dict[str, tuple[int, int, int, str]]:
    """Return size, mtime, mode and SHA-256 of every file below a directory but its lock."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.name != LOCK:
            stat = path.stat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(directory))] = (stat.st_size, stat.st_mtime_ns, stat.st_mode, digest)
    return found


def kept_by_us(name: str) -> bool:
    """Tell whether a file name is one that a recovery gives to what it keeps."""
    return name.endswith((".logmend", ".logmend.json"))
