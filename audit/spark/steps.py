"""The steps that run on executors: Arrow batches in, Arrow batches out. No Spark in it.

Each is a class whose instances travel to the executors and are called there with the batches of one partition.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from audit.judge.detail import DiskFetch, SegmentPlace
from audit.judge.replicas import BlockState
from audit.judge.verdicts import Fleet, PartitionState, ReplicaState, judge
from audit.scan.finding_rows import audit_row, unreadable
from audit.scan.listing import LISTED, ListedSegment, ReplicaRow, list_log_dir
from audit.scan.metadata import AssignedRow, read_metadata
from audit.scan.pieces import PieceRow, SegmentTask, cut, joined
from audit.scan.tasks import VERIFIED, Row, Verifier, utc_now
from audit.tables.kinds import AuditKind
from audit.tables.options import AuditOptions, Source
from audit.tables.schema import FindingRow, VerdictRow, columns
from audit.tables.tables import Tables
from audit.tables.wire import union_batches, union_schema
from recovery.plan.findings import Severity
from storage.base.errors import CorruptData, EnvironmentFault, printable
from storage.base.units import TopicPartition
from storage.kernel.scan import crc_name, kernel_name

T = TypeVar("T")
Batches = Iterator[pa.RecordBatch]
Clock = Callable[[], datetime]

ASSIGNED: Final[dict[str, type]] = {"assigned": AssignedRow, "finding": FindingRow}
JUDGED: Final[dict[str, type]] = {"verdict": VerdictRow, "finding": FindingRow}
TASK_DDL: Final = "`start` bigint, `end` bigint"
"""What a task has besides the columns of `ListedSegment`; both null for a whole segment."""
DONE_DDL: Final = "`task` bigint, `bytes_read` bigint, `kernel` string"
_AT_ONCE: Final = 16
_DONE: Final = pa.schema([("task", pa.int64()), ("bytes_read", pa.int64()), ("kernel", pa.string())])


@cache
def _settle() -> None:
    """Keep what is loaded by now out of the garbage collector's sight, once in a worker.

    A worker of Spark collects garbage after each task before it takes the next one; to look at all of pyarrow and numpy
    each time takes tens of milliseconds.
    """
    gc.freeze()


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    _settle()
    for batch in batches:
        for start in range(0, batch.num_rows, _AT_ONCE):  # as objects rows are many times as large
            yield from batch.slice(start, _AT_ONCE).to_pylist()


def _made(kind: type[T], row: Mapping[str, Any]) -> T:
    return kind(**{name: row[name] for name, _, _ in columns(kind)})


@dataclass(frozen=True, slots=True)
class ListLogDirs:
    """Sources in, everything that lies in them out."""

    options: AuditOptions

    def __call__(self, batches: Batches) -> Batches:
        sources = (Source(row["cluster"], row["broker"], row["log_dir"]) for row in _rows(batches))
        found = (row for source in sources for row in list_log_dir(source, self.options))
        yield from union_batches(LISTED, found)


@dataclass(frozen=True, slots=True)
class CutSegments:
    """Huge segments in, the same with `start` and `end` of their parts out."""

    split_bytes: int

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            rows = []
            for row in batch.to_pylist():
                parts = cut(_made(ListedSegment, row), self.split_bytes)
                rows += [row | {"start": part.start if part.end else None, "end": part.end} for part in parts]
            extra = [pa.field("start", pa.int64()), pa.field("end", pa.int64())]
            yield pa.RecordBatch.from_pylist(rows, schema=pa.schema([*batch.schema, *extra]))


@dataclass(frozen=True, slots=True)
class VerifySegments:
    """Segments and parts with a column `task` in; their rows go to a file a task, what was done comes out.

    A file has its name only once it is whole, so that what a killed worker left is never taken for a result, and what
    was done before a driver died need not be done again.
    """

    options: AuditOptions
    out: str
    staging: str

    def __call__(self, batches: Batches) -> Batches:
        by_task: dict[int, list[dict[str, Any]]] = {}
        for row in _rows(batches):
            by_task.setdefault(row["task"], []).append(row)
        store = Staging(self.out, self.staging)
        for task, rows in by_task.items():
            store.mark(task)
            order = sorted(
                rows, key=lambda row: (row["topic"], row["partition"], row["base_offset"], row["start"] or 0)
            )
            size = store.write(task, self._verified(order))
            yield pa.record_batch([[task], [size], [f"{kernel_name()} {crc_name()}"]], schema=_DONE)

    def _verified(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, Iterable[Row]]]:
        verifier = Verifier(self.options, utc_now(self.options.now_ms))
        for row in rows:
            segment = _made(ListedSegment, row)
            task = SegmentTask(segment) if row["end"] is None else SegmentTask(segment, row["start"], row["end"])
            size = segment.size_bytes if task.end is None else task.end - task.start
            yield size, guarded(verifier, task)


def guarded(verifier: Verifier, task: SegmentTask) -> Iterator[Row]:
    """Yield the rows of a task; a fault of our own becomes a row as well, which names the line."""
    try:
        yield from verifier.verify(task)
    except Exception as error:  # noqa: BLE001 (one odd segment must not cost the verdict on a fleet)
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"a fault of logmend itself: {type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        yield failed(task.segment, reason)


def failed(segment: ListedSegment, reason: str) -> FindingRow:
    """Return the row of a segment that could not be verified, though its disk is not known to be at fault."""
    partition = TopicPartition(segment.topic, segment.partition)
    path = f"{segment.log_dir.rstrip('/')}/{segment.directory}/{segment.files[0]}"
    row = audit_row(AuditKind.TASK_FAILED, segment.source, partition, printable(reason), path=path)
    return replace(row, first_offset=segment.base_offset)


class Staging:
    """Files of tasks that are done, and marks of those that were begun."""

    def __init__(self, out: str, staging: str) -> None:
        self._tables, self._place = Tables(out), staging

    def prepare(self) -> None:
        """Make the directories."""
        for name in ("verified", "begun"):
            self._tables.make(f"{self._place}/{name}")

    def mark(self, task: int) -> None:
        """Leave a mark that a task was begun: of those without a result one has killed its worker."""
        store, path = self._tables.writer_place(f"{self._place}/begun/{task}")
        with store.open_output_stream(path) as file:
            file.write(b"")

    def begun(self) -> set[int]:
        """Return the tasks that have a mark."""
        return {int(name) for name in self._tables.names(f"{self._place}/begun") if name.isdigit()}

    def done(self) -> set[int]:
        """Return the tasks that have a result."""
        names = self._tables.names(f"{self._place}/verified")
        return {int(name.removesuffix(".parquet")) for name in names if name.endswith(".parquet")}

    def write(self, task: int, verified: Iterable[tuple[int, Iterable[Row]]]) -> int:
        """Write the rows of a task, all or nothing; return the bytes of log that were read for them."""
        store, path = self._tables.writer_place(f"{self._place}/verified/{task}.parquet")
        stamp = datetime.now().timestamp()  # noqa: DTZ005, TID251 (two attempts may run at once)
        hidden = f"{path.rpartition('/')[0]}/_{task}.{stamp}.tmp"  # Spark does not look at names like this
        sizes = []

        def all_rows() -> Iterator[Row]:
            for size, rows in verified:
                sizes.append(size)
                yield from rows

        with pq.ParquetWriter(hidden, union_schema(VERIFIED), filesystem=store) as writer:
            for batch in union_batches(VERIFIED, all_rows()):  # each becomes a row group: not one a segment
                writer.write_batch(batch)
        store.move(hidden, path)
        return sum(sizes)


@dataclass(frozen=True, slots=True)
class JoinPieces:
    """Segments with the list of their parts in, rows of `VERIFIED` out; what does not join is read again, whole."""

    options: AuditOptions

    def __call__(self, batches: Batches) -> Batches:
        yield from union_batches(VERIFIED, self._joined(batches))

    def _joined(self, batches: Batches) -> Iterator[Row]:
        now = utc_now(self.options.now_ms)
        verifier = Verifier(self.options, now)
        for row in _rows(batches):
            segment = _made(ListedSegment, row)
            pieces = [_made(PieceRow, piece) for piece in row["pieces"] or []]
            rows: Sequence[Row] | None = joined(segment, pieces, now)
            if rows is None:
                evidence = "parts that were read apart do not join: the index is wrong, or the log; it was read whole"
                partition = TopicPartition(segment.topic, segment.partition)
                seam = audit_row(AuditKind.SEAM, segment.source, partition, evidence)
                rows = [seam, *guarded(verifier, SegmentTask(segment))]
            yield from rows


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Log directories in, what the metadata in them says should be there out; `topics` are patterns."""

    topics: tuple[str, ...] = ()

    def __call__(self, batches: Batches) -> Batches:
        sources = (Source(row["cluster"], row["broker"], row["log_dir"]) for row in _rows(batches))
        yield from union_batches(ASSIGNED, (row for source in sources for row in self.rows(source)))

    def rows(self, source: Source) -> Iterator[AssignedRow | FindingRow]:
        """Yield what the metadata in one log directory says, or why it cannot be read."""
        try:
            for row in read_metadata(source).rows(source):
                if not self.topics or any(fnmatchcase(row.topic, pattern) for pattern in self.topics):
                    yield row
        except EnvironmentFault as fault:
            yield unreadable(source, fault)
        except CorruptData as error:
            evidence = f"the metadata cannot be read, so nothing says which replicas should be there: {error}"
            yield audit_row(AuditKind.UNREADABLE, source, None, printable(evidence), severity=Severity.BLOCKING)


