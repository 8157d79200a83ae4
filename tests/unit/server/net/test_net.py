"""The server: who is let in, who is sent away when, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from server.api.clock import LoopTimers
from server.api.dispatch import Call, Dispatcher, ListenerInfo
from server.net.limits import Limits
from server.net.net import ListenFailed, ServerOptions, WireServer, is_wildcard
from server.net.sasl import SaslLogin, Users, handlers

METADATA, HEARTBEAT = 3, 12
WAIT = 60.0
QUICK = Limits(sweep_ms=10)
ASK = struct.pack(">ihhih", 14, METADATA, 0, 7, -1) + struct.pack(">i", 0)
WAITS = struct.pack(">ihhih", 18, HEARTBEAT, 0, 8, -1) + b"\0\0\0\0\0\0\0\0"


class Served:
    """A server whose Heartbeat waits until it is told."""

    def __init__(self, limits: Limits, **options: Any) -> None:
        self.called = threading.Event()
        self.told: list[str] = []
        self.calls: list[Call] = []
        self.answer: asyncio.Future[Any] | None = None
        self.server = WireServer(replace(ServerOptions(limits=limits), **options), self._make)
        self.server.start()

    def _make(self, info: ListenerInfo, timers: LoopTimers) -> Dispatcher:
        dispatcher = Dispatcher({METADATA: self._metadata, HEARTBEAT: self._wait, **handlers()}, info, timers.now_ms)
        dispatcher.ending.append(lambda: self.told.append("ending"))

        async def ended() -> None:
            self.told.append("ended")

        dispatcher.ended.append(ended)
        return dispatcher

    def _metadata(self, call: Call) -> dict[str, object]:
        self.calls.append(call)
        return {}

    def _wait(self, call: Call) -> asyncio.Future[Any]:
        self.answer = self.server.loop.create_future()
        self.called.set()
        return self.answer

    def release(self) -> None:
        assert self.answer is not None
        self.server.loop.call_soon_threadsafe(self.answer.set_result, {})

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), WAIT)


@contextlib.contextmanager
def served(limits: Limits = QUICK, **options: Any) -> Iterator[Served]:
    made = Served(limits, **options)
    try:
        yield made
    finally:
        made.server.stop()


def answer_on(connection: socket.socket) -> bytes:
    """Return a whole response, nothing if the connection ends."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = connection.recv(4096)
        if not more:
            return b""
        data += more
    return data


def is_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_above_the_limit_are_closed_and_there_is_room_again_when_one_leaves() -> None:
    with served(replace(QUICK, connections=2)) as made:
        first, second = made.connect(), made.connect()
        for each in (first, second):
            each.sendall(ASK)
            assert answer_on(each)
        with made.connect() as third:
            assert is_ended(third)
        first.close()
        while made.server.connections == 2:
            threading.Event().wait(0.001)
        with made.connect() as fourth:
            fourth.sendall(ASK)
            assert answer_on(fourth)
        second.close()
        assert made.server.tally.closed["connections"] == 1


def test_an_idle_connection_is_closed_and_one_that_waits_for_an_answer_is_not() -> None:
    with served(replace(QUICK, idle_ms=1000)) as made, made.connect() as waiting:
        waiting.sendall(WAITS)
        assert made.called.wait(WAIT)
        with made.connect() as idle:
            assert is_ended(idle)
        made.release()
        assert answer_on(waiting)
        assert made.server.tally.closed["idle"] >= 1


def test_a_frame_that_stops_coming_ends_its_connection() -> None:
    with served(replace(QUICK, frame_ms=50)) as made, made.connect() as slow:
        slow.sendall(ASK[:-1])
        assert is_ended(slow)
        assert made.server.tally.closed["frame_late"] == 1


def test_a_frame_that_comes_byte_by_byte_has_a_total_time() -> None:
    with served(replace(QUICK, frame_ms=300, frame_rate=1 << 20)) as made, made.connect() as slow:
        slow.sendall((1000).to_bytes(4, "big"))
        slow.settimeout(0.02)
        ended = False
        for _ in range(900):
            with contextlib.suppress(TimeoutError):
                slow.sendall(b"x")
                ended = not slow.recv(1)
            if ended:
                break
        assert ended
        assert made.server.tally.closed["frame_late"] == 1


def test_announced_frames_keep_nobody_from_being_answered() -> None:
    with served() as made, contextlib.ExitStack() as stack:
        for mib in (100, 100, 56):
            greedy = stack.enter_context(made.connect())
            greedy.sendall((mib << 20).to_bytes(4, "big") + bytes(100))
        honest = stack.enter_context(made.connect())
        honest.sendall(ASK)
        assert answer_on(honest)


def test_frames_that_fill_all_room_and_stop_are_ended_soon_and_small_ones_are_answered_meanwhile() -> None:
    limits = replace(
        QUICK, frames_together=1 << 20, frames_of_address=1 << 20, frames_reserve=1 << 18, frame_pressed_ms=300
    )
    with served(limits) as made, contextlib.ExitStack() as stack:
        greedy = [stack.enter_context(made.connect()) for _ in range(3)]
        for each in greedy:
            each.sendall((1 << 20).to_bytes(4, "big") + bytes(1 << 18))
        honest = stack.enter_context(made.connect())
        honest.sendall(ASK)
        assert answer_on(honest)
        large = ASK[4:] + bytes(1 << 20)
        honest.sendall(len(large).to_bytes(4, "big") + large)
        assert answer_on(honest)
        assert made.server.tally.closed["frame_late"] >= 1


