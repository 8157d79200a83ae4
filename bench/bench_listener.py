"""`logmend serve` beside a real single broker on the same machine, for stock clients and for small raw requests.

    python bench/bench_listener.py [--mib 256] [--repeat 3] [--small] [--json FILE] [--scratch DIR]

Both serve all the while, take turns round by round, and start in turns; the first round does not count. Produce and
fetch are by confluent-kafka with its defaults (idempotent, acks=all, one partition, no compression), in this process,
so that what it can do bounds both; but its `fetch.queue.backoff.ms` is 1, for with 1,000 it measures its own sleep.
Fetch reads what was just produced, from the page cache. Raw requests are ready-made frames that are answered one by
one: Produce of a batch of 191 B, five in flight on one connection or one on each of 50, and Fetch of 16 KiB.

Neither syncs before it answers (`--flush none`, a broker's default); a third contender, `--flush sync`, is told in a
line of its own. `cpu` is the processor time of the server alone. Records are 100 B, 1 KiB and 16 KiB.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harness import _seconds_of, about, head, line, row, write_json

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests"))

from clients.targets import Broker, Listener
from support.batches import batch_v2, record

MIB: Final = 1 << 20
SIZES: Final = (100, 1024, 16384)
TARGET: Final = ">= 0.8"
PATIENCE: Final = 120.0
PRODUCE, FETCH = 0, 1


@dataclass
class Server:
    """One of those that are compared."""

    name: str
    bootstrap: str
    pid: int
    topics: int = 0
    resident: list[int] = field(default_factory=list)

    def new_topic(self) -> str:
        """Make a topic of one partition; delete the one before, so that a run does not grow."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        if self.topics:
            admin.delete_topics([f"measured-{self.topics}"])[f"measured-{self.topics}"].result(PATIENCE)
        self.topics += 1
        name = f"measured-{self.topics}"
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE)
        return name

    def processor_seconds(self) -> float:
        return _seconds_of(self.pid)

    def note_memory(self) -> None:
        """Note how much memory it has resident, in KiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        self.resident.append(int(status.partition("VmRSS:")[2].split()[0]))


def produce(server: Server, topic: str, size: int, count: int) -> float:
    """Return the seconds until `count` records are acknowledged."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "log_level": 3})
    producer.list_topics(topic, timeout=PATIENCE)  # connected
    value = os.urandom(size)

    def done(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    begin = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0, on_delivery=done)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(PATIENCE)
    taken = time.perf_counter() - begin
    assert not left, f"{left} records were not acknowledged"
    assert not failed, failed[:3]
    return taken


def fetch(server: Server, topic: str, count: int) -> float:
    """Return the seconds from the first assignment until `count` records are here."""
    settings = {"group.id": "measures", "enable.auto.commit": False, "fetch.queue.backoff.ms": 1}
    consumer = Consumer({"bootstrap.servers": server.bootstrap, **settings})
    consumer.list_topics(topic, timeout=PATIENCE)
    begin, seen = time.perf_counter(), 0
    consumer.assign([TopicPartition(topic, 0, 0)])
    while seen < count:
        found = consumer.consume(min(10_000, count - seen), PATIENCE)
        assert found, f"{server.name}: {seen} of {count} records came"
        assert found[0].error() is None, found[0].error()
        seen += len(found)
    taken = time.perf_counter() - begin
    consumer.close()
    return taken


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def produce_frame(topic: str, batch: bytes) -> bytes:
    """Return a Produce request of version 7 for partition 0, acks=1, with its size in front."""
    body = struct.pack(">hhi", PRODUCE, 7, 1) + _string("bench") + struct.pack(">hhi", -1, 1, 30_000)
    body += struct.pack(">i", 1) + _string(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">i", len(body)) + body


def fetch_frame(topic: str, offset: int, size: int) -> bytes:
    """Return a Fetch request of version 4 for partition 0, at most `size` bytes of it, with its size in front."""
    body = struct.pack(">hhi", FETCH, 4, 1) + _string("bench") + struct.pack(">iiiib", -1, 0, 1, size, 0)
    body += struct.pack(">i", 1) + _string(topic) + struct.pack(">iiqi", 1, 0, offset, size)
    return struct.pack(">i", len(body)) + body


