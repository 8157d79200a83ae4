"""`logmend audit scan`: verifies log directories where their disks are, for an audit that cannot read them itself."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from cli.audit.audit import add_sources, sources_of, with_logs
from cli.audit.progress import TerminalProgress
from cli.console import Console
from cli.progress import choose_mode
from cli.settings.arguments import add_output
from recovery.plan.words import count, short_size
from storage.base.errors import ConfigInvalid, ExitStatus, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `audit scan`."""
    add_sources(parser)
    parser.add_argument("-o", dest="report", metavar="FILE", required=True, help="where the report goes, Parquet")
    parser.add_argument("--depth", choices=("quick", "full", "records"), default="full", help="how much is read (full)")
    parser.add_argument("--topic", action="append", dest="topics", metavar="GLOB", help="only topics like this")
    add_output(parser, events=True)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:  # noqa: ARG001
    """Write the report; 0 without a finding, else 1. What replicas say of one another only the audit can tell."""
    try:
        from audit.spark.host_scan import scan_host  # noqa: PLC0415
        from audit.tables.options import AuditOptions  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ConfigInvalid(f"{missing.name} is missing: pip install 'logmend[audit]'") from None
    options = AuditOptions(depth=arguments.depth, topics=tuple(arguments.topics or ()), now_ms=int(time.time() * 1000))
    named = sources_of(arguments)
    sources = with_logs(console, named)
    target = Path(arguments.report).absolute()
    mode = choose_mode(arguments.progress or "auto", is_terminal=console.err.isatty())
    with TerminalProgress(console, mode) as progress:
        size, findings = scan_host(
            sources, options, target, lambda _, done, total: progress.verified(done, total, 0, 0)
        )
    if console.is_text:
        console.say(f"{short_size(size)} read, {count(findings, 'finding')}; report in {printable(target)}")
    else:
        told = {"schema_version": 1, "document": "audit_scan", "report": str(target)}
        console.document(told | {"bytes_read": size, "findings": findings})
    if len(sources) < len(named):
        return ExitStatus.USAGE
    return ExitStatus.FINDINGS if findings else ExitStatus.CLEAN