def test_connections_that_do_not_log_in_make_room_for_the_next_one() -> None:
    users = Users({"alice": "secret"})
    options: Any = {"limits": replace(QUICK, connections_before_login=3), "make_login": lambda: SaslLogin(users)}
    with served(**options) as made, contextlib.ExitStack() as stack:
        first, *_ = [stack.enter_context(made.connect()) for _ in range(4)]
        assert is_ended(first)
        log_in(stack.enter_context(made.connect()))
        assert made.server.tally.closed["before_login"] == 2


def test_one_address_has_no_more_connections_than_it_may() -> None:
    with served(replace(QUICK, connections_of_address=1)) as made, made.connect() as first:
        first.sendall(ASK)
        assert answer_on(first)
        with made.connect() as second:
            assert is_ended(second)
        there = ("127.0.0.1", made.server.port)
        with socket.create_connection(there, WAIT, source_address=("127.0.0.2", 0)) as other:
            other.sendall(ASK)
            assert answer_on(other)


def log_in(connection: socket.socket) -> None:
    handshake = struct.pack(">ihhih", 17, 17, 1, 1, -1) + b"\0\5PLAIN"
    token = b"\0alice\0secret"
    login = struct.pack(">hhih", 36, 0, 2, -1) + len(token).to_bytes(4, "big") + token
    for request in (handshake, len(login).to_bytes(4, "big") + login, ASK):
        connection.sendall(request)
        assert answer_on(connection)


def test_who_does_not_log_in_in_time_is_sent_away_and_who_did_stays() -> None:
    users = Users({"alice": "secret"})
    options: Any = {"limits": replace(QUICK, login_ms=3000), "make_login": lambda: SaslLogin(users)}
    with served(**options) as made, made.connect() as known, made.connect() as unknown:
        log_in(known)
        assert is_ended(unknown)
        known.sendall(ASK)
        assert answer_on(known)
        assert made.server.tally.closed == {"login": 1}
        assert {call.principal for call in made.calls} == {"alice"}


def test_a_refused_login_is_reported_with_address_and_user() -> None:
    reports: list[tuple[str, str]] = []
    with served(make_login=lambda: SaslLogin(Users({"alice": "secret"}))) as made, made.connect() as unknown:
        made.server.tally.report = lambda kind, reason: reports.append((kind, reason))
        token = b"\0mallory\0guess"
        handshake = struct.pack(">ihhih", 17, 17, 1, 1, -1) + b"\0\5PLAIN"
        login = struct.pack(">hhih", 36, 0, 2, -1) + len(token).to_bytes(4, "big") + token
        for request in (handshake, len(login).to_bytes(4, "big") + login):
            unknown.sendall(request)
            assert answer_on(unknown)
        assert is_ended(unknown)
        assert reports == [("login", "127.0.0.1: no login as mallory")]


def test_nobody_is_answered_before_the_login() -> None:
    with served(make_login=lambda: SaslLogin(Users({"a": "b"}))) as made, made.connect() as unknown:
        unknown.sendall(ASK)
        assert is_ended(unknown)
        assert made.calls == []


def test_stopping_answers_what_was_begun_and_takes_nothing_more() -> None:
    with served() as made, made.connect() as waiting, made.connect() as idle:
        waiting.sendall(WAITS + ASK)
        assert made.called.wait(WAIT)
        stopping = threading.Thread(target=made.server.stop)
        stopping.start()
        assert is_ended(idle)
        with pytest.raises(OSError, match="refused"):
            made.connect().close()
        assert made.told == ["ending"]
        made.release()
        assert answer_on(waiting)[4:8] == b"\0\0\0\x08"
        assert is_ended(waiting)
        stopping.join(WAIT)
        assert not stopping.is_alive()
        assert made.told == ["ending", "ended"]
        assert made.calls == [], "what had not begun is dropped"


def test_stopping_does_not_wait_for_ever() -> None:
    with served(replace(QUICK, stop_ms=50)) as made, made.connect() as waiting:
        waiting.sendall(WAITS)
        assert made.called.wait(WAIT)
        made.server.stop()
        assert is_ended(waiting)


def test_stopping_twice_and_without_a_start_is_harmless() -> None:
    with served() as made:
        made.server.stop()
    never: Callable[..., Any] = WireServer(ServerOptions(), lambda *_: None).stop  # type: ignore[arg-type, return-value]
    assert never() is None


def test_an_address_that_is_taken_is_an_error_with_the_address() -> None:
    with served() as made, pytest.raises(ListenFailed, match=str(made.server.port)):
        Served(QUICK, port=made.server.port)


def test_what_fails_while_the_handlers_are_made_is_raised_where_it_was_started() -> None:
    def fail(*_: object) -> Dispatcher:
        raise RuntimeError("no store")

    server = WireServer(ServerOptions(), fail)
    with pytest.raises(RuntimeError, match="no store"):
        server.start()


@pytest.mark.parametrize(("host", "advertised", "told"), [
    ("127.0.0.1", None, "127.0.0.1"), ("127.0.0.1", ("kafka.example", 9), "kafka.example"),
    ("0.0.0.0", None, "127.0.0.1"), ("0.0.0.0", ("kafka.example", 9), "kafka.example"),
])  # fmt: skip
def test_clients_are_told_the_advertised_address_or_the_one_they_came_to(
    host: str, advertised: tuple[str, int] | None, told: str
) -> None:
    with served(host=host, advertised=advertised) as made, made.connect() as client:
        client.sendall(ASK)
        assert answer_on(client)
        (call,) = made.calls
        assert (call.info.host, call.info.port) == (told, 9 if advertised else made.server.port)
        assert call.client_host == "127.0.0.1"


def test_only_addresses_that_stand_for_all_are_wildcards() -> None:
    assert [is_wildcard(each) for each in ("0.0.0.0", "::", "127.0.0.1", "::1", "localhost", "a.example")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
