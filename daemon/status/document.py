"""The state of the service as a document for programs, with its verdict in one sentence for people.

`to_document` is what `/status` and `logmend status --json` show and what lies in `status.json`. Fields are only ever
added under the same schema version. Names are as they are on the disk: whoever shows them escapes them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from daemon.status.model import PASSING, CellVerdict, DirState, LogDirStatus, PartitionCell, ScrubState, ServiceStatus
from recovery.plan.words import count, grouped
from storage.base.errors import printable

SCHEMA_VERSION: Final = 1
CELL_FIELDS: Final = tuple(field.name for field in dataclasses.fields(PartitionCell))
_SERIOUS: Final = ("damage", "blocking")
_LATE_SECONDS: Final = 600


class Level(Enum):
    """How a verdict is meant, the worst last."""

    GOOD = "good"
    WORKING = "working"
    ATTENTION = "attention"
    BAD = "bad"


class Verdict(NamedTuple):
    """What there is to say of the whole, in one sentence without its full stop."""

    level: Level
    text: str


def to_document(status: ServiceStatus, *, partitions: bool = True) -> dict[str, Any]:
    """Return the state as plain values; `partitions` says whether each of them is listed."""
    level, text = verdict_of(status)
    head = {
        "schema_version": SCHEMA_VERSION,
        "document": "status",
        "logmend": status.version,
        "verdict": {"level": level.value, "text": text},
    }
    dirs = [log_dir_document(each, partitions=partitions) for each in status.log_dirs]
    return head | _plain_fields(status, leave=("version", "log_dirs")) | {"log_dirs": dirs}


def log_dir_document(status: LogDirStatus, *, partitions: bool = True) -> dict[str, Any]:
    """Return one log directory, with how many partitions there are of each verdict."""
    told = _plain_fields(status, leave=("partitions",))
    told["partition_counts"] = verdict_counts(status)
    if partitions:
        told["partitions"] = [dict(zip(CELL_FIELDS, cell_values(cell), strict=True)) for cell in status.partitions]
    return told


def cell_values(cell: PartitionCell) -> list[Any]:
    """Return the values of a cell in the order of `CELL_FIELDS`."""
    return [
        cell.topic,
        cell.partition,
        cell.segments,
        cell.size_bytes,
        cell.verified_ms,
        cell.verdict.value,
        cell.findings,
    ]


def verdict_counts(status: LogDirStatus) -> dict[str, int]:
    """Return how many partitions there are of each verdict, none left out."""
    found = Counter(cell.verdict for cell in status.partitions)
    return {verdict.value: found[verdict] for verdict in CellVerdict}


def _plain_fields(value: Any, leave: Sequence[str] = ()) -> dict[str, Any]:
    names = (field.name for field in dataclasses.fields(value))
    return {name: _plain(getattr(value, name)) for name in names if name not in leave}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if dataclasses.is_dataclass(value):
        return _plain_fields(value)
    raise AssertionError(type(value))


def verdict_of(status: ServiceStatus) -> Verdict:
    """Return the worst that there is to say, with what else goes on behind it."""
    if status.stopping:
        return Verdict(Level.WORKING, "The service is stopping")
    said = sorted(_remarks(status), key=lambda remark: _ORDER.index(remark.level), reverse=True)
    if not said:
        return _all_well(status)
    level = said[0].level
    text = "; ".join(remark.text for remark in said[:3])
    return Verdict(level, text[0].upper() + text[1:])


_ORDER: Final = list(Level)


def _remarks(status: ServiceStatus) -> Iterator[Verdict]:
    """Yield all that is worth a remark, in no order."""
    dirs = status.log_dirs
    yield from _of_dirs(Level.BAD, "offline", [each for each in dirs if each.state is DirState.OFFLINE], dirs)
    yield from _of_dirs(Level.ATTENTION, "absent", [each for each in dirs if each.state is DirState.ABSENT], dirs)
    yield from _of_findings(status)
    yield from _of_recovery(dirs)
    for listener in status.listeners:
        if listener.reason and listener.reason not in PASSING:
            text = f"Kafka clients are not served at {printable(listener.listen)}: {printable(listener.reason)}"
            yield Verdict(Level.BAD, text)
    for each in dirs:
        if each.state not in (DirState.OFFLINE, DirState.ABSENT):
            yield from _of_promises(each)


def _of_dirs(
    level: Level, word: str, which: Sequence[LogDirStatus], every: Sequence[LogDirStatus]
) -> Iterator[Verdict]:
    if len(which) == 1:
        reason = f": {printable(which[0].reason)}" if which[0].reason else ""
        of = f" (1 of {len(every)})" if len(every) > 1 else ""
        yield Verdict(level, f"{printable(which[0].path)} is {word}{of}{reason}")
    elif which:
        yield Verdict(level, f"{len(which)} of {len(every)} log directories are {word}")


def _of_findings(status: ServiceStatus) -> Iterator[Verdict]:
    found = [finding for each in status.log_dirs for finding in each.findings]
    serious = [finding for finding in found if finding.severity in _SERIOUS]
    lesser = sum(finding.severity == "repairable" for finding in found)
    if serious:
        places = {(finding.log_dir, finding.topic, finding.partition) for finding in serious}
        names = sorted({f"{f.topic}-{f.partition}" for f in serious if f.topic is not None})
        where = f"in {printable(names[0])}" if len(places) == 1 and names else f"in {count(len(places), 'partition')}"
        needs = "needs" if len(serious) == 1 else "need"
        yield Verdict(Level.BAD, f"{count(len(serious), 'serious finding')} {where} {needs} a person")
    if lesser:
        waits = "waits" if lesser == 1 else "wait"
        yield Verdict(Level.ATTENTION, f"{count(lesser, 'repairable finding')} {waits} for the next recovery")


def _of_recovery(dirs: Sequence[LogDirStatus]) -> Iterator[Verdict]:
    running = [each for each in dirs if each.state is DirState.RECOVERING]
    if not running:
        return
    total = sum(each.recovery.total_bytes for each in running if each.recovery)
    done = sum(each.recovery.done_bytes for each in running if each.recovery)
    left = max((each.recovery.eta_seconds or 0 for each in running if each.recovery), default=0)
    is_listed = all(each.recovery.is_listed for each in running if each.recovery)
    percent = f": {min(done * 100 // total, 100)} % read" if total and is_listed else ""
    rest = f", about {span(left)} left" if left else ""
    yield Verdict(
        Level.WORKING, f"{count(len(running), 'log directory', 'log directories')} in recovery{percent}{rest}"
    )


def _of_promises(each: LogDirStatus) -> Iterator[Verdict]:
    place = printable(each.path)
    scrub, lag = each.scrub, each.lag
    if scrub is not None and scrub.state is ScrubState.SICK_DEVICE:
        yield Verdict(Level.BAD, f"the device under {place} gives too many errors and is scrubbed no further")
    elif scrub is not None and scrub.state is ScrubState.PAUSED:
        yield Verdict(Level.ATTENTION, f"the scrubber of {place} is paused")
    elif scrub is not None and scrub.behind_seconds > 0:
        yield Verdict(Level.ATTENTION, f"the scrubber of {place} will be {span(scrub.behind_seconds)} late")
    if lag is not None and lag.seconds > _LATE_SECONDS:
        yield Verdict(Level.ATTENTION, f"flushed data in {place} has waited {span(lag.seconds)} for its first look")


def _all_well(status: ServiceStatus) -> Verdict:
    dirs = status.log_dirs
    cells = sum(len(each.partitions) for each in dirs)
    unread = sum(verdict_counts(each)["unverified"] for each in dirs)
    place = count(len(dirs), "log directory", "log directories")
    if any(each.state is DirState.STARTING for each in dirs):
        return Verdict(Level.WORKING, f"Starting on {place}")
    if unread:
        return Verdict(
            Level.WORKING, f"Nothing wrong so far: {grouped(cells - unread)} of {count(cells, 'partition')} read"
        )
    if not cells:
        return Verdict(Level.GOOD, f"Nothing wrong in {place}; there are no partitions yet")
    return Verdict(Level.GOOD, f"{'All ' if cells > 1 else ''}{count(cells, 'partition')} in {place} read and sound")


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


def broker_state(status: ServiceStatus) -> dict[str, Any]:
    """Return what the agent in Strimzi's Kafka image says of its broker, in the same shape.

    Source: Strimzi's KafkaAgent, `GET /v1/broker-state`: `brokerState` is the number of Kafka's `BrokerState`, and
    `recoveryState` is there during a recovery alone. Of a broker that is only guarded nothing is known: 127.
    """
    running = [each.recovery for each in status.log_dirs if each.state is DirState.RECOVERING]
    if running:
        known = [each for each in running if each is not None]
        return {
            "brokerState": 2,
            "recoveryState": {
                "remainingLogsToRecover": sum(each.partitions_total - each.partitions_done for each in known),
                "remainingSegmentsToRecover": sum(each.segments_remaining for each in known),
            },
        }
    own = [each for each in status.log_dirs if each.mode.value == "own"]
    if not own:
        return {"brokerState": 127}
    if status.stopping:
        return {"brokerState": 7}
    return {"brokerState": 1 if any(each.state is DirState.STARTING for each in own) else 3}
