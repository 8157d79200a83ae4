"""Rows of several kinds in one stream: a struct column a kind, null but in the rows of that kind.

A Spark step has one schema for all that it yields; Parquet stores the nulls in next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from audit.schema import BlockRow, arrow_schema, columns, row_tuple, spark_ddl, tuple_batch

ROWS: Final = 10_000
"""Rows of one Arrow batch, at most."""

Kinds = Mapping[str, type[Any]]
"""Name of the column of each kind, and the class of its rows."""


def union_schema(kinds: Kinds) -> pa.Schema:
    """Return the Arrow schema of a stream of these kinds."""
    return pa.schema([pa.field(name, _struct(kind)) for name, kind in kinds.items()])


def _struct(kind: type[Any]) -> pa.DataType:
    # Parts of a struct that is null are null themselves, whatever the table they end in allows.
    return pa.struct([one.with_nullable(True) for one in arrow_schema(kind)])  # noqa: FBT003


def union_ddl(kinds: Kinds) -> str:
    """Return the same for Spark."""
    parts = []
    for name, kind in kinds.items():
        inner = spark_ddl(kind).replace(" not null", "").replace("` ", "`: ")
        parts.append(f"`{name}` struct<{inner}>")
    return ", ".join(parts)


def union_batches(kinds: Kinds, rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Yield rows of these kinds, and `PackedBlocks`, as batches of bounded size."""
    names = {kind: name for name, kind in kinds.items()}
    held: dict[str, list[tuple[Any, ...]]] = {name: [] for name in kinds}
    count = 0
    for row in rows:
        if isinstance(row, PackedBlocks):
            yield from _batches_of(kinds, names[BlockRow], row.batches())
            continue
        held[names[type(row)]].append(row_tuple(row))
        count += 1
        if count >= ROWS:
            yield from _flushed(kinds, held)
            count = 0
    yield from _flushed(kinds, held)


def _flushed(kinds: Kinds, held: dict[str, list[tuple[Any, ...]]]) -> Iterator[pa.RecordBatch]:
    for name, rows in held.items():
        if rows:
            yield from _batches_of(kinds, name, [tuple_batch(arrow_schema(kinds[name]), rows, pa)])
            rows.clear()


def _batches_of(kinds: Kinds, name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = union_schema(kinds)
    for batch in batches:
        arrays = []
        for one in schema:
            if one.name == name:
                arrays.append(pa.StructArray.from_arrays(batch.columns, fields=list(one.type)))
            else:
                arrays.append(pa.nulls(batch.num_rows, one.type))
        yield pa.record_batch(arrays, schema=schema)


class PackedBlocks:
    """The blocks of one segment as the kernel packs them; they become columns without an object a block."""

    def __init__(self, replica: Sequence[Any], base_offset: int, packed: bytes) -> None:
        """`replica`: cluster, topic, partition, broker and log directory."""
        self.replica, self._base_offset = tuple(replica), base_offset
        self.numbers = np.frombuffer(packed, dtype=np.int64).reshape(-1, 7)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield them as rows of `blocks`."""
        schema = arrow_schema(BlockRow)
        fixed = (*self.replica, self._base_offset)
        for start in range(0, len(self.numbers), ROWS):
            part = self.numbers[start : start + ROWS]
            count = len(part)
            constant = [pa.repeat(pa.scalar(value, one.type), count) for value, one in zip(fixed, schema, strict=False)]
            varying = [pa.array(part[:, n], one.type, safe=False) for n, one in enumerate(list(schema)[len(fixed) :])]
            yield pa.record_batch(constant + varying, schema=schema)


def digest_of(packed: bytes) -> bytes:
    """Return the digest of all blocks together, 8 bytes, big-endian."""
    numbers = np.frombuffer(packed, dtype=np.uint64).reshape(-1, 7)
    return int(np.bitwise_xor.reduce(numbers[:, 1], initial=0)).to_bytes(8)


def rows_of(table: pa.Table, name: str, kind: type[Any]) -> list[Any]:
    """Return the rows of one kind of a stream as objects."""
    wanted = [column for column, _, _ in columns(kind)]
    return [kind(**{key: row[key] for key in wanted}) for row in table.column(name).to_pylist() if row is not None]
