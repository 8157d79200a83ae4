"""Assembles a service from its configuration: a worker for each guarded directory, one for all own directories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Protocol, runtime_checkable

from daemon.events.events import EventLog
from daemon.events.notify import Notifier
from daemon.events.safe_json import dumps
from daemon.guard.guard import GuardWorker
from daemon.guard.watch import Watcher
from daemon.ledger.ledger import Ledger
from daemon.own.engine import Listener
from daemon.own.owned import OwnSetup, OwnWorker
from daemon.scrub.scrub import Scrubber
from daemon.service.config import UNIX, ServiceConfig, changes, put_in_force
from daemon.service.moving_fs import MovingFs
from daemon.service.service import Part, Reloaded, Service, Setup
from daemon.service.systemd import Systemd
from daemon.status.document import to_document
from daemon.status.file import StatusFile
from daemon.status.model import Clock, Mode, ServiceStatus, Worker
from daemon.verify.context import FlushedUpTo
from daemon.verify.device_health import DeviceHealth
from daemon.verify.options import GuardOptions
from engine.settings.options import ManagerOptions
from storage.base.errors import ConfigInvalid, LogmendError
from storage.disk.fs import OsFs


@runtime_checkable
class Adjustable(Protocol):
    """A worker or a scrubber whose options may change while it runs."""

    def adjust(self, options: GuardOptions) -> None:
        """Take other options; from any thread."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a service needs besides its configuration; each reload calls `read_config` again."""

    version: str
    kernel: str
    clock: Clock
    events: EventLog
    notifier: Notifier
    ledger: Ledger
    systemd: Systemd
    state_dir: PurePath
    run_dir: PurePath
    """Directory of the socket of `listen = ["unix"]`."""
    manager_options: ManagerOptions
    read_config: Callable[[], ServiceConfig]
    config_path: str = ""
    listeners: Sequence[Listener] = ()
    """Serve Kafka clients from own log directories."""
    parts: list[Part] = field(default_factory=list)


def assemble(config: ServiceConfig, around: Surroundings) -> Service:
    """Return the service, ready to run. Raises `ConfigInvalid` for faults that show only now."""
    guarded = [entry.path for entry in config.log_dirs if entry.mode is Mode.GUARD]
    owned = [entry.path for entry in config.log_dirs if entry.mode is Mode.OWN]
    live = _Live(config, around)
    health = DeviceHealth(around.clock, config.scrub.sick_errors, config.scrub.sick_seconds)
    workers: list[Worker] = [
        GuardWorker(path, around.ledger, around.clock, around.events, config.guard, health=health) for path in guarded
    ]
    if owned:
        workers.append(_own_worker(owned, live, health))
    live.workers = workers
    setup = Setup(
        around.version, around.kernel, around.events, around.clock, around.systemd,
        status_file=StatusFile(OsFs(), around.state_dir, _encoded, around.clock, around.events),
        reload=live.reload, config_path=around.config_path, counters=around.events.counters,
        listeners=lambda: tuple(entry.status() for entry in around.listeners),
    )  # fmt: skip
    service = Service(workers, setup)
    for place in config.http.listen:
        service.add(HttpPart(place, config, around, service))
    if guarded:
        service.add(
            WatchPart(Watcher(guarded, service.changed, around.clock, config.guard.poll_seconds, around.events))
        )
    for part in around.parts:
        service.add(part)
    return service


def _own_worker(paths: list[PurePath], live: _Live, health: DeviceHealth) -> OwnWorker:
    around = live.around

    def scrubber(path: PurePath, flushed: FlushedUpTo) -> Scrubber:
        options = live.config.scrub  # those in force when it begins
        return Scrubber(path, around.ledger, around.clock, around.events, options, flushed=flushed, health=health)

    fs = MovingFs()
    setup = OwnSetup(around.events, around.clock, around.listeners, scrubber, around.state_dir, lambda: fs.calls)
    return OwnWorker(fs, paths, around.manager_options, setup)


def _encoded(found: ServiceStatus) -> bytes:
    return dumps(to_document(found)).encode() + b"\n"


@dataclass(slots=True)
class _Live:
    """The configuration in force, and how a new one replaces it."""

    config: ServiceConfig
    around: Surroundings
    workers: list[Worker] = field(default_factory=list)

    def reload(self) -> Reloaded:
        """Read the file again; raises `ConfigInvalid`, and nothing has changed then."""
        new = self.around.read_config()
        live, waiting = changes(self.config, new)
        self.config = put_in_force(self.config, new)
        self.around.events.level = self.config.log.level
        notifier, notify = self.around.notifier, self.config.notify
        notifier.command, notifier.severity = notify.command, notify.severity
        notifier.seconds = notify.timeout_seconds
        adjustable = [each for each in self.workers if isinstance(each, Adjustable)]
        for each in adjustable:
            each.adjust(self.config.guard)
        if len(adjustable) < len(self.workers):
            late = [key for key in live if key.startswith(("guard.", "scrub."))]
            live, waiting = [key for key in live if key not in late], [*waiting, *late]
        self._reopen()
        return Reloaded(tuple(live), tuple(waiting))

    def _reopen(self) -> None:
        """Open own directories again that are offline: operators reload after they mount a disk."""
        for worker in self.workers:
            if isinstance(worker, OwnWorker) and worker.has_hope():
                worker.command("reopen")


class WatchPart:
    """The watcher, as a part of the service."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def start(self) -> None:
        self._watcher.start()

    def beat(self) -> bool:
        return True

    def stop(self) -> None:
        self._watcher.stop()


class HttpPart:
    """The HTTP server, as a part of the service.

    A place that was asked for and cannot be served ends the start. Without the socket of the default, which the state
    directory may refuse, the service goes on, and tells an event.
    """

    def __init__(self, place: str, config: ServiceConfig, around: Surroundings, service: Service) -> None:
        self._events, self._place, self._is_default = around.events, place, place == UNIX
        if place == UNIX:
            self._place = f"unix:{around.run_dir}/logmend.sock"
        try:
            from daemon.http.answers import HttpOptions  # noqa: PLC0415 (an extra: where it is missing the rest works)
            from daemon.http.server import HttpServer  # noqa: PLC0415 (as above)
        except ImportError as error:
            self._server, self._reason = None, f"{error}: install logmend[http]"
            return

        def command(name: str, argument: str, log_dir: str) -> str:
            return service.command(name, argument, PurePath(log_dir) if log_dir else None)

        http = config.http
        options = HttpOptions(http.hosts, http.allow_remote, http.partition_labels, http.kafka_names)
        self._server = HttpServer(self._place, service.status, command, events=around.events, options=options)

    def start(self) -> None:
        try:
            if self._server is None:
                raise ConfigInvalid(self._reason)
            self._server.start()
        except LogmendError as error:
            self._server = None
            self._events.tell("listen_failed", listen=self._place, reason=str(error))
            if not self._is_default:
                raise

    def beat(self) -> bool:
        return self._server is None or self._server.beat()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
