"""What the clients of the matrix talk to: our listener, or with `LOGMEND_CLIENTS_TARGET=kafka` a real broker.

The second shows that the scenarios say what Kafka does. A target has `bootstrap`, and `log_dir`, where partitions lie.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Protocol, Self

import pytest
from confluent_kafka.admin import AdminClient
from interop.kafka_lab import Cluster, end
from support.needs import NOT_HERE
from support.waiting import until

AGAINST_KAFKA: Final = os.environ.get("LOGMEND_CLIENTS_TARGET") == "kafka"
OF_OURS: Final = pytest.mark.skipif(AGAINST_KAFKA, reason=f"{NOT_HERE}it is not asked of a broker")
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.max.timeout.ms": "900000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
}
COMES_BACK: Final = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""Without these a broker that was killed is not let in again for nine seconds; with them a busy one is fenced."""
START_SECONDS: Final = 120.0


class Target(Protocol):
    @property
    def bootstrap(self) -> str: ...
    @property
    def log_dir(self) -> Path: ...


class Broker:
    """A real broker with a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(directory, config=SETTINGS | (COMES_BACK if AGAINST_KAFKA else {}))

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def log_dir(self) -> Path:
        return self.cluster[0].log_dirs[0]

    def start(self) -> None:
        """Start it and wait until it lets itself in: before that it listens, and makes no topics."""
        self.cluster[0].start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        until(lambda: admin.list_topics(timeout=START_SECONDS).brokers, START_SECONDS)

    def kill(self) -> None:
        self.cluster[0].kill()

    def stop(self) -> None:
        self.cluster[0].stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Listener:
    """`logmend serve` on a log directory, on a port of its own choice."""

    def __init__(self, log_dir: Path, directory: Path, *options: str) -> None:
        self.log_dir, self.directory, self.options = log_dir, directory, options
        self.bootstrap = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it says where it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        installed = Path(sys.executable).with_name("logmend")
        words = [str(installed)] if installed.exists() else [sys.executable, "-m", "cli.main"]
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
        words += ["serve", str(self.log_dir), "--listen", "127.0.0.1:0", "--json", *self.options]
        words += ["--server-properties", str(properties)]
        words += [] if "--read-only" in self.options else ["--init", "--take-over"]
        with self.output.open("ab") as said:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, bufsize=0
            )
        self.bootstrap = str(json.loads(self._first_line(self.process))["listen"])

    @property
    def output(self) -> Path:
        """What it said, over all its starts."""
        return self.directory / "listener.err"

    def _first_line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        deadline, line = time.monotonic() + START_SECONDS, bytearray()
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            more = process.stdout.read(1 << 16) if ready else b""
            if not more:
                self.kill()
                raise RuntimeError(f"logmend serve said nothing:\n{self.output.read_text(errors='replace')[-3000:]}")
            line += more
        return bytes(line)

    def stop(self) -> None:
        """Let it close in good order; that it ends with another status than 0 is an error."""
        process = self._end(signal.SIGTERM)
        if process is not None and process.returncode:
            said = self.output.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"logmend serve ended with {process.returncode}:\n{said}")

    def kill(self) -> None:
        """Send SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> subprocess.Popen[bytes] | None:
        process, self.process = self.process, None
        if process is not None:
            end(process, how)  # type: ignore[arg-type]  # bytes or text: the same process
            assert process.stdout is not None
            process.stdout.close()
        return process

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
