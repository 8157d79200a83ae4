"""The clients of the matrix: where each comes from, what each can do, and a driver of each behind a pipe.

with Drivers(bootstrap, directory) as drivers:
    drivers("confluent").ask("produce", topic="orders", partitions=[0], first=0, count=10)
    drivers("java", 1).ask(...)            # a second process of the same client
"""

from __future__ import annotations

import functools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from interop.kafka_lab import quick_flags

HERE: Final = Path(__file__).resolve().parent
SCRIPT: Final = HERE.parent.parent / "scripts" / "clients.sh"
ANSWER_SECONDS: Final = 200.0
"""More than any client waits before it gives up by itself: then it can still say why."""

IDEMPOTENT, TRANSACTIONS, ISOLATION = "idempotent", "transactions", "isolation"
MAX_TIMESTAMP, DELETE_RECORDS = "max timestamp", "delete records"
DELETE_GROUP, DELETE_OFFSET, SET_OFFSET, CLUSTER = "delete group", "delete offset", "set offset", "cluster"
ASSIGN = "assign"
LOADING: Final = ("COORDINATOR_LOAD_IN_PROGRESS", "GROUP_LOAD_IN_PROGRESS")
"""What clients call that a coordinator has not read its groups yet."""


@dataclass(frozen=True)
class Client:
    """One client. `made` is what scripts/clients.sh knows it by, empty where the tests' own interpreter has it."""

    made: str
    source: str
    strategies: tuple[str, ...]
    lacks: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()
    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

    def can(self, feature: str) -> bool:
        return feature not in self.lacks


CLIENTS: Final = {
    "confluent": Client("", "confluent.py", ("range", "roundrobin", "cooperative-sticky"), frozenset({DELETE_OFFSET})),
    "kafka-python-2": Client(
        "kafka-python-2.0.2", "kafka_python.py", ("range", "roundrobin"),
        # It asks for a cluster by a Metadata that names none.
        frozenset({IDEMPOTENT, TRANSACTIONS, ISOLATION, MAX_TIMESTAMP, DELETE_RECORDS, DELETE_OFFSET, SET_OFFSET,
                   CLUSTER}),
    ),
    "kafka-python-3": Client(
        "kafka-python-3.0.12", "kafka_python.py", ("range", "roundrobin", "sticky", "cooperative-sticky"),
        frozenset({SET_OFFSET}),
    ),
    "aiokafka": Client(
        "aiokafka-0.14.0", "aio_kafka.py", ("range", "roundrobin", "sticky"),
        frozenset({MAX_TIMESTAMP, DELETE_GROUP, DELETE_OFFSET, SET_OFFSET}),
    ),
    "kafkajs": Client(
        "kafkajs-2.2.4", "kafkajs.js", ("roundrobin",),
        # It reads by group only.
        frozenset({ASSIGN, MAX_TIMESTAMP, DELETE_OFFSET}), ("node", "npm"),
        # The lz4 packages of npm need a compiler, or write frames that Kafka itself refuses (lz4js).
        ("none", "gzip", "snappy", "zstd"),
    ),
    "java": Client("java", "", ("range", "roundrobin", "sticky", "cooperative-sticky"), frozenset(), ("java", "mvn")),
}  # fmt: skip


def able(*features: str) -> list[str]:
    """Return the names of the clients that have all of these."""
    return [name for name, client in CLIENTS.items() if all(client.can(feature) for feature in features)]


class ClientMissing(Exception):
    """The client cannot be had on this machine, for this reason."""


class ClientError(Exception):
    """The client was told no, or gave up: `kind` is its own name of the error."""

    def __init__(self, client: str, request: str, kind: str, message: str) -> None:
        super().__init__(f"{client}, {request}: {kind}: {message}")
        self.kind = kind

    def is_kind(self, name: str) -> bool:
        """Say whether this is Kafka's error of that name; clients write one name in their own ways."""

        def plain(text: str) -> str:
            letters = "".join(letter for letter in text.lower() if letter.isalnum())
            for ending in ("error", "exception", "failed"):
                letters = letters.removesuffix(ending)
            return letters

        return plain(self.kind) == plain(name)


