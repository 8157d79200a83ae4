"""The process that the soak kills: it owns a log directory and does everything at once, on tiny segments.

It tells on stdout, a JSON object a line, what it is about to do and what was done, and takes orders on stdin. A line
is out before the next call begins, so what was told before a kill was true.

Usage: python tests/soak/worker.py DIRECTORY SEED [early|twice]      the last word plants a bug, for tests of the judge
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import sys
import threading
import time
from pathlib import Path, PurePath
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from soak.contents import (
    FLEETING,
    NO_TXN,
    PRODUCERS,
    TOPICS,
    TRANSACTIONAL,
    Send,
    is_sound,
    number_of,
    partition_of,
)

from engine.manager.manager import LogManager
from engine.settings.options import Intervals, ManagerOptions
from storage.base.config import LogConfig
from storage.base.errors import DiskFull, LogmendError
from storage.base.refusals import OffsetOutOfRange
from storage.base.units import Offset, TopicPartition
from storage.batch.batch import parse_header
from storage.batch.control import ControlType, EndTxnMarker, encode_control_batch
from storage.batch.record import Record, records_of
from storage.disk.fs import OsFs
from storage.log.log import Log
from storage.log.log_types import Isolation
from storage.producers.producers import Origin, Producers

INTERVALS = Intervals(
    flush_ms=150, recovery_points_ms=400, log_starts_ms=500, high_watermarks_ms=500, retention_ms=300,
    compaction_ms=250, removal_ms=300, producers_ms=60_000,
)  # fmt: skip
KEYS = 150
ORDERS = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 (what waits behind a line stays for `select` to see)


def now() -> int:
    return time.time_ns() // 1_000_000


def say(event: str, **more: Any) -> None:
    """Tell the parent. One write, so that a kill leaves a line whole or out."""
    data = json.dumps({"e": event} | more, separators=(",", ":")).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def whole_batches(data: memoryview) -> list[memoryview]:
    """Return the batches that lie whole in what a read brought."""
    found, position = [], 0
    while len(data) - position >= 61:
        header = parse_header(data, position)
        if header.size > len(data) - position:
            break
        found.append(data[position : position + header.size])
        position += header.size
    return found


def visible(log: Log) -> list[tuple[int, Record]]:
    """Return what a consumer of committed records sees."""
    found: list[tuple[int, Record]] = []
    offset = log.log_start
    while True:
        fetched = log.read(offset, 20_000, isolation=Isolation.COMMITTED)
        batches = whole_batches(fetched.load())
        if not batches:
            return found
        aborted: set[int] = set()
        waiting = sorted((txn.first_offset, txn.producer_id) for txn in fetched.aborted or ())
        for batch in batches:
            header = parse_header(batch)
            while waiting and waiting[0][0] <= header.last_offset:
                aborted.add(waiting.pop(0)[1])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif header.last_offset >= offset and not (header.is_transactional and header.producer_id in aborted):
                found += [(record.offset, record) for record in records_of(batch) if record.offset >= log.log_start]
        offset = Offset(parse_header(batches[-1]).last_offset + 1)


class Reader(threading.Thread):
    """Reads anywhere, beside everything else, and looks at each record."""

    def __init__(self, manager: LogManager, seed: int) -> None:
        super().__init__(daemon=True)
        self.manager, self.rng = manager, random.Random(seed)
        self.reads = self.records = 0
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            try:
                self.read_one()
            except OffsetOutOfRange:
                continue
            except BaseException as error:  # noqa: BLE001 (whatever it is, the parent must hear of it)
                if not self.ending.is_set():
                    say("bad", what=f"reader: {type(error).__name__}: {error}")
                return
            time.sleep(0.0005)

    def read_one(self) -> None:
        _, partition = self.rng.choice(list(self.manager.partitions()))
        if partition.name.topic in FLEETING:
            return
        log = partition.log
        start = Offset(self.rng.randint(log.log_start, max(log.log_end, log.log_start)))
        if self.rng.random() < 0.1:
            log.offset_for_time(now() - self.rng.randint(0, 5_000))
        isolation = self.rng.choice(list(Isolation))
        batches = whole_batches(log.read(start, self.rng.choice([1, 5_000, 50_000]), isolation=isolation).load())
        if batches and parse_header(batches[0]).last_offset < start:
            raise ValueError(f"{partition.name}: a read of {start} begins at {parse_header(batches[0])}")
        self.reads += 1
        for batch in batches:
            if not parse_header(batch).is_control:
                records = list(records_of(batch))
                self.records += len(records)
                if not all(map(is_sound, records)):
                    raise ValueError(f"{partition.name}: a record that was never sent, in {parse_header(batch)}")


class Producer:
    """A producer as its client has it: the next sequence number, and what waits for a flush."""

    def __init__(self, number: int, told: dict[str, Any]) -> None:
        self.id, self.partition = number, PRODUCERS[number]
        self.epoch: int = told.get("epoch", 0)
        self.sequence: int = told.get("sequence", 0)
        self.waiting: int | None = None
        """Flushed from this offset on, it may go on."""
        self.txn: int = told.get("txn", NO_TXN)
        self.has_data = self.txn != NO_TXN


class Worker:
    """Does one thing after another, drawn from a seed."""

    def __init__(self, directory: str, seed: int, plant: str) -> None:
        self.rng, self.plant = random.Random(seed), plant
        defaults = LogConfig(file_delete_delay_ms=1_000)
        options = ManagerOptions(defaults=defaults, intervals=INTERVALS, cleaner_memory_bytes=1 << 20)
        self.manager = LogManager.open(OsFs(), [PurePath(directory)], now(), options)
        self.flushed: dict[str, int] = {}
        self.next_number = self.next_txn = 0
        self.producers: list[Producer] = []
        self.reader = Reader(self.manager, seed)

    # ---- what the parent asks for

    def begin(self) -> None:
        logs = {str(p.name): [p.log.log_start, p.log.log_end] for _, p in self.manager.partitions()}
        say("opened", logs=logs)
        for _, partition in self.manager.partitions():
            seen = [[offset, number_of(record)] for offset, record in visible(partition.log)]
            for at in range(0, len(seen), 200):
                say("view", partition=str(partition.name), seen=seen[at : at + 200])
        say("viewed")
        told = json.loads(ORDERS.readline())
        self.next_number, self.next_txn = told["number"], told["txn"]
        there = {topic.name for topic in self.manager.topics.all()}
        for topic in TOPICS:
            if topic.name not in there:
                self.manager.topics.create(topic.name, topic.partitions, topic.settings, now())
        self.producers = [Producer(number, told["producers"].get(str(number), {})) for number in PRODUCERS]
        if self.plant == "twice":
            Producers.find_duplicate = lambda *_: None  # type: ignore[method-assign]
            Producers.check = lambda *_: None  # type: ignore[method-assign]
        for plain in told["resend"]:
            send = Send.of(plain)
            self.append(send)
            self.flush(send.partition)
        for producer in self.producers:
            if producer.txn != NO_TXN:  # as a coordinator does when a producer comes back: with a higher epoch
                producer.epoch, producer.sequence = producer.epoch + 1, 0
                self.end_txn(producer, commit=False)

    def run(self) -> None:
        self.begin()
        self.reader.start()
        ticks = 0
        while not select.select([ORDERS], [], [], 0)[0]:
            self.step()
            ticks += 1
            if ticks % 8 == 0:
                self.tick()
        self.reader.ending.set()
        self.reader.join()
        self.manager.close()
        say("closed")

    # ---- steps

    def step(self) -> None:
        choices = {self.produce: 60, self.produce_plain: 20, self.flush_any: 12, self.cut: 1, self.fleet: 2}
        (chosen,) = self.rng.choices(list(choices), list(choices.values()))
        chosen()

    def tick(self) -> None:
        failed = self.manager.run_due(now())
        if any(isinstance(fault, DiskFull) for fault in failed):
            raise next(fault for fault in failed if isinstance(fault, DiskFull))
        if failed:
            say("bad", what=f"run_due: {failed}")
        for _, partition in self.manager.partitions():
            self.tell_flushed(partition.name, partition.log.recovery_point)
        if self.rng.random() < 0.05:
            bad = dict(self.manager.cleaner.uncleanable)
            say("counts", reads=self.reader.reads, records=self.reader.records, uncleanable=len(bad))
            if bad:
                say("bad", what=f"uncleanable: {bad}")

    def tell_flushed(self, name: TopicPartition, to: int) -> None:
        partition = str(name)
        if to > self.flushed.get(partition, -1):
            self.flushed[partition] = to
            say("flushed", partition=partition, to=to, really=self.manager.log(name).recovery_point)
            for producer in self.producers:
                if producer.partition == partition and producer.waiting is not None and producer.waiting < to:
                    producer.waiting = None

    def flush(self, partition: str) -> None:
        name = partition_of(partition)
        if self.plant == "early":
            self.tell_flushed(name, self.manager.log(name).log_end)
            return
        self.tell_flushed(name, self.manager.flush(name, now()))

    def flush_any(self) -> None:
        _, partition = self.rng.choice(list(self.manager.partitions()))
        self.flush(str(partition.name))

    def append(self, send: Send) -> int:
        say("send", send=send.plain())
        done = self.manager.append(partition_of(send.partition), send.encoded(), now())
        assert done is not None
        say("ack", partition=send.partition, number=send.first, first=done.first_offset, again=done.is_duplicate)
        return done.last_offset

    def new_send(self, partition: str, **more: Any) -> Send:
        rng = self.rng
        count = rng.choice([1, 1, 2, 3, 6])
        first, self.next_number = self.next_number, self.next_number + count
        is_keyed = partition.startswith(("keys", "txkeys"))
        keys = tuple(rng.randrange(KEYS) for _ in range(count)) if is_keyed else ()
        nulls = tuple(number for number in range(first, first + count) if is_keyed and rng.random() < 0.15)
        codec = rng.choice([0, 0, 0, 1, 3, 4])
        return Send(partition, first, count, now() - rng.choice([0, 0, 0, 700]), codec, keys=keys, nulls=nulls, **more)

    def produce_plain(self) -> None:
        self.append(self.new_send(self.rng.choice(["asked-0", "asked-1", "asked-1"])))

    def produce(self) -> None:
        producer = self.rng.choice(self.producers)
        if producer.waiting is not None:
            if self.rng.random() < 0.3:
                self.flush(producer.partition)
            return
        if producer.has_data and self.rng.random() < 0.4:
            self.end_txn(producer, commit=self.rng.random() < 0.7)
            return
        if producer.id >= TRANSACTIONAL and producer.txn == NO_TXN:
            producer.txn, self.next_txn = self.next_txn, self.next_txn + 1
        send = self.new_send(
            producer.partition, producer_id=producer.id, producer_epoch=producer.epoch, sequence=producer.sequence,
            txn=producer.txn,
        )  # fmt: skip
        producer.waiting = self.append(send)
        producer.sequence += send.count
        producer.has_data = producer.txn != NO_TXN

    def end_txn(self, producer: Producer, *, commit: bool) -> None:
        say("ending", partition=producer.partition, txn=producer.txn, producer=producer.id, epoch=producer.epoch,
            commit=commit)  # fmt: skip
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = encode_control_batch(
            [EndTxnMarker(kind, 0)], base_offset=0, timestamp=now(), leader_epoch=0, producer_id=producer.id,
            producer_epoch=producer.epoch,
        )  # fmt: skip
        done = self.manager.append(partition_of(producer.partition), marker, now(), origin=Origin.COORDINATOR)
        assert done is not None
        say("ended", txn=producer.txn, offset=done.last_offset)
        producer.waiting, producer.txn, producer.has_data = done.last_offset, NO_TXN, False

    def cut(self) -> None:
        partition = self.rng.choice(["asked-0", "asked-1"])
        name = partition_of(partition)
        log = self.manager.log(name)
        if log.size > 80_000:
            before = self.rng.randint(log.log_start, log.log_end)
            say("cutting", partition=partition, before=before)
            self.manager.delete_records(name, Offset(before))
            say("cut", partition=partition)

    def fleet(self) -> None:
        """Make a fleeting topic and write to it, or delete it."""
        topic = self.rng.choice(FLEETING)
        if topic in {found.name for found in self.manager.topics.all()}:
            say("dropping", topic=topic)
            self.manager.topics.delete(topic, now())
            say("dropped", topic=topic)
            self.flushed.pop(f"{topic}-0", None)
            return
        say("making", topic=topic)
        self.manager.topics.create(topic, 1, {"internal.segment.bytes": "4096", "retention.ms": "-1"}, now())
        say("made", topic=topic)
        for _ in range(self.rng.randint(0, 4)):
            self.append(self.new_send(f"{topic}-0"))
        self.flush(f"{topic}-0")


def main() -> None:
    plant = sys.argv[3] if len(sys.argv) > 3 else ""
    try:
        Worker(sys.argv[1], int(sys.argv[2]), plant).run()
    except DiskFull:  # not what the soak is about: others filled the disk, and the next one goes on when there is room
        say("full")
        os._exit(1)
    except LogmendError as error:
        say("bad", what=f"{type(error).__name__}: {error}")
        raise
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.close(1)


if __name__ == "__main__":
    main()
