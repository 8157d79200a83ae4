"""`logmend status [--watch] [--json]`: how the service is and what it found, as it says or as it last wrote.

Exit status: 0 while nothing needs a person, 1 with open findings or a log directory that is offline or not there, 5 if
the service does not answer.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from cli.console import Console
from cli.service.service_client import ServiceSilent, add_service, ask, find_service, last_written
from cli.settings.arguments import add_output
from daemon.events.safe_json import dumps
from daemon.status.document import SCHEMA_VERSION
from daemon.status.phrases import span
from daemon.status.text import MOST_FINDINGS, render
from storage.base.errors import ExitStatus, LogmendError

_SCREEN: Final = "\x1b[H\x1b[J"
_ALTERNATE: Final = "\x1b[?1049h\x1b[?25l"
_NORMAL: Final = "\x1b[?25h\x1b[?1049l"
_NEEDS_A_PERSON: Final = ("repairable", "damage", "blocking")


class _Foreign(LogmendError):
    """What the service says is not as this release knows it."""

    status = ExitStatus.UNSUPPORTED

    def __str__(self) -> str:
        return f"the service speaks another version of its status ({self.args[0]}): use the logmend that it is of"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `status`."""
    parser.add_argument("--watch", action="store_true", help="show it again and again, until interrupted")
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="how often with --watch (1)")
    parser.add_argument("--all", action="store_true", help=f"every finding, not the {MOST_FINDINGS} worst alone")
    add_service(parser)
    add_output(parser)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Show the state once, or with --watch until interrupted."""
    place, file = find_service(arguments, environment)
    most = 1 << 30 if arguments.all else MOST_FINDINGS
    if not arguments.watch:
        answer = _read(place, file)
        _say_silence(answer, console)
        return _show(answer, console, most)
    is_screen = console.is_text and console.out.isatty()
    try:
        console.say_at_once(_ALTERNATE if is_screen else "")
        while not console.is_gone:
            _watch_once(place, file, console, most, is_screen=is_screen)
            time.sleep(max(arguments.every, 0.1))
    finally:
        console.say_at_once(_NORMAL if is_screen else "")
    return ExitStatus.CLEAN


def _watch_once(place: PurePath, file: PurePath, console: Console, most: int, *, is_screen: bool) -> None:
    answer = _read(place, file)
    if not is_screen:
        _say_silence(answer, console)
        if answer.told is not None:
            _show(answer, console, most, is_stream=True)
        console.say_at_once("\n" if console.is_text else "")
        return
    lines = [] if answer.silent is None else _silence(answer)
    if answer.told is not None:
        lines += render(answer.told, console.style, now_ms=answer.now_ms, most_findings=most)
    size = shutil.get_terminal_size()
    if len(lines) > size.lines - 1:
        lines = [*lines[: size.lines - 2], "..."]
    console.say_at_once(_SCREEN + "\n".join(lines))


class _Read:
    """A state, and why it is not that of now if the service is silent."""

    def __init__(self, told: dict[str, Any] | None, silent: ServiceSilent | None) -> None:
        self.told, self.silent = told, silent
        self.now_ms = None if silent is None else int(time.time() * 1000)


def _read(place: PurePath, kept: PurePath) -> _Read:
    try:
        told: dict[str, Any] | None = ask(place, "GET", "/status")
    except ServiceSilent as error:
        return _Read(last_written(kept), error)
    if told is None or told.get("schema_version") != SCHEMA_VERSION:
        raise _Foreign(None if told is None else told.get("schema_version"))
    return _Read(told, None)


def _silence(found: _Read) -> list[str]:
    lines = [] if found.silent is None else [str(found.silent)]
    if found.told is not None and found.now_ms is not None:
        lines.append(f"what follows was written {span((found.now_ms - found.told['now_ms']) / 1000)} ago")
    return lines


def _say_silence(found: _Read, console: Console) -> None:
    for line in _silence(found):
        console.complain(line)


def _show(answer: _Read, console: Console, most: int, *, is_stream: bool = False) -> ExitStatus:
    document, is_silent = answer.told, answer.silent is not None
    if document is None:
        return ExitStatus.ENVIRONMENT
    if console.is_text:
        console.say("\n".join(render(document, console.style, now_ms=answer.now_ms, most_findings=most)))
    else:
        document = {**document, "is_answering": not is_silent}
        console.raw(dumps(document, indent=None if is_stream else 2) + "\n")
    return ExitStatus.ENVIRONMENT if is_silent else status_of(document)


def status_of(told: Mapping[str, Any]) -> ExitStatus:
    """Return what a state means for a script."""
    dirs = told["log_dirs"]
    found = any(each["severity"] in _NEEDS_A_PERSON for log_dir in dirs for each in log_dir["findings"])
    away = any(log_dir["state"] in ("offline", "absent") for log_dir in dirs)
    return ExitStatus.FINDINGS if found or away else ExitStatus.CLEAN
