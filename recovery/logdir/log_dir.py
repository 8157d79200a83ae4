"""The top of a log directory: its checkpoints and marker, the names of its directories, and what is to be done there.

Source: Apache Kafka 4.3.0, LogManager, OffsetCheckpointFile, CleanShutdownFileHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final, TypeVar

from checkpoint.markers import META_PROPERTIES, decode_meta_properties
from checkpoint.offsets import can_be_listed, decode_leading, decode_offsets, encode_offsets
from recovery.kraft.topic_ids import TopicIds
from recovery.partition.inventory import owner_findings
from recovery.partition.points import SMALL_FILE_LIMIT, Points
from recovery.plan.decide import Flushed, Where, decide
from recovery.plan.digest import sha256_of
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import (
    Action,
    KeepCopy,
    LogDirPlan,
    PlanOptions,
    Precondition,
    Quarantine,
    RecoveryPlan,
    Rename,
    ReplaceFile,
    SetAside,
    SpliceSegment,
    SplitLog,
    TruncateTo,
    Verdict,
)
from storage.base.errors import CorruptData, FileVanished, ReadFault, UnsupportedFormat
from storage.base.names import (
    REMOTE_INDEX_CACHE,
    DirectoryName,
    DirectoryState,
    FileRole,
    FileState,
    is_cluster_metadata,
    parse_directory_name,
    parse_file_name,
    parse_root_file_name,
)
from storage.base.units import Offset, TopicPartition
from storage.disk.fs import FileKind, FileStat, ReadFs, read_all

RECOVERY_POINTS: Final = FileRole.RECOVERY_POINTS.value
LOG_STARTS: Final = FileRole.LOG_START_OFFSETS.value
T = TypeVar("T")
_CHECKPOINTS: Final = (
    RECOVERY_POINTS,
    LOG_STARTS,
    FileRole.HIGH_WATERMARKS.value,
    FileRole.CLEANER_OFFSETS.value,
)
MARKER: Final = FileRole.CLEAN_SHUTDOWN.value
_OWNED: Final = {FileRole(name) for name in (*_CHECKPOINTS, MARKER)} | {FileRole.META_PROPERTIES, FileRole.LOCK}
_LOSSES: Final = {
    RECOVERY_POINTS: "nothing says what was flushed: everything is verified, and a broker would scan all of it",
    LOG_STARTS: "records that were deleted on request will be seen again, but for the lines that are whole",
    FileRole.HIGH_WATERMARKS.value: "a broker would take the log directory offline",
    FileRole.CLEANER_OFFSETS.value: "the log cleaner of a broker would stop",
}


class LogDirState:
    """What lies at the top of a log directory. A checkpoint that is missing or cannot be used is None."""

    __slots__ = (
        "checkpoints", "entries", "findings", "log_dir", "marker_goes", "partitions", "refused_starts", "running",
        "topic_ids",
    )  # fmt: skip

    def __init__(self, log_dir: PurePath, entries: dict[str, FileStat]) -> None:
        self.log_dir, self.entries = log_dir, entries
        self.partitions: list[DirectoryName] = []
        self.checkpoints: dict[str, dict[TopicPartition, Offset] | None] = {}
        self.findings: list[Finding] = []
        self.topic_ids: TopicIds | None = None
        self.running = False
        self.marker_goes = False
        """The marker is there, but something has to be changed that it vouches for: the next start is unclean."""
        self.refused_starts: set[TopicPartition] = set()
        """Partitions whose log start offset lies above the log's end, and will be taken out of the checkpoint."""

    @property
    def marker(self) -> bool:
        """A broker had shut this log directory down cleanly, by the existence of its marker."""
        return MARKER in self.entries

    def points_of(self, directory: DirectoryName) -> Points:
        """Return what the checkpoints say of one directory."""
        # The metadata log is always recovered from its beginning, marker or not.
        metadata = is_cluster_metadata(directory.partition)
        points = self.checkpoints.get(RECOVERY_POINTS)
        point = None if points is None else int(points.get(directory.partition, 0))
        starts = self.checkpoints.get(LOG_STARTS) or {}
        start = None if directory.partition in self.refused_starts else starts.get(directory.partition)
        clean = self.marker and not metadata
        return Points(
            recovery_point=None if metadata else point,
            log_start=max(int(start or 0), 0),
            clean=clean and not self.marker_goes,
            flushed=clean,
            marker=self.marker and directory.state is not DirectoryState.STRAY,  # no broker closes a stray
            running=self.running,
            metadata=metadata,
            has_log_start=start is not None,
            topic=directory.partition.topic,
            topic_ids=self.topic_ids,
        )

    def takes_in(self, plan: LogDirPlan) -> bool:
        """Note what a plan does at the top that the partitions have to be planned for; False if that was known."""
        before = (self.marker_goes, len(self.refused_starts))
        # Without the marker a broker will scan what it would have skipped.
        self.marker_goes = self.marker_goes or any(action.path.name == MARKER for action in plan.before)
        starts = self.checkpoints.get(LOG_STARTS) or {}
        ends = {p.partition: p.loaded.log_end for p in plan.partitions if p.loaded is not None}
        for directory in self.partitions:
            if directory.name in ends and starts.get(directory.partition, 0) > ends[directory.name]:
                self.refused_starts.add(directory.partition)
        return before != (self.marker_goes, len(self.refused_starts))


