"""The tables of audits as views of a Spark session, and the questions that are shipped as SQL.

Nothing of Spark is imported: the session is the caller's.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from audit.tables.schema import TABLES, spark_ddl
from audit.tables.tables import Tables
from storage.base.errors import ConfigInvalid, printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Query(NamedTuple):
    """A question that is shipped: its name, what it asks, and its SQL."""

    name: str
    question: str
    sql: str


def shipped() -> list[Query]:
    """Return the questions that are shipped, by name."""
    found = []
    for file in (files("audit.spark") / "queries").iterdir():
        if file.name.endswith(".sql"):
            sql = file.read_text(encoding="utf-8")
            found.append(Query(file.name.removesuffix(".sql"), sql.partition("\n")[0].removeprefix("-- "), sql))
    return sorted(found)


def query(name: str) -> Query:
    """Return one of them; raises `ConfigInvalid` for a name that none has."""
    for one in shipped():
        if one.name == name:
            return one
    raise ConfigInvalid(f"no query {printable(name)}; there are {', '.join(one.name for one in shipped())}")


def make_views(spark: SparkSession, tables: Tables, audit_id: str = "latest") -> None:
    """Make a temporary view of each table, over all audits, and `last_audit` with the run of one of them.

    Each but `runs` has a column `audit_id` more. Raises `ConfigInvalid` if the audit is not there.
    """
    chosen = tables.find(audit_id)
    for name in TABLES:
        _all_audits(spark, tables, name).createOrReplaceTempView(name)
    spark.table("runs").where(f"audit_id = '{chosen.audit_id}'").createOrReplaceTempView("last_audit")


def _all_audits(spark: SparkSession, tables: Tables, name: str) -> DataFrame:
    """Return a table of every audit that counts; what a crash left beside it is not read."""
    from audit.spark.results import spark_path  # noqa: PLC0415 (brings Spark)

    schema = spark_ddl(TABLES[name])
    with_id = schema if "`audit_id`" in schema else f"{schema}, `audit_id` string"
    found = spark.read.schema(f"{with_id}, `generation` string").option("basePath", spark_path(f"{tables.out}/{name}"))
    return found.parquet(*map(spark_path, tables.directories(name))).drop("generation")
