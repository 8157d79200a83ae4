"""The status of the service as one immutable value, which status, metrics and the page show.

Each worker makes a `LogDirStatus`, the service a `ServiceStatus` of all of them. A reader never reaches into the state
of a worker, so that no request can delay the work. Times are milliseconds since 1970, spans seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import Final, Protocol


class Mode(StrEnum):
    """The owner of a log directory."""

    GUARD = "guard"  # a broker's: only read
    OWN = "own"  # ours: recovered, then run by the engine


class DirState(StrEnum):
    """The state of a log directory."""

    STARTING = "starting"
    RECOVERING = "recovering"
    SERVING = "serving"  # own: open, with the engine running
    GUARDING = "guarding"  # guard: followed and scrubbed
    OFFLINE = "offline"  # a fault of the disk or a refusal; the reason says which
    ABSENT = "absent"  # missing, or not mounted; the worker looks for it again
    STOPPED = "stopped"


class CellVerdict(StrEnum):
    """What is known of a partition: the worst of its segments, in this order."""

    DAMAGED = "damaged"
    HELD = "held"  # the repair waits for an operator or a replica
    UNREADABLE = "unreadable"
    SUSPECT = "suspect"  # read badly once, to be read again
    REPAIRABLE = "repairable"  # its records are sound; a file derived from them is not, and can be rebuilt
    UNVERIFIED = "unverified"  # not read yet
    SOUND = "sound"


class ScrubState(StrEnum):
    """The state of the scrubber."""

    RUNNING = "running"
    WAITING = "waiting"  # ahead of its pace
    PAUSED = "paused"  # by an operator
    OUTSIDE_HOURS = "outside_hours"
    YIELDING = "yielding"  # the disks are under pressure
    SICK_DEVICE = "sick_device"  # too many bad files on one device
    OFF = "off"


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """A recovery that runs, or the last one. Bytes are those of the logs it scans.

    Until all partitions are listed, `total_bytes` and `segments_remaining` count only the listed ones.
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
    """Flushed data that is not verified yet; of guarded directories only.

    Own log directories have none: the engine checks data before it writes, and the scrubber reads it in its cycle.
    """

    partitions: int
    bytes: int
    seconds: float
    """Age of the oldest flush that is not verified; 0 without one."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a crash now would leave to read, of the segments that a recovery reads; of guarded directories only."""

    bytes: int
    """No mark covers them: what a recovery reads after a broker was killed."""
    power_bytes: int
    """No durable mark covers them: what a recovery reads after a power cut."""
    marked_bytes: int
    partitions: int
    """Partitions with bytes that no mark covers."""


@dataclass(frozen=True, slots=True)
class ScrubStatus:
    """The progress of the scrubber against its promise."""

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
    """A finding that is not closed. Texts may hold any character that a name on disk can: escape them."""

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
    """The next command for the operator, once the broker is stopped."""


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
    """The items in quarantine."""

    items: int
    bytes: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose log directory it is, by its `meta.properties`; None where that does not say, or cannot be read."""

    cluster_id: str | None = None
    broker_id: int | None = None


@dataclass(frozen=True, slots=True)
class LogDirStatus:
    """One log directory."""

    path: PurePath
    mode: Mode
    state: DirState
    reason: str
    """Why, in words; empty where the state needs none."""
    since_ms: int
    """Start of that state."""
    broker_pid: int | None = None
    """Process that holds its `.lock`, other than ours; 0 where the system does not name it."""
    recovery: RecoveryProgress | None = None
    lag: VerificationLag | None = None
    exposure: Exposure | None = None
    scrub: ScrubStatus | None = None
    quarantine: QuarantineStatus | None = None
    findings: tuple[OpenFinding, ...] = ()
    partitions: tuple[PartitionCell, ...] = ()
    free_bytes: int | None = None
    size_bytes: int | None = None
    device: str = ""
    owner: Owner = Owner()
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
    """Sum of the times from request to answer."""
    buckets: tuple[int, ...] = ()
    """Requests between two bounds of `LATENCY_BOUNDS`; the last entry, above all of them."""


LATENCY_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a consumer group in one topic: records up to the high watermarks that it has not committed."""

    group: str
    topic: str
    records: int


PASSING: Final = ("starting", "stopping", "not started")
"""Reasons of a listener that pass by themselves."""


@dataclass(frozen=True, slots=True)
class ListenerStatus:
    """A listener and its Kafka clients."""

    listen: str
    """Address for clients, with the port that the system chose for port 0."""
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
    """Every log directory is served, guarded, or known to be offline, and Kafka clients can connect."""
    stopping: bool
    log_dirs: tuple[LogDirStatus, ...]
    counters: dict[str, int] = field(default_factory=dict)
    """Totals since the start, by the name of the event or work they count."""
    listeners: tuple[ListenerStatus, ...] = ()
    host: str = ""


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
        """Note that these paths changed; returns at once."""

    def command(self, name: str, argument: str = "") -> str:
        """Accept an order (`scrub-now`, …) and answer in a sentence; `ValueError` if unknown."""

    def status(self) -> tuple[LogDirStatus, ...]:
        """Return the status of the log directories, at once."""

    def stop(self) -> None:
        """End cleanly: drain, flush, write checkpoints, release locks."""


class Events(Protocol):
    """Receives events. `daemon.events.names` has their names and fields."""

    def tell(self, event: str, **fields: object) -> None:
        """Log and count the event, and run the command for it. From any thread; never raises, never waits."""


class Clock(Protocol):
    """Time; tests use one that they move themselves."""

    def now_ms(self) -> int:
        """Return the time of day, which may jump."""

    def monotonic(self) -> float:
        """Return seconds that never jump."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
