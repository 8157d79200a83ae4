"""What the service is doing, as one immutable value: what status, metrics and the page show, and nothing else.

Workers make a `LogDirStatus` each, the service frames them as a `ServiceStatus`. Whoever shows one never reaches into
the state of a worker, so that no request can hold up the work. Times are milliseconds since 1970, spans seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import Final, Protocol


class Mode(StrEnum):
    """Whose log directory it is."""

    GUARD = "guard"  # a broker's: only read
    OWN = "own"  # ours: recovered, then run by the engine


class DirState(StrEnum):
    """How far a log directory is."""

    STARTING = "starting"
    RECOVERING = "recovering"
    SERVING = "serving"  # own: open, with the engine running
    GUARDING = "guarding"  # guard: followed and scrubbed
    OFFLINE = "offline"  # a fault of the disk or a refusal; the reason says which
    ABSENT = "absent"  # not there, or not mounted; looked for again
    STOPPED = "stopped"


class CellVerdict(StrEnum):
    """What is known of a partition, the worst of its segments first."""

    DAMAGED = "damaged"
    HELD = "held"  # repair waits for a person or a replica
    UNREADABLE = "unreadable"
    SUSPECT = "suspect"  # read badly once, to be read again
    REPAIRABLE = "repairable"  # its records are sound; a file made of them is not, and can be made anew
    UNVERIFIED = "unverified"  # not read yet
    SOUND = "sound"


class ScrubState(StrEnum):
    """What the scrubber is at."""

    RUNNING = "running"
    WAITING = "waiting"  # ahead of its pace
    PAUSED = "paused"  # by a person
    OUTSIDE_HOURS = "outside_hours"
    YIELDING = "yielding"  # the disks are under pressure
    SICK_DEVICE = "sick_device"  # too many errors on one device: stopped for its sake
    OFF = "off"


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """A recovery that runs, or the last one that ran. Bytes are those to be scanned and those that were.

    Until all partitions are listed, `total_bytes` and `segments_remaining` are what is known so far.
    """

    total_bytes: int
    done_bytes: int
    bytes_per_second: float
    eta_seconds: float | None
    partitions_total: int
    partitions_done: int
    segments_remaining: int
    finished_ms: int | None = None
    result: str = ""
    """In a few words, once it is finished."""
    is_listed: bool = True


@dataclass(frozen=True, slots=True)
class VerificationLag:
    """What was flushed and is not verified yet; of guarded directories alone.

    What we write ourselves is checked before it is written, and read back by the scrubber within its cycle.
    """

    partitions: int
    bytes: int
    seconds: float
    """Age of the oldest checkpoint change that was not dealt with; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class ScrubStatus:
    """Where the scrubber is, against its promise."""

    state: ScrubState
    reason: str
    cycle_seconds: float
    segments_total: int
    bytes_total: int
    bytes_due: int
    """Bytes not read within the last cycle."""
    bytes_read: int
    """Since the start of the service."""
    bytes_per_second: float
    oldest_verified_ms: int | None
    """When the segment that waits longest was last verified; None while one never was."""
    behind_seconds: float
    """By how much the promise will be broken at the present pace; 0 where it will be kept."""


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """A finding that nobody has dealt with. Texts may hold any character that a name on disk can: escape them."""

    id: str
    """Short and stable: the same damage has the same id after a restart."""
    log_dir: PurePath
    topic: str | None
    partition: int | None
    path: PurePath
    kind: str
    """The value of a `recovery.plan.findings.Damage`, or `changed_in_place`, `recovery_point_regressed`."""
    severity: str
    evidence: str
    position: int | None
    size: int | None
    first_offset: int | None
    last_offset: int | None
    next_good_offset: int | None
    verdict: str
    """`on disk`, `transient` (a second read, past the page cache, was sound) or `unconfirmed`."""
    first_seen_ms: int
    last_seen_ms: int
    command: str
    """What a person runs to deal with it, once the broker is stopped."""


@dataclass(frozen=True, slots=True)
class PartitionCell:
    """One partition, for the page."""

    topic: str
    partition: int
    segments: int
    size_bytes: int
    verified_ms: int | None
    """When the segment of it that waits longest was last verified; None while one never was."""
    verdict: CellVerdict
    findings: int


