"""Flags that `recover` and `apply` have in common: what is kept, and what is left to a broker that starts."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import PurePath
from typing import NamedTuple

from cli.settings.settings import Settings
from cli.settings.targets import absolute
from storage.base.errors import ConfigInvalid, FileVanished, printable
from storage.base.quantities import parse_size
from storage.disk.fs import FileKind, OsFs


class Keeping(NamedTuple):
    """What becomes of the bytes that are cut: kept beside the log, kept in `directory`, or, with `discard`, lost."""

    directory: PurePath | None = None
    discard: bool = False


def add_tails(parser: argparse.ArgumentParser) -> None:
    """Add the copies of what a broker may truncate when it starts."""
    parser.add_argument(
        "--keep-tail", metavar="SIZE", help="copy log ends that a broker may truncate, up to SIZE in all: 512MiB, 4GiB"
    )
    parser.add_argument("--keep-days", type=int, default=7, metavar="N", help="delete such copies after N days (7)")


def tail_bytes(arguments: argparse.Namespace) -> int:
    """Return the bytes that --keep-tail allows, 0 without it; `ConfigInvalid` for what is no size."""
    text = arguments.keep_tail
    if text is None:
        return 0
    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigInvalid(f"--keep-tail {printable(text)}: not {error}") from None


def add_hand_over(parser: argparse.ArgumentParser) -> None:
    """Add what is left to a broker that starts afterwards."""
    parser.add_argument("--keep-points", action="store_true", help="do not raise the recovery points to the log ends")


def add_keeping(parser: argparse.ArgumentParser) -> None:
    """Add where the copies of what is cut go."""
    parser.add_argument("--quarantine", metavar="DIR", help="keep copies of what is cut in DIR, on another volume")
    parser.add_argument("--discard", action="store_true", help="keep no copy of what is cut: it is lost for good")


def keeping_of(arguments: argparse.Namespace, settings: Settings, log_dirs: Iterable[PurePath]) -> Keeping:
    """Return where copies go; `ConfigInvalid` for both flags at once, and for a place inside a log directory."""
    if arguments.discard:
        if arguments.quarantine:
            raise ConfigInvalid("--discard keeps no copy, so --quarantine has nothing to keep: give one of them")
        return Keeping(discard=True)
    if settings.quarantine is None:
        return Keeping()
    place = absolute(settings.quarantine)
    if not place_exists(place):
        # Making it would write to the wrong volume where the right one is not mounted.
        raise ConfigInvalid(f"--quarantine {printable(place)}: no such directory; make it, or mount its volume")
    for log_dir in log_dirs:
        if place.is_relative_to(log_dir):
            # A broker takes every directory there for a partition, and does not start if its name is none.
            raise ConfigInvalid(f"--quarantine {printable(place)} lies in the log directory {printable(log_dir)}")
    return Keeping(place)


def place_exists(place: PurePath) -> bool:
    """Tell whether there is a directory of this name."""
    try:
        return OsFs().stat(place).kind is FileKind.DIRECTORY
    except FileVanished:
        return False
