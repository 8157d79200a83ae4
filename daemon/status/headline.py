"""The state of the whole service in one sentence, for the page and for `logmend status`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from daemon.status.model import PASSING, DirState, LogDirStatus, RecoveryProgress, ScrubState, ServiceStatus
from daemon.status.phrases import percent_read, records_at_stake, span, time_left
from recovery.plan.words import count, grouped
from storage.base.errors import printable

_SERIOUS: Final = ("damage", "blocking")
_LATE_SECONDS: Final = 600


class Level(Enum):
    """How serious a headline is, the worst last."""

    GOOD = "good"
    WORKING = "working"
    ATTENTION = "attention"
    BAD = "bad"


class Headline(NamedTuple):
    """The state of the whole service in one sentence, without its full stop."""

    level: Level
    text: str


def headline_of(status: ServiceStatus) -> Headline:
    """Return the worst remark, with up to two others behind it."""
    if status.stopping:
        return Headline(Level.WORKING, "The service is stopping")
    remarks = sorted(_remarks(status), key=lambda remark: _ORDER.index(remark.level), reverse=True)
    if not remarks:
        return _all_well(status)
    level = remarks[0].level
    text = "; ".join(remark.text for remark in remarks[:3])
    return Headline(level, text[0].upper() + text[1:])


_ORDER: Final = list(Level)


def _remarks(status: ServiceStatus) -> Iterator[Headline]:
    """Yield a remark on all that is not as it should be, in no order."""
    dirs = status.log_dirs
    yield from _of_dirs(Level.BAD, "offline", [log_dir for log_dir in dirs if log_dir.state is DirState.OFFLINE], dirs)
    yield from _of_dirs(
        Level.ATTENTION, "absent", [log_dir for log_dir in dirs if log_dir.state is DirState.ABSENT], dirs
    )
    yield from _of_findings(status)
    yield from _of_suspects(dirs)
    yield from _of_recovery(dirs)
    for listener in status.listeners:
        if listener.reason and listener.reason not in PASSING:
            text = f"Kafka clients are not served at {printable(listener.listen)}: {printable(listener.reason)}"
            yield Headline(Level.BAD, text)
    for log_dir in dirs:
        if log_dir.state not in (DirState.OFFLINE, DirState.ABSENT):
            yield from _of_promises(log_dir)


def _of_dirs(
    level: Level, word: str, which: Sequence[LogDirStatus], every: Sequence[LogDirStatus]
) -> Iterator[Headline]:
    if len(which) == 1:
        reason = f": {printable(which[0].reason)}" if which[0].reason else ""
        of = f" (1 of {len(every)})" if len(every) > 1 else ""
        yield Headline(level, f"{printable(which[0].path)} is {word}{of}{reason}")
    elif which:
        yield Headline(level, f"{len(which)} of {len(every)} log directories are {word}")


def _of_findings(status: ServiceStatus) -> Iterator[Headline]:
    findings = [finding for log_dir in status.log_dirs for finding in log_dir.findings]
    serious = [finding for finding in findings if finding.severity in _SERIOUS]
    lesser = sum(finding.severity == "repairable" for finding in findings)
    if serious:
        places = {(finding.log_dir, finding.topic, finding.partition) for finding in serious}
        names = sorted({f"{f.topic}-{f.partition}" for f in serious if f.topic is not None})
        where = f"in {printable(names[0])}" if len(places) == 1 and names else f"in {count(len(places), 'partition')}"
        needs = "needs" if len(serious) == 1 else "need"
        records = sum(records_at_stake(finding.first_offset, finding.last_offset) for finding in serious)
        stake = f", up to {count(records, 'record')} at stake" if records else ""
        yield Headline(Level.BAD, f"{count(len(serious), 'serious finding')} {where} {needs} a person{stake}")
    if lesser:
        waits = "waits" if lesser == 1 else "wait"
        yield Headline(Level.ATTENTION, f"{count(lesser, 'repairable finding')} {waits} for the next recovery")


def _of_suspects(dirs: Sequence[LogDirStatus]) -> Iterator[Headline]:
    suspects = sum(each.verdict_counts()["suspect"] for each in dirs)
    if suspects:
        waits = "waits" if suspects == 1 else "wait"
        text = f"{count(suspects, 'partition')} read badly once {waits} for a second look"
        yield Headline(Level.ATTENTION, text)


def _of_recovery(dirs: Sequence[LogDirStatus]) -> Iterator[Headline]:
    running = [each for each in dirs if each.state is DirState.RECOVERING]
    if not running:
        return
    whole = _sum_of([log_dir.recovery for log_dir in running if log_dir.recovery])
    percent = f": {share} read" if (share := percent_read(whole)) else ""
    rest = f", {time_left(whole)}" if whole.eta_seconds else ""
    yield Headline(
        Level.WORKING, f"{count(len(running), 'log directory', 'log directories')} in recovery{percent}{rest}"
    )


def _sum_of(parts: Sequence[RecoveryProgress]) -> RecoveryProgress:
    """Return several recoveries as one; they run at the same time."""
    return RecoveryProgress(
        sum(part.total_bytes for part in parts),
        sum(part.done_bytes for part in parts),
        sum(part.bytes_per_second for part in parts),
        max((part.eta_seconds or 0 for part in parts), default=0),
        sum(part.partitions_total for part in parts),
        sum(part.partitions_done for part in parts),
        sum(part.segments_remaining for part in parts),
        is_listed=all(part.is_listed for part in parts),
    )


def _of_promises(each: LogDirStatus) -> Iterator[Headline]:
    place = printable(each.path)
    scrub, lag = each.scrub, each.lag
    if scrub is not None and scrub.state is ScrubState.SICK_DEVICE:
        yield Headline(Level.BAD, f"the device under {place} gives too many errors and is scrubbed no further")
    elif scrub is not None and scrub.state is ScrubState.PAUSED:
        yield Headline(Level.ATTENTION, f"the scrubber of {place} is paused")
    elif scrub is not None and scrub.behind_seconds > 0:
        yield Headline(Level.ATTENTION, f"the scrubber of {place} will be {span(scrub.behind_seconds)} late")
    if lag is not None and lag.seconds > _LATE_SECONDS:
        yield Headline(Level.ATTENTION, f"flushed data in {place} has waited {span(lag.seconds)} for its first look")


def _all_well(status: ServiceStatus) -> Headline:
    dirs = status.log_dirs
    cells = sum(len(each.partitions) for each in dirs)
    unread = sum(each.verdict_counts()["unverified"] for each in dirs)
    place = count(len(dirs), "log directory", "log directories")
    if any(each.state is DirState.STARTING for each in dirs):
        return Headline(Level.WORKING, f"Starting on {place}")
    if unread == cells and cells:
        return Headline(Level.WORKING, f"Nothing read yet: 0 of {count(cells, 'partition')}")
    if unread:
        return Headline(
            Level.WORKING, f"Nothing wrong so far: {grouped(cells - unread)} of {count(cells, 'partition')} read"
        )
    if not cells:
        return Headline(Level.GOOD, f"Nothing wrong in {place}; there are no partitions yet")
    return Headline(Level.GOOD, f"{'All ' if cells > 1 else ''}{count(cells, 'partition')} in {place} read and sound")
