"""The five tables of an audit: one row class a table, and the Arrow and Spark schemas that follow from it.

A column is stated once, as a field of its class: Python type, table type and meaning. A test compares them with
`docs/reference/audit-schema.md`, which adds the units. Rows travel as tuples in the order of the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

BLOCK_OFFSETS: Final = 4096
"""Offsets of one block: block n holds the batches whose base offset is n * 4096 or more and below (n + 1) * 4096."""


class Verdict(Enum):
    """What an audit says of a partition; the worst that holds."""

    HEALTHY = "healthy"  # every replica could be read and agrees with every other
    DEGRADED = "degraded"  # the data is there at least twice, but a replica lacks some of it, or is damaged
    DIVERGENT = "divergent"  # replicas hold different data below the high watermark
    ONE_GOOD_COPY = "one_good_copy"  # some of it is sound in a single replica although there should be more
    UNREADABLE = "unreadable"  # a replica could not be read, so nothing is known of it


# A column's type in a table stands beside its type in Python; ` | None` behind it allows null.
Text = Annotated[str, "string"]
Int = Annotated[int, "int"]
Long = Annotated[int, "long"]
Flag = Annotated[bool, "boolean"]
Binary = Annotated[bytes, "binary"]
Time = Annotated[datetime, "timestamp"]
Ints = Annotated[list[int], "array<int>"]
Texts = Annotated[list[str], "array<string>"]


@dataclass(frozen=True, slots=True)
class RunRow:
    """One audit."""

    audit_id: Text
    started_at: Time
    finished_at: Time | None
    logmend_version: Text
    kernel: Text
    manifest_digest: Text
    depth: Text
    bytes_read: Long
    bytes_listed: Long
    status: Int
    previous_audit_id: Text | None
    cycle: Int | None


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One segment of one replica."""

    cluster: Text
    broker: Text
    log_dir: Text
    topic: Text
    partition: Int
    directory: Text
    base_offset: Long
    size_bytes: Long
    valid_bytes: Long
    mtime_ms: Long
    is_active: Flag
    batches: Long
    records: Long | None
    first_offset: Long | None
    last_offset: Long | None
    max_timestamp_ms: Long | None
    epochs: Ints
    digest: Binary
    verified_at: Time
    depth: Text
    from_previous: Flag


@dataclass(frozen=True, slots=True)
class BlockRow:
    """The batches of one segment of one replica whose base offsets lie in one block of offsets."""

    cluster: Text
    topic: Text
    partition: Int
    broker: Text
    log_dir: Text
    base_offset: Long
    block: Long
    digest: Long
    batches: Int
    bytes: Long
    first_offset: Long
    last_offset: Long
    max_epoch: Int


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One thing that is wrong, or worth knowing."""

    cluster: Text
    broker: Text
    log_dir: Text
    topic: Text | None
    partition: Int | None
    path: Text
    kind: Text
    position: Long | None
    size: Long | None
    first_offset: Long | None
    last_offset: Long | None
    next_good_offset: Long | None
    evidence: Text
    severity: Text


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One partition of one cluster, all replicas together."""

    cluster: Text
    topic: Text
    partition: Int
    topic_id: Text | None
    expected_replicas: Int | None
    replicas: Int
    agreeing: Int
    good_brokers: Texts
    bad_brokers: Texts
    lone_broker: Text | None
    disagree_first_offset: Long | None
    disagree_last_offset: Long | None
    comparable_from: Long
    comparable_until: Long
    size_bytes: Long
    verdict: Text


TABLES: Final[dict[str, type[Any]]] = {
    "runs": RunRow,
    "segments": SegmentRow,
    "blocks": BlockRow,
    "findings": FindingRow,
    "verdicts": VerdictRow,
}
"""Name of each table and the class of its rows. On disk all but `runs` have one more column, `audit_id`, from the path
of the file; `runs` has its own, which is the same."""

_ARROW: Final = {"string": "string", "int": "int32", "long": "int64", "boolean": "bool_", "binary": "binary"}


def _once(function: Callable[[type[Any]], T]) -> Callable[[type[Any]], T]:
    """Let a function of a row class remember what it returned: to evaluate type hints takes as long as to read MiBs.

    `functools.cache` would do, but the type checker does not take a class for hashable.
    """
    known: dict[type[Any], T] = {}

    @wraps(function)
    def remembering(row_class: type[Any]) -> T:
        if row_class not in known:
            known[row_class] = function(row_class)
        return known[row_class]

    return remembering


@_once
def columns(row_class: type[Any]) -> tuple[tuple[str, str, bool], ...]:
    """Return name, table type and whether null is allowed, of each column in order."""
    found = []
    for name, hint in get_type_hints(row_class, include_extras=True).items():
        kinds = [part for part in get_args(hint) if part is not type(None)]
        nullable = get_origin(hint) is not Annotated
        found.append((name, get_args(kinds[0])[1] if nullable else kinds[1], nullable))
    return tuple(found)


def spark_ddl(row_class: type[Any]) -> str:
    """Return the schema as Spark reads it from text."""
    parts = []
    for name, kind, nullable in columns(row_class):
        spark_kind = {"long": "bigint"}.get(kind, kind)
        parts.append(f"`{name}` {spark_kind}{'' if nullable else ' not null'}")
    return ", ".join(parts)


@_once
def arrow_schema(row_class: type[Any]) -> pa.Schema:
    """Return the schema as Arrow has it; timestamps are microseconds of UTC."""
    import pyarrow as pa  # noqa: PLC0415 (who only wants the rows need not have it)

    return pa.schema([pa.field(name, _arrow_type(kind), nullable) for name, kind, nullable in columns(row_class)])


def _arrow_type(kind: str) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415

    if kind == "timestamp":
        return pa.timestamp("us", tz="UTC")
    if kind.startswith("array<"):
        return pa.list_(_arrow_type(kind[6:-1]))
    made: pa.DataType = getattr(pa, _ARROW[kind])()
    return made


def row_tuple(row: Any) -> tuple[Any, ...]:
    """Return the values of a row in the order of its columns."""
    values: tuple[Any, ...] = _getter(type(row))(row)
    return values


@_once
def _getter(row_class: type[Any]) -> attrgetter[Any]:
    return attrgetter(*row_class.__slots__)


def record_batch(row_class: type[Any], rows: Iterable[Any]) -> pa.RecordBatch:
    """Return rows of one class as Arrow; raises `pyarrow.ArrowInvalid` for a value that its column cannot hold."""
    import pyarrow as pa  # noqa: PLC0415

    return tuple_batch(arrow_schema(row_class), [row_tuple(row) for row in rows], pa)


def tuple_batch(schema: pa.Schema, rows: Sequence[tuple[Any, ...]], pa: Any) -> pa.RecordBatch:
    """Return tuples in the order of `schema` as Arrow."""
    by_column = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(values, one.type) for values, one in zip(by_column, schema, strict=True)]
    made: pa.RecordBatch = pa.record_batch(arrays, schema=schema)
    return made
