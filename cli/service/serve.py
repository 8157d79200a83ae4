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
from daemon.service.service import exit_status
from engine.settings.broker_options import options_of_broker
from engine.settings.options import ManagerOptions
from recovery.report.documents import document
from recovery.report.outcome import worst
from storage.base.errors import ConfigInvalid, ExitStatus, printable
from storage.base.quantities import Address, parse_address
from storage.disk.fs import OsFs

if TYPE_CHECKING:
    from server.listener import KafkaListener, ListenerOptions

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
    place.add_argument("--listen", default=_DEFAULT, metavar="HOST:PORT", help=f"port 0: any that is free ({_DEFAULT})")
    place.add_argument("--advertise", metavar="HOST:PORT", help="where clients are told to connect (as --listen)")
    safety = parser.add_argument_group("safety", "needed for an address that other machines can reach")
    safety.add_argument("--tls-cert", metavar="FILE", help="certificate with its chain, PEM")
    safety.add_argument("--tls-key", metavar="FILE", help="its key, PEM")
    safety.add_argument("--sasl-users", metavar="FILE", help="lines of user:password, for PLAIN and SCRAM-SHA-256")
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
    listening = address_of(arguments.listen, "--listen", least=0)
    ensure_safe(arguments, listening)
    if arguments.read_only and (arguments.flush or arguments.init or arguments.take_over):
        raise ConfigInvalid("--read-only: nothing is written, so --flush, --init and --take-over do not go with it")
    settings = settings_of(arguments, environment)
    paths = list(dict.fromkeys(absolute(name) for name in require_paths(settings)))
    manager_options = _manager_options(arguments, environment)
    with contextlib.closing(EventLog("console", "info")) as events:
        listener = _listener(arguments, listening, events, _broker_properties(arguments, environment))
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


def ensure_safe(arguments: argparse.Namespace, listening: Address) -> None:
    """Raise `ConfigInvalid` for an address that others can reach without both TLS and passwords."""
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise ConfigInvalid("--tls-cert and --tls-key go together")
    is_safe = arguments.tls_cert is not None and arguments.sasl_users is not None
    if not is_loopback(listening.host) and not is_safe and not arguments.insecure:
        raise ConfigInvalid(
            f"--listen {listening}: other machines can reach it: give --tls-cert, --tls-key and --sasl-users, or "
            "--insecure where nobody else is in the network"
        )


def _listener(
    arguments: argparse.Namespace, listening: Address, events: EventLog, properties: Mapping[str, str]
) -> KafkaListener:
    try:
        from server.listener import KafkaListener  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ConfigInvalid(f"{error}: install logmend[serve]") from error
    return KafkaListener(_listener_options(arguments, listening, events, properties))


def _listener_options(
    arguments: argparse.Namespace, listening: Address, events: EventLog, properties: Mapping[str, str]
) -> ListenerOptions:
    from server.groups.settings import settings_of_broker  # noqa: PLC0415
    from server.listener import ListenerOptions  # noqa: PLC0415
    from server.net.net import ServerOptions  # noqa: PLC0415
    from server.net.sasl import SaslLogin, parse_users  # noqa: PLC0415
    from server.net.tls import server_context  # noqa: PLC0415
    from server.reporter import reporter_to  # noqa: PLC0415
    from server.store.flushing import FlushPolicy, FlushSettings  # noqa: PLC0415 (as above)
    from server.txn.settings import transactions_of_broker  # noqa: PLC0415

    advertised = None
    if arguments.advertise is not None:
        advertised = address_of(arguments.advertise, "--advertise", least=1)
    options = ServerOptions(listening.host, listening.port, advertised)
    if arguments.tls_cert is not None:
        options = replace(options, tls=server_context(arguments.tls_cert, arguments.tls_key))
    if arguments.sasl_users is not None:
        users = parse_users(read_secret(arguments.sasl_users), arguments.sasl_users)
        options = replace(options, make_login=lambda: SaslLogin(users))
    policy = FlushPolicy(arguments.flush or ("none" if arguments.read_only else "sync"))
    return ListenerOptions(
        options,
        FlushSettings(policy),
        groups=settings_of_broker(properties),
        transactions=transactions_of_broker(properties),
        is_read_only=arguments.read_only,
        report=reporter_to(events),
    )


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
