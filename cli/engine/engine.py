"""Log directories that a command owns while it runs: which, with which defaults, opened and shut down cleanly."""

from __future__ import annotations

import argparse
import contextlib
import random
import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

from cli.console import Console
from cli.deferral import Deferral, deferred
from cli.engine.ownership import Claims, add_claims, ensure_ours
from cli.settings.arguments import add_output, options_of, require_paths, settings_of
from cli.settings.settings import Settings, parse_properties
from cli.settings.targets import absolute, ensure_log_dir
from cli.version import version
from engine.manager.manager import LogManager
from engine.settings.broker_options import options_of_broker
from engine.settings.options import ManagerOptions
from storage.base.config import LogConfig
from storage.base.errors import ConfigInvalid, printable
from storage.disk.fs import OsFs, ReadFs


def add_log_dirs(parser: argparse.ArgumentParser, *, writes: bool = False, makes: bool = False) -> None:
    """Add which log directories, what of a command that `writes` or `makes` them is allowed, and the output."""
    group = parser.add_argument_group("log directories")
    group.add_argument("--log-dir", action="append", dest="log_dirs", metavar="DIR", help="may be repeated")
    group.add_argument(
        "--server-properties", metavar="FILE", help="the broker's: log directories, and the defaults of topics"
    )
    if writes:
        add_claims(group, makes=makes)
    add_output(parser)


def now_ms() -> int:
    """Return the time."""
    return time.time_ns() // 1_000_000


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (any file that an operator names)
            return file.read()
    except OSError as error:
        raise ConfigInvalid(f"server.properties {printable(path)}: cannot be read: {error.strerror}") from error


class Engine(NamedTuple):
    """A log manager, and where signals may end the work with it."""

    manager: LogManager
    deferral: Deferral


@contextlib.contextmanager
def opened(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> Iterator[Engine]:
    """Give the log manager of the log directories that were named; it is closed at the end, whatever ends it.

    From the end of opening on signals wait, see `cli.deferral`. Raises as `LogManager.open` and `close` do, and
    `ConfigInvalid` as `ensure_ours` does.
    """
    allow_many_files()
    settings = settings_of(arguments, environment)
    paths = _named(settings)
    for path in paths:
        ensure_ours(OsFs(), path, Claims.of(arguments), console)
    manager = LogManager.open(OsFs(), paths, now_ms(), manager_options(arguments, settings))
    with deferred() as deferral, manager:
        for reason in manager.offline.values():
            console.complain(f"offline: {reason}")
        yield Engine(manager, deferral)


def defaults_of(arguments: argparse.Namespace) -> LogConfig:
    """Return the settings that topics have unless they say otherwise."""
    return LogConfig.of_broker(_properties_of(arguments))


def _properties_of(arguments: argparse.Namespace) -> Mapping[str, str]:
    path = getattr(arguments, "server_properties", None)
    return parse_properties(_read(path), path) if path else {}


def allow_many_files() -> None:
    """Raise the limit of open files as far as we may: each log has its files open, and there may be thousands."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def manager_options(arguments: argparse.Namespace, settings: Settings) -> ManagerOptions:
    """Return how log directories are run, with a broker's settings as the defaults of topics."""
    options = ManagerOptions(
        recovery=options_of(settings), jobs=settings.jobs, version=version(), draw_jitter=random.randrange
    )
    properties = _properties_of(arguments)
    return options_of_broker(options, properties, time.sleep) if properties else options


def paths_of(fs: ReadFs, settings: Settings) -> list[PurePath]:
    """Return the log directories to read, each once; `ConfigInvalid` for one that is empty or none, `FileVanished`."""
    paths = _named(settings)
    for path in paths:
        ensure_log_dir(fs, path)
        if not fs.entries(path):
            raise ConfigInvalid(f"{printable(path)}: an empty directory; is its volume mounted?")
    return paths


def _named(settings: Settings) -> list[PurePath]:
    return list(dict.fromkeys(absolute(name) for name in require_paths(settings)))
