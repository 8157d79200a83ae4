"""A plan: what would be done to a log directory, as a frozen value that can be written down, read and carried out.

The plan holds no content of derived files, only their size and SHA-256: the executor derives them again from
the same bytes or has kept them. Its id is a digest of everything in it, so two runs over the same bytes with the same
options name the same plan, and the id names what was set aside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, NamedTuple, TypeAlias

from recovery.plan.digest import sha256_of
from recovery.plan.findings import Damage, Finding, Severity
from storage.base.errors import ExitStatus
from storage.base.names import is_cluster_metadata, parse_directory_name
from storage.base.units import TopicPartition
from storage.disk.fs import FileStat

SCHEMA_VERSION: Final = 1
"""Of the JSON form. Fields are only ever added under the same number."""

DEFAULT_INDEX_INTERVAL: Final = 4096
"""Kafka's default of `index.interval.bytes`."""
DEFAULT_INDEX_BYTES: Final = 10 << 20
"""Kafka's default of `segment.index.bytes`."""


class Quarantine(NamedTuple):
    """Copy `size` bytes from `position` of `path` aside, durably, before anything is changed.

    With `zeroes` the bytes are all zero, and the manifest keeps their count instead of a copy.
    """

    path: PurePath
    position: int
    size: int
    zeroes: bool
    reason: str


class TruncateTo(NamedTuple):
    """Cut the file from `old_size` to `size` bytes. What is cut off has been quarantined."""

    path: PurePath
    size: int
    old_size: int


class SetAside(NamedTuple):
    """Give the whole file a name of ours, under which a broker does not see it."""

    path: PurePath
    reason: str


class Rename(NamedTuple):
    """Finish an interrupted swap: the file gets the name that was meant for it."""

    path: PurePath
    target: PurePath


class ReplaceFile(NamedTuple):
    """Rewrite `path` with `size` bytes of SHA-256 `sha256`; what was there before is kept under a name of ours."""

    path: PurePath
    size: int
    sha256: str
    replaces: bool
    reason: str


class Piece(NamedTuple):
    """`size` bytes from `position` on become the segment of `base_offset`."""

    base_offset: int
    position: int
    size: int


class SplitLog(NamedTuple):
    """Copy the pieces of a log into segments of their own, which take its place when it is set aside."""

    path: PurePath
    pieces: tuple[Piece, ...]


class KeepCopy(NamedTuple):
    """Copy `size` bytes from `position` of `path` aside, durably; the file stays as it is."""

    path: PurePath
    position: int
    size: int
    first_offset: int
    reason: str


class SplicePiece(NamedTuple):
    """`size` bytes of a spliced log: its own from `position` on, or, where that is None, those of a replica."""

    position: int | None
    size: int
    source: str = ""
    first_offset: int | None = None
    last_offset: int | None = None
    sha256: str = ""


class SpliceSegment(NamedTuple):
    """Rewrite the log from its sound pieces and what a replica has for its holes; the old file is kept."""

    path: PurePath
    pieces: tuple[SplicePiece, ...]
    size: int
    reason: str


Action: TypeAlias = Quarantine | TruncateTo | SetAside | Rename | ReplaceFile | SplitLog | SpliceSegment | KeepCopy


class Precondition(NamedTuple):
    """A file as it was examined; if it is no longer so, nothing of the plan may be done."""

    path: PurePath
    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: PurePath, stat: FileStat) -> Precondition:
        """Return what must still hold of `path`."""
        return cls(path, stat.size, stat.mtime_ns, stat.inode)


class LoadedOffsets(NamedTuple):
    """What a broker will find: first kept, next to be written, and the new recovery point."""

    log_start: int
    log_end: int
    recovery_point: int


class Roll(NamedTuple):
    """A hand-over ends the active segment, of `size` bytes, and begins an empty one at `base_offset`, the log end."""

    base_offset: int
    size: int


class Trim(NamedTuple):
    """An index that has nothing but zeroes behind its first `size` bytes of `old_size`."""

    name: str
    size: int
    old_size: int