@dataclass(frozen=True, slots=True)
class QuarantineStatus:
    """What was cut and set aside, and is still kept."""

    items: int
    bytes: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class LogDirStatus:
    """One log directory."""

    path: PurePath
    mode: Mode
    state: DirState
    reason: str
    """Why, in words; empty where the state says it all."""
    since_ms: int
    """Since when it is in that state."""
    broker_pid: int | None = None
    """Who holds its `.lock`, if it is not us: 0 where the system does not say."""
    recovery: RecoveryProgress | None = None
    lag: VerificationLag | None = None
    scrub: ScrubStatus | None = None
    quarantine: QuarantineStatus | None = None
    findings: tuple[OpenFinding, ...] = ()
    partitions: tuple[PartitionCell, ...] = ()
    free_bytes: int | None = None
    size_bytes: int | None = None
    device: str = ""
    exit_status: int = 0
    """What the directory adds to the exit status of the service, beside its state and its findings."""

    def verdict_counts(self) -> dict[str, int]:
        """Return how many partitions have each verdict, none left out."""
        counts = Counter(cell.verdict for cell in self.partitions)
        return {verdict.value: counts[verdict] for verdict in CellVerdict}


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """Requests of one kind so far."""

    kind: str
    """As Kafka calls it: `Produce`, `Fetch`."""
    count: int
    seconds: float = 0.0
    """From the beginning of each to its answer, all together."""
    buckets: tuple[int, ...] = ()
    """How many took up to each of `LATENCY_BOUNDS` and longer than the one before; the last one, longer than all."""


LATENCY_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a consumer group is behind in one topic: records up to the high watermarks that it has not committed."""

    group: str
    topic: str
    records: int


PASSING: Final = ("starting", "stopping", "not started")
"""Reasons of a listener that are none to worry."""


@dataclass(frozen=True, slots=True)
class ListenerStatus:
    """What Kafka clients do on our directories."""

    listen: str
    """Where clients connect; with the port that was found where port 0 was asked for."""
    reason: str
    """Why it does not serve; empty while it does."""
    flush: str
    """What an acknowledged record has been through: `none`, `interval`, `sync`."""
    connections: int = 0
    accepted: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    waiting_bytes: int = 0
    """Of appends that are not answered."""
    requests: tuple[RequestStatus, ...] = ()
    ended: Mapping[str, int] = field(default_factory=dict)
    """Connections that we ended, by kind of reason."""
    lags: tuple[GroupLag, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The whole service."""

    version: str
    kernel: str
    pid: int
    started_ms: int
    now_ms: int
    ready: bool
    """Every log directory is served or guarded, offline ones left aside."""
    stopping: bool
    log_dirs: tuple[LogDirStatus, ...]
    counters: dict[str, int] = field(default_factory=dict)
    """Totals since the start, by the name of the event or work they count."""
    listeners: tuple[ListenerStatus, ...] = ()


class Worker(Protocol):
    """Works on one or several log directories, in a thread of its own that the service gives it.

    `start`, `step` and `stop` are called by that thread alone, in this order; `status`, `wake` and `command` by any.
    No fault of a disk leaves `start` or `step`: it becomes a state of its log directory, and the others go on.
    """

    @property
    def log_dirs(self) -> tuple[PurePath, ...]:
        """The directories it is responsible for."""

    def start(self) -> None:
        """Do what comes before the first step; may take long, with `status` answering meanwhile."""

    def step(self) -> float:
        """Do a bounded piece of work, a second at most; return after how many seconds to call again, 0 for at once."""

    def wake(self, paths: frozenset[PurePath]) -> None:
        """Hear that these paths changed; returns at once."""

    def command(self, name: str, argument: str = "") -> str:
        """Take an order (`scrub-now`, `scrub-pause`, `scrub-resume`), answer in a sentence; `ValueError` if unknown."""

    def status(self) -> tuple[LogDirStatus, ...]:
        """Return what there is to show, at once."""

    def stop(self) -> None:
        """End in good order: drain, flush, write what is due, let go of locks."""


class Events(Protocol):
    """Where a worker tells what happened. `daemon.events.events` has the names; fields are words of the house."""

    def tell(self, event: str, **fields: object) -> None:
        """Log it, count it, and run what is to be run for it. From any thread; never raises, never waits."""


class Clock(Protocol):
    """Time, so that tests can make weeks of it."""

    def now_ms(self) -> int:
        """Return the time of day, which may jump."""

    def monotonic(self) -> float:
        """Return seconds that never jump."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
