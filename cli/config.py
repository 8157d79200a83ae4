"""`logmend config show [--origin]`: the settings in force, and where each came from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from cli.arguments import add_files, add_output, settings_of
from cli.console import Console
from cli.settings import KEYS, PROGRESS
from cli.version import version
from recovery.report import document, rows_text
from storage.errors import ExitStatus, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands below `config`."""
    commands = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    meaning = "show the settings in force"
    show = commands.add_parser("show", help=meaning, description=meaning.capitalize() + ".", allow_abbrev=False)
    show.add_argument("--origin", action="store_true", help="and where each came from")
    show.add_argument("log_dirs", nargs="*", metavar="PATH", help="log directories, as for the other commands")
    show.add_argument("--progress", choices=PROGRESS, help="as for the other commands")
    add_files(show)
    add_output(show)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Print the settings."""
    settings = settings_of(arguments, environment)
    values = {key.name: getattr(settings, key.name) for key in KEYS}
    if console.json:
        told = {name: {"value": value, "origin": settings.origins[name]} for name, value in values.items()}
        plain = {name: {**each, "value": _plain(each["value"])} for name, each in told.items()}
        console.document({**document("config", version(), ExitStatus.CLEAN), "settings": plain})
        return ExitStatus.CLEAN
    rows = [
        (key.name, _shown(values[key.name]), settings.origins[key.name] if arguments.origin else key.meaning)
        for key in KEYS
    ]
    for line in rows_text(rows):
        console.say(line)
    return ExitStatus.CLEAN


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(printable(part) for part in value) or "-"
    return "-" if value is None else printable(value)
