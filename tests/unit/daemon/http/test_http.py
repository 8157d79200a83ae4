"""Status, metrics and the page over HTTP: the answers, who gets them, and what clients can do to the server."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.http_asking import Asker, ask, dial, following, raw, serving, unix
from support.service_states import NASTY, cell, cells, hostile, log_dir, recovering, service, sound

from daemon.events.events import EventLog
from daemon.http.doors import MAX_CONNECTIONS
from daemon.http.server import HttpServer
from daemon.http.sockets import ListenRefused
from daemon.status.model import DirState, Mode, ServiceStatus
from storage.base.errors import ConfigInvalid

PORT = "127.0.0.1:0"


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with serving(PORT, sound) as made:
        yield made


@pytest.fixture
def local(tmp_path: Path) -> Iterator[HttpServer]:
    with serving(unix(tmp_path), sound) as made:
        yield made


def test_status_is_a_versioned_document(local: HttpServer) -> None:
    told = ask(local, "/status").json
    assert (told["schema_version"], told["document"], told["logmend"]) == (1, "status", "1.0")
    assert told["verdict"] == {"level": "good", "text": "All 300 partitions in 1 log directory read and sound"}
    (found,) = told["log_dirs"]
    assert len(found["partitions"]) == 300
    assert found["partition_counts"]["sound"] == 300


def test_a_large_answer_is_packed_for_those_who_can_unpack_it(local: HttpServer) -> None:
    plain = ask(local, "/status")
    packed = ask(local, "/status", Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.body) * 3 < len(plain.body)
    assert gzip.decompress(packed.body) == plain.body


def test_what_many_ask_for_at_the_same_time_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    go_on = threading.Event()

    def slow(status: ServiceStatus) -> bytes:
        made.append(status)
        go_on.wait(10)
        return b"{}"

    monkeypatch.setattr("daemon.http.answers._status_body", slow)
    with serving(PORT, sound, refresh_seconds=60.0) as server, contextlib.ExitStack() as stack:
        held = [stack.enter_context(dial(server)) for _ in range(20)]
        for each in held:
            each.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        held.pop().close()
        go_on.set()
        answers = [b"".join(iter(lambda each=each: each.recv(65536), b"")) for each in held]  # type: ignore[misc]
    assert all(answer.endswith(b"{}") for answer in answers)
    assert len(made) == 1


def test_health_is_that_of_the_service_and_readiness_that_of_its_directories() -> None:
    waits = service(log_dir(state=DirState.ABSENT, reason="not mounted"), ready=False)
    with serving(PORT, lambda: waits) as made:
        assert (ask(made, "/healthz").status, ask(made, "/healthz").text) == (200, "ok\n")
        answer = ask(made, "/readyz")
        assert (answer.status, answer.text) == (503, "not ready\n/var/lib/kafka/data-1: absent: not mounted\n")
    with serving(PORT, sound) as made:
        assert ask(made, "/readyz").status == 200
    with serving(PORT, lambda: service(stopping=True)) as made:
        assert ask(made, "/readyz").status == 503


def test_a_service_that_does_not_say_how_it_is_is_not_healthy() -> None:
    def broken() -> ServiceStatus:
        raise RuntimeError("a bug")

    with serving(PORT, broken) as made:
        assert ask(made, "/healthz").status == 503
        assert ask(made, "/status").status == 503
        assert ask(made, "/").status == 200, "the page itself is there, and says that it hears nothing"


def test_the_state_of_a_recovering_broker_has_the_shape_that_strimzi_knows() -> None:
    with serving(PORT, recovering) as made:
        assert ask(made, "/v1/broker-state").json == {
            "brokerState": 2,
            "recoveryState": {"remainingLogsToRecover": 179, "remainingSegmentsToRecover": 4077},
        }


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (service(log_dir(mode=Mode.OWN, state=DirState.SERVING)), 3),
        (service(log_dir(mode=Mode.OWN, state=DirState.STARTING)), 1),
        (service(log_dir(mode=Mode.OWN, state=DirState.SERVING), stopping=True), 7),
        (service(log_dir()), 127),
    ],
)
def test_the_state_outside_a_recovery_is_a_number_of_kafkas(state: ServiceStatus, code: int) -> None:
    with serving(PORT, lambda: state) as made:
        assert ask(made, "/v1/broker-state").json == {"brokerState": code}


def test_every_answer_forbids_what_it_does_not_need(server: HttpServer) -> None:
    for target in ("/", "/status", "/metrics", "/healthz", "/nothing"):
        headers = ask(server, target).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Server"] == "logmend"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
    policy = ask(server, "/").headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9644", "127.0.0.1.evil.example", "logmend", "", "[::2]:1"]
)
def test_on_a_port_a_foreign_host_header_gets_nothing(server: HttpServer, host: str) -> None:
    for target in ("/", "/status", "/metrics", "/healthz", "/events"):
        answer = ask(server, target, Host=host)
        assert answer.status == 421
        assert b"kafka" not in answer.body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:9", "127.1.2.3", "box.example:9"])
def test_its_own_names_and_those_configured_are_answered(host: str) -> None:
    with serving(PORT, sound, hosts=("box.example",)) as made:
        assert ask(made, "/status", Host=host).status == 200


def test_a_request_without_a_host_gets_nothing(server: HttpServer) -> None:
    assert raw(server, b"GET /status HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 421")


def test_each_runbook_is_served_as_it_stands_in_the_documentation(server: HttpServer) -> None:
    pages = sorted((Path(__file__).resolve().parents[4] / "docs" / "operate" / "runbooks").glob("*.md"))
    assert len(pages) >= 7
    for page in pages:
        answer = ask(server, f"/runbooks/{page.stem}")
        assert (answer.status, answer.body) == (200, page.read_bytes())
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert ask(server, "/runbooks/../page/page.js").status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_on_a_port_there_is_only_get(server: HttpServer, method: str) -> None:
    assert ask(server, "/status", method).status == 405
    assert ask(server, "/v1/scrub", method).status == 404


def test_a_fault_of_ours_is_told_and_gives_no_details_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise RuntimeError("inner words")

    lines = io.StringIO()
    events = EventLog("json", "error", stream=lines)
    monkeypatch.setattr("daemon.http.answers._status_body", broken)
    with serving(PORT, sound, events=events) as made:
        answer = ask(made, "/status")
    events.close()
    assert (answer.status, b"inner" in answer.body) == (500, False)
    assert '"event":"answer_failed","path":"/status","error":"RuntimeError: inner words"' in lines.getvalue()


def test_head_is_get_without_a_body(server: HttpServer) -> None:
    answer = ask(server, "/status", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    "target",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page/page.js", "/status/", "//status", "/status%00", "/.."],
)
def test_no_path_of_a_request_leads_anywhere_else(server: HttpServer, target: str) -> None:
    answer = raw(server, f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert b"root:" not in answer


def test_orders_are_taken_on_the_unix_socket(tmp_path: Path) -> None:
    given: list[tuple[str, str, str]] = []

    def command(name: str, argument: str, directory: str) -> str:
        given.append((name, argument, directory))
        if directory == "/nowhere":
            raise ValueError("no such log directory: \x1b/nowhere")
        return "it is being read"

    with serving(unix(tmp_path), sound, command) as made:
        assert ask(made, "/v1/scrub", "POST", b'{"action": "now"}').json == {"answer": "it is being read"}
        ask(made, "/v1/scrub", "POST", b'{"action": "pause", "log_dir": "/d"}')
        assert given == [("scrub-now", "", ""), ("scrub-pause", "", "/d")]
        refused = ask(made, "/v1/scrub", "POST", b'{"action": "now", "log_dir": "/nowhere"}')
        assert (refused.status, refused.json) == (400, {"error": "no such log directory: \\x1b/nowhere"})
        assert ask(made, "/v1/scrub").status == 405


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"action": "format-disk"}', 400),
        (b'{"action": ["now"]}', 400),
        (b'{"action": "now", "log_dir": 3}', 400),
        (b"\xff\xfe", 400),
        (b"[" * 1000, 400),
        (b" " * 2000, 413),
    ],
)
def test_a_wrong_order_is_refused(tmp_path: Path, body: bytes, status: int) -> None:
    with serving(unix(tmp_path), sound, lambda *_: pytest.fail("was carried out")) as made:
        assert ask(made, "/v1/scrub", "POST", body).status == status


def test_a_header_of_a_mebibyte_is_refused_early(server: HttpServer) -> None:
    answer = raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n")
    assert answer == b"" or answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400", b"HTTP/1.1 431"))
    assert ask(server, "/healthz").status == 200


def test_one_connection_may_ask_often(server: HttpServer) -> None:
    connection = Asker(server)
    for _ in range(300):  # more bytes together than one request may have
        connection.request("GET", "/healthz", headers={"X-Padding": "x" * 200})
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"ok\n")
    connection.close()


def test_rubbish_gets_an_error_and_no_words_of_ours(server: HttpServer) -> None:
    answer = raw(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")
    assert answer == b"" or b" 400 " in answer
    assert b"Traceback" not in answer


def test_four_hundred_slow_clients_keep_nobody_out(server: HttpServer) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(400):
            slow = stack.enter_context(dial(server))
            with contextlib.suppress(ConnectionError):
                slow.sendall(b"GET /status HTTP/1.1\r\nHost: loc")
            if number % 50 == 0:
                assert ask(server, "/healthz").status == 200
        assert ask(server, "/healthz").status == 200


def test_a_client_that_is_being_answered_keeps_its_place(server: HttpServer) -> None:
    with following(server) as stream, contextlib.ExitStack() as stack:
        assert next(stream)[0] == "full"
        for _ in range(2 * MAX_CONNECTIONS):
            stack.enter_context(dial(server))
        assert ask(server, "/healthz").status == 200
        assert next(stream)


def test_with_all_places_taken_the_client_that_has_waited_longest_goes(
    monkeypatch: pytest.MonkeyPatch, server: HttpServer
) -> None:
    monkeypatch.setattr("daemon.http.doors.PATIENCE_SECONDS", 600.0)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(dial(server)) for _ in range(MAX_CONNECTIONS)]
        assert ask(server, "/healthz").status == 200
        with contextlib.suppress(ConnectionResetError):
            assert held[0].recv(1) == b""
        held[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[-1].recv(12) == b"HTTP/1.1 200"


def test_a_client_that_does_not_finish_its_request_is_let_go(
    monkeypatch: pytest.MonkeyPatch, server: HttpServer
) -> None:
    monkeypatch.setattr("daemon.http.doors.PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("daemon.http.doors._SWEEP_SECONDS", 0.05)
    with serving(PORT, sound) as made, dial(made) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        with contextlib.suppress(ConnectionResetError):
            assert slow.recv(1) == b""
        assert ask(made, "/healthz").status == 200


def test_a_reader_of_events_gets_the_whole_state_and_then_what_changed() -> None:
    now = {"state": service(log_dir(partitions=(cell("a", 0), cell("b", 1))))}
    with serving(PORT, lambda: now["state"]) as made, following(made) as stream:
        event, told = next(stream)
        assert event == "full"
        assert [each[:2] for each in told["log_dirs"][0]["cells"]] == [["a", 0], ["b", 1]]
        old = now["state"]
        now["state"] = service(log_dir(partitions=(cell("a", 0), cell("b", 1, findings=2))), now_ms=old.now_ms + 1000)
        event, told = _next_change(stream)
        assert event == "delta"
        assert [index for index, _ in told["log_dirs"][0]["cells"]] == [1]
        assert told["log_dirs"][0]["cells"][0][1][6] == 2
        assert "path" not in told["log_dirs"][0]
        now["state"] = service(log_dir(partitions=(cell("a", 0),)), now_ms=old.now_ms + 2000)
        event, told = _next_change(stream)
        assert event == "full", "other partitions than before are sent whole"


def _next_change(stream: Iterator[tuple[str, dict[str, object]]]) -> tuple[str, dict[str, object]]:
    for event, told in stream:
        if event == "full" or "now_ms" in told:
            return event, told
    raise AssertionError("the stream ended")


def test_a_stalled_reader_of_events_costs_nobody_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.http.feed._STALLED_SECONDS", 0.3)
    states = itertools.cycle([service(log_dir(partitions=cells(2000, seed))) for seed in (1, 2)])

    def moving() -> ServiceStatus:
        return next(states)  # every cell has changed: frames soon fill whatever the system buffers

    with serving(PORT, moving) as made, dial(made) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with following(made) as stream:
            assert [next(stream)[0] for _ in range(2)] == ["full", "delta"]
        assert made._answers is not None
        feed = made._answers._feed
        deadline = time.monotonic() + 30
        while feed._readers and time.monotonic() < deadline:
            assert ask(made, "/healthz").status == 200, "the others are served meanwhile"
        assert feed._readers == 0, "it was cut off"


def test_too_many_readers_of_events_are_asked_to_come_back(server: HttpServer) -> None:
    held = []
    try:
        statuses = []
        for _ in range(20):
            connection = Asker(server)
            connection.request("GET", "/events")
            response = connection.getresponse()
            held.append((connection, response))
            statuses.append(response.status)
        assert statuses.count(200) == 16
        assert statuses.count(503) == 4
    finally:
        for connection, response in held:
            response.close()
            connection.close()


def test_the_socket_is_its_owners_alone(local: HttpServer) -> None:
    assert local.listen.path is not None
    mode = os.stat(local.listen.path).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(tmp_path / "s.sock"))
    left.listen()
    left.close()  # as a process that was killed leaves it
    assert (tmp_path / "s.sock").exists()
    with serving(unix(tmp_path), sound) as made:
        assert ask(made, "/healthz").status == 200
    assert not (tmp_path / "s.sock").exists()


def test_of_two_servers_on_one_socket_the_second_is_refused_and_the_first_goes_on(local: HttpServer) -> None:
    second = HttpServer(str(local.listen), sound, lambda *_: "")
    with pytest.raises(ListenRefused, match="another logmend listens there"):
        second.start()
    second.stop()
    assert ask(local, "/healthz").status == 200


def test_a_socket_on_which_somebody_else_listens_is_left_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(tmp_path / "s.sock"))
        other.listen()
        with pytest.raises(ListenRefused, match="another process listens there"):
            HttpServer(unix(tmp_path), sound, lambda *_: "").start()
        assert (tmp_path / "s.sock").exists()


def test_what_is_no_socket_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "s.sock").write_text("somebody's")
    with pytest.raises(ListenRefused, match="not a socket"):
        HttpServer(unix(tmp_path), sound, lambda *_: "").start()
    assert (tmp_path / "s.sock").read_text() == "somebody's"


def test_a_port_in_use_is_said(server: HttpServer) -> None:
    with pytest.raises(ListenRefused, match="Address already in use"):
        HttpServer(server.address, sound, lambda *_: "").start()


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:9", "[::]:9", "192.0.2.1:9", "host:9", "127.0.0.1", "unix:a", "x:y", ":80", "/" + "a" * 108]
)
def test_what_others_can_reach_and_what_is_no_place_is_refused(listen: str) -> None:
    with pytest.raises(ConfigInvalid):
        HttpServer(listen, sound, lambda *_: "")


def test_metrics_are_what_prometheus_reads_and_name_no_partition(server: HttpServer) -> None:
    answer = ask(server, "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'logmend_partitions{dir="/var/lib/kafka/data-1",verdict="sound"} 300.0' in answer.text
    assert "orders" not in answer.text


def test_hostile_names_are_escaped_in_every_answer() -> None:
    events = EventLog("json", "error", stream=io.StringIO())
    for name in NASTY:
        events.tell("log_dir_absent", log_dir=name, reason=name)
    with serving(PORT, hostile, events=events, partition_labels=True) as made:
        bodies = [ask(made, target).body for target in ("/status", "/metrics", "/readyz", "/v1/broker-state")]
        with following(made) as stream:
            event, told = next(stream)
        assert event == "full"
        assert told["log_dirs"][0]["findings"][4]["topic"] in NASTY
    events.close()
    for body in bodies:
        text = body.decode("ascii" if body.startswith(b"{") else "utf-8")
        assert [c for c in text if not c.isprintable() and c != "\n"] == []
    families = [line.split("{")[0].split(" ")[0] for line in bodies[1].decode().splitlines() if line[0] != "#"]
    assert "fake_metric" not in families


def test_stopping_ends_the_streams_and_the_thread() -> None:
    before = threading.active_count()
    with serving(PORT, sound) as made:
        connection = Asker(made)
        connection.request("GET", "/events")
        response = connection.getresponse()
        response.readline()
    while response.readline():
        pass
    connection.close()
    assert not any(thread.name == "http" for thread in threading.enumerate())
    assert threading.active_count() <= before + 2
