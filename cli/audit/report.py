"""`logmend audit report DIR`: one HTML page from the tables of audits.

Needs pyarrow and jinja2, and neither Spark nor Java.
"""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cli.console import Console
from cli.settings.arguments import add_output
from recovery.plan.words import short_size
from storage.base.errors import ConfigInvalid, ExitStatus, printable
from storage.disk.fs import OsFs, replace_atomically

if TYPE_CHECKING:
    from audit.tables.tables import Tables

NAME = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `audit report`."""
    parser.add_argument("tables", metavar="DIR", help="where an audit put its tables, or the URI of that place")
    parser.add_argument("--audit", metavar="ID", default="latest", help="which audit (the latest)")
    parser.add_argument(
        "-o", dest="page", metavar="FILE", help=f"where the page goes (DIR/{NAME}); - is standard output"
    )
    parser.add_argument("--open", action="store_true", help="show the page in a browser")
    add_output(parser)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:  # noqa: ARG001
    """Write the page and say in a sentence what is on it; 0 if it was written, whatever it says."""
    tables, audit_id = found(arguments.tables, arguments.audit)
    try:
        from audit.report.report import report  # noqa: PLC0415 (pyarrow takes a third of a second)
    except ModuleNotFoundError as missing:
        raise ConfigInvalid(f"{missing.name} is missing: pip install 'logmend[audit]'") from None

    page, sentence = report(tables, audit_id)
    if arguments.page == "-":
        console.say(page)
        return ExitStatus.CLEAN
    path = _page_path(arguments.tables, arguments.page)
    replace_atomically(OsFs(), path, page.encode())
    if console.is_text:
        console.say(f"{sentence}\n{printable(path)}: {short_size(len(page.encode()))}")
    else:
        told = {"schema_version": 1, "document": "audit_report", "audit_id": audit_id}
        console.document(told | {"page": str(path), "verdict": sentence})
    if arguments.open:
        webbrowser.open(path.resolve().as_uri())
    return ExitStatus.CLEAN


def found(place: str, audit_id: str) -> tuple[Tables, str]:
    """Return the tables of a place and the id of one audit there; raises `ConfigInvalid` where there are none."""
    try:
        from audit.tables.tables import Tables  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ConfigInvalid(f"{missing.name} is missing: pip install 'logmend[audit]'") from None
    tables = Tables(place)
    return tables, tables.find(audit_id).audit_id


def _page_path(place: str, wanted: str | None) -> Path:
    if wanted:
        return Path(wanted)
    if "://" in place:
        raise ConfigInvalid("the tables lie in an object store: say with -o FILE where the page goes")
    return Path(place) / NAME
