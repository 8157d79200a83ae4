"""Who may come in: TLS, passwords, and no address that others can reach without both."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.targets import Listener
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from serve.serving import QUIET, WAIT, consumer, read_all
from support.command import logmend
from support.waiting import until

from cli.main import main

MECHANISMS = ("PLAIN", "SCRAM-SHA-256")
RECORDS = 2000


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a certificate for localhost, its key, and users."""
    directory = tmp_path_factory.mktemp("keys")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", directory / "key.pem", "-out", directory / "cert.pem", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    users = directory / "users"
    users.write_text("alice:wonder land\nbob:builder\n")
    users.chmod(0o600)
    return directory


@pytest.fixture(scope="module")
def secured(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    log_dir = tmp_path_factory.mktemp("secured") / "data"
    log_dir.mkdir()
    safety = ("--tls-cert", keys / "cert.pem", "--tls-key", keys / "key.pem", "--sasl-users", keys / "users")
    with Listener(log_dir, tmp_path_factory.mktemp("out"), *map(str, safety)) as listener:
        yield listener


def login(keys: Path, mechanism: str, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password,
        "ssl.ca.location": str(keys / "cert.pem"), **QUIET,
    }  # fmt: skip


@pytest.mark.parametrize(("mechanism", "user", "password"), [(MECHANISMS[0], "alice", "wonder land"),
                                                            (MECHANISMS[1], "bob", "builder")])  # fmt: skip
def test_who_knows_the_password_writes_and_reads_over_tls(
    secured: Listener, keys: Path, mechanism: str, user: str, password: str
) -> None:
    conf = {"bootstrap.servers": secured.bootstrap, **login(keys, mechanism, user, password)}
    topic = f"of-{user}"
    admin = AdminClient(conf)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(WAIT)
    values = [b"%d" % number + b"x" * 500 for number in range(RECORDS)]
    producer = Producer(conf)
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(WAIT) == 0
    with consumer(secured.bootstrap, **login(keys, mechanism, user, password)) as found:
        records = read_all(found, topic)
    assert sorted(m.value() for part in records.values() for m in part) == sorted(values)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "builder"), ("nobody", "wonder land")])
def test_who_does_not_know_it_is_told_so_and_nothing_else(
    secured: Listener, keys: Path, mechanism: str, user: str, password: str
) -> None:
    told: list[KafkaError] = []
    conf = {"bootstrap.servers": secured.bootstrap, "group.id": "x", "error_cb": told.append}
    refused = Consumer({**conf, **login(keys, mechanism, user, password)})

    def is_told() -> bool:
        with pytest.raises(KafkaException):
            refused.list_topics(timeout=1)
        refused.poll(0)
        return KafkaError._AUTHENTICATION in [error.code() for error in told]

    until(is_told, WAIT)
    refused.close()


def test_without_tls_or_without_a_password_nothing_is_answered(secured: Listener, keys: Path) -> None:
    host, port = secured.bootstrap.rsplit(":", 1)
    metadata = b"\0\0\0\x0c\0\3\0\0\0\0\0\1\xff\xff\0\0\0\0"
    with socket.create_connection((host, int(port)), WAIT) as plain:
        plain.sendall(metadata)
        assert plain.recv(100)[:1] in (b"", b"\x15"), "an alert of TLS, or the end"
    context = ssl.create_default_context(cafile=str(keys / "cert.pem"))
    with (
        socket.create_connection((host, int(port)), WAIT) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as anonymous,
    ):
        anonymous.sendall(metadata)
        assert anonymous.recv(100) == b""


def test_a_frame_above_the_small_limit_before_the_login_ends_the_connection(secured: Listener, keys: Path) -> None:
    host, port = secured.bootstrap.rsplit(":", 1)
    context = ssl.create_default_context(cafile=str(keys / "cert.pem"))
    with (
        socket.create_connection((host, int(port)), WAIT) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as anonymous,
    ):
        anonymous.sendall(((512 << 10) + 1).to_bytes(4, "big"))
        assert anonymous.recv(100) == b""


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:9092", "somewhere.example:9092"])
@pytest.mark.parametrize("half", ["", "tls", "sasl"])
def test_an_address_that_others_can_reach_is_refused_without_both(
    tmp_path: Path, keys: Path, listen: str, half: str, capsys: pytest.CaptureFixture[str]
) -> None:
    safety = {
        "": (),
        "tls": ("--tls-cert", keys / "cert.pem", "--tls-key", keys / "key.pem"),
        "sasl": ("--sasl-users", keys / "users"),
    }[half]
    assert main(["serve", str(tmp_path / "data"), "--listen", listen, *map(str, safety)]) == 2
    assert "--insecure" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_with_insecure_every_address_is_served_and_clients_are_told_where_they_came_to(tmp_path: Path) -> None:
    with Listener(tmp_path / "data", tmp_path / "out", "--insecure", "--listen", "0.0.0.0:0") as listener:
        port = listener.bootstrap.rsplit(":", 1)[1]
        found = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", **QUIET}).list_topics(timeout=WAIT)
        assert [(broker.host, broker.port) for broker in found.brokers.values()] == [("127.0.0.1", int(port))]


def test_users_that_everybody_may_read_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users = tmp_path / "users"
    users.write_text("alice:secret\n")
    users.chmod(0o644)
    assert main(["serve", str(tmp_path / "data"), "--sasl-users", str(users)]) == 2
    said = capsys.readouterr()
    assert "chmod" in said.err
    assert "secret" not in said.err + said.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "nonsense"], "HOST:PORT"),
        (["--listen", "127.0.0.1:65536"], "HOST:PORT"),
        (["--advertise", "host:0"], "--advertise"),
        (["--tls-cert", "x"], "go together"),
        (["--tls-cert", "nothing.pem", "--tls-key", "nothing.pem"], "no certificate"),
        (["--read-only", "--flush", "sync"], "nothing is written"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_done(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "data"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken_is_an_error_of_the_environment_and_leaves_a_clean_directory(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = logmend("serve", tmp_path / "data", "--init", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 5
    assert "in use" in done.stderr
    assert logmend("verify", tmp_path / "data").returncode == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
