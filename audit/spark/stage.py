"""Where an audit keeps what it computes: the staging directory of its generation, and data frames in its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from audit.spark.results import spark_path
from audit.spark.steps import options_text
from audit.tables.options import AuditOptions, Source, manifest_digest
from audit.tables.schema import TABLES, columns, spark_ddl
from audit.tables.tables import Committed, Tables
from storage.kernel.scan import crc_name, kernel_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESUMED: Final = "options.txt"


class Stage:
    """The staging directory of one run. What it keeps there, a run that goes on with it does not compute again."""

    def __init__(self, spark: SparkSession, tables: Tables, place: str) -> None:
        self.spark, self.tables, self.place = spark, tables, place

    def kept(self, name: str, frame: DataFrame) -> DataFrame:
        """Return a data frame that was computed once, and is read from its files from now on."""
        path = f"{self.place}/{name}"
        if "_SUCCESS" not in self.tables.names(path):
            frame.write.mode("overwrite").parquet(spark_path(path))
        return self.spark.read.schema(frame.schema).parquet(spark_path(path))

    def table(self, name: str, audit: Committed) -> DataFrame:
        """Return a table as an audit wrote it."""
        path = self.tables.directory(name, audit.audit_id, audit.generation)
        return self.spark.read.schema(spark_ddl(TABLES[name])).parquet(spark_path(path))


def resumed(tables: Tables, options: AuditOptions, sources: Sequence[Source], now_ns: int) -> tuple[AuditOptions, str]:
    """Return the options with their time, and the generation to write.

    They are those of a run of the same audit that was cut off, else new ones.
    """
    place = f"{tables.out}/_staging/{options.audit_id}"
    expected = _comparable(options, sources)
    for generation in reversed(tables.names(place)):
        store, path = tables.writer_place(f"{place}/{generation}/{_RESUMED}")
        try:
            with store.open_input_file(path) as file:
                text = file.read().decode()
        except OSError:
            continue
        now, _, run_options = text.partition("\n")
        if run_options == expected:
            return replace(options, now_ms=int(now)), generation
    generation = str(now_ns)
    tables.make(f"{place}/{generation}")
    store, path = tables.writer_place(f"{place}/{generation}/{_RESUMED}")
    with store.open_output_stream(path) as file:
        file.write(f"{options.now_ms}\n{expected}".encode())
    return options, generation


def _comparable(options: AuditOptions, sources: Sequence[Source]) -> str:
    """Return what must be equal for a run that was cut off to be gone on with."""
    return f"{manifest_digest(sources)} {options_text(replace(options, now_ms=0))} {kernel_name()} {crc_name()}"


def rows_of(frame: DataFrame, name: str, kinds: dict[str, type]) -> DataFrame:
    """Return the rows of one kind out of a stream of several."""
    wanted = [f"`{name}`.`{column}` AS `{column}`" for column in column_names(kinds[name])]
    return frame.where(f"`{name}` IS NOT NULL").selectExpr(*wanted)


def column_names(kind: type) -> list[str]:
    """Return the names of the columns of a kind of rows."""
    return [name for name, _, _ in columns(kind)]


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames, of which there is at least one."""
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole
