"""`logmend audit plan-heal DIR`: which broker has a good copy of what another lacks. Needs pyarrow, no Spark."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from cli.audit.report import found
from cli.console import Console
from cli.settings.arguments import add_output
from storage.base.errors import ExitStatus, printable
from storage.disk.fs import OsFs, replace_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `audit plan-heal`."""
    parser.add_argument("tables", metavar="DIR", help="where an audit put its tables, or the URI of that place")
    parser.add_argument("--audit", metavar="ID", default="latest", help="which audit (the latest)")
    parser.add_argument("-o", dest="plan", metavar="FILE", help="write the plan, as JSON, for recover --heal-from")
    add_output(parser)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:  # noqa: ARG001
    """Print or write the plan; 0 if all that is bad can be healed, 3 if something has no good copy in this audit."""
    tables, audit_id = found(arguments.tables, arguments.audit)
    from audit.judge.heal import plan_heal, plan_text  # noqa: PLC0415 (pyarrow takes a third of a second)

    plan = plan_heal(tables, audit_id)
    if arguments.plan:
        path = Path(arguments.plan).absolute()
        replace_atomically(OsFs(), path, (json.dumps(plan, indent=1) + "\n").encode())
        console.complain(f"written: {printable(path)}")
    if console.json:
        console.document(plan)
    else:
        console.say(plan_text(plan))
    return ExitStatus.HELD if plan["hopeless"] else ExitStatus.CLEAN
