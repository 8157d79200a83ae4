"""`logmend audit sql`: questions to the tables of audits, in Spark SQL, some of them shipped."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from cli.audit.report import found
from cli.console import Console
from cli.settings.arguments import add_output
from recovery.plan.words import count
from storage.base.errors import ConfigInvalid, ExitStatus, printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WIDEST: Final = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `audit sql`."""
    parser.add_argument(
        "sql", nargs="?", metavar="SQL", help="over runs, segments, blocks, findings, verdicts and last_audit"
    )
    parser.add_argument("--out", metavar="DIR", default=".", help="where audits put their tables (here)")
    parser.add_argument("--query", metavar="NAME", help="one of the queries that are shipped")
    parser.add_argument("--list", action="store_true", help="say which those are, and stop")
    parser.add_argument("--audit", metavar="ID", default="latest", help="the audit that last_audit means (the latest)")
    parser.add_argument(
        "--batches", metavar="PATH", help="a log directory whose batches are a view of that name; no tables are needed"
    )
    parser.add_argument("--limit", type=int, default=1000, metavar="N", help="rows that are shown at most (1000)")
    add_output(parser)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Print the answer; 0 whatever it is."""
    try:
        from audit.spark.views import query, shipped  # noqa: PLC0415 (pyarrow takes a third of a second)
    except ModuleNotFoundError as missing:
        raise ConfigInvalid(f"{missing.name} is missing: pip install 'logmend[audit]'") from None
    if arguments.list:
        for one in shipped():
            console.say(f"{one.name:22}{one.question}")
        if not console.is_text:
            console.document({"queries": [one._asdict() for one in shipped()]})
        return ExitStatus.CLEAN
    if (arguments.sql is None) == (arguments.query is None):
        raise ConfigInvalid("say either a question in SQL, or --query NAME; --list tells the names")
    sql = query(arguments.query).sql if arguments.query else arguments.sql
    with _session(environment) as spark:
        _views(spark, arguments)
        _show(_answer(spark, sql), max(arguments.limit, 0), console)
    return ExitStatus.CLEAN


@contextmanager
def _session(environment: Mapping[str, str]) -> Iterator[SparkSession]:
    """Start a Spark of this machine, and stop it again."""
    from audit.spark import session  # noqa: PLC0415

    session.check_java(environment)
    session.prepare_environment(os.environ)
    with TemporaryDirectory(prefix="logmend-audit-") as scratch, session.quiet_log4j(Path(scratch)):
        from audit.spark.job import start_session  # noqa: PLC0415 (brings Spark)

        spark = start_session(session.session_settings("local[*]", {}))
        try:
            yield spark
        finally:
            spark.stop()


def _absolute(place: str) -> str:
    """Return a path that means the same wherever it is read; a URI as it is."""
    return place if "://" in place else str(Path(place).absolute())


def _views(spark: SparkSession, arguments: argparse.Namespace) -> None:
    from audit.spark.datasource import register  # noqa: PLC0415
    from audit.spark.views import make_views  # noqa: PLC0415

    if arguments.batches:
        register(spark)
        spark.read.format("kafkalog").load(_absolute(arguments.batches)).createOrReplaceTempView("batches")
    else:
        tables, audit_id = found(_absolute(arguments.out), arguments.audit)
        make_views(spark, tables, audit_id)


def _answer(spark: SparkSession, sql: str) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415

    try:
        return spark.sql(sql)
    except (AnalysisException, ParseException) as error:
        raise ConfigInvalid(f"Spark does not understand it: {printable(str(error).strip().splitlines()[0])}") from None


def _show(frame: DataFrame, limit: int, console: Console) -> None:
    rows = frame.limit(limit + 1).collect()
    more = len(rows) > limit
    rows = rows[:limit]
    if not console.is_text:
        told = [{name: _plain(value) for name, value in row.asDict(recursive=True).items()} for row in rows]
        console.document(
            {"schema_version": 1, "document": "audit_sql", "columns": frame.columns, "rows": told, "more": more}
        )
        return
    console.say(table_text(frame.columns, rows))
    console.say(f"{count(len(rows), 'row')}{'; there are more: --limit N' if more else ''}")


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str | list) else printable(value)


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows in columns, numbers to the right."""
    cells = [["" if value is None else _cut(printable(value)) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(columns)]
    right = [bool(rows) and all(isinstance(row[at], int | float | None) for row in rows) for at in range(len(columns))]

    def line(parts: Sequence[str]) -> str:
        placed = (f"{part:>{w}}" if r else f"{part:{w}}" for part, w, r in zip(parts, widths, right, strict=True))
        return "  ".join(placed).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, cells)])


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
