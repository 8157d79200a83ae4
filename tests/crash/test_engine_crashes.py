"""Whatever a crash leaves of a running log: what was flushed is there, and after a recovery the log goes on.

The engine dies before each of its effects, and everything that may remain then is recovered, opened, held against what
the log had promised, appended to, closed and opened again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath

import pytest
from crash.harness import every_crash
from support.batches import TRANSACTIONAL, TS, batch_v2, marker
from support.log_in_memory import NOW, PLACE, TOP, MemoryEpochs, add, batch, opened
from support.memory_fs import FaultFs, MemoryFs
from support.recovering import options_of, recover

from checkpoint.offsets import RECOVERY_POINTS, encode_offsets, write_offsets
from storage.base.errors import LogmendError
from storage.base.units import Offset, TopicPartition
from storage.batch.batch import parse_header
from storage.disk.fs import Fs
from storage.log.log import Log
from storage.producers.producers import Origin

STATES = os.environ.get("LOGMEND_CRASH_STATES", "300")
LIMIT = 1 << 40 if STATES == "all" else int(STATES)
PARTITION = TopicPartition("orders", 0)
POINTS = PurePath(TOP / RECOVERY_POINTS)
SETTINGS = {"internal_segment_bytes": 600, "index_interval_bytes": 100}


@dataclass
class Ledger:
    """What the log had said before the crash: batches by their base offset, and up to where they are durable."""

    appended: dict[int, bytes] = field(default_factory=dict)
    flushed: int = 0

    def promised(self) -> tuple[int, int]:
        return self.flushed, len(self.appended)


@dataclass
class Trial:
    """One story of a log, told to a machine that dies."""

    story: Callable[[Log, Trial], None]
    ledger: Ledger = field(default_factory=Ledger)
    fs: Fs | None = None

    def make(self) -> MemoryFs:
        self.ledger = Ledger()
        return MemoryFs({f"{PLACE}/": b"", str(POINTS): encode_offsets({PARTITION: Offset(0)})})

    def ledger_now(self) -> tuple[int, int]:
        return self.ledger.promised()

    def run(self, fs: Fs) -> None:
        self.fs = fs
        self.story(opened(fs, MemoryEpochs(fs), **SETTINGS), self)

    def send(self, log: Log, data: bytes, origin: Origin = Origin.CLIENT) -> None:
        end = log.log_end
        answer = log.append_as_leader(data, leader_epoch=1, now_ms=NOW, origin=origin)
        if answer is not None and not answer.is_duplicate:
            self.ledger.appended[end] = data[21:]  # all that the leader does not set

    def flush(self, log: Log, up_to: int | None = None) -> None:
        self.ledger.flushed = log.flush(up_to)
        self.checkpoint(self.ledger.flushed)

    def checkpoint(self, point: int) -> None:
        assert self.fs is not None
        write_offsets(self.fs, POINTS, {PARTITION: point})

    def recovered(self, fs: Fs) -> None:
        recover(TOP, options_of({"log.index.interval.bytes": "100"}), fs)

    def judge(self, fs: MemoryFs) -> None:
        log = opened(fs, MemoryEpochs(fs), **SETTINGS)
        found = batches(log)
        assert log.log_end >= self.ledger.flushed
        for base, kept in found.items():
            assert self.ledger.appended[base] == kept, f"batch at {base}"
        lost = [base for base in self.ledger.appended if base < self.ledger.flushed and base not in found]
        assert lost == []
        end = log.log_end
        add(log, 2, leader_epoch=2)
        log.close()
        again = opened(fs, MemoryEpochs(fs), is_clean=True, **SETTINGS)
        assert again.log_end == end + 2
        assert again.producers.state == log.producers.state
        again.close_abruptly()


def batches(log: Log) -> dict[int, bytes]:
    """Return what the log holds, read as a consumer would: base offset -> the bytes under the checksum."""
    found: dict[int, bytes] = {}
    offset = log.log_start
    while (fetched := log.read(offset, 1 << 20)).size:
        data, position = bytes(fetched.load()), 0
        while position < len(data):
            header = parse_header(data, position)
            found[header.base_offset] = data[position + 21 : position + header.size]
            position, offset = position + header.size, header.last_offset + 1
    return found


def appends_flushes_and_rolls(log: Log, trial: Trial) -> None:
    trial.send(log, batch(2))
    trial.send(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL))
    trial.flush(log)
    trial.send(log, batch(3, size=40))
    trial.send(log, marker(0, 7, commit=False, coordinator_epoch=1, leader_epoch=1), Origin.COORDINATOR)
    rolled = log.roll(NOW)
    trial.send(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=1))
    trial.flush(log, rolled.base_offset)
    trial.send(log, batch(2, base_timestamp=TS + 50))
    trial.flush(log)


def appends_that_roll_and_closes(log: Log, trial: Trial) -> None:
    for _ in range(5):
        trial.send(log, batch(2, size=100))
    end = log.close()
    trial.ledger.flushed = end
    trial.checkpoint(end)


def truncates_and_goes_on(log: Log, trial: Trial) -> None:
    for _ in range(4):
        trial.send(log, batch(2, size=100))
    trial.flush(log)
    trial.ledger.flushed = 3  # the batch of offset 2 goes too, and is not promised any more
    done = log.truncate_to(4, NOW)
    trial.ledger.flushed = min(trial.ledger.flushed, done.recovery_point)
    trial.checkpoint(done.recovery_point)
    for _ in range(2):
        trial.send(log, batch(2, size=100))
    trial.flush(log)


@pytest.mark.parametrize("story", [appends_flushes_and_rolls, appends_that_roll_and_closes, truncates_and_goes_on])
def test_what_was_flushed_survives_every_crash_and_the_log_goes_on(story: Callable[[Log, Trial], None]) -> None:
    trial = Trial(story)
    counts = every_crash(
        trial.make,
        trial.run,
        trial.judge,
        trial.recovered,
        depth=1,
        limit=LIMIT,
        promised=trial.ledger_now,
    )
    assert counts.states > counts.effects > 10


def test_the_log_is_one_that_can_lose_what_was_not_flushed() -> None:
    """The check finds a log that says too early that something is durable."""
    trial = Trial(appends_flushes_and_rolls)

    def boast(log: Log, trial: Trial) -> None:
        trial.send(log, batch(2))
        trial.ledger.flushed = log.log_end

    trial.story = boast
    with pytest.raises(AssertionError, match="states"):
        every_crash(trial.make, trial.run, trial.judge, trial.recovered, depth=1, limit=LIMIT)


def test_every_refusal_of_the_disk_leaves_a_log_that_was_promised_no_more_than_it_holds() -> None:
    calls = FaultFs(Trial(appends_flushes_and_rolls).make(), 0, 28)
    Trial(appends_flushes_and_rolls).run(calls)
    for number in range(1, calls.calls + 1):
        trial = Trial(appends_flushes_and_rolls)
        fs = trial.make()
        try:
            trial.run(FaultFs(fs, number, 28, short_write=True))
        except LogmendError:
            trial.recovered(fs)
            trial.judge(fs)
    assert calls.calls > 30


def test_batches_of_a_follower_survive_as_well() -> None:
    def story(log: Log, trial: Trial) -> None:
        data = b"".join(batch_v2(offset, 2, leader_epoch=1) for offset in (0, 2, 7))
        log.append_as_follower(data, leader_epoch=1, now_ms=NOW)
        trial.ledger.appended = {offset: batch_v2(offset, 2)[21:] for offset in (0, 2, 7)}
        trial.flush(log)

    trial = Trial(story)
    # Until the append returns nothing of it is in the ledger, so that what survives by chance is not compared.
    trial.judge = lambda fs: _judge_flushed(trial, fs)  # type: ignore[method-assign]
    counts = every_crash(trial.make, trial.run, trial.judge, trial.recovered, depth=1, limit=LIMIT)
    assert counts.states > 5


def _judge_flushed(trial: Trial, fs: MemoryFs) -> None:
    log = opened(fs, MemoryEpochs(fs), **SETTINGS)
    assert log.log_end >= trial.ledger.flushed
    assert set(batches(log)) <= {0, 2, 7}
    log.close_abruptly()
