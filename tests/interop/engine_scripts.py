"""Random scripts for the engine and Kafka's own log at once.

`run(seed, oracle, directory)` plays one script; what differs is raised as an `AssertionError` that names seed and step.
At each close the directories are compared, and then each side may go on with the directory of the other.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interop.engine_pair import ISOLATIONS, START_MS, Pair
from interop.kafka_lab import KafkaError, Oracle

from storage.base.errors import LogmendError
from storage.base.units import Offset
from storage.batch.batch import TimestampType, attributes_of
from storage.batch.control import ControlType, EndTxnMarker, encode_control_batch
from storage.batch.record import Record, encode_batch
from storage.log.log_read import locate


class Script:
    """Draws one step after another from a seed and plays it."""

    def __init__(self, seed: int, oracle: Oracle, directory: Path, steps: int) -> None:
        self.rng = random.Random(seed)
        self.seed, self.steps = seed, steps
        self.config = self._config()
        self.pair = Pair(oracle, directory, self.config)
        self.epoch = 0
        self.played: list[str] = []
        self.sequences: dict[tuple[int, int], int] = {}
        self.last_sent: bytes | None = None

    def _config(self) -> dict[str, str]:
        rng = self.rng
        config = {
            "internal.segment.bytes": str(rng.choice([900, 2500, 6000, 100_000])),
            "index.interval.bytes": str(rng.choice([0, 100, 300, 4096])),
            "segment.index.bytes": str(rng.choice([10 << 20, 10 << 20, 60, 121])),
            "message.timestamp.after.max.ms": str(rng.choice([3_600_000, 9223372036854775807, 5_000])),
        }
        if rng.random() < 0.3:
            config["segment.ms"] = str(rng.choice([1_000, 60_000]))
        if rng.random() < 0.25:
            config["message.timestamp.type"] = "LogAppendTime"
        if rng.random() < 0.2:
            config["compression.type"] = "uncompressed"
        if rng.random() < 0.2:
            config["cleanup.policy"] = "compact"
        if rng.random() < 0.2:
            config["max.message.bytes"] = "400"
        if rng.random() < 0.2:
            config["message.timestamp.before.max.ms"] = "20000"
        if rng.random() < 0.2:
            config["flush.messages"] = str(rng.choice([1, 10]))
        return config

    def play(self) -> int:
        """Play all steps; return how many batches were taken."""
        rng = self.rng
        weights = {
            self.client: 30, self.idempotent: 20, self.transactional: 14, self.marker: 12, self.follower: 14,
            self.resend: 3, self.damaged: 2, self.read: 20, self.by_time: 8, self.high_watermark: 10, self.roll: 3,
            self.flush: 3, self.tick: 8, self.truncate: 3, self.truncate_fully: 0.5, self.log_start: 2,
            self.new_epoch: 3, self.reopen: 4, self.tasks: 4,
        }  # fmt: skip
        taken = 0
        self.replicated()
        try:
            for _ in range(self.steps):
                (step,) = rng.choices(list(weights), list(weights.values()))
                self.played.append(step.__name__)
                taken += bool(step())
                self.pair.compare_states()
            self.played.append("close")
            self.pair.close()
        except (AssertionError, KafkaError, LogmendError) as error:
            story = f"seed {self.seed}, step {len(self.played)} ({', '.join(self.played[-6:])}), {self.config}"
            raise AssertionError(f"{story}: {error}") from error
        return taken

    # ---- batches

    def records(self) -> list[Record]:
        rng = self.rng
        has_time = rng.random() < 0.9
        made = []
        for number in range(rng.choice([1, 1, 2, 5, 12])):
            time = self.pair.now + rng.randint(-30_000, 4_000) if has_time else -1
            key = None if rng.random() < 0.05 else rng.randbytes(rng.randint(0, 6))
            value = None if rng.random() < 0.1 else rng.choice([b"", b"abc" * rng.randint(1, 40), rng.randbytes(30)])
            headers = (("h", b"1"), ("n", None)) if rng.random() < 0.1 else ()
            made.append(Record(number, time, TimestampType.CREATE, key, value, headers))
        return made

    def batch(self, base: int = 0, **fields: Any) -> bytes:
        records = [record._replace(offset=base + record.offset) for record in self.records()]
        return encode_batch(records, codec=self.rng.choice([0, 0, 0, 1, 2, 3, 4]), **fields)

    def send(self, data: bytes) -> bool:
        self.last_sent = data
        return self.pair.append(data, self.epoch, follower=False) is not None

    def client(self) -> bool:
        return self.send(self.batch())

    def idempotent(self, first_id: int = 0, flags: int = 0) -> bool:
        rng = self.rng
        producer_id, epoch = first_id + rng.randint(0, 2), rng.choice([0, 0, 0, 1])
        entry = self.pair.log.producers.state.entries.get(producer_id)
        if entry is not None and rng.random() < 0.9:
            epoch = max(epoch, entry.producer_epoch)
        sequence = 0
        if entry is not None and entry.producer_epoch == epoch and entry.last_offset >= 0:
            sequence = entry.last_sequence + 1
        if rng.random() < 0.05:
            sequence += rng.choice([-1, 1, 5])
        return self.send(
            self.batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=max(sequence, 0), flags=flags)
        )

    def transactional(self) -> bool:
        flags = attributes_of(is_transactional=self.rng.random() < 0.97)
        return self.idempotent(10, flags)

    def marker(self) -> bool:
        rng = self.rng
        producer_id, commit = 10 + rng.randint(0, 2), rng.random() < 0.5
        entry = self.pair.log.producers.state.entries.get(producer_id)
        known = 0 if entry is None else max(entry.producer_epoch, 0)
        epoch = max(known + rng.choice([0, 0, 0, 0, 1, -1]), 0)
        coordinator = rng.choice([0, 1, 1, 1, 2])
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        data = encode_control_batch(
            [EndTxnMarker(kind, coordinator)],
            base_offset=0, timestamp=self.pair.now, leader_epoch=self.epoch, producer_id=producer_id,
            producer_epoch=epoch,
        )  # fmt: skip
        answer = self.pair.marker(
            data, self.epoch, producer_id=producer_id, producer_epoch=epoch, commit=commit, timestamp=self.pair.now,
            coordinator_epoch=coordinator, transaction_version=rng.choice([0, 1, 2]),
        )  # fmt: skip
        return answer is not None

    def follower(self) -> bool:
        """Several batches with their offsets, sometimes with gaps, too low, cut off, or of a later epoch."""
        rng = self.rng
        offset = max(self.pair.log.log_end + rng.choice([0, 0, 0, 0, 0, 7, -1]), 0)
        most = 1 if int(self.config["segment.index.bytes"]) < 1000 else 4
        entries = self.pair.log.producers.state.entries
        known: dict[int, int] = {key: entries[key].producer_epoch for key in range(20, 23) if key in entries}
        parts = []
        for _ in range(rng.randint(1, most)):
            part = self.replicated_batch(offset, known)
            parts.append(part)
            offset += int.from_bytes(part[23:27], "big") + 1 + rng.choice([0, 0, 0, 3])
        data = b"".join(parts)
        if rng.random() < 0.1:
            data = data[: rng.randint(0, len(data))]
        return self.pair.append(data, self.epoch, follower=True) is not None

    def replicated_batch(self, offset: int, known: dict[int, int]) -> bytes:
        """Return data or a marker; `known` are the epochs of producers, which never fall: there Kafka has two minds."""
        rng = self.rng
        leader = self.epoch + (rng.random() < 0.04)
        producer_id = 20 + rng.randint(0, 2)
        epoch = max(known.get(producer_id, 0), rng.choice([0, 0, 0, 0, 1]))
        kind = rng.random()
        if kind < 0.4:
            return self.batch(offset, leader_epoch=leader)
        known[producer_id] = epoch
        if kind < 0.8:
            flags = attributes_of(is_transactional=producer_id != 22)
            return self.batch(
                offset, leader_epoch=leader, producer_id=producer_id, producer_epoch=epoch,
                base_sequence=rng.randint(0, 50), flags=flags,
            )  # fmt: skip
        marker = EndTxnMarker(rng.choice([ControlType.ABORT, ControlType.COMMIT]), 0)
        return encode_control_batch(
            [marker], base_offset=offset, timestamp=self.pair.now, leader_epoch=leader, producer_id=producer_id,
            producer_epoch=epoch,
        )  # fmt: skip

    def resend(self) -> bool:
        return self.last_sent is not None and self.send(self.last_sent)

    def damaged(self) -> bool:
        """What no client should send: two batches, part of one, a flipped bit."""
        data = bytearray(self.batch())
        match self.rng.randint(0, 3):
            case 0:
                data += self.batch()
            case 1:
                del data[self.rng.randint(0, len(data)) :]
            case 2:
                data[self.rng.randint(21, len(data) - 1)] ^= 4
            case _:
                data[7] = 3
        return self.pair.append(bytes(data), self.epoch, follower=False) is not None

    # ---- everything else

    def read(self) -> None:
        rng, log = self.rng, self.pair.log
        offset = rng.randint(log.log_start, log.log_end) + rng.choice([0, 0, 0, 0, 0, 0, 0, 1, -1])
        isolation = rng.choice(list(ISOLATIONS))
        bound = locate(log.segments, log.last_stable_offset)
        if bound is not None and bound.batch.base_offset != log.last_stable_offset:
            isolation = (
                "LOG_END"  # where a log start inside of a batch bounds committed reads, Kafka's bound is another
            )
        self.pair.read(max(offset, 0), rng.choice([0, 1, 100, 1000, 1 << 20]), isolation, rng.random() < 0.5)

    def by_time(self) -> None:
        rng = self.rng
        wanted: Sequence[int] = [-1, -2, -3, START_MS - 100_000, self.pair.now + 10_000, *self._times()]
        self.pair.offset_for_time(rng.choice(wanted))

    def _times(self) -> list[int]:
        return [self.pair.now + self.rng.randint(-60_000, 4_000) for _ in range(8)]

    def high_watermark(self) -> None:
        """Between batches only, as brokers have it: Kafka moves one inside of a batch when it is read."""
        log = self.pair.log
        place = locate(log.segments, Offset(self.rng.randint(log.log_start, log.log_end)))
        offset = log.log_end if place is None or self.rng.random() < 0.6 else Offset(place.batch.base_offset)
        if offset >= log.high_watermark:
            self.pair.plain("high_watermark", lambda: log.set_high_watermark(offset), offset=offset)

    def replicated(self) -> None:
        """Let everything be replicated: of what is not, Kafka forgets which transactions are undecided."""
        end = self.pair.log.log_end
        self.pair.plain("high_watermark", lambda: self.pair.log.set_high_watermark(end), offset=end)

    def roll(self) -> None:
        self.pair.plain("roll", lambda: self.pair.log.roll(self.pair.now))

    def flush(self) -> None:
        self.pair.plain("flush", self.pair.log.flush)

    def tasks(self) -> None:
        self.pair.plain("tasks", self.pair.log.flush)

    def tick(self) -> None:
        self.pair.tick(self.rng.choice([1, 500, 5_000, 40_000]))

    def truncate(self) -> None:
        log = self.pair.log
        low = max(log.log_end - self.rng.choice([1, 5, 30, 200]), 0)
        offset = Offset(self.rng.randint(low, log.log_end + 1))
        self.pair.plain("truncate", lambda: log.truncate_to(offset, self.pair.now), offset=offset)
        self.replicated()

    def truncate_fully(self) -> None:
        log = self.pair.log
        offset = Offset(log.log_end + self.rng.choice([0, 10, 1000]))
        self.pair.plain("truncate_fully", lambda: log.truncate_fully(offset, self.pair.now), offset=offset)

    def log_start(self) -> None:
        log = self.pair.log
        offset = Offset(self.rng.randint(log.log_start, log.high_watermark) + self.rng.choice([0, 0, 0, 0, 1]))
        self.pair.plain("log_start", lambda: log.set_log_start(offset), offset=offset)

    def new_epoch(self) -> None:
        self.epoch += self.rng.choice([1, 1, 2])

    def reopen(self) -> None:
        self.pair.close()
        if self.rng.random() < 0.5:
            self.played.append("swap")
            self.pair.swap()
        self.pair.open()
        self.replicated()  # the log start, where the high watermark begins, may be inside of a batch


def run(seed: int, oracle: Oracle, directory: Path, steps: int = 120) -> int:
    """Play the script of this seed; return how many appends were taken."""
    script = Script(seed, oracle, directory, steps)
    try:
        return script.play()
    finally:
        oracle.ask(op="close", log="pair", abruptly=True)
        shutil.rmtree(directory)