class Asker:
    """One connection that keeps a number of one and the same request in flight."""

    def __init__(self, address: tuple[str, int], frame: bytes, requests: int, in_flight: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame, self.unsent, self.unanswered = frame, requests, requests
        self._buffer = bytearray()
        self.send(in_flight)

    def send(self, number: int) -> None:
        number = min(number, self.unsent)
        self.unsent -= number
        if number:
            self.socket.sendall(self.frame * number)

    def receive(self) -> None:
        """Take what has come, and ask as many times again as there were answers."""
        more = self.socket.recv(1 << 18)
        assert more, "the server closed the connection"
        self._buffer += more
        place, answers = 0, 0
        while len(self._buffer) - place >= 4:
            size = 4 + struct.unpack_from(">i", self._buffer, place)[0]
            if len(self._buffer) - place < size:
                break
            place, answers = place + size, answers + 1
        del self._buffer[:place]
        self.unanswered -= answers
        self.send(answers)


def ask(server: Server, frame: bytes, requests: int, connections: int, in_flight: int) -> float:
    """Return the seconds until so many requests are answered, over all connections."""
    host, _, port = server.bootstrap.rpartition(":")
    with selectors.DefaultSelector() as selector, ExitStack() as closing:
        begin = time.perf_counter()
        askers = [Asker((host, int(port)), frame, requests // connections, in_flight) for _ in range(connections)]
        for asker in askers:
            closing.enter_context(asker.socket)
            selector.register(asker.socket, selectors.EVENT_READ, asker)
        left = len(askers)
        while left:
            for key, _ in selector.select(PATIENCE):
                key.data.receive()
                if not key.data.unanswered:
                    selector.unregister(key.fileobj)
                    left -= 1
        return time.perf_counter() - begin


Case = Callable[[Server], float]
Found = dict[str, dict[str, Any]]


def measure(servers: Sequence[Server], cases: dict[str, Case], repeat: int) -> dict[str, Found]:
    """Run all cases on each server in turn, `repeat` + 1 times, the order turned round by round."""
    found: dict[str, Found] = {
        what: {server.name: {"seconds": [], "processor_seconds": []} for server in servers} for what in cases
    }
    for turn in range(repeat + 1):
        for server in servers if turn % 2 else reversed(servers):
            for what, work in cases.items():
                before = server.processor_seconds()
                taken = work(server)
                if turn:
                    told = found[what][server.name]
                    told["seconds"].append(taken)
                    told["processor_seconds"].append(server.processor_seconds() - before)
            server.note_memory()
    for each in found.values():
        for told in each.values():
            told["median"] = statistics.median(told["seconds"])
            told["spread"] = (max(told["seconds"]) - min(told["seconds"])) / told["median"]
            told["processor_median"] = statistics.median(told["processor_seconds"])
    return found


def throughput(servers: Sequence[Server], mib: int, repeat: int) -> Iterator[dict[str, Any]]:
    """Yield rows of produce and fetch."""
    for size in SIZES:
        count = max(mib * MIB // size // (4 if size == 100 else 1), 1000)
        topics: dict[str, str] = {}

        def write(server: Server, size: int = size, count: int = count, topics: dict[str, str] = topics) -> float:
            topics[server.name] = server.new_topic()
            return produce(server, topics[server.name], size, count)

        def read(server: Server, count: int = count, topics: dict[str, str] = topics) -> float:
            return fetch(server, topics[server.name], count)

        found = measure(servers, {"produce": write, "fetch": read}, repeat)
        for what, each in found.items():
            yield from _rows(f"{what} {count} records of {size} B", each, count, count * size)


def requests(servers: Sequence[Server], number: int, repeat: int) -> Iterator[dict[str, Any]]:
    """Yield rows of small raw requests."""
    batch = batch_v2(0, [record(value=bytes(120))])
    large = batch_v2(0, [record(value=bytes(16_000))])

    def raw(frame: Callable[[str], bytes], filled: bytes, connections: int, in_flight: int) -> Case:
        def work(server: Server) -> float:
            topic = server.new_topic()
            ask(server, produce_frame(topic, filled), 8, 1, 1)
            return ask(server, frame(topic), number, connections, in_flight)

        return work

    cases = {
        f"Produce of {len(batch)} B, 1 connection, 5 in flight": raw(lambda t: produce_frame(t, batch), batch, 1, 5),
        f"Produce of {len(batch)} B, 50 connections": raw(lambda t: produce_frame(t, batch), batch, 50, 1),
        "Fetch of 16 KiB, 1 connection, 5 in flight": raw(lambda t: fetch_frame(t, 0, 16_384), large, 1, 5),
    }
    for what, each in measure(servers, cases, repeat).items():
        yield from _rows(what, each, number, 0)


def _rows(what: str, each: Found, count: int, size: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each of ours beside the broker, with rates; CPU by MB where there are bytes, else by request."""
    for name in each:
        if name == "kafka":
            continue
        told = row(
            what if name == "logmend" else f"{what}, sync",
            each[name],
            each["kafka"],
            TARGET if name == "logmend" else "",
        )
        for of, taken in (("ours", each[name]), ("theirs", each["kafka"])):
            busy = taken["processor_median"]
            told[f"{of}_rate"] = count / taken["median"]
            told[f"{of}_mb"] = size / 1e6 / taken["median"]
            told[f"{of}_cpu_us"] = busy * 1e6 / (size / 1e6 if size else count)
        yield told


def rates(told: dict[str, Any]) -> str:
    """Return a line of rates: records or requests a second, MB a second, processor time by MB or by request."""
    parts = []
    for of, name in (("ours", "logmend"), ("theirs", "kafka")):
        speed = f", {told[of + '_mb']:5.0f} MB/s" if told["ours_mb"] else ""
        unit = "MB" if told["ours_mb"] else "request"
        parts.append(f"{name} {told[of + '_rate']:9.0f}/s{speed}, {told[of + '_cpu_us']:6.0f} us of cpu a {unit}")
    return "        " + "; ".join(parts)


def start(stack: ExitStack, place: Path) -> list[Server]:
    """Start all that are compared."""
    servers = []
    for name in ("none", "sync"):
        listener = Listener(place / f"data-{name}", place / f"listener-{name}", "--flush", name)
        stack.enter_context(listener)
        assert listener.process is not None
        servers.append(Server("logmend" if name == "none" else "sync", listener.bootstrap, listener.process.pid))
    broker = stack.enter_context(Broker(place / "kafka"))
    process = broker.cluster[0].process
    assert process is not None
    servers.insert(1, Server("kafka", broker.bootstrap, process.pid))
    return servers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--mib",
        type=int,
        default=256,
        help="what is produced and fetched in a round; a quarter of it in records of 100 B",
    )
    parser.add_argument("--requests", type=int, help="raw requests in a round (100 for each MiB)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--small", action="store_true", help="8 MiB, one counted round: says that it runs, not how fast"
    )
    parser.add_argument("--json", metavar="FILE", help="all figures")
    parser.add_argument("--scratch", metavar="DIR", help="where to make the directories")
    asked = parser.parse_args()
    if asked.small:
        asked.mib, asked.repeat = 8, 1
    rows = []
    with tempfile.TemporaryDirectory(dir=asked.scratch) as scratch, ExitStack() as stack:
        servers = start(stack, Path(scratch))
        print(about(asked.repeat, kafka=True) + "\n" + head(), flush=True)
        for part in (
            throughput(servers, asked.mib, asked.repeat),
            requests(servers, asked.requests or asked.mib * 100, asked.repeat),
        ):
            for told in part:
                rows.append(told)
                print(line(told) + "\n" + rates(told), flush=True)
        for server in servers:
            name = "logmend, sync" if server.name == "sync" else server.name
            first, most = server.resident[0] // 1024, max(server.resident) // 1024
            print(f"{name}: resident {first} MiB at first, {most} MiB at most")
            rows[0].setdefault("resident_kib", {})[name] = server.resident
    write_json(asked.json, asked.repeat, rows)


if __name__ == "__main__":
    main()
