"""Real Kafka on the loopback interface: start, feed, kill, ask.

    with Cluster(directory, brokers=1, version="4.3.0", config={"log.segment.bytes": "1048576"}) as cluster:
        cluster.create_topic("orders", partitions=2, config={"cleanup.policy": "compact"})
        ...                                   # produce with any client to cluster.bootstrap
        cluster[0].kill()                     # SIGKILL; cluster[0].log_dirs hold what a crash leaves
    with Oracle() as oracle:
        oracle(op="open", log="a", dir="somewhere/orders-0", recovery_point=0, clean=False)

Versions from 3.3 on run in KRaft mode, older ones with the ZooKeeper that comes with them; all on Java 17. A broker
takes about 400 MB. Standard library only: the client is the caller's choice.

With LOGMEND_QUICK_JVM set, as by tests/conftest.py, a JVM starts in a third of the time and is slow afterwards: it has
no optimizing compiler, and takes its classes from an archive. Benches measure without it.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import random
import select
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

HERE: Final = Path(__file__).resolve().parent
QUICK_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:cds=off")
KAFKA: Final = "4.3.0"
PATIENCE_SECONDS: Final = 240.0
"""For all that a quiet machine does in seconds."""
OPENS: Final = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.nio", "sun.nio.ch", "java.util", "java.util.concurrent")
]
COMES_BACK: Final = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}
"""With these a killed broker is let in again after four seconds, not nine; a busy one may be fenced for a moment."""
LOG4J2: Final = """Configuration:
  status: error
  Appenders:
    Console: {name: OUT, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: INFO, AppenderRef: {ref: OUT}}
"""
LOG4J1: Final = """log4j.rootLogger=INFO, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class KafkaError(RuntimeError):
    """Kafka itself said no: `kind` is the Java class of its exception."""

    def __init__(self, request: str, kind: str, message: str) -> None:
        super().__init__(f"{request}: {kind}: {message}")
        self.kind = kind


@functools.cache
def jars(version: str = KAFKA) -> str:
    """Return the class path of a Kafka version; Maven fetches it the first time."""
    fetched = subprocess.run([HERE / "fetch-jars.sh", version], check=True, stdout=subprocess.PIPE, text=True)
    return fetched.stdout.strip().splitlines()[-1] + "/*"


def quick_flags(version: str = KAFKA) -> list[str]:
    """Return the options of a JVM that lives for seconds only; none without LOGMEND_QUICK_JVM."""
    if not os.environ.get("LOGMEND_QUICK_JVM"):
        return []
    return [*QUICK_FLAGS, f"-XX:SharedArchiveFile={Path(jars(version)).parent.with_name('classes.jsa')}"]


PORTS: Final = range(10_000, 32_000)
"""Below those that the kernel gives to connections: one of these could take a port between its choice and its use."""
_reservations: Final[list[socket.socket]] = []


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on and that no other process of the tests gets."""
    while True:
        port = random.choice(PORTS)
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0logmend-tests-{port}")  # until this process ends
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
        else:
            _reservations.append(reservation)
            return port


def is_kraft(version: str) -> bool:
    """Say whether brokers of this version run without ZooKeeper here."""
    return tuple(int(part) for part in version.split(".")[:2]) >= (3, 3)


def java(version: str, directory: Path, output: Path, *args: str, heap: str = "384m") -> subprocess.Popen[str]:
    """Start a class of that Kafka; what it prints is added to `output`."""
    (directory / "log4j2.yaml").write_text(LOG4J2)
    (directory / "log4j.properties").write_text(LOG4J1)
    logging = [
        f"-Dlog4j2.configurationFile={directory / 'log4j2.yaml'}",
        f"-Dlog4j.configuration=file:{directory / 'log4j.properties'}",
    ]
    command = ["java", f"-Xmx{heap}", *quick_flags(version), *OPENS, *logging, "-cp", jars(version), *args]
    with output.open("a") as out:
        return subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)


def run_java(version: str, directory: Path, output: Path, *args: str) -> None:
    """Run a class of that Kafka to its end; `RuntimeError` with the end of its output if that was not a good one."""
    start = output.stat().st_size if output.exists() else 0
    status = java(version, directory, output, *args, heap="256m").wait(PATIENCE_SECONDS)
    said = output.read_bytes()[start:].decode(errors="replace")
    if status or "Error while executing" in said:
        raise RuntimeError(f"{args[0]} ended with {status}:\n{said[-2000:]}")


def wait_for_port(port: int, process: subprocess.Popen[str], output: Path, seconds: float = PATIENCE_SECONDS) -> None:
    """Return once `process` listens; raise with the end of its output if it ends first or takes too long."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    said = output.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"nothing listens on port {port} (exit status {process.poll()}):\n{said}")


