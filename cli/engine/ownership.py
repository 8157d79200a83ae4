"""Which directories a command may write to: a new one is asked for by --init, a broker's by --take-over, once."""

from __future__ import annotations

import argparse
from pathlib import PurePath
from typing import Final, NamedTuple

from checkpoint.offsets import LOG_START_OFFSETS, RECOVERY_POINTS
from cli.console import Console
from cli.settings.targets import ensure_log_dir
from engine.manager.catalog import FILE_NAME
from engine.settings.identity import is_absent
from recovery.report.command_line import command
from storage.base.errors import ConfigInvalid, FileVanished, printable
from storage.disk.fs import ReadFs

_OF_A_FILE_SYSTEM: Final = ("lost+found", ".lock")
_MADE_FIRST: Final = ("meta.properties", RECOVERY_POINTS, LOG_START_OFFSETS, FILE_NAME)
"""What stands in a new log directory when its making is interrupted, each under its name or a temporary one."""


class Claims(NamedTuple):
    """What the operator allows besides directories that are logmend's already."""

    makes: bool = False
    takes_over: bool = False

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Claims:
        """Return what the arguments allow."""
        return cls(getattr(arguments, "init", False), getattr(arguments, "take_over", False))


def add_claims(parser: argparse._ActionsContainer, *, makes: bool) -> None:
    """Add --take-over and, where the command can make a log directory, --init."""
    if makes:
        parser.add_argument("--init", action="store_true", help="make the log directory: it is missing or empty")
    parser.add_argument(
        "--take-over", action="store_true", help="recover a broker's log directory and write to it; asked for once"
    )


def is_bare(fs: ReadFs, path: PurePath) -> bool:
    """Tell whether a directory is missing or holds nothing."""
    try:
        return not [name for name in fs.entries(path) if name not in _OF_A_FILE_SYSTEM]
    except FileVanished:
        return True


def is_ours(fs: ReadFs, path: PurePath) -> bool:
    """Tell whether logmend has made a log directory or taken it over: it has a list of topics then."""
    return not is_absent(fs, path / FILE_NAME)


def _is_unfinished(fs: ReadFs, path: PurePath) -> bool:
    """Tell whether all that a directory holds is what an interrupted --init has left."""
    names = [name for name in fs.entries(path) if name not in _OF_A_FILE_SYSTEM]
    return all(name.startswith(_MADE_FIRST) for name in names)


def ensure_ours(fs: ReadFs, path: PurePath, claims: Claims, console: Console | None) -> None:
    """Raise `ConfigInvalid` for a directory that is neither ours nor claimed; tell `console` what is taken over."""
    if is_bare(fs, path):
        if not claims.makes:
            raise ConfigInvalid(
                f"{printable(path)}: there is no log directory; to make one: "
                f"{command('topics', 'create', '--init', '--topic', 'NAME', '--log-dir', path)}"
            )
        return
    ensure_log_dir(fs, path)
    if is_ours(fs, path) or (claims.makes and _is_unfinished(fs, path)):
        return
    if not claims.takes_over:
        raise ConfigInvalid(
            f"{printable(path)}: a broker's log directory, which this command would recover and write to. "
            f"Only to look: {command('serve', '--read-only', path)}. If no broker is to use it meanwhile: "
            "repeat with --take-over, which is asked for once"
        )
    if console is not None:
        console.complain(f"taking over {printable(path)}: it is recovered if need be, and written to")
