"""The audit as a Spark job. `run` is what notebooks, `logmend audit` and `spark-submit` call.

Everything that is large stays on the executors: listings, digests and findings go from one step to the next as Parquet
files below `OUT/_staging`, and from there into the tables at the end, all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from audit.scan.finding_rows import audit_row
from audit.scan.listing import LISTED, LogDirRow
from audit.scan.tasks import VERIFIED
from audit.spark import plans
from audit.spark.host_scan import COLUMNS, check_report
from audit.spark.progress import Progress, SilentProgress
from audit.spark.reading import Cluster, read_segments
from audit.spark.results import AuditResult, fleets_of, newest_metadata, spark_path, status_of
from audit.spark.stage import Stage, column_names, resumed, rows_of, together
from audit.spark.steps import ASSIGNED, JUDGED, JudgePartitions, ListLogDirs, ReadMetadata
from audit.tables.kinds import AuditKind
from audit.tables.options import AuditOptions, Source, manifest_digest, read_manifest
from audit.tables.schema import TABLES, FindingRow, RunRow, row_tuple, spark_ddl
from audit.tables.tables import Committed, Tables, check_writable, checked_id
from audit.tables.wire import union_ddl
from storage.base.errors import ExitStatus

try:
    from py4j.protocol import Py4JJavaError
except ImportError:  # Spark Connect alone
    Py4JJavaError = PySparkException

_NAMED: Final = 100
"""Places that could not be read, and disagreements, that a result names."""


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
        self._options, self._generation = resumed(self._tables, options, sources, time.time_ns())
        place = self._tables.staging(self._options.audit_id, self._generation)
        self._stage = Stage(spark, self._tables, place)
        self._result = AuditResult(self._options.audit_id, options.out, ExitStatus.CLEAN)
        self._previous: Committed | None = None
        self._more: list[FindingRow] = []

    def run(self, stamp: datetime) -> AuditResult:
        if self._options.reports:
            return self._join(stamp)
        self._progress.phase("listing")
        listing = self._listing()
        listed = rows_of(listing, "segment", LISTED)
        same, reused, old_blocks = self._taken(listed)
        to_read = listed if reused is None else plans.without(self._spark, listed, reused)
        read = self._read(to_read)
        self._progress.phase("comparing")
        segments = together(
            [rows_of(part, "segment", VERIFIED) for part in read] + ([] if reused is None else [reused])
        )
        blocks = together([rows_of(p, "block", VERIFIED) for p in read] + ([] if old_blocks is None else [old_blocks]))
        findings = [rows_of(listing, "finding", LISTED), *(rows_of(part, "finding", VERIFIED) for part in read)]
        if same is not None:
            fresh = together([rows_of(part, "segment", VERIFIED) for part in read])
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
        listed, segments = rows_of(listing, "segment", LISTED), rows_of(reports, "segment", VERIFIED)
        self._result.kernel = "reports"
        findings = [rows_of(listing, "finding", LISTED)]
        scan = _Seen(listing, listed, segments, rows_of(reports, "block", VERIFIED), findings)

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
        every = together([*scan.findings, self._extra(), metadata_rows, rows_of(judged, "finding", JUDGED)])
        self._progress.phase("writing")
        self._write(stamp, scan, every, rows_of(judged, "verdict", JUDGED))
        return self._result

    # ---- listing

    def _listing(self) -> DataFrame:
        rows = [(*source, number) for number, source in enumerate(self._sources)]
        sources = self._spark.createDataFrame(rows, "cluster string, broker string, log_dir string, task int")
        spread = sources.repartitionById(max(len(rows), 1), "task")
        return self._stage.kept("listing", spread.mapInArrow(ListLogDirs(self._options), union_ddl(LISTED)))

    # ---- what an earlier audit has seen

    def _taken(self, listed: DataFrame) -> tuple[DataFrame | None, DataFrame | None, DataFrame | None]:
        """Return unchanged segments as the audit before had them, those that are taken over, and their blocks."""
        options = self._options
        if options.previous is None:
            return None, None, None
        self._previous = self._tables.find(options.previous)
        same = plans.unchanged(self._spark, listed, self._stage.table("segments", self._previous))
        before = [one for one in self._tables.committed() if one.audit_id != options.audit_id]
        reused = plans.taken_over(
            self._spark,
            same,
            self._stage.table("findings", self._previous),
            depth=options.depth,
            cycle=max(options.cycle, 1),
            turn=len(before) % max(options.cycle, 1),
            now_ms=options.now_ms,
        )
        reused = self._stage.kept("taken", reused)
        blocks = plans.blocks_of(self._spark, self._stage.table("blocks", self._previous), reused)
        return same, reused, blocks

    # ---- reading

    def _read(self, to_read: DataFrame) -> list[DataFrame]:
        result = self._result
        cluster = Cluster(_slots(self._spark), (Py4JJavaError, PySparkException))
        read = read_segments(self._stage, self._options, to_read, cluster, self._progress)
        self._more += read.failed
        result.tasks, result.bytes_read, result.kernel = read.tasks, read.bytes_read, read.kernel
        return read.frames

    # ---- judging

    def _extra(self) -> DataFrame:
        return self._spark.createDataFrame([row_tuple(row) for row in self._more], spark_ddl(FindingRow))

    def _judge(self, scan: _Seen, metadata: Callable[[Sequence[LogDirRow]], DataFrame]) -> tuple[DataFrame, DataFrame]:
        """Return verdicts with findings, and what reading the metadata had to tell."""
        spark = self._spark
        dirs = [LogDirRow(**row.asDict()) for row in rows_of(scan.listing, "log_dir", LISTED).collect()]
        self._check_clusters(dirs)
        rows = metadata(newest_metadata(dirs))
        assigned = rows_of(rows, "assigned", ASSIGNED)
        clusters = frozenset(row[0] for row in assigned.select("cluster").distinct().collect())
        states = plans.replica_states(
            spark,
            replicas=rows_of(scan.listing, "replica", LISTED),
            listed=scan.listed,
            segments=scan.segments,
            findings=together([*scan.findings, self._extra()]),
            assigned=assigned,
        )
        states = self._stage.kept("states", states)
        partitions = plans.partitions(spark, states=states, blocks=scan.blocks, listed=scan.listed, assigned=assigned)
        may_fetch = not self._options.reports
        step = JudgePartitions(fleets_of(dirs), clusters, self._options.detail_blocks, may_fetch)
        judged = self._stage.kept("judged", partitions.mapInArrow(step, union_ddl(JUDGED)))
        return judged, rows_of(rows, "finding", ASSIGNED)

    def _metadata(self, newest: Sequence[LogDirRow]) -> DataFrame:
        rows = [(row.cluster, row.broker, row.log_dir) for row in newest]
        sources = self._spark.createDataFrame(rows, "cluster string, broker string, log_dir string")
        return self._stage.kept("metadata", sources.mapInArrow(ReadMetadata(self._options.topics), union_ddl(ASSIGNED)))

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
            frame.select(*column_names(TABLES[name])).write.mode("overwrite").parquet(path)
        committed = Committed(options.audit_id, self._generation, "", 0)
        self._count(scan.listed, self._stage.table("segments", committed), self._stage.table("verdicts", committed))
        self._conclude(self._stage.table("findings", committed))
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


def _slots(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):  # Spark Connect does not tell
        return 8


def _inner(kind: type) -> str:
    return spark_ddl(kind).replace(" not null", "").replace("` ", "`: ")


def _version() -> str:
    try:
        return metadata.version("logmend")
    except metadata.PackageNotFoundError:  # it was shipped as a zip
        return "unknown"
