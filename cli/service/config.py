"""`logmend config show [--origin]`: the settings in force, and where each came from. `check FILE`: is a file right?"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from cli.console import Console
from cli.settings.arguments import add_files, add_output, settings_of
from cli.settings.settings import DEFAULT_FILE, KEYS, PREFIX, PROGRESS
from cli.usage import as_sentence
from cli.version import version
from recovery.report.documents import document
from recovery.report.rows import rows_text
from storage.base.errors import ExitStatus, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands below `config`."""
    commands = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    meaning = "show the settings in force"
    show = commands.add_parser("show", help=meaning, description=as_sentence(meaning), allow_abbrev=False)
    show.add_argument("--origin", action="store_true", help="and where each came from")
    show.add_argument("log_dirs", nargs="*", metavar="PATH", help="log directories, as for the other commands")
    show.add_argument("--progress", choices=PROGRESS, help="as for the other commands")
    add_files(show)
    add_output(show)
    meaning = "look whether a logmend.toml is right, all of it, and what it asks for is there"
    check = commands.add_parser("check", help=meaning, description=as_sentence(meaning), allow_abbrev=False)
    check.add_argument("file", nargs="?", default=str(DEFAULT_FILE), metavar="FILE", help=f"({DEFAULT_FILE})")
    add_output(check)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Print the settings, or check a file."""
    if arguments.step == "check":
        return _check(arguments.file, console, environment)
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


def _check(file: str, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Say that a file is right; raises `ConfigInvalid` with the first thing that is not."""
    from cli.settings.service_settings import read_service  # noqa: PLC0415 (the service brings much along)

    read = read_service({"config": file}, without_own(environment))
    dirs = [{"path": str(each.path), "mode": each.mode.value} for each in read.config.log_dirs]
    if console.json:
        told = {"path": file, "log_dirs": dirs, "state_dir": read.config.state_dir or None}
        console.document({**document("config-check", version(), ExitStatus.CLEAN), **told})
        return ExitStatus.CLEAN
    shown = ", ".join(f"{printable(each['path'])} ({each['mode']})" for each in dirs) or "none named"
    console.say(f"{printable(file)}: in order; log directories: {shown}")
    return ExitStatus.CLEAN


def without_own(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without our variables: they would hide what is wrong in the file."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(printable(part) for part in value) or "-"
    return "-" if value is None else printable(value)
