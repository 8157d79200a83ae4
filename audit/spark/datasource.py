"""`spark.read.format("kafkalog")`: the batches of log directories as a table, for questions of one's own.

    from audit.spark.datasource import register
    register(spark)
    batches = spark.read.format("kafkalog").load("/var/lib/kafka/data")
    batches.where("topic = 'orders' and base_offset >= 1000000 and not crc_valid").show()

Executors must be able to read the paths. `audit.scan.batches` knows the columns and reads the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from audit.scan.batches import EVERYTHING, SCHEMA, LogFile, Range, cut, list_logs, read_logs, within
from audit.tables.reading import open_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

TASK_BYTES: Final = 1 << 30
"""Bytes of a task unless told otherwise: at some gigabytes a second, enough to make its start not matter."""
_SPARK: Final = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.bool_(): "boolean"}

Test = Callable[[Any], bool]


def register(spark: SparkSession) -> None:
    """Make `kafkalog` known to a session, and let it push filters down, which Spark has switched off."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(KafkaLog)


class KafkaLog(DataSource):
    """The batches of logs. Options, besides the paths given to `load`.

    `bytesPerTask`: bytes of logs that one task reads, 1 GiB. `checksums`: `false` reads headers only, then `crc_valid`
    is null. A path is that of a log directory, of a partition directory or of a `.log`, or the URI of one.
    """

    @classmethod
    def name(cls) -> str:
        return "kafkalog"

    def schema(self) -> str:
        return ", ".join(f"{each.name} {_SPARK[each.type]}" for each in SCHEMA)

    def reader(self, schema: StructType) -> KafkaLogReader:  # noqa: ARG002 (there is only one)
        paths = json.loads(self.options["paths"]) if "paths" in self.options else [self.options.get("path", "")]
        if not all(paths):
            raise ValueError('kafkalog: no path; say load("/var/lib/kafka/data")')
        return KafkaLogReader(
            tuple(paths),
            task_bytes=int(self.options.get("bytesPerTask", TASK_BYTES)),
            checksums=self.options.get("checksums", "true").lower() != "false",
        )


class Piece(InputPartition):
    """The files that one task reads, all of one path or URI."""

    def __init__(self, place: str, logs: tuple[LogFile, ...]) -> None:
        super().__init__(logs)
        self.place = place


@dataclass(frozen=True)
class Wanted:
    """What the filters of a query leave of the files."""

    topic: tuple[Test, ...] = ()
    partition: tuple[Test, ...] = ()
    segment: tuple[Test, ...] = ()
    offsets: Range = EVERYTHING

    def has(self, topic: str, partition: int) -> bool:
        """Tell whether rows of that partition can be in the result."""
        return all(test(topic) for test in self.topic) and all(test(partition) for test in self.partition)


class KafkaLogReader(DataSourceReader):
    """Reads what filters leave. Those on topic, partition and segment are done with; those on offsets save reading."""

    def __init__(self, paths: Sequence[str], *, task_bytes: int, checksums: bool) -> None:
        self.paths, self.task_bytes, self.checksums = tuple(paths), task_bytes, checksums
        self.wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take in the filters; yield those that Spark still has to apply."""
        for one in filters:
            taken = _taken(self.wanted, one)
            if taken is not None:
                self.wanted = taken
            else:
                self.wanted = replace(self.wanted, offsets=self.wanted.offsets.meets(_offsets(one)))
                yield one

    def partitions(self) -> list[InputPartition]:
        """Return the files that are left, cut into tasks by their bytes."""
        return [Piece(place, group) for place in self.paths for group in cut(self._logs(place), self.task_bytes)]

    def _logs(self, place: str) -> Iterator[LogFile]:
        fs, path = open_place(place)
        logs = within(list_logs(fs, path, self.wanted.has), self.wanted.offsets)
        return (log for log in logs if all(test(log.segment) for test in self.wanted.segment))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the files of one task."""
        if isinstance(partition, Piece):
            fs, _ = open_place(partition.place)
            yield from read_logs(fs, partition.value, self.wanted.offsets, checksums=self.checksums)


def _taken(current: Wanted, one: Filter) -> Wanted | None:
    """Return what is wanted with a filter on the name of a file applied for good, None if it is of another kind."""
    test = _test(one)
    if test is None:
        return None
    match one.attribute:  # type: ignore[attr-defined]
        case ("topic",):
            return replace(current, topic=(*current.topic, test))
        case ("partition",):
            return replace(current, partition=(*current.partition, test))
        case ("segment",):
            return replace(current, segment=(*current.segment, test))
        case _:
            return None


def _test(one: Filter) -> Test | None:
    match one:
        case EqualTo(_, value) if value is not None:
            return _Test("eq", value)
        case In(_, values) if None not in values:
            return _Test("in", values)
        case GreaterThan(_, value):
            return _Test("gt", value)
        case GreaterThanOrEqual(_, value):
            return _Test("ge", value)
        case LessThan(_, value):
            return _Test("lt", value)
        case LessThanOrEqual(_, value):
            return _Test("le", value)
        case StringStartsWith(_, value):
            return _Test("starts", value)
        case IsNotNull(_):
            return _Test("known", None)
        case _:
            return None


_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": lambda found, value: bool(found == value),
    "in": lambda found, value: found in value,
    "gt": lambda found, value: bool(found > value),
    "ge": lambda found, value: bool(found >= value),
    "lt": lambda found, value: bool(found < value),
    "le": lambda found, value: bool(found <= value),
    "known": lambda found, _: found is not None,
    "starts": lambda found, value: bool(found.startswith(value)),
}


@dataclass(frozen=True)
class _Test:
    """A comparison with a constant; travels to executors, as a function made on the spot could not everywhere."""

    kind: str
    value: Any

    def __call__(self, found: Any) -> bool:
        return _TESTS[self.kind](found, self.value)


def _offsets(one: Filter) -> Range:
    """Return the offsets beyond which a filter lets nothing through; a last offset is never below its base offset."""
    match one:
        case EqualTo(("base_offset" | "last_offset",), int(value)):
            return Range(value, value)
        case In(("base_offset" | "last_offset",), values) if values and None not in values:
            return Range(min(values), max(values))
        case GreaterThan(("base_offset" | "last_offset",), int(value)):
            return Range(first=value + 1)
        case GreaterThanOrEqual(("base_offset" | "last_offset",), int(value)):
            return Range(first=value)
        case LessThan(("base_offset" | "last_offset",), int(value)):
            return Range(last=value - 1)
        case LessThanOrEqual(("base_offset" | "last_offset",), int(value)):
            return Range(last=value)
        case _:
            return EVERYTHING