@dataclass(frozen=True, slots=True)
class JudgePartitions:
    """Partitions with their replicas and the blocks that differ in, verdicts and findings out."""

    fleets: Mapping[str, Fleet]
    with_metadata: frozenset[str]
    detail_blocks: int
    may_fetch: bool

    def __call__(self, batches: Batches) -> Batches:
        yield from union_batches(JUDGED, self._judged(batches))

    def _judged(self, batches: Batches) -> Iterator[VerdictRow | FindingRow]:
        for row in _rows(batches):
            state = self._state(row)
            fetch = DiskFetch(_places(row["places"] or [])) if self.may_fetch else None
            fleet = self.fleets.get(state.cluster, Fleet({}))
            try:
                verdict, findings = judge(state, fleet, fetch, self.detail_blocks)
            except EnvironmentFault as fault:  # of the second look: then digests must do
                verdict, findings = judge(state, fleet, None, self.detail_blocks)
                findings.append(unreadable(Source(state.cluster, "", ""), fault, state.name))
            yield verdict
            yield from findings

    def _state(self, row: Mapping[str, Any]) -> PartitionState:
        replicas = sorted(row["replicas"] or [], key=lambda one: (one["broker"], one["log_dir"], one["directory"]))
        places = {(one["broker"], one["log_dir"]): n for n, one in enumerate(replicas) if not one["state"]}
        blocks: dict[int, dict[int, BlockState]] = {}
        for one in row["blocks"] or []:
            n = places.get((one["broker"], one["log_dir"]))
            if n is not None:
                told = BlockState(one["digest"], one["first_offset"], one["last_offset"], one["max_epoch"])
                blocks.setdefault(one["block"], {})[n] = told
        assigned = None if row["assigned"] is None else _made(AssignedRow, row["assigned"])
        return PartitionState(
            row["cluster"],
            row["topic"],
            row["partition"],
            tuple(_replica_state(row, one) for one in replicas),
            assigned,
            row["cluster"] in self.with_metadata,
            blocks,
            row["omitted"] or 0,
        )


def _replica_state(row: Mapping[str, Any], one: dict[str, Any]) -> ReplicaState:
    key = {"cluster": row["cluster"], "topic": row["topic"], "partition": row["partition"]}
    unread = tuple((first, last) for first, last in one["unread"] or [])
    made = _made(ReplicaRow, one | key)
    return ReplicaState(made, one["log_end"], unread, bool(one["is_damaged"]), bool(one["is_unreadable"]))


def _places(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[SegmentPlace]]:
    found: dict[str, list[SegmentPlace]] = {}
    for row in sorted(rows, key=lambda row: row["base_offset"]):
        place = SegmentPlace(row["base_offset"], row["directory"], row["files"][0], row["files"][1])
        found.setdefault(row["log_dir"], []).append(place)
    return found


def options_text(options: AuditOptions) -> str:
    """Return the options as text, to be compared with those of an audit that was cut off."""
    return json.dumps({one.name: getattr(options, one.name) for one in fields(options)}, sort_keys=True, default=str)