@functools.cache
def made(name: str) -> str:
    """Return what `scripts/clients.sh` says of a client; `ClientMissing` where it could not bring it."""
    done = subprocess.run(
        [SCRIPT, name], check=False, capture_output=True, text=True, env={**os.environ, "PYTHON": sys.executable}
    )
    if done.returncode:
        raise ClientMissing(f"scripts/clients.sh {name} ended with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout.strip().splitlines()[-1]


def java_command(*more: str, heap: str = "160m") -> list[str]:
    """Return the start of a Java command that begins fast, with Kafka's own classes and the driver's."""
    quiet = "-Dlog4j2.configurationFile=" + str(HERE / "drivers" / "log4j2.yaml")
    return ["java", *quick_flags(), f"-Xmx{heap}", quiet, *more, "-cp", made("java")]


def command(name: str) -> tuple[list[str], dict[str, str]]:
    """Return how a driver is started, and what its environment has besides."""
    client = CLIENTS[name]
    for program in client.needs:
        if shutil.which(program) is None:
            raise ClientMissing(f"{program} is not installed")
    source = str(HERE / "drivers" / client.source)
    if name == "java":
        return [*java_command(), "JavaDriver"], {}
    if name == "kafkajs":
        return ["node", source], {"NODE_PATH": made(client.made), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return [made(client.made) if client.made else sys.executable, "-W", "ignore", source], {}


class Driver:
    """One process of one client."""

    def __init__(self, name: str, bootstrap: str, complaints: Path) -> None:
        self.name, self._complaints = name, complaints
        words, more = command(name)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | more
        with complaints.open("ab") as said:
            self.process = subprocess.Popen(
                [*words, bootstrap],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                bufsize=0,
                env=environment,
            )

    def ask(self, operation: str, **request: Any) -> Any:
        """Return the result; `ClientError` where the client raised."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": operation, **request}).encode() + b"\n")
        except BrokenPipeError:
            raise RuntimeError(f"the driver of {self.name} is gone:\n{self.said()}") from None
        answer = json.loads(self._line(operation))
        if "error" in answer:
            raise ClientError(self.name, operation, answer["error"], answer["message"])
        return answer["ok"]

    def committed(self, group: str, topic: str, partitions: list[int]) -> list[int | None]:
        """Return the group's positions; who has just begun says for a while that it still loads groups."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return list(self.ask("committed", group=group, topic=topic, partitions=partitions))
            except ClientError as error:
                if not any(map(error.is_kind, LOADING)) or time.monotonic() > deadline:
                    raise

    def said(self) -> str:
        """Return the end of what the client printed."""
        return self._complaints.read_text(errors="replace")[-3000:]

    def _line(self, operation: str) -> bytes:
        assert self.process.stdout is not None
        deadline, line = time.monotonic() + ANSWER_SECONDS, bytearray()
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            more = self.process.stdout.read(1 << 20) if ready else b""
            if not more:
                self.kill()
                raise RuntimeError(f"{self.name} gave no answer to {operation}:\n{self.said()}")
            line += more
        return bytes(line)

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process.stdout.close()


class Drivers:
    """Drivers for one listener, started when they are first asked for."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        directory.mkdir(parents=True, exist_ok=True)
        self._running: dict[tuple[str, int], Driver] = {}

    def __call__(self, name: str, number: int = 0) -> Driver:
        """Return the process `number` of a client; one that is gone is started anew."""
        running = self._running.get((name, number))
        if running is None or running.process.poll() is not None:
            running = Driver(name, self.bootstrap, self.directory / f"{name}-{number}.err")
            self._running[name, number] = running
        return running

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._running.values():
            driver.close()
