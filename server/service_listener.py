"""ServiceListener: the listener of a service, a `daemon.own.engine.Listener`.

If the address is taken, it reports an event and tries again; the service goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from daemon.own.engine import Engine
from daemon.service.config import ListenerConfig
from daemon.status.model import Events, ListenerStatus
from server.access.rights import Access
from server.groups.settings import settings_of_broker
from server.handlers.topics.topics import TopicOptions
from server.listener import KafkaListener, ListenerOptions
from server.net.limits import Limits
from server.net.net import ServerOptions
from server.net.sasl import SaslLogin, parse_users
from server.net.tls import server_context
from server.reporter import reporter_to
from server.store.flushing import FlushPolicy, FlushSettings
from server.txn.settings import transactions_of_broker
from storage.base.errors import LogmendError
from storage.base.quantities import parse_address

_RETRY_SECONDS: Final = 5.0


class ServiceListener:
    """A listener in a thread of its own. It may be started again once it was stopped."""

    def __init__(self, options: ListenerOptions, events: Events, retry_seconds: float = _RETRY_SECONDS) -> None:
        self._options, self._events, self._retry_seconds = options, events, retry_seconds
        self._listener = KafkaListener(options)
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._reason = "not started"

    def start(self, engine: Engine) -> None:
        """Begin to serve; returns at once."""
        self._is_stopping.clear()
        self._reason = "starting"
        self._thread = threading.Thread(target=self._begin, args=(engine,), name="listener", daemon=True)
        self._thread.start()

    def _begin(self, engine: Engine) -> None:
        reported = ""
        while not self._is_stopping.is_set():
            listener = self._listener = KafkaListener(self._options)
            try:
                listener.start(engine)
            except LogmendError as error:
                listener.stop()
                self._reason = str(error)
                if self._reason != reported:
                    reported = self._reason
                    self._events.tell("listen_failed", listen=listener.status().listen, reason=reported)
                self._is_stopping.wait(self._retry_seconds)
            else:
                self._reason = ""
                self._events.tell("listener_started", listen=listener.status().listen)
                return

    def status(self) -> ListenerStatus:
        """Return the state of the listener, at once."""
        status = self._listener.status()
        return replace(status, reason=self._reason) if self._reason else status

    def stop(self) -> None:
        """Take no more connections, finish requests within a bounded time, and close everything."""
        self._is_stopping.set()
        if self._thread is not None:
            self._thread.join()
        listen, was_serving = self._listener.status().listen, not self._reason
        self._reason = "stopping"
        self._listener.stop()
        self._reason = "not started"
        if was_serving:
            self._events.tell("listener_stopped", listen=listen)


def listener_of(
    config: ListenerConfig, events: Events, read_secret: Callable[[str], str], properties: Mapping[str, str]
) -> ServiceListener:
    """Return the listener that a configuration asks for; raises as `listener_options`."""
    return ServiceListener(listener_options(config, reporter_to(events), read_secret, properties), events)


def listener_options(
    config: ListenerConfig,
    report: Callable[[str, str], None],
    read_secret: Callable[[str], str],
    properties: Mapping[str, str],
) -> ListenerOptions:
    """Return the options that a configuration asks for. Raises `ConfigInvalid` for files that cannot be used."""
    host, port = parse_address(config.listen)
    limits = replace(
        Limits(), connections=config.connections, frame=config.request_bytes, idle_ms=round(config.idle_seconds * 1000)
    )
    server = ServerOptions(host, port, parse_address(config.advertise) if config.advertise else None, limits=limits)
    if config.tls_certificate:
        server = replace(server, tls=server_context(config.tls_certificate, config.tls_key or config.tls_certificate))
    if config.users:
        users = parse_users(read_secret(config.users), config.users)
        server = replace(server, make_login=lambda: SaslLogin(users))
    flush = FlushSettings(
        FlushPolicy(config.flush), round(config.flush_interval_seconds * 1000), config.flush_bytes, config.dirty_bytes
    )
    return ListenerOptions(
        server,
        flush,
        groups=settings_of_broker(properties),
        transactions=transactions_of_broker(properties),
        topics=TopicOptions(config.partitions),
        auto_create=config.auto_create,
        access=Access(config.rules, config.super_users) if config.users else None,
        report=report,
    )
