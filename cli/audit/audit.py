"""`logmend audit`: verifies the log directories of whole clusters on Spark and compares their replicas.

Changes nothing but its tables. Spark runs in this process (`--master local[*]`) or where `--master` says.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from cli.audit.progress import TerminalProgress
from cli.console import Console
from cli.progress import choose_mode
from cli.settings.arguments import add_output
from cli.settings.targets import ensure_logs
from cli.usage import as_sentence
from cli.version import version
from recovery.plan.words import count, short_size
from storage.base.errors import ConfigInvalid, EnvironmentFault, ExitStatus, printable, worst
from storage.base.quantities import SIZES, parse_size
from storage.disk.fs import OsFs, ReadOnlyFs

if TYPE_CHECKING:
    from audit.spark.results import AuditResult
    from audit.tables.options import AuditOptions, Source

_COMMANDS: Final = {
    "report": ("cli.audit.report", "make one HTML page of the tables of audits"),
    "sql": ("cli.audit.sql", "ask the tables of audits in SQL"),
    "plan-heal": ("cli.audit.heal", "say which broker has a good copy of what another lacks"),
    "scan": ("cli.audit.scan", "verify log directories here, without Spark, for --from-reports elsewhere"),
}
_DEPTHS: Final = ("quick", "full", "records")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `audit`, and its own commands."""
    add_sources(parser)
    parser.add_argument("--out", metavar="DIR", help="where the tables go: a directory or a URI; earlier audits stay")
    parser.add_argument("--from-reports", metavar="FILE", nargs="+", help="what `audit scan` wrote on the brokers")
    parser.add_argument("--audit-id", metavar="ID", help="name of the audit; one of that name is replaced (the time)")
    group = parser.add_argument_group("how much is read")
    group.add_argument("--depth", choices=_DEPTHS, default="full", help="how much of each segment (full)")
    group.add_argument("--previous", metavar="ID", nargs="?", const="latest",
                       help="do not read what that audit in DIR has read and has not changed (the latest)")  # fmt: skip
    group.add_argument("--cycle", type=int, default=30, metavar="N",
                       help="with --previous: read everything again at least once in N audits (30)")  # fmt: skip
    group.add_argument("--topic", action="append", dest="topics", metavar="GLOB", help="only topics like this")
    spark = parser.add_argument_group("Spark")
    spark.add_argument("--master", default="local[*]", metavar="URL", help="where it runs (local[*], this machine)")
    spark.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's")
    spark.add_argument("--task-bytes", default="8GiB", metavar="SIZE", help="bytes that one task reads (8GiB)")
    spark.add_argument("--split-bytes", default="8GiB", metavar="SIZE", help="larger segments are cut (8GiB)")
    add_output(parser, events=True)
    own = parser.add_subparsers(dest="audit_command", metavar="COMMAND", title="with what an audit has left")
    for name, (module, meaning) in _COMMANDS.items():
        added: Any = own.add_parser(name, help=meaning, description=as_sentence(meaning), allow_abbrev=False)
        added.add = partial(_add_arguments, module)


def _add_arguments(module: str, parser: argparse.ArgumentParser) -> None:
    command: Any = importlib.import_module(module)
    command.add_arguments(parser)


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add what says which log directories there are."""
    group = parser.add_argument_group("log directories")
    group.add_argument("--manifest", metavar="FILE", help="CSV, JSON lines or Parquet: cluster, broker, log_dir")
    group.add_argument("--log-dir", action="append", dest="pairs", metavar="BROKER=PATH", help="one; may be repeated")
    group.add_argument("--cluster", default="cluster", metavar="NAME", help="of the --log-dir (cluster)")


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Audit, or run one of the commands on what audits have left; return the worst status."""
    if arguments.audit_command:
        command: Any = importlib.import_module(_COMMANDS[arguments.audit_command][0])
        status: ExitStatus = command.run(arguments, console, environment)
        return status
    if not arguments.out:
        raise ConfigInvalid("--out DIR is missing: where the tables are to go")
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigInvalid(f"{', '.join(missing)} missing: pip install 'logmend[audit]'")
    from audit.spark.session import check_java  # noqa: PLC0415

    sources = sources_of(arguments)
    options = _options(arguments)
    readable = with_logs(console, sources)
    check_java(environment)
    result = _audit(arguments, console, readable, options)
    _tell(console, result)
    if not result.verdicts and not result.unreadable:
        raise ConfigInvalid("no partition was found, so nothing was read" + _selected(options.topics))
    return result.status if len(readable) == len(sources) else worst((result.status, ExitStatus.USAGE))


def _selected(topics: Sequence[str]) -> str:
    return f": --topic {', '.join(map(printable, topics))}" if topics else ""


def with_logs(console: Console, sources: list[Source]) -> list[Source]:
    """Return the log directories but those that are a mistake, which it names; `ConfigInvalid` if none is left.

    What this machine does not have may lie on an executor's.
    """
    mistakes: dict[Source, str] = {}
    for source in sources:
        try:
            if "://" not in source.log_dir:
                with contextlib.suppress(EnvironmentFault):
                    ensure_logs(ReadOnlyFs(OsFs()), PurePath(source.log_dir))
        except ConfigInvalid as mistake:
            mistakes[source] = str(mistake)
    good = [source for source in sources if source not in mistakes]
    if mistakes and not good:
        raise ConfigInvalid("; ".join(mistakes.values()))
    for text in mistakes.values():
        console.complain(text)
    return good