class Seen(NamedTuple):
    """What the survey of a partition has seen that a hand-over needs; no part of the plan."""

    active_bytes: int
    """Size of the last log."""
    has_end_snapshot: bool
    """The producers at the log end are on the disk."""
    unflushed: tuple[str, ...]
    """Files that may hold what is not durable: from the segment of the recovery point on, and those beside the log."""
    trims: tuple[Trim, ...] = ()
    """Indexes of the active segment, as a running broker keeps them preallocated."""


class Coverage(NamedTuple):
    """Bytes of logs that were read whole, from the segment of the recovery point on and below, and those that were not.

    Of a log that was not read whole a quick look has seen the ends. `marked` of the unflushed bytes were read by a
    guard and not again: of each log, so many milliseconds before or later. None: unknown.
    """

    unflushed: int = 0
    flushed: int = 0
    unread: int = 0
    marked: int = 0
    marked_age_ms: int | None = None


class Verdict(NamedTuple):
    """One finding, the letter of the row that decided on it, and the decision."""

    finding: Finding
    row: str
    decision: str


class Cut(NamedTuple):
    """What one cut, or one segment set aside behind it, takes out of the log.

    Offsets are inclusive; `last_offset` and `records` are None where nobody can tell. `position` 0: the whole segment.
    """

    path: PurePath
    position: int
    size: int
    first_offset: int
    last_offset: int | None
    records: int | None
    reason: str


class RecoveryPlan(NamedTuple):
    """The plan of one partition. `actions` are in the order in which they must happen; none: nothing is to be done.

    `seen` and `coverage` are no part of it: plans that only differ there are equal.
    """

    partition: str
    directory: PurePath
    verdicts: tuple[Verdict, ...]
    held: bool
    preconditions: tuple[Precondition, ...]
    actions: tuple[Action, ...]
    cuts: tuple[Cut, ...]
    loaded: LoadedOffsets | None
    scanned_bytes: int
    roll: Roll | None = None
    seen: Seen | None = None
    coverage: Coverage = Coverage()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecoveryPlan) and self[:_OF_THE_PLAN] == other[:_OF_THE_PLAN]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:_OF_THE_PLAN])

    @property
    def findings(self) -> Iterator[Finding]:
        """The findings alone."""
        return (verdict.finding for verdict in self.verdicts)


_OF_THE_PLAN: Final = RecoveryPlan._fields.index("seen")


class PlannedPartition(NamedTuple):
    """The plan of one partition and the derived contents that it writes, by path."""

    plan: RecoveryPlan
    contents: dict[PurePath, bytes]


class PlanOptions(NamedTuple):
    """Everything besides the bytes that the plan depends on; `apply` plans again with the same."""

    depth: str = "quick"
    accept_loss: bool = False
    topics: tuple[str, ...] = ()
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL
    segment_index_bytes: int = DEFAULT_INDEX_BYTES
    metadata_dir: str | None = None
    user: int | None = None
    now_ms: int | None = None
    clean_marker: bool = False
    """A clean shutdown marker will be left, so that preallocated indexes have to be trimmed first."""
    frees_deleted: bool = False
    """What brokers have marked for deletion goes at once, for its room, where a start of theirs would remove it."""
    roll_from: int | None = None
    """A hand-over rolls active segments of so many bytes or more; None: no segment."""


