"""WireServer: accepts Kafka clients and serves them in one thread, by an asyncio loop of its own.

`start` binds the address and returns once it is served; `stop` finishes open requests within a bounded time.
Connections above the limit are closed at once, idle ones after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from server.api.clock import LoopTimers
from server.api.dispatch import Client, Dispatcher, ListenerInfo
from server.net.conversation import Conversation, Sink, Tally
from server.net.limits import Limits
from server.net.plain import PlainTransport
from server.net.sasl import Login
from server.net.tls import TlsTransport
from storage.base.errors import ExitStatus, LogmendError, printable
from wire.frame import Account, Budget, FrameReader

MakeDispatcher = Callable[[ListenerInfo, LoopTimers], Dispatcher]
"""Called in the loop's thread before the first connection, with where clients shall connect."""
Transport = PlainTransport | TlsTransport
_SHARED_BYTES: Final = 256 << 10
_BACKLOG: Final = 128
_STARTING_SECONDS: Final = 60.0


class ListenFailed(LogmendError):
    """The address cannot be listened on."""

    status = ExitStatus.ENVIRONMENT


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where to listen; `advertised` is what clients are told to connect to.

    Without it that is `host` with the port of the listener or, where `host` is every address of this machine, the
    address that they connected to.
    """

    host: str = "127.0.0.1"
    port: int = 0
    advertised: tuple[str, int] | None = None
    node_id: int = 1
    cluster_id: str = ""
    limits: Limits = field(default_factory=Limits)
    make_login: Callable[[], Login] | None = None
    """Called for each connection; None: clients need no authentication."""
    tls: ssl.SSLContext | None = None


@dataclass(slots=True)
class _Address:
    """What the connections of one address have."""

    account: Account
    connections: int = 0


class WireServer:
    """One listening socket and its connections. `start`, `stop` and `connections` are for any thread."""

    def __init__(self, options: ServerOptions, make_dispatcher: MakeDispatcher) -> None:
        self._options, self._make_dispatcher = options, make_dispatcher
        self.tally = Tally()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listening: socket.socket | None = None
        self._transports: set[Transport] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        limits = options.limits
        self._budget = Budget(limits.frames_together, self._on_room, reserve=limits.frames_reserve)
        self._strangers = Budget(limits.frames_before_login, self._on_room).account()
        self._addresses: dict[str, _Address] = {}
        self._shared = memoryview(bytearray(_SHARED_BYTES))
        self._failed: BaseException | None = None
        self._ready = threading.Event()
        self._dispatcher: Dispatcher
        self._is_stopping = False
        self.port = 0

    # ---- from any thread

    def start(self) -> None:
        """Listen and serve; raises `ListenFailed`."""
        self._listening = _bound(self._options.host, self._options.port)
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._run, name="logmend-wire", daemon=True)
        self._thread.start()
        self._ready.wait(_STARTING_SECONDS)
        if self._failed is not None:
            self._thread.join()
            raise self._failed

    def stop(self) -> None:
        """Accept no more, finish open requests within the time limit, close all; harmless when stopped."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(self._begin_stop)
        thread.join()
        self._thread = None

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._transports)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the thread."""
        assert self._loop is not None, "it was not started"
        return self._loop

    # ---- in the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 (`start` raises it)
            self._failed = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        options = self._options
        host, port = options.advertised or (options.host, self.port)
        info = ListenerInfo(host, port, options.node_id, options.cluster_id)
        listening = self._listening
        assert listening is not None, "it was bound"
        try:
            self._dispatcher = self._make_dispatcher(info, LoopTimers(loop))
            loop.add_reader(listening, self._accept)
            sweeping = loop.create_task(self._sweep())
            self._ready.set()
            await self._over
            sweeping.cancel()
        finally:
            self._close_listening()

    def _accept(self) -> None:
        assert self._listening is not None, "it was bound"
        try:
            connection, address = self._listening.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._pause_accepting()
                return
            raise
        limits, peer = self._options.limits, str(address[0])
        here = self._addresses.get(peer)
        if len(self._transports) >= limits.connections or (here and here.connections >= limits.connections_of_address):
            self.tally.closed["connections"] += 1
            connection.close()
            return
        self._make_room_for_a_stranger()
        self.tally.accepted += 1
        connection.settimeout(0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._converse(connection, peer)

    def _pause_accepting(self) -> None:
        """Let connections wait in the kernel until files are free again."""
        assert self._listening is not None, "it was bound"
        self.loop.remove_reader(self._listening)
        self.loop.call_later(1.0, self._go_on_accepting)

    def _go_on_accepting(self) -> None:
        if self._listening is not None:
            self.loop.add_reader(self._listening, self._accept)

    def _converse(self, connection: socket.socket, peer: str) -> None:
        limits = self._options.limits
        address = self._addresses.get(peer)
        if address is None:
            address = self._addresses[peer] = _Address(self._budget.account(limits.frames_of_address))
        address.connections += 1
        reader = FrameReader(limits.frame_before_login, self._strangers)
        host, port = connection.getsockname()[:2]
        here = None if self._options.advertised or not is_wildcard(self._options.host) else (str(host), int(port))
        if self._options.tls is None:
            transport = PlainTransport(
                connection, reader, self._shared, self.tally, peer, address.account, self._forget
            )
            self._transports.add(transport)
            transport.begin(self._conversation(transport, peer, here))
            return
        encrypted = TlsTransport(
            reader, self.tally, peer, address.account, lambda sink: self._conversation(sink, peer, here), self._forget
        )
        self._transports.add(encrypted)
        task = self.loop.create_task(self._shake_hands(connection, encrypted))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def _conversation(self, sink: Sink, peer: str, here: tuple[str, int] | None) -> Conversation:
        options = self._options
        login = options.make_login() if options.make_login else None
        client = Client(peer, here=here)
        return Conversation(self._dispatcher, sink, client, options.limits, self.tally, login)

    async def _shake_hands(self, connection: socket.socket, transport: TlsTransport) -> None:
        """Let asyncio begin TLS; a client that fails, or takes too long, is disconnected."""
        try:
            await self.loop.connect_accepted_socket(
                lambda: transport, connection, ssl=self._options.tls,
                ssl_handshake_timeout=self._options.limits.login_ms / 1000,
            )  # fmt: skip
        except (OSError, ssl.SSLError, TimeoutError, asyncio.CancelledError):
            self.tally.closed["handshake"] += 1
            transport.close()
            connection.close()

    def _make_room_for_a_stranger(self) -> None:
        """Close a connection that has not logged in, if there are as many as may be.

        It is the oldest of the address that has the most of them: who floods the port closes his own.
        """
        strangers = [transport for transport in self._transports if transport.is_stranger]
        if len(strangers) < self._options.limits.connections_before_login:
            return
        counts = Counter(transport.peer for transport in strangers)
        worst = max(counts, key=counts.__getitem__)
        oldest = min((each for each in strangers if each.peer == worst), key=lambda each: each.began)
        self._expire(oldest, "before_login")

    def _forget(self, transport: Transport) -> None:
        if transport in self._transports:
            self._transports.discard(transport)
            address = self._addresses[transport.peer]
            address.connections -= 1
            if not address.connections and not address.account.used:
                del self._addresses[transport.peer]

    def _on_room(self) -> None:
        """There is room again: read on where a connection waited for it."""
        self.loop.call_soon(self._look_at_all)

    def _look_at_all(self) -> None:
        for each in tuple(self._transports):
            each.look()

    async def _sweep(self) -> None:
        """Close what has been idle for too long, and frames that come too slowly."""
        limits, before = self._options.limits, self.loop.time()
        while True:
            await asyncio.sleep(limits.sweep_ms / 1000)
            now = self.loop.time()
            self._look_at_all()
            is_pressed = self._budget.is_pressed or self._strangers.is_pressed
            for transport in tuple(self._transports):
                if transport.conversation is not None:  # the handshake has a limit of its own
                    self._judge(transport, now, now - before, is_pressed=is_pressed)
            before = now

    def _judge(self, transport: Transport, now: float, passed: float, *, is_pressed: bool) -> None:
        conversation, limits = transport.conversation, self._options.limits
        assert conversation is not None, "it has begun"
        transport.reading_s += passed if transport.is_midway else 0.0
        patience = (limits.frame_pressed_ms if is_pressed else limits.frame_ms) / 1000
        still = (now - transport.moved) * 1000
        if transport.is_stranger and (now - transport.began) * 1000 > limits.login_ms:
            self._expire(transport, "login")
        elif transport.is_midway and transport.reading_s > patience + transport.received / limits.frame_rate:
            self._expire(transport, "frame_late")
        elif still > limits.idle_ms and (transport.is_congested or not conversation.is_busy):
            self._expire(transport, "idle")

    def _expire(self, transport: Transport, kind: str) -> None:
        self.tally.closed[kind] += 1
        transport.close(kind)

    def _close_listening(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            self.loop.remove_reader(listening)
            listening.close()

    def _begin_stop(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        self._close_listening()  # at once: no client shall wait for an answer that does not come
        self.loop.create_task(self._finish())

    async def _finish(self) -> None:
        until = self.loop.time() + self._options.limits.stop_ms / 1000
        for transport in tuple(self._transports):
            if transport.conversation is None:
                transport.close("the listener stops")
            else:
                transport.conversation.end()
        for ending in self._dispatcher.ending:
            ending()
        while self._transports and self.loop.time() < until:
            for transport in tuple(self._transports):
                if (
                    not (transport.conversation is not None and transport.conversation.is_busy)
                    and not transport.is_congested
                ):
                    transport.close("the listener stops")
            if self._transports:
                await asyncio.sleep(0.01)
        for transport in tuple(self._transports):
            transport.close("the listener stops")
        for ended in self._dispatcher.ended:
            await ended()
        self._over.set_result(None)


def is_wildcard(host: str) -> bool:
    """Say whether a host stands for every address of the machine, and is none to connect to."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _bound(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise ListenFailed(f"{printable(host)}:{port}: cannot listen: {error.strerror or error}") from error
    listening.settimeout(0)
    return listening
