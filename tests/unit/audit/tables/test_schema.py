from __future__ import annotations

import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from audit.tables.schema import (
    TABLES,
    BlockRow,
    FindingRow,
    RunRow,
    SegmentRow,
    Verdict,
    VerdictRow,
    arrow_schema,
    columns,
    record_batch,
    row_tuple,
    spark_ddl,
)

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "audit-schema.md"
NOW = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
ROWS = {
    "runs": RunRow("a", NOW, None, "1", "c", "00", "full", 1, 2, 0, None, None),
    "segments": SegmentRow(
        "c", "1", "/d", "t", 0, "t-0", 0, 9, 9, 1, False, 1, None, 0, 3, None, [0, 2], b"\0" * 8, NOW, "full", False
    ),
    "blocks": BlockRow("c", "t", 0, "1", "/d", 0, 0, -1, 1, 9, 0, 3, 2),
    "findings": FindingRow("c", "1", "/d", None, None, "/d/x", "batch_crc", None, None, None, None, None, "e", "note"),
    "verdicts": VerdictRow("c", "t", 0, None, 3, 3, 3, ["1"], [], None, None, None, 0, 4, 9, "healthy"),
}


def documented(table: str) -> list[tuple[str, str]]:
    section = PAGE.read_text("utf-8").split(f"\n## {table}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| (\w+) \| ([\w<>?]+) \|", section, re.MULTILINE)[1:]


@pytest.mark.parametrize("table", TABLES)
def test_the_page_lists_the_columns_of_a_table_in_their_order_with_their_types(table: str) -> None:
    stated = [(name, kind + "?" * nullable) for name, kind, nullable in columns(TABLES[table])]
    assert documented(table) == stated


@pytest.mark.parametrize("table", TABLES)
def test_a_row_comes_back_from_arrow_as_it_went_in(table: str) -> None:
    row = ROWS[table]
    batch = record_batch(TABLES[table], [row])
    assert batch.schema == arrow_schema(TABLES[table])
    assert TABLES[table](**batch.to_pylist()[0]) == row
    assert row_tuple(row) == tuple(batch.to_pylist()[0].values())


@pytest.mark.parametrize("table", TABLES)
def test_no_rows_are_a_batch_with_all_columns(table: str) -> None:
    batch = record_batch(TABLES[table], [])
    assert (batch.num_rows, batch.num_columns) == (0, len(fields(TABLES[table])))


def test_a_number_that_a_column_cannot_hold_is_refused() -> None:
    with pytest.raises((pa.ArrowInvalid, OverflowError)):
        record_batch(BlockRow, [BlockRow("c", "t", 1 << 31, "1", "/d", 0, 0, 0, 1, 9, 0, 3, 2)])


def test_the_schema_for_spark_names_types_and_what_may_be_null() -> None:
    assert spark_ddl(BlockRow).startswith(
        "`cluster` string not null, `topic` string not null, `partition` int not null"
    )
    assert "`digest` bigint not null" in spark_ddl(BlockRow)
    assert "`finished_at` timestamp, " in spark_ddl(RunRow)
    assert "`epochs` array<int> not null" in spark_ddl(SegmentRow)


def test_the_page_names_every_verdict_in_order() -> None:
    line = next(line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| verdict |"))
    assert re.findall(r"`(\w+)`", line) == [verdict.value for verdict in Verdict]
