"""`logmend run` with a listener: clients on our directories, with everything else that the service does."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from serve.serving import QUIET, WAIT
from support.waiting import until

LOGMEND = Path(sys.executable).with_name("logmend")


class Service:
    """The command on a file, with what it tells."""

    def __init__(self, directory: Path, listener: str = "", listen: str = "127.0.0.1:0") -> None:
        self.directory = directory
        (directory / "l.toml").write_text(
            f'state_dir = "{directory}/state"\n[[log_dir]]\npath = "{directory}/data"\nmode = "own"\n'
            f'[http]\nlisten = ["127.0.0.1:0"]\n[log]\nformat = "json"\n[listener]\nlisten = "{listen}"\n{listener}\n'
        )
        self.process: subprocess.Popen[bytes]

    @contextmanager
    def running(self) -> Iterator[Service]:
        with (self.directory / "said").open("ab") as said:
            words = [str(LOGMEND), "run", "--init", "--config", str(self.directory / "l.toml")]
            self.process = subprocess.Popen(words, stderr=said)
        try:
            yield self
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(WAIT) == 0
        finally:
            self.process.kill()
            self.process.wait()

    def told(self, event: str) -> dict[str, str]:
        """Wait for an event and return its fields."""
        return until(lambda: next((each for each in self.events() if each["event"] == event), {}), WAIT, say=self.said)

    def said(self) -> str:
        return (self.directory / "said").read_text()

    def events(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.said().splitlines() if line.startswith("{")]

    def metrics(self) -> str:
        place = self.told("listening")["listen"]
        with urllib.request.urlopen(f"http://{place}/metrics", timeout=WAIT) as answer:
            return str(answer.read().decode())


def run_once(service: Service, *more: str) -> subprocess.CompletedProcess[str]:
    words = [LOGMEND, "run", "--init", "--config", service.directory / "l.toml", *more]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=WAIT)


def test_clients_write_and_read_and_the_service_shows_and_keeps_it(tmp_path: Path) -> None:
    service = Service(tmp_path, 'auto_create = true\npartitions = 2\nflush = "interval"')
    with service.running():
        bootstrap = service.told("listener_started")["listen"]
        admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT)
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})
        for topic in ("orders", "made-by-asking"):
            for number in range(100):
                producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(WAIT) == 0
        assert len(admin.list_topics("made-by-asking", timeout=WAIT).topics["made-by-asking"].partitions) == 2
        consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest", **QUIET
        })  # fmt: skip
        consumer.subscribe(["orders"])
        values: list[bytes] = []
        while len(values) < 60:
            values += [message.value() for message in consumer.consume(60 - len(values), 1) if not message.error()]
        assert values == [b"%d" % number for number in range(60)]
        consumer.commit(asynchronous=False)
        consumer.close()
        lag = re.compile(r'logmend_group_lag_records\{group="readers",topic="orders"\} (\S+)')
        until(lambda: lag.findall(service.metrics()) == ["40.0"], WAIT, say=service.metrics)
        metrics = service.metrics()
        assert f'logmend_listener_up{{listen="{bootstrap}"}} 1.0' in metrics
        assert re.search(r'logmend_listener_requests_total\{listen="[^"]*",request="Produce"\} [1-9]', metrics)
        assert re.search(r'logmend_listener_request_seconds_count\{listen="[^"]*",request="Produce"\} [1-9]', metrics)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    names = [each["event"] for each in service.events()]
    assert names.index("listener_stopped") < names.index("log_dir_closed")


@pytest.mark.parametrize("which", ["listener", "http"])
def test_a_service_that_cannot_listen_where_it_was_told_to_fails(tmp_path: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        service = Service(tmp_path, listen=place if which == "listener" else "127.0.0.1:0")
        more = ("--listen", place) if which == "http" else ()
        done = run_once(service, *more)
    assert done.returncode == 5, done.stderr
    assert "Address already in use" in done.stderr
    assert "service_ready" not in done.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists() == (which == "listener")


@pytest.mark.parametrize(
    ("listener", "told"),
    [
        ('tls_certificate = "/no/such/file"', "no certificate with its key"),
        ('users = "/no/such/file"\nsuper_users = ["User:root"]', "cannot be read"),
    ],
)
def test_files_that_are_no_use_end_the_start_with_a_reason(tmp_path: Path, listener: str, told: str) -> None:
    service = Service(tmp_path, listener)
    done = run_once(service)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_a_listener_without_a_directory_of_ours_is_refused(tmp_path: Path) -> None:
    service = Service(tmp_path)
    file = service.directory / "l.toml"
    (tmp_path / "data").mkdir()
    file.write_text(file.read_text().replace('mode = "own"', 'mode = "guard"'))
    done = run_once(service)
    assert (done.returncode, "no log directory is ours" in done.stderr) == (2, True), done.stderr
