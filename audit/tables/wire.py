"""Rows of several kinds in one stream: a struct column a kind, null but in the rows of that kind.

A Spark step has one schema for all that it yields; Parquet stores the nulls in next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final

import numpy as np
import pyarrow as pa

from audit.tables.schema import BlockRow, arrow_schema, row_tuple, spark_ddl, tuple_batch

ROWS: Final = 10_000
"""Rows of one Arrow batch, at most."""
SIZE: Final = 16 << 20
"""Bytes of the texts and packed blocks in one, at most, unless a single row has more."""

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
    """Yield rows of these kinds, and `PackedBlocks`, as batches of bounded size.

    A batch holds rows of every kind, those of one kind together, in the order they came. It is as large as it may be:
    a writer of a Parquet row group, or a message, of each pays for its dozens of columns once for many segments.
    """
    held = _Held(kinds)
    for row in rows:
        if isinstance(row, PackedBlocks):
            for part in row.parts(ROWS):
                yield from held.make_room(len(part.numbers), part.numbers.nbytes)
                held.blocks.append(part)
        else:
            values = row_tuple(row)
            size = sum(len(value) for value in values if isinstance(value, (bytes, str)))
            yield from held.make_room(1, size)
            held.rows[type(row)].append(values)
    yield from held.flushed()


class _Held:
    """Rows that wait for their batch."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self.rows: dict[type[Any], list[tuple[Any, ...]]] = {kind: [] for kind in kinds.values()}
        self.blocks: list[PackedBlocks] = []
        self._count = self._size = 0

    def make_room(self, count: int, size: int) -> Iterator[pa.RecordBatch]:
        """Yield what is held if so many rows and bytes more were too many; count them in any case."""
        if self._count and (self._count + count > ROWS or self._size + size > SIZE):
            yield from self.flushed()
        self._count, self._size = self._count + count, self._size + size

    def flushed(self) -> Iterator[pa.RecordBatch]:
        """Yield what is held, at most one batch, and hold nothing any more."""
        if not self._count:
            return
        schema = union_schema(self._kinds)
        parts: list[list[pa.Array]] = [[] for _ in schema]
        for place, batch in self._batches():
            for number, one in enumerate(schema):
                if number == place:
                    parts[number].append(pa.StructArray.from_arrays(batch.columns, fields=list(one.type)))
                else:
                    parts[number].append(pa.nulls(batch.num_rows, one.type))
        yield pa.record_batch([pa.concat_arrays(part) for part in parts], schema=schema)
        self._count = self._size = 0

    def _batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the place of each kind and its rows; they are not held any more."""
        for place, kind in enumerate(self._kinds.values()):
            if self.rows[kind]:
                yield place, tuple_batch(arrow_schema(kind), self.rows[kind], pa)
                self.rows[kind] = []
            if kind is BlockRow and self.blocks:
                yield place, _block_batch(self.blocks)
                self.blocks = []


class PackedBlocks:
    """The blocks of one segment as the kernel packs them; they become columns without an object a block."""

    def __init__(self, replica: Sequence[Any], base_offset: int, packed: bytes) -> None:
        """`replica`: cluster, topic, partition, broker and log directory."""
        self.replica, self.base_offset = tuple(replica), base_offset
        self.numbers = np.frombuffer(packed, dtype=np.int64).reshape(-1, 7)

    def parts(self, count: int) -> Iterator[PackedBlocks]:
        """Yield the same in parts of at most `count` blocks."""
        for start in range(0, len(self.numbers), count):
            part = copy(self)
            part.numbers = self.numbers[start : start + count]
            yield part


def _block_batch(packed: Sequence[PackedBlocks]) -> pa.RecordBatch:
    schema = arrow_schema(BlockRow)
    fields = list(schema)
    numbers = np.concatenate([one.numbers for one in packed])
    owner = pa.array(np.repeat(np.arange(len(packed), dtype=np.int32), [len(one.numbers) for one in packed]))
    values = zip(*((*one.replica, one.base_offset) for one in packed), strict=True)
    constant = [pa.array(value, one.type).take(owner) for value, one in zip(values, fields, strict=False)]
    varying = [pa.array(numbers[:, n], one.type, safe=False) for n, one in enumerate(fields[len(constant) :])]
    return pa.record_batch(constant + varying, schema=schema)


def digest_of(packed: bytes) -> bytes:
    """Return the digest of all blocks together, 8 bytes, big-endian."""
    numbers = np.frombuffer(packed, dtype=np.uint64).reshape(-1, 7)
    return int(np.bitwise_xor.reduce(numbers[:, 1], initial=0)).to_bytes(8)
