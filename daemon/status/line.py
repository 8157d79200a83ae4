"""The state of the service in one line, as `systemctl status` shows it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from daemon.status.model import DirState, LogDirStatus, ServiceStatus
from daemon.status.phrases import recovery_phrase
from recovery.plan.words import count
from storage.base.errors import printable

_WORDS: Final = {
    DirState.STARTING: "starting",
    DirState.SERVING: "serving",
    DirState.GUARDING: "guarding",
    DirState.OFFLINE: "offline",
    DirState.ABSENT: "absent",
    DirState.STOPPED: "closed",
}


def status_line(status: ServiceStatus) -> str:
    """Return recoveries first, then how many directories are in each state, then findings."""
    parts = ["stopping"] if status.stopping else []
    parts += [_recovery(log_dir) for log_dir in status.log_dirs if log_dir.state is DirState.RECOVERING]
    states: Counter[DirState] = Counter(
        log_dir.state for log_dir in status.log_dirs if log_dir.state is not DirState.RECOVERING
    )
    parts += [f"{word} {states[state]}" for state, word in _WORDS.items() if states[state]]
    parts += [
        f"{printable(log_dir.path)}: {printable(log_dir.reason)}"
        for log_dir in status.log_dirs
        if log_dir.state in (DirState.OFFLINE, DirState.ABSENT)
    ]
    findings = sum(len(log_dir.findings) for log_dir in status.log_dirs)
    if findings:
        parts.append(count(findings, "finding"))
    return "; ".join(parts)


def _recovery(log_dir: LogDirStatus) -> str:
    line = f"recovering {printable(log_dir.path)}"
    progress = log_dir.recovery
    return line if progress is None or not progress.total_bytes else f"{line}: {recovery_phrase(progress)}"