def read_log_dir(
    fs: ReadFs,
    log_dir: PurePath,
    user: int | None,
    only: str | None = None,
    metadata_dir: PurePath | None = None,
    *,
    running: bool = False,
) -> LogDirState:
    """List the top of a log directory and read its checkpoints; `running`: a broker holds its lock.

    With `only` no more is read than the directory of that name needs. Raises `ReadFault` if it cannot be listed.
    """
    state = LogDirState(log_dir, fs.entries(log_dir))
    state.running = running
    owner = fs.stat(log_dir).uid if user is None else user
    for name, stat in state.entries.items():
        if only is None or name == only:
            _sort_in(state, name, stat, owner)
    for name in _CHECKPOINTS:
        state.checkpoints[name] = _read_checkpoint(fs, state, name)
    if _is_kraft(fs, state):
        places = [log_dir] if metadata_dir is None else [log_dir, metadata_dir]
        state.topic_ids = TopicIds(fs, places)
    return state


def _is_kraft(fs: ReadFs, state: LogDirState) -> bool:
    if META_PROPERTIES not in state.entries:
        return False
    properties = _decoded(
        fs, state, META_PROPERTIES, decode_meta_properties, Damage.PROPERTIES_CORRUPT, ": a broker refuses to start"
    )
    return properties is not None and properties.version == 1


def _sort_in(state: LogDirState, name: str, stat: FileStat, owner: int) -> None:
    path = state.log_dir / name
    if stat.kind is FileKind.DIRECTORY:
        if name != REMOTE_INDEX_CACHE:
            _sort_directory_in(state, name, path, stat, owner)
    elif stat.kind is FileKind.FILE:
        file = parse_root_file_name(name)
        if file is not None and file.state is FileState.LIVE and file.role in _OWNED:
            state.findings += owner_findings(path, stat, owner, file)
    elif not name.startswith("."):
        kind = Damage.SYMBOLIC_LINK if stat.kind is FileKind.SYMLINK else Damage.SPECIAL_FILE
        state.findings.append(Finding(kind, path, f"a {stat.kind.value}: it is not followed"))


def _sort_directory_in(state: LogDirState, name: str, path: PurePath, stat: FileStat, owner: int) -> None:
    if name == "lost+found":
        evidence = "a broker takes it for a partition and refuses to start; use a directory below the mount point"
        state.findings.append(Finding(Damage.LOST_AND_FOUND, path, evidence))
        return
    try:
        directory = parse_directory_name(name)
    except CorruptData as error:
        evidence = f"{error.reason}: a broker refuses to start"
        state.findings.append(Finding(Damage.UNKNOWN_DIRECTORY, path, evidence))
        return
    if not can_be_listed(directory.partition):
        evidence = "a checkpoint cannot hold the name of its topic, so no recovery point of it can be kept"
        state.findings.append(Finding(Damage.UNKNOWN_DIRECTORY, path, evidence))
        return
    state.findings += _directory_owner(path, stat, owner)
    if directory.state is not DirectoryState.DELETE:
        state.partitions.append(directory)


def _directory_owner(path: PurePath, stat: FileStat, owner: int) -> list[Finding]:
    if owner not in (stat.uid, 0) and stat.mode & 0o007 != 0o007:
        return [Finding(Damage.FOREIGN_OWNER, path, f"owned by user {stat.uid}, the log directory by {owner}")]
    return []


def _read_checkpoint(fs: ReadFs, state: LogDirState, name: str) -> dict[TopicPartition, Offset] | None:
    if name in state.entries:
        known = _decoded(fs, state, name, decode_offsets, Damage.CHECKPOINT_CORRUPT, f"; {_LOSSES[name]}")
        is_torn = name == LOG_STARTS and any(
            f.kind is Damage.CHECKPOINT_CORRUPT for f in state.findings if f.path.name == name
        )
        # What is left of it keeps deleted records deleted.
        return decode_leading(read_all(fs, state.log_dir / name, SMALL_FILE_LIMIT)) if is_torn else known
    if name == RECOVERY_POINTS and state.partitions:
        state.findings.append(Finding(Damage.CHECKPOINT_MISSING, state.log_dir / name, _LOSSES[name]))
        return None
    return {}


