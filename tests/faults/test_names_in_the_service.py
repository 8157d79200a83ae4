"""Names from the disk reach nobody raw who asks a running service: log lines, status, page, metrics and labels."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.test_names import NASTY, ONE_BYTE, plant, raw_in, run
from support.command import environment, start
from support.faults import DAMAGES, write_tree
from support.waiting import until

EVIL = b"dir\x1b[31m\nERROR forged\xe2\x80\xae\xff\x9b"
"""The name of a log directory: in every answer and in every line."""
PLACES = ("/status", "/metrics", "/", "/v1/broker-state", "/healthz", "/readyz", "/%1b%5b31m%0aERROR%20forged")
LINE = re.compile(rb"^(#.*|[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})? [-+0-9.eEinfNa]+( [0-9]+)?|)$")


class OverSocket(http.client.HTTPConnection):
    """A client of the Unix socket of a service."""

    def __init__(self, place: Path) -> None:
        super().__init__("localhost", timeout=180)
        self._place = place

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        # The path may be longer than an address can be.
        here = os.open(self._place.parent, os.O_PATH)
        try:
            self.sock.connect(f"/proc/self/fd/{here}/{self._place.name}")
        finally:
            os.close(here)


def asked(place: Path, path: str) -> tuple[int, bytes]:
    client = OverSocket(place)
    try:
        client.request("GET", path)
        answer = client.getresponse()
        return answer.status, answer.read()
    finally:
        client.close()


def is_ready(status: int | None, state: Path, log: Path) -> bool:
    """Tell whether every log directory has been looked at."""
    assert status is None, log.read_bytes()
    shown = state / "status.json"
    return shown.exists() and "starting" not in {each["state"] for each in json.loads(shown.read_bytes())["log_dirs"]}


@contextmanager
def service(tmp_path: Path, log_format: str) -> Iterator[tuple[Path, Path]]:
    """Give the state directory and the log of a service on three directories with names that hurt, one of them ours."""
    homes = []
    for number, kind in enumerate(("directory", "topic", "file")):
        home = write_tree(tmp_path / os.fsdecode(EVIL + b"%d" % number), DAMAGES["torn"])
        plant(home, ONE_BYTE[::5] + NASTY, kind)
        homes.append(home)
    state, log = tmp_path / "state", tmp_path / "log"
    config = tmp_path / "logmend.toml"
    config.write_text("[http]\npartition_labels = true\n")
    words = ["run", "--config", config, "--state-dir", state, "--log-format", log_format, "--log-level", "debug"]
    process = start(
        *words,
        "--log-dir",
        homes[0],
        "--log-dir",
        homes[1],
        "--own",
        homes[2],
        "--take-over",
        env=environment(),
        stderr=log,
    )
    try:
        until(lambda: is_ready(process.poll(), state, log), 120)
        yield state, log
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in range(8)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("log_format", ["console", "logfmt", "json"])
def test_no_name_on_the_disk_is_told_raw_by_the_service(tmp_path: Path, log_format: str) -> None:
    with service(tmp_path, log_format) as (state, log):
        found = {path: asked(state / "logmend.sock", path) for path in PLACES}
        for path, (_, body) in found.items():
            assert list(raw_in(body)) == [], path
            assert b"\nERROR forged" not in body, path
        assert {path for path, (status, _) in found.items() if status == 200} >= {"/status", "/metrics"}
        metrics = found["/metrics"][1]
        assert b"forged" in metrics, "no label names the directory: nothing was tried"
        assert [line for line in metrics.split(b"\n") if not LINE.match(line)] == []
        for words in (("status",), ("status", "--json")):
            done = run(*words, "--state-dir", state)
            assert list(raw_in(done.stdout + done.stderr)) == [], words
            assert b"Traceback" not in done.stderr
    told = log.read_bytes()
    assert b"forged" in told, "no line names the directory: nothing was tried"
    assert list(raw_in(told)) == []
    assert b"\nERROR forged" not in told
    if log_format == "json":
        assert [json.loads(line) for line in told.splitlines()]
    assert list(raw_in((state / "status.json").read_bytes())) == []
