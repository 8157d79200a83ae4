"""Phrases that every rendering of the status shares: spans of time, the progress of a recovery, words for states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from daemon.status.model import RecoveryProgress
from recovery.plan.words import count, grouped, short_size

T = TypeVar("T")
VERDICTS: Final = {
    "sound": "sound",
    "unverified": "not read yet",
    "repairable": "with a file to be rebuilt",
    "suspect": "read badly once",
    "held": "held for a person or a replica",
    "unreadable": "unreadable",
    "damaged": "damaged",
}
"""What each verdict on a partition means."""
SCRUB_STATES: Final = {
    "running": "running",
    "waiting": "ahead of its pace",
    "paused": "paused by a person",
    "outside_hours": "outside its hours",
    "yielding": "waiting for the disks",
    "sick_device": "stopped: too many errors on this device",
    "off": "off",
}
_RUNBOOKS: Final = {
    "crc-error": ("batch_", "record_", "torn_", "garbage_", "offset_", "changed_in_place", "log_missing", "read_error"),
    "corrupt-index": ("index_", "time_index_", "txn_index_"),
    "restored-snapshot": ("recovery_point_regressed",),
}
"""Beginnings of the kinds that each runbook is for."""
_SEVERITIES: Final = ("blocking", "damage", "repairable", "note")


def records_at_stake(first: int | None, last: int | None) -> int:
    """Return how many records a finding may concern at most, 0 where it names no offsets."""
    return 0 if first is None or last is None else max(last - first + 1, 1)


def runbook_of(kind: str) -> str:
    """Return the name of the runbook for a kind of finding."""
    return next((name for name, starts in _RUNBOOKS.items() if kind.startswith(starts)), "broker-does-not-start")


def worst_first(findings: Iterable[T], severity: Callable[[T], str]) -> list[T]:
    """Return findings by severity, an unknown one last."""
    rank = {name: number for number, name in enumerate(_SEVERITIES)}
    return sorted(findings, key=lambda finding: rank.get(severity(finding), len(rank)))


def span(seconds: float) -> str:
    """Return seconds in the unit that fits: `42 s`, `3 min`, `2 h 10 min`, `3 d 4 h`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        minutes = whole % 3600 // 60
        return f"{whole // 3600} h {minutes} min" if minutes else f"{whole // 3600} h"
    hours = whole % 86400 // 3600
    return f"{whole // 86400} d {hours} h" if hours else f"{whole // 86400} d"


def percent_read(progress: RecoveryProgress) -> str:
    """Return the share of the bytes that a recovery has read; empty until all partitions are listed."""
    if not progress.total_bytes or not progress.is_listed:
        return ""
    return f"{min(progress.done_bytes * 100 // progress.total_bytes, 100)} %"


def time_left(progress: RecoveryProgress) -> str:
    """Return how long a recovery still takes; empty while that is unknown."""
    return "" if progress.eta_seconds is None else f"about {span(progress.eta_seconds)} left"


def exposure_phrase(exposure: Mapping[str, int]) -> str:
    """Return what a crash now would leave to read, by the document of an exposure."""
    killed, cut, marked = (short_size(exposure[name]) for name in ("bytes", "power_bytes", "marked_bytes"))
    return f"{killed} to read if the broker were killed now, {cut} after a power cut; {marked} are marked"


def recovery_phrase(progress: RecoveryProgress) -> str:
    """Return the progress of a recovery that runs, in one line."""
    least = "" if progress.is_listed else "at least "
    parts = [
        percent_read(progress),
        f"{short_size(progress.done_bytes)} of {least}{short_size(progress.total_bytes)}",
        f"{short_size(int(progress.bytes_per_second))}/s" if progress.bytes_per_second > 0 else "",
        time_left(progress),
        f"{grouped(progress.partitions_done)} of {count(progress.partitions_total, 'partition')}",
        f"{count(progress.segments_remaining, 'segment')} left",
    ]
    return ", ".join(part for part in parts if part)
