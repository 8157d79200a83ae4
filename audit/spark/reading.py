"""Reads listed segments as Spark jobs, in tasks of one size, each driven until it is done or known to be impossible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from audit.scan.listing import ListedSegment
from audit.scan.tasks import VERIFIED
from audit.spark import plans
from audit.spark.progress import Progress, Watch
from audit.spark.results import spark_path
from audit.spark.stage import Stage, column_names, rows_of
from audit.spark.steps import DONE_DDL, TASK_DDL, CutSegments, JoinPieces, Staging, VerifySegments, failed
from audit.spark.verifying import Driven, Driver, Failures, evenly, grouped, numbered, task_size
from audit.tables.options import AuditOptions
from audit.tables.schema import FindingRow, spark_ddl
from audit.tables.wire import union_ddl
from storage.kernel.scan import kernel_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_APART: Final = 10**9
"""Above the numbers of tasks are those of single segments that are tried alone."""
_TASK_COLUMNS: Final = (*column_names(ListedSegment), "start", "end", "task")


class Read(NamedTuple):
    """What reading gave. `frames` hold the rows of tasks and, apart, of huge segments joined from their parts."""

    frames: list[DataFrame]
    failed: list[FindingRow]
    """The segments that no task could read."""
    tasks: int
    bytes_read: int
    kernel: str


class _Size(NamedTuple):
    size: int
    has_parts: bool


class Cluster(NamedTuple):
    """What the job knows of Spark: how many tasks run at a time, and what is raised when one fails."""

    slots: int
    failures: Failures


def read_segments(
    stage: Stage, options: AuditOptions, to_read: DataFrame, cluster: Cluster, progress: Progress
) -> Read:
    """Read the listed segments, in tasks that an earlier run of the same audit has not done yet."""
    spark = stage.spark
    tasks = stage.kept("tasks", _tasks(spark, options, to_read, cluster.slots))
    sizes = _sizes(tasks)
    staging = Staging(options.out, stage.place)
    staging.prepare()
    jobs = _Jobs(spark, tasks, sizes, VerifySegments(options, options.out, stage.place))
    driver = Driver(staging, jobs.run, jobs.split, cluster.failures)
    with Watch(staging, {task: size for task, (size, _) in sizes.items()}, progress):
        driven = driver.run(sizes, options.wave_tasks)
    verified = spark.read.schema(union_ddl(VERIFIED)).parquet(spark_path(f"{stage.place}/verified"))
    frames = [verified]
    if any(has_parts for _, has_parts in sizes.values()):
        grouped_pieces = plans.with_pieces(spark, tasks, rows_of(verified, "piece", VERIFIED))
        frames.append(stage.kept("joined", grouped_pieces.mapInArrow(JoinPieces(options), union_ddl(VERIFIED))))
    kernels = {row["kernel"].split()[0] for row in driven.rows} or {kernel_name()}
    bytes_read = sum(size for size, _ in sizes.values())
    return Read(frames, jobs.failed(driven), len(sizes), bytes_read, ",".join(sorted(kernels)))


class _Jobs:
    """Spark jobs over tasks by their numbers, and the tasks of single segments that are split off."""

    def __init__(self, spark: SparkSession, tasks: DataFrame, sizes: dict[int, _Size], step: VerifySegments) -> None:
        self._spark, self._tasks, self._sizes, self._step = spark, tasks, sizes, step
        self._ddl = f"{spark_ddl(ListedSegment)}, {TASK_DDL}, `task` bigint".replace(" not null", "")
        self._single: dict[int, list[Any]] = {}

    def run(self, wanted: frozenset[int] | None) -> list[Any]:
        """Run the tasks of these numbers as one job, all with None; return what they say of themselves."""
        spark = self._spark
        numbers = sorted(wanted or self._sizes)
        single = [row for n in numbers for row in self._single.get(n, [])]
        rows = spark.createDataFrame(single, self._ddl) if single else self._tasks.select(*_TASK_COLUMNS)
        spread = plans.placed(spark, rows, numbers).repartitionById(len(numbers), "place")
        with _fixed_plan(spark):
            return spread.select(*_TASK_COLUMNS).mapInArrow(self._step, DONE_DDL).collect()

    def split(self, task: int) -> Iterator[int]:
        """Make each segment of a task a task of its own, and yield their numbers; none if it has one segment only."""
        rows = self._rows(task)
        if len(rows) < 2:
            return
        for at, row in enumerate(rows):
            number = _APART * (task + 1) + at
            self._single[number] = [(*row[:-1], number)]
            yield number

    def failed(self, driven: Driven) -> list[FindingRow]:
        """Return a finding for each segment that no task could read."""
        findings = []
        for number, reason in driven.failed.items():
            for row in self._single.get(number) or self._rows(number):
                values = dict(zip(_TASK_COLUMNS, row, strict=True))
                segment = ListedSegment(**{name: values[name] for name in column_names(ListedSegment)})
                findings.append(failed(segment, f"its task failed again and again: {reason}"))
        return findings

    def _rows(self, task: int) -> list[Any]:
        return self._tasks.select(*_TASK_COLUMNS).where(f"task = {int(task)}").collect()


def _sizes(tasks: DataFrame) -> dict[int, _Size]:
    """Return the bytes of each task, and whether it has parts of huge segments."""
    size = "coalesce(`end` - `start`, size_bytes)"
    rows = tasks.selectExpr("task", f"{size} AS size", "`end` IS NOT NULL AS is_part")
    sums = rows.groupBy("task").agg({"size": "sum", "is_part": "max"})
    columns_of_sums = sums.selectExpr("task", "`sum(size)`", "`max(is_part)`")
    return {row[0]: _Size(row[1], row[2]) for row in columns_of_sums.collect()}


def _tasks(spark: SparkSession, options: AuditOptions, to_read: DataFrame, slots: int) -> DataFrame:
    nothing = "CAST(NULL AS BIGINT)"
    small = to_read.where(f"size_bytes <= {options.split_bytes}")
    huge = to_read.where(f"size_bytes > {options.split_bytes}")
    ddl = f"{spark_ddl(ListedSegment)}, {TASK_DDL}".replace(" not null", "")
    parts = small.selectExpr("*", f"{nothing} AS `start`", f"{nothing} AS `end`").unionByName(
        huge.mapInArrow(CutSegments(options.split_bytes), ddl)
    )
    costs = plans.weights(spark, parts).collect()
    total = sum(row["cost"] for row in costs)
    size = task_size(total, slots, options.task_bytes)
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


@contextmanager
def _fixed_plan(spark: SparkSession) -> Iterator[None]:
    """Let Spark run a job whose partitions are as they should be in one go: to plan again half-way takes a while."""
    before = spark.conf.get(_ADAPTIVE, "true") or "true"
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before)
