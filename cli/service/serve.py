"""`logmend serve`: Kafka clients on log directories that are ours, or on directories that are only looked at."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from cli.console import Console
from cli.engine.engine import allow_many_files, now_ms
from cli.engine.ownership import Claims, add_claims, ensure_ours
from cli.settings.arguments import add_files, options_of, require_paths, settings_of
from cli.settings.settings import FILES, broker_file, own_file
from cli.settings.targets import absolute, ensure_log_dir
from cli.signals import stopping
from cli.version import version
from daemon.events.events import EventLog
from daemon.http.sockets import is_loopback
from daemon.own.owned import OwnSetup, OwnWorker
from daemon.service.clock import SystemClock
from daemon.service.config import ListenerConfig, changed_keys, parse_listener, parse_service
from daemon.service.service import exit_status
from daemon.status.model import Mode
from engine.settings.broker_options import options_of_broker
from engine.settings.options import ManagerOptions
from recovery.report.documents import document
from storage.base.errors import ConfigInvalid, ExitStatus, printable, worst
from storage.base.quantities import Address, parse_address
from storage.disk.fs import OsFs

if TYPE_CHECKING:
    from server.listener import KafkaListener

_FLUSHES = ("none", "interval", "sync")
_DEFAULT = "127.0.0.1:9092"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `serve`."""
    parser.add_argument("log_dirs", nargs="*", metavar="DIR", help="log directory")
    parser.add_argument(
        "--read-only", action="store_true", help="change nothing: show what a recovery would leave, refuse to write"
    )
    parser.add_argument(
        "--flush", choices=_FLUSHES, help="what an acknowledged record has been through: none, interval, sync (sync)"
    )
    add_claims(parser, makes=True)
    place = parser.add_argument_group("places")
    place.add_argument("--listen", metavar="HOST:PORT", help=f"port 0: any that is free ({_DEFAULT})")
    place.add_argument("--advertise", metavar="HOST:PORT", help="where clients are told to connect (as --listen)")
    safety = parser.add_argument_group("safety", "needed for an address that other machines can reach")
    safety.add_argument("--tls-cert", metavar="FILE", help="certificate with its chain, PEM")
    safety.add_argument("--tls-key", metavar="FILE", help="its key, PEM")
    safety.add_argument("--sasl-users", metavar="FILE", help="lines of user:password, for PLAIN and SCRAM-SHA-256")
    safety.add_argument(
        "--super-user", action="append", metavar="NAME",
        help="may do everything, '*': every user; others what [[listener.acl]] of --config FILE allows",
    )  # fmt: skip
    safety.add_argument("--insecure", action="store_true", help="serve others without encryption or passwords")
    add_files(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON document once clients are served"
    )
    output.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def address_of(text: str, flag: str, *, least: int) -> Address:
    """Return the address that a flag gives, with a port of at least `least`; raises `ConfigInvalid`."""
    with contextlib.suppress(ValueError):
        if (address := parse_address(text)).port >= least:
            return address
    raise ConfigInvalid(f"{flag} {printable(text)}: neither HOST:PORT nor [ADDRESS]:PORT")


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Serve until told to stop; return the worst status of the log directories."""
    if arguments.read_only and (arguments.flush or arguments.init or arguments.take_over):
        raise ConfigInvalid("--read-only: nothing is written, so --flush, --init and --take-over do not go with it")
    config = _listener_config(arguments, environment)
    listening = parse_address(config.listen)
    if not arguments.log_dirs and not arguments.read_only:
        arguments.log_dirs = _own_dirs(arguments, environment)
    settings = settings_of(arguments, environment)
    paths = list(dict.fromkeys(absolute(name) for name in require_paths(settings)))
    manager_options = _manager_options(arguments, environment)
    with contextlib.closing(EventLog("console", "info")) as events:
        listener = _listener(config, arguments.read_only, events, _broker_properties(arguments, environment))
        for path in paths:
            if arguments.read_only:
                ensure_log_dir(OsFs(), path)
            else:
                ensure_ours(OsFs(), path, Claims.of(arguments), console)
        allow_many_files()
        serve = _serve_read_only if arguments.read_only else _serve
        return serve(
            paths, manager_options, listener, events, lambda: _announce(console, listener, arguments, listening)
        )


def _broker_properties(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Mapping[str, str]:
    flags: dict[str, Any] = {name: getattr(arguments, name, None) for name in FILES}
    path, document = own_file(flags, environment)
    return broker_file(flags, environment, document, path)[1] or {}


def _manager_options(arguments: argparse.Namespace, environment: Mapping[str, str]) -> ManagerOptions:
    settings = settings_of(arguments, environment)
    options = ManagerOptions(
        recovery=options_of(settings), jobs=settings.jobs, version=version(), draw_jitter=random.randrange
    )
    properties = _broker_properties(arguments, environment)
    return options_of_broker(options, properties, SystemClock().sleep) if properties else options


def _own_dirs(arguments: argparse.Namespace, environment: Mapping[str, str]) -> list[str]:
    """Return the log directories that the file calls our own; raises `ConfigInvalid`."""
    path, document = _own_file(arguments, environment)
    log_dirs = parse_service({"log_dir": document.get("log_dir", [])}, path).log_dirs
    return [str(log_dir.path) for log_dir in log_dirs if log_dir.mode is Mode.OWN]


def _own_file(arguments: argparse.Namespace, environment: Mapping[str, str]) -> tuple[str, Mapping[str, object]]:
    return own_file({name: getattr(arguments, name, None) for name in FILES}, environment)


def _listener_config(arguments: argparse.Namespace, environment: Mapping[str, str]) -> ListenerConfig:
    """Return `[listener]` of the file with the flags in force; raises `ConfigInvalid`."""
    path, document = _own_file(arguments, environment)
    config = parse_listener(document, path)
    if arguments.read_only and (unused := [key for key in changed_keys(config) if key in _OF_WRITERS]):
        raise ConfigInvalid(f"config {printable(path)}: listener.{unused[0]}: nothing is written with --read-only")
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise ConfigInvalid("--tls-cert and --tls-key go together")
    if arguments.tls_cert is not None:
        config = replace(config, tls_certificate=arguments.tls_cert, tls_key=arguments.tls_key)
    flags = {
        "listen": arguments.listen and str(address_of(arguments.listen, "--listen", least=0)),
        "advertise": arguments.advertise and str(address_of(arguments.advertise, "--advertise", least=1)),
        "flush": arguments.flush,
        "users": arguments.sasl_users,
        "super_users": tuple(f"User:{name}" for name in arguments.super_user or ()),
        "insecure": arguments.insecure,
    }
    config = replace(config, **{name: value for name, value in flags.items() if value})
    config = replace(config, listen=config.listen or _DEFAULT)
    ensure_safe(config)
    return config


_OF_WRITERS = ("flush", "flush_interval", "flush_bytes", "dirty_limit", "auto_create", "partitions")


def ensure_safe(config: ListenerConfig) -> None:
    """Raise `ConfigInvalid` for an address that others can reach without TLS and users, and for users without rules."""
    listening = parse_address(config.listen)
    if not is_loopback(listening.host) and not (config.tls_certificate and config.users) and not config.insecure:
        raise ConfigInvalid(
            f"--listen {listening}: other machines can reach it: give --tls-cert, --tls-key and --sasl-users, or "
            "--insecure where nobody else is in the network"
        )
    has_rules = bool(config.rules or config.super_users)
    if config.users and not has_rules:
        raise ConfigInvalid(
            "--sasl-users: no rule lets these users do anything, and what no rule allows is denied: give --super-user "
            "NAME, or [[listener.acl]] in a file for --config; --super-user '*' lets every user do everything, as "
            "before there were rules"
        )
    if has_rules and not config.users:
        raise ConfigInvalid("--super-user, [[listener.acl]]: without --sasl-users no client has a name")


def _listener(
    config: ListenerConfig,
    is_read_only: bool,  # noqa: FBT001
    events: EventLog,
    properties: Mapping[str, str],
) -> KafkaListener:
    try:
        from server.listener import KafkaListener  # noqa: PLC0415 (an extra)
        from server.reporter import reporter_to  # noqa: PLC0415 (as above)
        from server.service_listener import listener_options  # noqa: PLC0415 (as above)
        from server.store.flushing import FlushPolicy, FlushSettings  # noqa: PLC0415 (as above)
    except ImportError as error:
        raise ConfigInvalid(f"{error}: install logmend[serve]") from error
    options = listener_options(config, reporter_to(events), read_secret, properties)
    if is_read_only:
        options = replace(options, flush=FlushSettings(FlushPolicy.NONE), is_read_only=True)
    return KafkaListener(options)


def read_secret(path: str) -> str:
    """Return the text of a file that nobody but its owner, and his group, may look at; raises `ConfigInvalid`."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 (any file that an operator names)
            if os.fstat(file.fileno()).st_mode & stat.S_IRWXO:
                raise ConfigInvalid(f"{printable(path)}: everybody may read or write it: `chmod o= {printable(path)}`")
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigInvalid(f"{printable(path)}: cannot be read: {reason}") from error