def _decoded(
    fs: ReadFs, state: LogDirState, name: str, decode: Callable[[bytes], T], corrupt: Damage, consequence: str
) -> T | None:
    """Return what a file at the top says; None, with a finding, where it cannot be used."""
    path = state.log_dir / name
    try:
        return decode(read_all(fs, path, SMALL_FILE_LIMIT))
    except UnsupportedFormat as error:
        state.findings.append(Finding(Damage.UNSUPPORTED, path, error.reason))
    except CorruptData as error:
        state.findings.append(Finding(corrupt, path, error.reason + consequence))
    except ReadFault as fault:
        state.findings.append(Finding(Damage.READ_ERROR, path, str(fault)))
    return None


def known_offsets(fs: ReadFs, path: PurePath) -> Mapping[TopicPartition, Offset]:
    """Return what a checkpoint says; nothing where it is missing or cannot be used. Raises `ReadFault`."""
    try:
        return decode_offsets(read_all(fs, path, SMALL_FILE_LIMIT))
    except (FileVanished, CorruptData, UnsupportedFormat):
        return {}


# ---- planning


def plan_log_dir_files(
    fs: ReadFs, state: LogDirState, plans: Sequence[RecoveryPlan], options: PlanOptions
) -> tuple[LogDirPlan, dict[PurePath, bytes]]:
    """Frame the plans of the partitions with what happens at the top before and after, and the contents for that."""
    planner = _TopPlanner(fs, state, plans, options)
    return planner.run(), planner.contents