class LogDirPlan(NamedTuple):
    """The plan of a log directory: `before` any partition, then the partitions, then `after` all of them."""

    log_dir: PurePath
    options: PlanOptions
    verdicts: tuple[Verdict, ...]
    stopped: bool
    before: tuple[Action, ...]
    partitions: tuple[RecoveryPlan, ...]
    after: tuple[Action, ...]
    preconditions: tuple[Precondition, ...]

    @property
    def plan_id(self) -> str:
        """Twelve hex digits that stand for everything in the plan."""
        text = json.dumps(to_plain(self), sort_keys=True, separators=(",", ":"))
        return sha256_of(text.encode("utf-8", "surrogatepass"))[:12]

    @property
    def is_empty(self) -> bool:
        """Nothing is to be done."""
        return not (self.before or self.after or any(partition.actions for partition in self.partitions))

    def all_verdicts(self) -> Iterator[Verdict]:
        """The verdicts on the log directory itself and on each partition."""
        yield from self.verdicts
        for partition in self.partitions:
            yield from partition.verdicts

    @property
    def findings(self) -> Iterator[Finding]:
        """Every finding, notes included."""
        return (verdict.finding for verdict in self.all_verdicts())

    @property
    def is_held(self) -> bool:
        """Something waits for a replica or a person."""
        return any(verdict.decision == "hold" for verdict in self.all_verdicts())

    @property
    def is_first_of_two(self) -> bool:
        """Once it is carried out, there is more to do: what a finished swap put in place has to be split.

        The two are not one plan, for a split takes the place of files by their names; a broker loads twice as well.
        """
        kind = Damage.OFFSET_OVERFLOW
        return any(finding.kind is kind and finding.path.name.endswith(".swap") for finding in self.findings)

    @property
    def status(self) -> ExitStatus:
        """The exit status of a command that only looks."""
        kinds = {finding.kind.value for finding in self.findings}
        if "read_error" in kinds:
            return ExitStatus.ENVIRONMENT
        if "unsupported" in kinds:
            return ExitStatus.UNSUPPORTED
        if any(finding.kind.severity is not Severity.NOTE for finding in self.findings) or not self.is_empty:
            return ExitStatus.FINDINGS
        return ExitStatus.CLEAN


def regular_partitions(plan: LogDirPlan) -> Iterator[tuple[TopicPartition, RecoveryPlan]]:
    """Yield the partitions that checkpoints speak of: no metadata log, no copy under way, none on its way out."""
    for partition in plan.partitions:
        directory = parse_directory_name(partition.partition)
        if directory.state is None and not is_cluster_metadata(directory.partition):
            yield directory.partition, partition


def rising_points(plan: LogDirPlan) -> dict[TopicPartition, RecoveryPlan]:
    """Return the partitions whose recovery point may rise once the plan is carried out: their log is then in order."""
    if plan.stopped:
        return {}
    return {
        name: partition
        for name, partition in regular_partitions(plan)
        if partition.loaded is not None
        and not partition.held
        and partition.loaded.recovery_point < partition.loaded.log_end
    }


def rolling_segments(plan: LogDirPlan) -> dict[TopicPartition, RecoveryPlan]:
    """Return the partitions of which a hand-over rolls the active segment once the plan is carried out."""
    if plan.stopped:
        return {}
    return {
        name: partition
        for name, partition in regular_partitions(plan)
        if partition.roll is not None and not partition.held
    }


def to_plain(value: object) -> Any:
    """Return a plan, or any value of named tuples and dataclasses, as what JSON knows: an action has its `kind`."""
    kind = type(value)
    if kind in _AS_IT_IS:  # most of what there is
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, tuple | list) and not hasattr(kind, "_fields"):
        return [to_plain(item) for item in value]
    names = _told(kind)
    if names is None:
        return value
    plain = {name: to_plain(getattr(value, name)) for name in names}
    return {"kind": _ACTION_KINDS[kind], **plain} if kind in _ACTION_KINDS else plain


def _told(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields, None for what has none, without `dataclasses`: to import it takes 7 ms."""
    if kind is RecoveryPlan:
        return RecoveryPlan._fields[:_OF_THE_PLAN]
    named: tuple[str, ...] | None = getattr(kind, "_fields", None)
    return named or (tuple(kind.__dataclass_fields__) if hasattr(kind, "__dataclass_fields__") else None)


_AS_IT_IS: Final[frozenset[type]] = frozenset({str, int, bool, type(None)})
_ACTION_KINDS: Final[dict[type, str]] = {
    Quarantine: "quarantine",
    TruncateTo: "truncate",
    SetAside: "set_aside",
    Rename: "rename",
    ReplaceFile: "replace",
    SplitLog: "split",
    SpliceSegment: "splice",
    KeepCopy: "copy",
}
