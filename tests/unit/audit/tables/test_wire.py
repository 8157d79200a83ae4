"""Rows of many segments in few batches, none of them large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit.scan.tasks import VERIFIED, Row
from audit.spark.steps import Staging
from audit.tables import wire
from audit.tables.schema import BlockRow, FindingRow, SegmentRow, columns
from audit.tables.wire import PackedBlocks, union_batches, union_schema

NOW = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
KEY = ("c", "t", 0, "1", "/d")
SEGMENT = SegmentRow(
    "c", "1", "/d", "t", 0, "t-0", 0, 9, 9, 1, False, 1, None, 0, 3, None, [0, 2], b"\0" * 8, NOW, "full", False
)
FINDING = FindingRow("c", "1", "/d", "t", 0, "/d/x", "batch_crc", None, None, None, None, None, "e", "note")


def segment(base: int, blocks: int = 2) -> list[Row]:
    """Return the rows of a segment: itself, its blocks, a finding."""
    numbers = np.arange(base * 100, base * 100 + 7 * blocks, dtype=np.int64)
    packed = PackedBlocks((*KEY[:2], base, *KEY[3:]), base, numbers.tobytes())
    return [replace(SEGMENT, base_offset=base), packed, replace(FINDING, position=base)]


def rows(count: int, blocks: int = 2) -> Iterator[Row]:
    for base in range(count):
        yield from segment(base, blocks)


def block_rows(count: int, blocks: int = 2) -> list[BlockRow]:
    return [
        BlockRow(*KEY[:2], base, *KEY[3:], base, *range(start, start + 7))
        for base in range(count)
        for start in range(base * 100, base * 100 + 7 * blocks, 7)
    ]


def by_kind(batches: list[pa.RecordBatch]) -> list[list[Any]]:
    table = pa.Table.from_batches(batches, union_schema(VERIFIED))
    return [
        [kind(**{key: row[key] for key, _, _ in columns(kind)}) for row in table.column(name).to_pylist() if row]
        for name, kind in VERIFIED.items()
    ]


def test_rows_of_many_segments_share_a_batch_and_none_is_lost_or_changed() -> None:
    batches = list(union_batches(VERIFIED, rows(500)))
    assert [batch.num_rows for batch in batches] == [2000]
    segments, blocks, findings, pieces = by_kind(batches)
    assert segments == [replace(SEGMENT, base_offset=base) for base in range(500)]
    assert findings == [replace(FINDING, position=base) for base in range(500)]
    assert blocks == block_rows(500)
    assert pieces == []


def test_a_row_of_a_batch_is_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ROWS", 7)
    for batch in union_batches(VERIFIED, rows(5)):
        batch.validate(full=True)
        valid = np.array([column.is_valid().to_pylist() for column in batch.columns])
        assert (valid.sum(axis=0) == 1).all()


@pytest.mark.parametrize("blocks", [0, 1, 6, 7, 8, 50])
def test_no_batch_has_more_rows_than_allowed(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    monkeypatch.setattr(wire, "ROWS", 7)
    batches = list(union_batches(VERIFIED, rows(9, blocks)))
    assert max(batch.num_rows for batch in batches) <= 7
    assert [len(found) for found in by_kind(batches)] == [9, 9 * blocks, 9, 0]
    assert sorted(by_kind(batches)[1], key=lambda row: (row.base_offset, row.block)) == block_rows(9, blocks)


def test_a_batch_is_full_before_it_is_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ROWS", 8)
    assert [batch.num_rows for batch in union_batches(VERIFIED, rows(5))] == [8, 8, 4]


def test_long_texts_fill_a_batch_before_its_rows_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "SIZE", 1000)
    long = [replace(FINDING, evidence="e" * 400, position=number) for number in range(5)]
    batches = list(union_batches(VERIFIED, [*long, replace(FINDING, evidence="e" * 5000)]))
    assert [batch.num_rows for batch in batches] == [2, 2, 1, 1]


def test_rows_are_taken_one_by_one_not_all_before_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ROWS", 10)
    taken = []

    def watched() -> Iterator[Row]:
        for number in range(1000):
            taken.append(number)
            yield FINDING

    next(union_batches(VERIFIED, watched()))
    assert len(taken) == 11


def test_no_rows_are_no_batch() -> None:
    assert list(union_batches(VERIFIED, [])) == []


def test_the_file_of_a_task_has_one_row_group_for_many_segments(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path), f"{tmp_path}/_staging")
    staging.prepare()
    assert staging.write(3, ((10, segment(base)) for base in range(500))) == 5000
    file = pq.ParquetFile(tmp_path / "_staging" / "verified" / "3.parquet")
    assert file.num_row_groups == 1
    assert [len(found) for found in by_kind(file.read().to_batches())] == [500, 1000, 500, 0]


def test_the_file_of_a_task_without_segments_is_there_and_empty(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path), f"{tmp_path}/_staging")
    staging.prepare()
    assert staging.write(3, []) == 0
    assert pq.read_table(tmp_path / "_staging" / "verified" / "3.parquet").num_rows == 0
    assert staging.done() == {3}
