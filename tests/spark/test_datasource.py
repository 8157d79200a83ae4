"""`kafkalog` in a real Spark: the rows of every file are what `dump` prints, and filters keep files from being read."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import pytest
from support.batches import batch_v2

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark.sql.datasource")

from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThan, Not, StringStartsWith

from audit.scan.batches import SCHEMA, list_logs, read_logs
from audit.spark.datasource import KafkaLogReader, register
from storage.disk.fs import OsFs


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory of two topics with two partitions each, of three segments each; one batch is rotten."""
    top = tmp_path_factory.mktemp("data")
    for topic in ("orders", "billing"):
        for partition in range(2):
            directory = top / f"{topic}-{partition}"
            directory.mkdir()
            for base in (0, 100, 200):
                made = b"".join(batch_v2(base + n, 2, leader_epoch=3) for n in range(0, 100, 2))
                (directory / f"{base:020d}.log").write_bytes(made)
    rotten = top / "orders-1" / f"{100:020d}.log"
    data = bytearray(rotten.read_bytes())
    data[len(data) // 2 + 70] ^= 1  # in the records of the batch in the middle
    rotten.write_bytes(data + b"torn")
    return top


@pytest.fixture
def batches(spark: SparkSession, fleet: Path) -> DataFrame:
    register(spark)
    return spark.read.format("kafkalog").option("bytesPerTask", "9000").load(str(fleet))


def reader(*paths: Path) -> KafkaLogReader:
    return KafkaLogReader(tuple(map(str, paths)), task_bytes=1 << 30, checksums=True)


def read_by(one: KafkaLogReader) -> set[str]:
    """Return the files that a reader would read, as `orders-0/100`."""
    return {f"{log.topic}-{log.partition}/{log.segment}" for piece in one.partitions() for log in piece.value}


def test_all_rows_arrive_as_they_were_read_on_this_machine(batches: DataFrame, fleet: Path) -> None:
    logs = list(list_logs(OsFs(), PurePath(fleet)))
    expected = [tuple(row.values()) for piece in read_logs(OsFs(), logs) for row in piece.to_pylist()]
    assert batches.columns == SCHEMA.names
    assert len(expected) == 601
    assert sorted(map(tuple, batches.collect()), key=str) == sorted(expected, key=str)
    assert batches.rdd.getNumPartitions() > 3


def test_the_rotten_batch_is_one_row_and_reading_goes_on_behind_it(batches: DataFrame) -> None:
    bad = batches.where("not crc_valid").orderBy("position").collect()
    assert [(row.topic, row.partition, row.segment, row.base_offset) for row in bad] == [
        ("orders", 1, 100, 150), ("orders", 1, 100, None),
    ]  # fmt: skip
    assert [row.fault for row in bad] == [
        "the checksum does not hold",
        "4 bytes at the end are less than a batch header",
    ]
    assert batches.where("topic = 'orders' and partition = 1 and segment = 100 and crc_valid").count() == 49


def test_sql_answers_with_filters_pushed_down(
    batches: DataFrame, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    batches.createOrReplaceTempView("batches")
    asked = "select count(*), sum(record_count) from batches where topic = 'billing' and partition in (1, 5) and "
    (row,) = spark.sql(asked + "base_offset <= 151 and last_offset >= 101").collect()
    assert tuple(row) == (26, 52)
    batches.where("topic = 'billing' and magic = 1").explain()
    plan = capsys.readouterr().out
    assert "billing" not in plan, "Spark does not apply again what was taken"
    assert "(magic#" in plan


def test_filters_on_names_are_done_with_and_leave_files_unread(fleet: Path) -> None:
    one = reader(fleet)
    left = list(
        one.pushFilters([EqualTo(("topic",), "orders"), In(("partition",), (1, 7)), GreaterThan(("segment",), 0)])
    )
    assert left == []
    assert read_by(one) == {"orders-1/100", "orders-1/200"}
    other = reader(fleet)
    left = list(other.pushFilters([StringStartsWith(("topic",), "bill"), LessThan(("partition",), 1)]))
    assert left == []
    assert read_by(other) == {f"billing-0/{base}" for base in (0, 100, 200)}


def test_filters_on_offsets_save_reading_and_are_applied_again_by_spark(fleet: Path) -> None:
    asked = [GreaterThan(("base_offset",), 150), LessThan(("last_offset",), 180)]
    one = reader(fleet)
    assert list(one.pushFilters([*asked, EqualTo(("topic",), "orders")])) == asked
    assert read_by(one) == {"orders-0/100", "orders-1/100"}


@pytest.mark.parametrize(
    "one", [IsNotNull(("codec",)), Not(EqualTo(("topic",), "orders")), EqualTo(("codec",), "zstd")]
)
def test_filters_that_it_does_not_understand_are_left_to_spark(fleet: Path, one: object) -> None:
    asked = reader(fleet)
    assert list(asked.pushFilters([one])) == [one]  # type: ignore[list-item]
    assert len(read_by(asked)) == 12


def test_a_filter_for_a_point_reads_from_where_the_index_says(batches: DataFrame, fleet: Path) -> None:
    found = batches.where("topic = 'orders' and partition = 0 and base_offset <= 143 and last_offset >= 143").collect()
    assert [(row.base_offset, row.last_offset, row.leader_epoch) for row in found] == [(142, 143, 3)]


def test_several_paths_and_a_single_file_are_read(spark: SparkSession, fleet: Path) -> None:
    register(spark)
    paths = [str(fleet / "orders-0"), str(fleet / "billing-1" / f"{200:020d}.log")]
    found = spark.read.format("kafkalog").load(paths).groupBy("topic").count().collect()  # type: ignore[arg-type]
    assert dict(map(tuple, found)) == {"orders": 150, "billing": 50}


def test_headers_alone_are_read_on_request(spark: SparkSession, fleet: Path) -> None:
    register(spark)
    found = spark.read.format("kafkalog").option("checksums", "false").load(str(fleet))
    assert [tuple(row) for row in found.groupBy("crc_valid").count().orderBy("crc_valid").collect()] == [
        (None, 600), (False, 1),
    ]  # fmt: skip


def test_a_file_that_is_gone_when_its_turn_comes_is_a_row(fleet: Path, tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    log = directory / f"{0:020d}.log"
    log.write_bytes(batch_v2(0, 2))
    one = reader(tmp_path)
    pieces = one.partitions()
    log.unlink()
    (row,) = [row for piece in pieces for batch in one.read(piece) for row in batch.to_pylist()]
    assert row["crc_valid"] is None
    assert "No such file" in row["fault"]


def test_no_path_is_said_in_plain_words(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(Exception, match="kafkalog: no path"):
        spark.read.format("kafkalog").load().count()
