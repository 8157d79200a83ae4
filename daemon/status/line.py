"""The state of the service in one line, as `systemctl status` shows it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from daemon.status.model import DirState, LogDirStatus, RecoveryProgress, ServiceStatus
from recovery.plan.words import count, short_size
from recovery.report.meter import duration
from storage.base.errors import printable

_WORDS: Final = {
    DirState.STARTING: "starting",
    DirState.SERVING: "serving",
    DirState.GUARDING: "guarding",
    DirState.OFFLINE: "offline",
    DirState.ABSENT: "absent",
    DirState.STOPPED: "closed",
}


def status_line(found: ServiceStatus) -> str:
    """Return what matters now: a recovery first, then how many directories are in which state, then findings."""
    parts = ["stopping"] if found.stopping else []
    parts += [_recovery(each, each.recovery) for each in found.log_dirs if each.state is DirState.RECOVERING]
    states: Counter[DirState] = Counter(each.state for each in found.log_dirs if each.state is not DirState.RECOVERING)
    parts += [f"{word} {states[state]}" for state, word in _WORDS.items() if states[state]]
    parts += [
        f"{printable(each.path)}: {printable(each.reason)}"
        for each in found.log_dirs
        if each.state in (DirState.OFFLINE, DirState.ABSENT)
    ]
    findings = sum(len(each.findings) for each in found.log_dirs)
    if findings:
        parts.append(count(findings, "finding"))
    return "; ".join(parts)


def _recovery(each: LogDirStatus, progress: RecoveryProgress | None) -> str:
    line = f"recovering {printable(each.path)}"
    if progress is None or not progress.total_bytes:
        return line
    least = "" if progress.is_listed else "at least "
    told = [f"{short_size(progress.done_bytes)} of {least}{short_size(progress.total_bytes)}"]
    if progress.is_listed:
        told.append(f"{min(progress.done_bytes * 100 // progress.total_bytes, 100)} %")
    if progress.bytes_per_second > 0:
        told.append(f"{short_size(int(progress.bytes_per_second))}/s")
    if progress.eta_seconds is not None:
        told.append(f"ETA {duration(progress.eta_seconds)}")
    told.append(f"{progress.partitions_done} of {count(progress.partitions_total, 'partition')}")
    return f"{line}: {', '.join(told)}"