def _serve(
    paths: Sequence[PurePath],
    options: ManagerOptions,
    listener: KafkaListener,
    events: EventLog,
    tell: Callable[[], None],
) -> ExitStatus:
    """Own the directories: recover, open, serve, run the schedules, and close cleanly."""
    stop = threading.Event()
    worker = OwnWorker(OsFs(), paths, options, OwnSetup(events, SystemClock(), listeners=[listener]))

    def end(_: str) -> None:
        stop.set()
        worker.interrupt()

    with stopping(end):
        try:
            worker.start()
            if not stop.is_set() and listener.port:
                tell()
            while not stop.is_set():
                stop.wait(worker.step())
            before = worker.status()
        finally:
            worker.stop()
    pairs = zip(before, worker.status(), strict=True)
    return worst(exit_status(*pair, has_failed=False) for pair in pairs)


def _serve_read_only(
    paths: Sequence[PurePath],
    options: ManagerOptions,
    listener: KafkaListener,
    events: EventLog,
    tell: Callable[[], None],
) -> ExitStatus:
    """Look at the directories and serve what is seen."""
    from server.store.read_only import open_read_only  # noqa: PLC0415 (as above)

    stop = threading.Event()
    with contextlib.closing(open_read_only(paths, options, now_ms())) as engine, stopping(lambda _: stop.set()):
        for reason in engine.run(lambda manager: manager.offline).values():
            events.tell("log_dir_offline", reason=reason)
        listener.start(engine)
        try:
            tell()
            stop.wait()
        finally:
            listener.stop()
    return ExitStatus.CLEAN


def _announce(console: Console, listener: KafkaListener, arguments: argparse.Namespace, listening: Address) -> None:
    """Say where clients are served, once they are."""
    place = Address(listening.host, listener.port)
    facts = {"listen": str(place), "port": listener.port, "read_only": arguments.read_only, "pid": os.getpid()}
    if console.json:
        console.event(document("serving", version(), ExitStatus.CLEAN, **facts))
    else:
        console.say_at_once(f"serving Kafka clients at {place}{', read-only' if arguments.read_only else ''}\n")
