"""`logmend run`: the service. Guards the log directories of brokers, runs those that are ours, tells people."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from cli.console import Console
from cli.engine.engine import allow_many_files
from cli.engine.ownership import Claims, add_claims, ensure_ours
from cli.settings.arguments import add_files, options_of
from cli.settings.service_settings import Read, make_state_dir, read_service, run_dir_of
from cli.settings.settings import broker_file, own_file
from cli.settings.state_dir import state_dir_of
from cli.signals import stopping
from cli.version import facts, version
from daemon.events.events import FORMATS, LEVELS, EventLog
from daemon.events.notify import Notifier
from daemon.ledger.ledger import Ledger
from daemon.own.engine import Listener
from daemon.own.known_dirs import read_known
from daemon.service.assembly import Surroundings, assemble
from daemon.service.clock import SystemClock
from daemon.service.config import ServiceConfig
from daemon.service.systemd import Systemd
from daemon.status.model import Mode
from engine.settings.broker_options import options_of_broker
from engine.settings.options import ManagerOptions
from storage.base.errors import ConfigInvalid, EnvironmentFault, ExitStatus
from storage.disk.fs import OsFs

_FLAGS = ("config", "server_properties", "log_dirs", "own", "listen", "log_format", "log_level", "jobs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    group = parser.add_argument_group("log directories", "those that are named replace those of the file")
    group.add_argument("--log-dir", action="append", dest="log_dirs", metavar="DIR", help="a broker's: only read")
    group.add_argument("--own", action="append", metavar="DIR", help="ours: recovered, opened, kept")
    add_claims(group, makes=True)
    group.add_argument("-j", dest="jobs", metavar="N", help="threads that read one log directory in a recovery")
    place = parser.add_argument_group("places")
    place.add_argument("--state-dir", metavar="DIR", help="ledger, status and stored plans")
    place.add_argument(
        "--listen", action="append", metavar="PLACE",
        help='serve status, metrics and the page at "unix", unix:/path, or 127.0.0.1:PORT besides; "none": nowhere',
    )  # fmt: skip
    add_files(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--log-format", choices=("auto", *FORMATS), help="how events are written to standard error")
    output.add_argument("--log-level", choices=LEVELS, help="events below it are not written")
    output.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Run the service until it is told to stop; return the worst status of its log directories."""
    flags = {name: getattr(arguments, name, None) for name in _FLAGS}
    read = read_service(flags, environment)
    if not read.config.log_dirs:
        raise ConfigInvalid("no log directory: give --log-dir DIR or --own DIR, or [[log_dir]] in the file")
    state_dir = state_dir_of(read.config.state_dir, arguments.state_dir, environment)
    known = read_known(OsFs(), state_dir)
    reader = (
        console if _format(read.config.log.format, environment) == "console" else None
    )  # a line of JSON is an event
    for log_dir in read.config.log_dirs:
        if log_dir.mode is Mode.OWN and str(log_dir.path) not in known:
            with contextlib.suppress(EnvironmentFault):  # what the disk refuses leaves that one aside, later
                ensure_ours(OsFs(), log_dir.path, Claims.of(arguments), reader)
    make_state_dir(state_dir)
    allow_many_files()

    def read_again() -> ServiceConfig:
        return read_service(flags, environment).config

    with _surroundings(read, flags, environment, state_dir, read_again) as around:
        listeners = _listeners(read.config, around.events, _broker_properties(flags, environment))
        service = assemble(read.config, replace(around, listeners=listeners))
        with stopping(service.request_stop, service.request_reload):
            return service.run()


def _listeners(config: ServiceConfig, events: EventLog, properties: Mapping[str, str]) -> list[Listener]:
    """Return what serves Kafka clients; raises `ConfigInvalid`."""
    if not config.listener.listen:
        return []
    if all(each.mode is not Mode.OWN for each in config.log_dirs):
        raise ConfigInvalid("listener.listen: no log directory is ours: set mode to own where one is, or --own DIR")
    try:
        from cli.service.serve import read_secret  # noqa: PLC0415 (no other start needs that command)
        from server.service_listener import listener_of  # noqa: PLC0415 (an extra: where it is missing the rest works)
    except ImportError as error:
        raise ConfigInvalid(f"listener: {error}: install logmend[serve]") from error
    return [listener_of(config.listener, events, read_secret, properties)]


@contextlib.contextmanager
def _surroundings(
    read: Read,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    state_dir: PurePath,
    read_again: Callable[[], ServiceConfig],
) -> Iterator[Surroundings]:
    """Give what the service stands on; closed at the end, the log last. Raises `StateDirInUse`."""
    config, clock = read.config, SystemClock()
    with contextlib.ExitStack() as closing:
        notify = config.notify
        notifier = Notifier(
            notify.command, notify.severity, notify.timeout_seconds,
            lambda **fields: events.tell("notification_failed", **fields),
        )  # fmt: skip
        events = EventLog(_format(config.log.format, environment), config.log.level, notifier)
        closing.callback(notifier.close)
        closing.callback(events.close)
        ledger = Ledger(state_dir, clock, events, version())
        closing.callback(ledger.close)
        told = facts()
        yield Surroundings(
            version=version(),
            kernel=told["kernel"],
            clock=clock,
            events=events,
            notifier=notifier,
            ledger=ledger,
            systemd=Systemd.of(environment),
            state_dir=state_dir,
            run_dir=run_dir_of(state_dir, environment),
            manager_options=_manager_options(read, flags, environment),
            read_config=read_again,
            config_path=read.path,
        )


def _format(wanted: str, environment: Mapping[str, str]) -> str:
    """Return the format of events; `auto` is the journal where standard error leads to it."""
    if wanted != "auto":
        return wanted
    with contextlib.suppress(OSError):
        stat = os.fstat(2)
        if environment.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}":
            return "journald"
    return "console"


def _broker_properties(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, str]:
    path, document = own_file(flags, environment)
    return broker_file(flags, environment, document, path)[1] or {}


def _manager_options(read: Read, flags: Mapping[str, Any], environment: Mapping[str, str]) -> ManagerOptions:
    properties = _broker_properties(flags, environment)
    options = ManagerOptions(
        recovery=options_of(read.settings), jobs=read.settings.jobs, version=version(), draw_jitter=random.randrange
    )
    return options_of_broker(options, properties, time.sleep) if properties else options