def end(process: subprocess.Popen[str], how: signal.Signals, seconds: float = PATIENCE_SECONDS) -> None:
    """Send a signal and wait; after `seconds` without an end, kill."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Broker:
    """One broker. Its directories survive `stop` and `kill`; `output` holds what it printed, over all its starts."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number = cluster, number
        self.directory = cluster.directory / str(number)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port, self.controller_port = free_port(), free_port()
        self.log_dirs = [self.directory / f"data{i or ''}" for i in range(cluster.log_dirs)]
        self.output = self.directory / "broker.out"
        self.properties = self.directory / "server.properties"
        self.process: subprocess.Popen[str] | None = None
        self._was_killed = False

    def configure(self) -> None:
        """Write `server.properties`; what the caller of `Cluster` set wins."""
        settings = {"log.dirs": ",".join(str(d) for d in self.log_dirs)}
        settings |= self._kraft() if is_kraft(self.cluster.version) else self._zookeeper()
        if not self.cluster.version.startswith("0."):
            settings |= {
                "offsets.topic.num.partitions": "2",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "transaction.state.log.num.partitions": "2",
                "group.initial.rebalance.delay.ms": "0",
            }
        if self._was_killed and len(self.cluster.brokers) == 1:
            settings |= COMES_BACK
        settings |= {"offsets.topic.replication.factor": "1"} | self.cluster.config
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _kraft(self) -> dict[str, str]:
        voters = ",".join(f"{b.number}@127.0.0.1:{b.controller_port}" for b in self.cluster.brokers)
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
        }

    def _zookeeper(self) -> dict[str, str]:
        return {
            "broker.id": str(self.number),
            "zookeeper.connect": f"127.0.0.1:{self.cluster.zookeeper_port}",
            # A broker that was killed is not let in again before its session is over.
            "zookeeper.session.timeout.ms": "3000",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "host.name": "127.0.0.1",
            "port": str(self.port),
        }

    def start(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Start it, formatting its directories the first time, and wait until it answers on its port."""
        self.configure()
        version = self.cluster.version
        if is_kraft(version) and not (self.log_dirs[0] / "meta.properties").exists():
            options = ("-t", self.cluster.cluster_id, "-c", str(self.properties))
            run_java(version, self.directory, self.output, "kafka.tools.StorageTool", "format", *options)
        self.process = java(version, self.directory, self.output, "kafka.Kafka", str(self.properties))
        wait_for_port(self.port, self.process, self.output, seconds)

    def stop(self) -> None:
        """Shut it down cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL: what is left is what a process crash leaves, for the page cache survives it."""
        self._was_killed = True
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            end(self.process, how)
        self.process = None


class Cluster:
    """Some brokers of one version under one directory; as a context it starts them and kills those that still run.

    Kills: the last brokers of a quorum would wait a minute each for a controller that is gone. A test that looks at
    what a clean shutdown leaves calls `stop`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        version: str = KAFKA,
        log_dirs: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.version, self.log_dirs, self.config = version, log_dirs, dict(config or {})
        # The letter in front: the format command takes an id that begins with "-" for an option.
        self.cluster_id = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        self.zookeeper: subprocess.Popen[str] | None = None
        self.zookeeper_port = free_port()
        self.brokers: list[Broker] = []
        for number in range(brokers):
            self.brokers.append(Broker(self, number))

    def __getitem__(self, number: int) -> Broker:
        return self.brokers[number]

    @property
    def bootstrap(self) -> str:
        """The addresses for a client, as `bootstrap.servers` wants them."""
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def __enter__(self) -> Self:
        try:
            if not is_kraft(self.version):
                self._start_zookeeper()
            jars(self.version)  # once, not once a thread
            with ThreadPoolExecutor(len(self.brokers)) as pool:  # a quorum answers only once most of it is up
                list(pool.map(Broker.start, self.brokers))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            broker.kill()
        if self.zookeeper is not None:
            end(self.zookeeper, signal.SIGKILL)

    def _start_zookeeper(self) -> None:
        home = self.directory / "zookeeper"
        home.mkdir(exist_ok=True)
        settings = {
            "dataDir": home, "clientPort": self.zookeeper_port, "clientPortAddress": "127.0.0.1", "tickTime": 500,
        }  # fmt: skip
        text = "".join(f"{key}={value}\n" for key, value in settings.items()) + "admin.enableServer=false\n"
        (home / "zoo.properties").write_text(text)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.zookeeper = java(self.version, home, home / "out", main, str(home / "zoo.properties"))
        wait_for_port(self.zookeeper_port, self.zookeeper, home / "out")

    def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with Kafka's own command; `config` takes topic property names."""
        kraft = is_kraft(self.version)
        tool = "org.apache.kafka.tools.TopicCommand" if kraft else "kafka.admin.TopicCommand"
        where = ["--bootstrap-server", self.bootstrap] if kraft else ["--zookeeper", f"127.0.0.1:{self.zookeeper_port}"]
        args = ["--create", "--topic", name, "--partitions", str(partitions), "--replication-factor", str(replicas)]
        for key, value in (config or {}).items():
            args += ["--config", f"{key}={value}"]
        run_java(self.version, self.directory, self.directory / "topics.out", tool, *where, *args)


class Oracle:
    """Kafka's own log classes behind a pipe; tests/interop/README.md lists the requests. Not for several threads.

    A call returns the answer and raises `KafkaError` where Kafka raised. Opening a log repairs it: open a copy.
    """

    def __init__(self, *, heap: str = "512m", patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._complaints = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 (closed by `close`)
        command = ["java", f"-Xmx{heap}", *quick_flags(), "-cp", jars(), str(HERE / "Oracle.java")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, bufsize=0
        )

    def __call__(self, **request: Any) -> dict[str, Any]:
        answer = self.ask(**request)
        if "error" in answer:
            raise KafkaError(str(request.get("op")), answer["error"], answer["message"])
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer, which may be Kafka's exception under `error` and `message`."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request, default=str).encode() + b"\n")
        return dict(json.loads(self._line()))

    def load(self, directory: Path, *, clean: bool = False, **asked: Any) -> dict[str, Any]:
        """Return what Kafka's loader makes of `directory`, with each file's size and SHA-256 after that.

        It changes the directory as a broker's start would. `asked`: recovery_point, log_start, config.
        """
        state = self.ask(op="open", log="load", dir=directory, clean=clean, **asked)
        if "error" not in state:
            self(op="close", log="load", abruptly=True)
            state["files"] = self(op="files", dir=directory)["files"]
        state.pop("load_ms", None)
        return state

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        end(self.process, signal.SIGTERM, 30)  # type: ignore[arg-type]  # bytes or text: the same process
        self.process.stdout.close()
        self._complaints.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self) -> bytes:
        """Return one line of answer; a process that is stuck or gone is an error with its last words."""
        assert self.process.stdout is not None
        deadline, line = time.monotonic() + self._patience_seconds, bytearray()
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            more = self.process.stdout.read(1 << 20) if ready else b""
            if not more:
                self._complaints.seek(0)
                raise RuntimeError(f"the oracle gave no answer:\n{self._complaints.read()[-2000:]}")
            line += more
        return bytes(line)
