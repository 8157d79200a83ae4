"""The audit as a Spark job. `run` is what notebooks, `logmend audit` and `spark-submit` call.

Everything that is large stays on the executors: listings, digests and findings go from one step to the next as Parquet
files below `OUT/_staging`, and from there into the tables at the end, all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from audit.scan.listing import LISTED, ListedSegment, LogDirRow, audit_row
from audit.scan.tasks import VERIFIED
from audit.spark import plans
from audit.spark.host_scan import COLUMNS, check_report
from audit.spark.progress import Progress, SilentProgress, Watch
from audit.spark.results import AuditResult, fleets_of, newest_metadata, spark_path, status_of
from audit.spark.steps import (
    ASSIGNED,
    DONE_DDL,
    JUDGED,
    TASK_DDL,
    CutSegments,
    JoinPieces,
    JudgePartitions,
    ListLogDirs,
    ReadMetadata,
    Staging,
    VerifySegments,
    failed,
    options_text,
)
from audit.spark.verifying import Driver, evenly, grouped, numbered, task_size
from audit.tables.kinds import AuditKind
from audit.tables.options import AuditOptions, Source, manifest_digest, read_manifest
from audit.tables.schema import TABLES, FindingRow, RunRow, columns, row_tuple, spark_ddl
from audit.tables.tables import Committed, Tables, check_writable, checked_id
from audit.tables.wire import union_ddl
from storage.base.errors import ExitStatus
from storage.kernel.scan import crc_name, kernel_name

try:
    from py4j.protocol import Py4JJavaError
except ImportError:  # Spark Connect alone
    Py4JJavaError = PySparkException

_NAMED: Final = 100
"""Places that could not be read, and disagreements, that a result names."""
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_RESUMED: Final = "options.txt"
_APART: Final = 10**9
"""Above the numbers of tasks are those of single segments that are tried alone."""


def start_session(settings: Mapping[str, str]) -> SparkSession:
    """Return a session with these settings; its log says errors only."""
    builder: SparkSession.Builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(
    spark: SparkSession,
    manifest: str | Sequence[Source],
    options: AuditOptions,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit the log directories of a manifest, a file or a list, and leave the tables in `options.out`.

    An audit with the id of one that is there replaces it; one that was cut off is gone on with. Raises `ConfigInvalid`,
    `ReadFault` for a manifest that cannot be read, `WriteFault` for an `out` that cannot be written.
    """
    began = time.time()
    sources = read_manifest(manifest) if isinstance(manifest, str) else list(manifest)
    now_ms = options.now_ms or int(began * 1000)
    stamp = datetime.fromtimestamp(now_ms / 1000, UTC)
    audit_id = checked_id(options.audit_id or stamp.strftime("%Y-%m-%dT%H%M%SZ"))
    options = replace(options, now_ms=now_ms, audit_id=audit_id)
    check_writable(options.out)
    audit = _Audit(spark, sources, options, progress or SilentProgress())
    result = audit.run(stamp)
    result.seconds = time.time() - began
    return result


class _Seen(NamedTuple):
    """What was listed and read."""

    listing: DataFrame
    listed: DataFrame
    segments: DataFrame
    blocks: DataFrame
    findings: list[DataFrame]