def sources_of(arguments: argparse.Namespace) -> list[Source]:
    """Return the log directories that the arguments name; raises `ConfigInvalid` for none."""
    from audit.tables.options import read_manifest, sources_from_flags  # noqa: PLC0415

    if arguments.manifest and arguments.pairs:
        raise ConfigInvalid("--manifest or --log-dir, not both")
    if getattr(arguments, "from_reports", None):
        if arguments.manifest or arguments.pairs:
            raise ConfigInvalid("--from-reports says itself which log directories there are")
        return []
    if arguments.manifest:
        return read_manifest(arguments.manifest)
    return sources_from_flags((_absolute(pair) for pair in arguments.pairs or ()), arguments.cluster)


def _absolute(pair: str) -> str:
    broker, equals, place = pair.partition("=")
    if not place or "://" in place:
        return pair
    return f"{broker}{equals}{Path(place).absolute()}"


def _options(arguments: argparse.Namespace) -> AuditOptions:
    from audit.tables.options import AuditOptions  # noqa: PLC0415
    from audit.tables.tables import checked_id  # noqa: PLC0415

    if arguments.cycle < 1:
        raise ConfigInvalid("--cycle: 1 or more")
    out = arguments.out if "://" in arguments.out else str(Path(arguments.out).absolute())
    return AuditOptions(
        out=out,
        depth=arguments.depth,
        audit_id=checked_id(arguments.audit_id) if arguments.audit_id else "",
        previous=arguments.previous,
        cycle=arguments.cycle,
        topics=tuple(arguments.topics or ()),
        task_bytes=size_of("--task-bytes", arguments.task_bytes),
        split_bytes=size_of("--split-bytes", arguments.split_bytes),
        reports=tuple(str(Path(name).absolute()) for name in arguments.from_reports or ()),
        version=version(),
    )


def size_of(flag: str, text: str) -> int:
    """Return the bytes that `512MiB` or `4g` stands for, at least one; raises `ConfigInvalid`."""
    with contextlib.suppress(ValueError):
        if size := parse_size(text):
            return size
    raise ConfigInvalid(f"{flag} {printable(text)}: not {SIZES}")


def _audit(
    arguments: argparse.Namespace, console: Console, sources: list[Source], options: AuditOptions
) -> AuditResult:
    from audit.spark import session  # noqa: PLC0415

    extra = dict(_setting(text) for text in arguments.conf)
    session.prepare_environment(os.environ)
    mode = choose_mode(arguments.progress or "auto", is_terminal=console.err.isatty())
    with TemporaryDirectory(prefix="logmend-audit-") as scratch:
        settings = session.session_settings(arguments.master, extra)
        if not arguments.master.startswith("local") and "spark.submit.pyFiles" not in extra:
            settings["spark.submit.pyFiles"] = str(session.write_zip(Path(scratch) / "logmend.zip"))
        with session.quiet_log4j(Path(scratch)), TerminalProgress(console, mode) as progress:
            progress.phase("starting Spark")
            from audit.spark.job import run as run_job  # noqa: PLC0415
            from audit.spark.job import start_session  # noqa: PLC0415

            spark = start_session(settings)
            try:
                return run_job(spark, sources, options, progress)
            finally:
                progress.phase("")
                spark.stop()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigInvalid(f"--conf {printable(text)}: KEY=VALUE is wanted")
    return name, value


def _tell(console: Console, result: AuditResult) -> None:
    if not console.is_text:
        console.document(_document(result))
        return
    found = ", ".join(f"{n} {verdict}" for verdict, n in sorted(result.verdicts.items(), key=lambda item: -item[1]))
    console.say(f"{count(sum(result.verdicts.values()), 'partition')}: {found or 'none'}")
    for row in result.disagreements:
        where = f"broker {row.broker} {row.topic}-{row.partition}" if row.broker else f"{row.topic}-{row.partition}"
        console.say(f"{printable(where)}: {row.kind}, offsets {row.first_offset} to {row.last_offset}: {row.evidence}")
    for path, evidence in result.unreadable:
        console.say(f"unreadable: {printable(path)}: {evidence}")
    told = sorted(result.kinds.items(), key=lambda item: (item[0][1] == "note", item[0]))
    for (kind, severity), number in told:
        console.say(f"{number:>8} {kind} ({severity})")
    read = f"{short_size(result.bytes_read)} of {short_size(result.bytes_listed)} read"
    kept = f", {count(result.from_previous, 'segment')} as the audit before had them" if result.from_previous else ""
    console.say(f"{read}{kept} in {result.seconds:.0f} s; audit {result.audit_id} in {printable(result.out)}")


def _document(result: AuditResult) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "document": "audit",
        "audit_id": result.audit_id,
        "out": result.out,
        "status": result.status.value,
        "verdicts": result.verdicts,
        "findings": [
            {"kind": kind, "severity": severity, "count": number} for (kind, severity), number in result.kinds.items()
        ],
        "unreadable": [{"path": path, "evidence": evidence} for path, evidence in result.unreadable],
        "segments": result.segments,
        "from_previous": result.from_previous,
        "bytes_read": result.bytes_read,
        "bytes_listed": result.bytes_listed,
        "tasks": result.tasks,
        "kernel": result.kernel,
        "seconds": round(result.seconds, 3),
    }