class _TopPlanner:
    def __init__(self, fs: ReadFs, state: LogDirState, plans: Sequence[RecoveryPlan], options: PlanOptions) -> None:
        self._fs, self._state, self._plans, self._options = fs, state, plans, options
        self._verdicts: list[Verdict] = []
        self._after: list[ReplaceFile] = []
        self.contents: dict[PurePath, bytes] = {}

    def run(self) -> LogDirPlan:
        state = self._state
        for finding in state.findings:
            self._judge(finding)
        for name in reversed(_CHECKPOINTS):  # the recovery points depend on what becomes of the others
            self._rewrite(name)
        before: list[Action] = []
        if state.marker and self._holds():
            # Lowered before the repairs that had a held log read: none of them then hides it from the next run.
            before += [action for action in self._after if action.path.name == RECOVERY_POINTS]
            self._after = [action for action in self._after if action.path.name != RECOVERY_POINTS]
        elif state.marker and (self._after or self._touches_logs()):
            before.append(SetAside(state.log_dir / MARKER, "the log directory is no longer as it was shut down"))
        touched = [action.path.name for action in (*before, *self._after)]
        conditions = (Precondition.of(state.log_dir / n, s) for n, s in state.entries.items() if n in touched)
        return LogDirPlan(
            log_dir=state.log_dir,
            options=self._options,
            verdicts=tuple(self._verdicts),
            stopped=False,
            before=tuple(before),
            partitions=tuple(self._plans),
            after=tuple(self._after),
            preconditions=tuple(conditions),
        )

    def _judge(self, finding: Finding) -> None:
        where = Where(
            Flushed.NO,
            valid_after=False,
            accept_loss=self._options.accept_loss,
            log_open=True,
            trims_padding=self._state.marker,
        )
        row = decide(finding.kind.subject, where)
        self._verdicts.append(Verdict(finding, row.letter, row.decision.value))

    def _rewrite(self, name: str) -> None:
        state = self._state
        known = state.checkpoints.get(name)
        lost = any(f.path == state.log_dir / name for f in state.findings)
        entries = dict(known or {})
        reason = "it cannot be read"
        for change in self._changes(name, entries):
            reason = change
        if name == RECOVERY_POINTS and self._lowers(rewritten=entries != (known or {})) and self._lower_held(entries):
            reason = "the marker no longer vouches for what is held"
        if not lost and entries == (known or {}):
            return
        if lost and name == RECOVERY_POINTS and self._holds():
            return
        path = state.log_dir / name
        data = encode_offsets(entries)
        self.contents[path] = data
        replaces = name in state.entries
        self._after.append(ReplaceFile(path, len(data), sha256_of(data), replaces, reason))

    def _changes(self, name: str, entries: dict[TopicPartition, Offset]) -> list[str]:
        """Bring the entries in line with the logs, in place; return why, once for each that changed."""
        changed = []
        for partition, plan in self._by_partition().items():
            value = entries.get(partition)
            if plan.loaded is None:
                continue
            end = plan.loaded.log_end
            if value is None:
                pass
            elif name == RECOVERY_POINTS and value > end:
                gone = f"offsets {end} to {value - 1} were flushed once and are not in the log"
                evidence = f"{partition}: recovery point {value}, log end {end}: {gone}"
                self._judge(Finding(Damage.CHECKPOINT_BEYOND_END, self._state.log_dir / name, evidence))
                entries[partition] = Offset(end)
                changed.append("no recovery point may lie behind the log end")
            elif name == LOG_STARTS and value > end:
                evidence = f"{partition}: log start offset {value}, log end {end}: a broker would delete every segment"
                self._judge(Finding(Damage.LOG_START_ABOVE_END, self._state.log_dir / name, evidence))
                del entries[partition]
                changed.append("a log start offset above the log end would cost the whole log")
            if name == LOG_STARTS and partition not in entries and (start := _found_start(plan)) is not None:
                entries[partition] = start
                changed.append("readers from the beginning would ask a remote tier for records that are deleted")
        return changed

    def _lowers(self, *, rewritten: bool) -> bool:
        """Tell whether held logs need a lower point: repairs, which the next run does not find, led to them."""
        repairs = rewritten or self._after or any(plan.actions for plan in self._plans)
        return self._state.marker and self._holds() and bool(repairs)

    def _lower_held(self, entries: dict[TopicPartition, Offset]) -> bool:
        """Lower the point of each held log to the base of its segment, in place; True if one was above that.

        A point below the log end tells the next run not to believe the marker. A broker asks for no point beside a
        marker, and scans from that segment on without one.
        """
        lowered = {}
        for partition, plan in self._by_partition().items():
            point = entries.get(partition, 0)
            bases = _bases(self._fs.entries(plan.directory)) if plan.held and point else []
            base = max((base for base in bases if base <= point), default=point)
            if base < point:
                lowered[partition] = Offset(base)
        entries.update(lowered)
        return bool(lowered)

    def _holds(self) -> bool:
        """Tell whether a partition waits for a person.

        What tells that its data had been flushed, or may have been, must then stay: the marker, and the loss of the
        recovery points, for which new ones would say that nothing was. Else a broker, or the next run, would take the
        damage for a torn tail and cut it. None of what is done beside a held partition relies on the marker being
        gone: files are derived again and replaced whole.
        """
        return any(plan.held for plan in self._plans)

    def _touches_logs(self) -> bool:
        """Tell whether anything changes that the marker vouches for.

        The metadata log is recovered in any case, and a broker that shuts down closes no stray.
        """
        closed = (d for d in self._state.partitions if d.state is not DirectoryState.STRAY)
        names = {d.name for d in closed if not is_cluster_metadata(d.partition)}
        vouched = (p for p in self._plans if p.partition in names and not _only_finishes_swaps(p))
        return any(_touches_the_log(action) for p in vouched for action in p.actions)

    def _by_partition(self) -> Mapping[TopicPartition, RecoveryPlan]:
        names = {directory.name: directory for directory in self._state.partitions}
        return {
            names[plan.partition].partition: plan for plan in self._plans if names[plan.partition].state is None
        }  # fmt: skip


def _bases(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the logs among the files of a partition directory."""
    files = (file for file in map(parse_file_name, names) if file is not None)
    logs = (file for file in files if file.role is FileRole.LOG and file.state is FileState.LIVE)
    return [file.base_offset for file in logs if file.base_offset is not None]


def _only_finishes_swaps(plan: RecoveryPlan) -> bool:
    """Tell whether a partition gets what a broker's loader makes of it, with the marker or without.

    A loader puts what an interrupted compaction has finished in place, and checks the indexes of those segments. Every
    step of ours towards that leaves what the loader finishes, so that the marker goes on to vouch for all other logs.
    """
    segments = {action.target.stem for action in plan.actions if isinstance(action, Rename)}
    return bool(segments) and all(
        isinstance(action, Rename | SetAside) or (isinstance(action, ReplaceFile) and action.path.stem in segments)
        for action in plan.actions
    )


def _found_start(plan: RecoveryPlan) -> Offset | None:
    """Return the log start offset of a tiered log that the checkpoint has lost."""
    lost = (f.first_offset for f in plan.findings if f.kind is Damage.LOG_START_LOST and f.first_offset is not None)
    return next(map(Offset, lost), None)


def _touches_the_log(action: Action) -> bool:
    """Tell whether the marker may no longer vouch for the directory; it never vouched for leftovers."""
    match action:
        case SetAside():
            return not action.path.name.endswith(FileState.DELETED.value)
        case KeepCopy():
            return False
        case Quarantine() | TruncateTo() | Rename() | ReplaceFile() | SplitLog() | SpliceSegment():
            return True
