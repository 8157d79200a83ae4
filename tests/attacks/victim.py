"""`logmend serve` under attack: what it costs by the kernel's counts, an honest client beside it, and what must hold.

Times are the kernel's processor seconds where that is possible. The honest client is judged beside a second one at a
listener that nobody attacks, on the same machine in the same seconds: a busy machine delays both.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from clients.targets import Listener
from confluent_kafka.admin import AdminClient, NewTopic
from serve.serving import QUIET, WAIT, consumer, read_all
from support.command import logmend
from support.waiting import until

ROUNDS: Final = int(os.environ.get("LOGMEND_ATTACK_ROUNDS", "1"))
"""How often each attack is repeated."""
MIB: Final = 1 << 20
PROCESS_BYTES: Final = 256 * MIB
"""What the process may take beside the budget of frames."""
FRAMES_BYTES: Final = 256 * MIB
SLOW_SECONDS: Final = 0.25
"""What others at their worst may add to the turns of an honest client, above what the machine costs anybody."""
HONEST: Final = "honest"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one attack took, and what it sent."""

    processor_seconds: float
    bytes_in: int
    bytes_out: int
    peak_bytes: int
    """Of the process, since its start."""


class Asking:
    """A connection without a client library: frames go out as they are, and responses are counted, not kept."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, WAIT)
        self.sent = self.received = 0

    def send(self, frame: bytes) -> None:
        """Send a frame with its size."""
        data = len(frame).to_bytes(4, "big") + frame
        self.sent += len(data)
        self._socket.sendall(data)

    def answer_bytes(self) -> int | None:
        """Return how many bytes the next response has; None where the connection was ended instead."""
        try:
            size = self._all(4)
            return (
                None if size is None or self._all(int.from_bytes(size, "big")) is None else int.from_bytes(size, "big")
            )
        except (ConnectionError, TimeoutError):
            return None

    def patience(self, seconds: float) -> None:
        """Take a response that does not come so soon for none."""
        self._socket.settimeout(seconds)

    def ask(self, frame: bytes) -> int | None:
        """Send a frame and return as `answer_bytes` does."""
        try:
            self.send(frame)
        except ConnectionError:
            return None
        return self.answer_bytes()

    def _all(self, size: int) -> bytes | None:
        """Return the last of so many bytes, None where the connection ends before them."""
        last = b""
        while size:
            last = self._socket.recv(min(size, MIB))
            if not last:
                return None
            size -= len(last)
            self.received += len(last)
        return last

    def __enter__(self) -> Self:
        return self

    def cut(self) -> None:
        """End the connection, also for a thread that waits for a response."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class Honest:
    """A stock client in a process of its own."""

    def __init__(self, bootstrap: str, turns: int) -> None:
        self.acknowledged = 0
        script = Path(__file__).with_name("honest.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), bootstrap, HONEST, str(turns)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        """Let it have its turns."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> list[float]:
        """Wait until it has had its turns; return the seconds of each."""
        out, _ = self._process.communicate(timeout=WAIT * 10)
        assert self._process.returncode == 0, "the honest client failed"
        facts = json.loads(out)
        self.acknowledged = facts["acknowledged"]
        return [float(each) for each in facts["seconds"]]

    def kill(self) -> None:
        """End it, whatever it does; harmless when it has ended."""
        self._process.kill()
        self._process.wait()


def percentile(seconds: Sequence[float], percent: int) -> float:
    """Return what so many in a hundred are not above."""
    return sorted(seconds)[len(seconds) * percent // 100]


class Victim:
    """A listener of our own, on a new log directory."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.log_dir, self.listener = directory / "data", Listener(directory / "data", directory / "out", *options)

    def __enter__(self) -> Self:
        self.listener.__enter__()
        self.make_topic(HONEST)
        return self

    def __exit__(self, *_: object) -> None:
        if self.listener.process is not None:
            self.listener.kill()

    @property
    def bootstrap(self) -> str:
        return self.listener.bootstrap

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.bootstrap.rsplit(":", 1)
        return host, int(port)

    @property
    def pid(self) -> int:
        assert self.listener.process is not None, "it runs"
        return self.listener.process.pid

    @property
    def processor_seconds(self) -> float:
        """What all threads of the process have used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def peak_bytes(self) -> int:
        """The most memory that it ever had."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) << 10

    @property
    def resident_bytes(self) -> int:
        """The memory that it has now."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(fields["VmRSS"].split()[0]) << 10

    def forget_peak(self) -> None:
        """Count the peak from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def make_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic and wait until it is there."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(WAIT)

    def asked(self, frame: bytes, times: int = 1) -> Cost:
        """Return what it costs to answer a frame on one connection."""
        before = self.processor_seconds
        self.forget_peak()
        with Asking(self.address) as connection:
            for _ in range(times):
                if connection.ask(frame) is None:
                    break
            spent = self.processor_seconds - before
            return Cost(spent, connection.sent, connection.received, self.peak_bytes)

    def stopped(self, acknowledged: int) -> None:
        """Let it end; assert that the log directory is clean, and that all that was acknowledged is there."""
        with consumer(self.bootstrap, **{"isolation.level": "read_committed"}) as reader:
            records = read_all(reader, HONEST)[0]
        assert len(records) >= acknowledged, f"{acknowledged} records were acknowledged, {len(records)} are there"
        self.listener.stop()
        done = logmend("verify", "--depth", "records", self.log_dir)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def attacked_by(address: tuple[str, int], frame: bytes, connections: int) -> Iterator[list[int]]:
    """Send a frame again and again on several connections at once; give the counts of what each has sent."""
    over, sent = threading.Event(), [0] * connections
    current: dict[int, Asking] = {}

    def attack(number: int) -> None:
        while not over.is_set():
            with suppress(OSError), Asking(address) as connection:
                current[number] = connection
                while not over.is_set():
                    connection.send(frame)
                    sent[number] += 1
                    if connection.answer_bytes() is None:
                        break

    threads = [threading.Thread(target=attack, args=(number,), daemon=True) for number in range(connections)]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        over.set()
        for connection in tuple(current.values()):
            connection.cut()
        for thread in threads:
            thread.join(WAIT * 4)


def honest_under(
    victim: Victim, quiet: Victim, frame: bytes, connections: int, turns: int
) -> tuple[list[float], list[float], int]:
    """Return the seconds of each turn of a client under attack and of one beside it, and the records acknowledged."""
    with ExitStack() as stack:
        clients = [Honest(each.bootstrap, turns) for each in (victim, quiet)]
        for client in clients:
            stack.callback(client.kill)
        with attacked_by(victim.address, frame, connections) as sent:
            until(lambda: min(sent), WAIT * 4, say=lambda: f"sent: {sent}")
            for client in clients:
                client.begin()
            attacked, beside = clients[0].end(), clients[1].end()
        return attacked, beside, clients[0].acknowledged