class _Audit:
    def __init__(
        self, spark: SparkSession, sources: Sequence[Source], options: AuditOptions, progress: Progress
    ) -> None:
        self._spark, self._sources, self._progress = spark, sources, progress
        self._tables = Tables(options.out)
        self._options, self._generation = self._resumed(options)
        self._place = self._tables.staging(self._options.audit_id, self._generation)
        self._staging = Staging(options.out, self._place)
        self._result = AuditResult(self._options.audit_id, options.out, ExitStatus.CLEAN)
        self._previous: Committed | None = None
        self._more: list[FindingRow] = []

    def _resumed(self, options: AuditOptions) -> tuple[AuditOptions, str]:
        """Return the generation to write: that of a run of the same audit that was cut off, or a new one."""
        place = f"{self._tables.out}/_staging/{options.audit_id}"
        expected = _comparable(options, self._sources)
        for generation in reversed(self._tables.names(place)):
            store, path = self._tables.writer_place(f"{place}/{generation}/{_RESUMED}")
            try:
                with store.open_input_file(path) as file:
                    told = file.read().decode()
            except OSError:
                continue
            now, _, text = told.partition("\n")
            if text == expected:
                return replace(options, now_ms=int(now)), generation
        generation = str(time.time_ns())
        self._tables.make(f"{place}/{generation}")
        store, path = self._tables.writer_place(f"{place}/{generation}/{_RESUMED}")
        with store.open_output_stream(path) as file:
            file.write(f"{options.now_ms}\n{expected}".encode())
        return options, generation

    def run(self, stamp: datetime) -> AuditResult:
        if self._options.reports:
            return self._join(stamp)
        self._progress.phase("listing")
        listing = self._listing()
        listed = _of(listing, "segment", LISTED)
        same, reused, old_blocks = self._taken(listed)
        to_read = listed if reused is None else plans.without(self._spark, listed, reused)
        verified, joined = self._verify(to_read)
        self._progress.phase("comparing")
        read = [verified] if joined is None else [verified, joined]
        segments = _together([_of(part, "segment", VERIFIED) for part in read] + ([] if reused is None else [reused]))
        blocks = _together([_of(p, "block", VERIFIED) for p in read] + ([] if old_blocks is None else [old_blocks]))
        findings = [_of(listing, "finding", LISTED), *(_of(part, "finding", VERIFIED) for part in read)]
        if same is not None:
            fresh = _together([_of(part, "segment", VERIFIED) for part in read])
            findings.append(plans.changed(self._spark, same, fresh))
        seen = _Seen(listing, listed, segments, blocks, findings)
        return self._finish(stamp, seen, self._metadata)

    def _join(self, stamp: datetime) -> AuditResult:
        """Audit what reports of hosts say; no disk is read."""
        for name in self._options.reports:
            check_report(name)
        self._progress.phase("comparing")
        paths = [spark_path(name) for name in self._options.reports]
        reports = self._spark.read.schema(union_ddl(COLUMNS)).parquet(*paths)
        names = {name: f"`listed_{name}` AS `{name}`" for name in LISTED}
        listing = reports.selectExpr(*names.values())
        listed, segments = _of(listing, "segment", LISTED), _of(reports, "segment", VERIFIED)
        self._result.kernel = "reports"
        findings = [_of(listing, "finding", LISTED)]
        scan = _Seen(listing, listed, segments, _of(reports, "block", VERIFIED), findings)

        def assigned(newest: Sequence[LogDirRow]) -> DataFrame:
            nothing = f"CAST(NULL AS struct<{_inner(FindingRow)}>) AS finding"
            directories = self._spark.createDataFrame(
                [(r.cluster, r.log_dir) for r in newest], "cluster string, log_dir string"
            )
            rows = reports.where("assigned IS NOT NULL").selectExpr("assigned", nothing)
            there = (rows["assigned.cluster"] == directories["cluster"]) & (
                rows["assigned.log_dir"] == directories["log_dir"]
            )
            return rows.join(directories, there, "left_semi")

        return self._finish(stamp, scan, assigned)

    def _finish(
        self, stamp: datetime, scan: _Seen, metadata: Callable[[Sequence[LogDirRow]], DataFrame]
    ) -> AuditResult:
        judged, metadata_rows = self._judge(scan, metadata)
        every = _together([*scan.findings, self._extra(), metadata_rows, _of(judged, "finding", JUDGED)])
        self._progress.phase("writing")
        self._write(stamp, scan, every, _of(judged, "verdict", JUDGED))
        return self._result

    # ---- listing

    def _listing(self) -> DataFrame:
        rows = [(*source, number) for number, source in enumerate(self._sources)]
        sources = self._spark.createDataFrame(rows, "cluster string, broker string, log_dir string, task int")
        spread = sources.repartitionById(max(len(rows), 1), "task")
        return self._kept("listing", spread.mapInArrow(ListLogDirs(self._options), union_ddl(LISTED)))

    def _kept(self, name: str, frame: DataFrame) -> DataFrame:
        """Return a data frame that was computed once, and is read from its files from now on."""
        path = f"{self._place}/{name}"
        if "_SUCCESS" not in self._tables.names(path):
            frame.write.mode("overwrite").parquet(spark_path(path))
        return self._spark.read.schema(frame.schema).parquet(spark_path(path))

    # ---- what an earlier audit has seen

    def _taken(self, listed: DataFrame) -> tuple[DataFrame | None, DataFrame | None, DataFrame | None]:
        """Return unchanged segments as the audit before had them, those that are taken over, and their blocks."""
        options = self._options
        if options.previous is None:
            return None, None, None
        self._previous = self._tables.find(options.previous)
        same = plans.unchanged(self._spark, listed, self._table("segments", self._previous))
        before = [one for one in self._tables.committed() if one.audit_id != options.audit_id]
        reused = plans.taken_over(
            self._spark,
            same,
            self._table("findings", self._previous),
            depth=options.depth,
            cycle=max(options.cycle, 1),
            turn=len(before) % max(options.cycle, 1),
            now_ms=options.now_ms,
        )
        reused = self._kept("taken", reused)
        blocks = plans.blocks_of(self._spark, self._table("blocks", self._previous), reused)
        return same, reused, blocks

    def _table(self, name: str, audit: Committed) -> DataFrame:
        path = self._tables.directory(name, audit.audit_id, audit.generation)
        return self._spark.read.schema(spark_ddl(TABLES[name])).parquet(spark_path(path))

    # ---- verifying

    def _verify(self, to_read: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """Return what verifying gave, and what the parts of huge segments gave together."""
        options, spark = self._options, self._spark
        tasks = self._kept("tasks", self._tasks(to_read))
        size = "coalesce(`end` - `start`, size_bytes)"
        told = tasks.selectExpr("task", f"{size} AS size", "`end` IS NOT NULL AS is_part")
        sizes = {row[0]: (row[1], row[2]) for row in told.groupBy("task").agg({"size": "sum", "is_part": "max"})
                 .selectExpr("task", "`sum(size)`", "`max(is_part)`").collect()}  # fmt: skip
        self._staging.prepare()
        ddl = f"{spark_ddl(ListedSegment)}, {TASK_DDL}, `task` bigint".replace(" not null", "")
        step = VerifySegments(options, options.out, self._place)
        extra: dict[int, list[Any]] = {}

        def run_job(wanted: frozenset[int] | None) -> list[Any]:
            numbers = sorted(wanted or sizes)
            split = [row for n in numbers for row in extra.get(n, [])]
            rows = spark.createDataFrame(split, ddl) if split else tasks.select(*_task_columns())
            spread = plans.placed(spark, rows, numbers).repartitionById(len(numbers), "place")
            with _fixed_plan(spark):
                return spread.select(*_task_columns()).mapInArrow(step, DONE_DDL).collect()

        def split_task(task: int) -> Iterable[int]:
            rows = tasks.select(*_task_columns()).where(f"task = {int(task)}").collect()
            if len(rows) < 2:
                return
            for at, row in enumerate(rows):
                number = _APART * (task + 1) + at
                extra[number] = [(*row[:-1], number)]
                yield number

        driver = Driver(self._staging, run_job, split_task, (Py4JJavaError, PySparkException))
        with Watch(self._staging, {task: row[0] for task, row in sizes.items()}, self._progress):
            driven = driver.run(sizes, options.wave_tasks)
        for number, reason in driven.failed.items():
            rows = extra.get(number) or tasks.select(*_task_columns()).where(f"task = {number}").collect()
            self._note_failed(rows, reason)
        self._result.tasks = len(sizes)
        self._result.bytes_read = sum(row[0] for row in sizes.values())
        self._result.kernel = ",".join(sorted({row["kernel"].split()[0] for row in driven.rows} or {kernel_name()}))
        verified = spark.read.schema(union_ddl(VERIFIED)).parquet(spark_path(f"{self._place}/verified"))
        joined = None
        if any(row[1] for row in sizes.values()):
            grouped_pieces = plans.with_pieces(spark, tasks, _of(verified, "piece", VERIFIED))
            joined = self._kept("joined", grouped_pieces.mapInArrow(JoinPieces(options), union_ddl(VERIFIED)))
        return verified, joined

    def _note_failed(self, rows: Iterable[Any], reason: str) -> None:
        for row in rows:
            values = dict(zip(_task_columns(), row, strict=True))
            segment = ListedSegment(**{name: values[name] for name, _, _ in columns(ListedSegment)})
            self._more.append(failed(segment, f"its task failed again and again: {reason}"))

    def _tasks(self, to_read: DataFrame) -> DataFrame:
        options, spark = self._options, self._spark
        nothing = "CAST(NULL AS BIGINT)"
        small = to_read.where(f"size_bytes <= {options.split_bytes}")
        huge = to_read.where(f"size_bytes > {options.split_bytes}")
        ddl = f"{spark_ddl(ListedSegment)}, {TASK_DDL}".replace(" not null", "")
        parts = small.selectExpr("*", f"{nothing} AS `start`", f"{nothing} AS `end`").unionByName(
            huge.mapInArrow(CutSegments(options.split_bytes), ddl)
        )
        costs = plans.weights(spark, parts).collect()
        total = sum(row["cost"] for row in costs)
        size = task_size(total, self._slots(), options.task_bytes)
        groups = grouped((row["cost"] for row in costs), size)
        whole: dict[int, int] = {}
        for row, (group, before) in zip(costs, groups, strict=True):
            whole[group] = before + row["cost"]
        cuts = {group: evenly(cost, size) for group, cost in whole.items()}
        places = [(r["cluster"], r["broker"], r["log_dir"], group, before, cuts[group][1])
                  for r, (group, before) in zip(costs, groups, strict=True)]  # fmt: skip
        dirs = spark.createDataFrame(
            places, "cluster string, broker string, log_dir string, `group` int, before bigint, task_bytes bigint"
        )
        counts = ((group, count) for group, (count, _) in cuts.items())
        numbers = spark.createDataFrame(list(numbered(counts)), "`group` int, place bigint, task bigint")
        return plans.into_tasks(spark, parts, dirs.hint("broadcast"), numbers.hint("broadcast"))

    def _slots(self) -> int:
        try:
            return int(self._spark.sparkContext.defaultParallelism)
        except (PySparkException, AttributeError):  # Spark Connect does not tell
            return 8

    # ---- judging

    def _extra(self) -> DataFrame:
        return self._spark.createDataFrame([row_tuple(row) for row in self._more], spark_ddl(FindingRow))

    def _judge(self, scan: _Seen, metadata: Callable[[Sequence[LogDirRow]], DataFrame]) -> tuple[DataFrame, DataFrame]:
        """Return verdicts with findings, and what reading the metadata had to tell."""
        spark = self._spark
        dirs = [LogDirRow(**row.asDict()) for row in _of(scan.listing, "log_dir", LISTED).collect()]
        self._check_clusters(dirs)
        rows = metadata(newest_metadata(dirs))
        assigned = _of(rows, "assigned", ASSIGNED)
        clusters = frozenset(row[0] for row in assigned.select("cluster").distinct().collect())
        states = plans.replica_states(
            spark,
            replicas=_of(scan.listing, "replica", LISTED),
            listed=scan.listed,
            segments=scan.segments,
            findings=_together([*scan.findings, self._extra()]),
            assigned=assigned,
        )
        states = self._kept("states", states)
        partitions = plans.partitions(spark, states=states, blocks=scan.blocks, listed=scan.listed, assigned=assigned)
        may_fetch = not self._options.reports
        step = JudgePartitions(fleets_of(dirs), clusters, self._options.detail_blocks, may_fetch)
        judged = self._kept("judged", partitions.mapInArrow(step, union_ddl(JUDGED)))
        return judged, _of(rows, "finding", ASSIGNED)

    def _metadata(self, newest: Sequence[LogDirRow]) -> DataFrame:
        rows = [(row.cluster, row.broker, row.log_dir) for row in newest]
        sources = self._spark.createDataFrame(rows, "cluster string, broker string, log_dir string")
        return self._kept("metadata", sources.mapInArrow(ReadMetadata(self._options.topics), union_ddl(ASSIGNED)))

    def _check_clusters(self, dirs: Sequence[LogDirRow]) -> None:
        for row in dirs:
            others = sorted(
                {o.cluster_id for o in dirs if o.cluster == row.cluster and o.cluster_id} - {row.cluster_id}
            )
            if row.cluster_id and others:
                evidence = f"meta.properties says cluster {row.cluster_id}, others say {', '.join(map(str, others))}"
                source = Source(row.cluster, row.broker, row.log_dir)
                self._more.append(audit_row(AuditKind.FOREIGN_CLUSTER, source, None, evidence))

    # ---- the end

    def _write(
        self,
        stamp: datetime,
        scan: _Seen,
        findings: DataFrame,
        verdicts: DataFrame,
    ) -> None:
        result, options = self._result, self._options
        frames = {"segments": scan.segments, "blocks": scan.blocks, "findings": findings, "verdicts": verdicts}
        for name, frame in frames.items():
            path = spark_path(self._tables.directory(name, options.audit_id, self._generation))
            frame.select(*_column_names(TABLES[name])).write.mode("overwrite").parquet(path)
        committed = Committed(options.audit_id, self._generation, "", 0)
        self._count(scan.listed, self._table("segments", committed), self._table("verdicts", committed))
        self._conclude(self._table("findings", committed))
        row = RunRow(
            options.audit_id,
            stamp,
            datetime.now(UTC),
            options.version or _version(),
            result.kernel,
            manifest_digest(self._sources),
            options.depth,
            result.bytes_read,
            result.bytes_listed,
            result.status.value,
            None if self._previous is None else self._previous.audit_id,
            None if self._previous is None else options.cycle,
        )
        runs = self._spark.createDataFrame([row_tuple(row)], spark_ddl(RunRow))
        path = spark_path(self._tables.directory("runs", options.audit_id, self._generation))
        runs.coalesce(1).write.mode("overwrite").parquet(path)
        facts = {
            "started_at": stamp.isoformat(),
            "status": result.status.value,
            "version": options.version or _version(),
        }
        self._tables.commit(options.audit_id, self._generation, facts)

    def _count(self, listed: DataFrame, segments: DataFrame, verdicts: DataFrame) -> None:
        result = self._result
        result.bytes_listed = listed.selectExpr("coalesce(sum(size_bytes), 0)").collect()[0][0]
        told = segments.selectExpr("count(*)", "count_if(from_previous)").collect()[0]
        result.segments, result.from_previous = told[0], told[1]
        result.verdicts = {row[0]: row[1] for row in verdicts.groupBy("verdict").count().collect()}

    def _conclude(self, findings: DataFrame) -> None:
        result = self._result
        kinds = plans.kinds(self._spark, findings).collect()
        result.kinds = {(row["kind"], row["severity"]): row["found"] for row in kinds}
        result.unreadable = [(r[0], r[1]) for r in plans.unread_places(self._spark, findings, _NAMED).collect()]
        told = plans.disagreements(self._spark, findings, _NAMED).collect()
        result.disagreements = [FindingRow(**row.asDict()) for row in told]
        result.status = status_of(result.kinds)


@contextmanager
def _fixed_plan(spark: SparkSession) -> Iterator[None]:
    """Let Spark run a job whose partitions are as they should be in one go: to plan again half-way takes a while."""
    before = spark.conf.get(_ADAPTIVE, "true") or "true"
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before)


def _inner(kind: type) -> str:
    return spark_ddl(kind).replace(" not null", "").replace("` ", "`: ")


def _version() -> str:
    try:
        return metadata.version("logmend")
    except metadata.PackageNotFoundError:  # it was shipped as a zip
        return "unknown"


def _of(frame: DataFrame, name: str, kinds: dict[str, type]) -> DataFrame:
    """Return the rows of one kind out of a stream of several."""
    wanted = [f"`{name}`.`{column}` AS `{column}`" for column in _column_names(kinds[name])]
    return frame.where(f"`{name}` IS NOT NULL").selectExpr(*wanted)


def _column_names(kind: type) -> list[str]:
    return [name for name, _, _ in columns(kind)]


def _task_columns() -> list[str]:
    return [*_column_names(ListedSegment), "start", "end", "task"]


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _comparable(options: AuditOptions, sources: Sequence[Source]) -> str:
    """Return what must be equal for a run that was cut off to be gone on with."""
    return f"{manifest_digest(sources)} {options_text(replace(options, now_ms=0))} {kernel_name()} {crc_name()}"
