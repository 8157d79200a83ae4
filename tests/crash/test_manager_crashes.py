"""Whatever a crash leaves of a running log manager: the next opening recovers, and every promise is kept.

The machine dies before each effect of opening, making topics, appending, flushing, the schedules and closing; what may
remain is opened, which may die too. Then what was flushed is there, unaltered, in order and once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from crash.harness import every_crash
from support.managers import NOW, P0, A, B, append, open_manager, records
from support.memory_fs import MemoryFs
from support.tiers import deep

from engine.manager.manager import LogManager
from storage.base.units import Offset
from storage.disk.fs import Fs

STATES = os.environ.get("LOGMEND_CRASH_STATES", "40")
LIMIT = 1 << 40 if STATES == "all" else int(STATES)
SEED = int(os.environ.get("LOGMEND_CRASH_SEED", "0"))
SMALL = {"internal.segment.bytes": "300", "file.delete.delay.ms": "0"}
PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}


@dataclass
class Promises:
    """What the manager has said: the values by offset, up to where they are durable, which may be gone since."""

    sent: list[str] = field(default_factory=list)
    flushed: int = 0
    may_be_gone: int = 0
    epoch: int = -1

    def key(self) -> tuple[int, ...]:
        return len(self.sent), self.flushed, self.may_be_gone, self.epoch


class Trial:
    """One story, told to a machine that dies."""

    def __init__(self, story: Callable[[LogManager, Trial], None]) -> None:
        self.story, self.promises = story, Promises()

    def make(self) -> MemoryFs:
        self.promises = Promises()
        return MemoryFs({"/a/": b"", "/b/": b""})

    def run(self, fs: Fs) -> None:
        with open_manager(fs, [A, B]) as manager:
            self.story(manager, self)
        self.promises.flushed = len(self.promises.sent)

    def send(self, manager: LogManager, *, now_ms: int = NOW, key: bytes | None = None) -> None:
        sent = self.promises.sent
        value = f"value {len(sent)}"
        done = append(manager, value, now_ms=now_ms, timestamp=now_ms, key=key, base_sequence=len(sent), **PRODUCER)
        assert (done.first_offset, done.is_duplicate) == (len(sent), False)
        sent.append(value)
        self.promises.epoch = manager.partition(P0).leader_epoch

    def flush(self, manager: LogManager) -> None:
        self.promises.flushed = manager.flush(P0, NOW)

    def recover(self, fs: Fs) -> None:
        open_manager(fs, [A, B]).close()

    def check(self, fs: MemoryFs) -> None:
        promised = self.promises
        # A copy: it is opened and appended to, and this machine is to stay as it is.
        copy = MemoryFs({"/a/": b"", "/b/": b""} | {f"/{name}": data for name, data in fs.contents().items()})
        with open_manager(copy, [A, B]) as manager:
            if not any(topic.name == "orders" for topic in manager.topics.all()):
                assert not promised.sent, "the topic is gone"
                return
            log = manager.log(P0)
            assert log.log_start <= promised.may_be_gone
            found = [(record.offset, (record.value or b"").decode()) for record in records(manager, P0, log.log_start)]
            # One append may have been under way that nobody was told of.
            known = [*enumerate([*promised.sent, f"value {len(promised.sent)}"])]
            self.check_content(found, known, Offset(log.log_start))
            assert log.log_end >= promised.flushed
            assert manager.partition(P0).leader_epoch >= promised.epoch
            after = append(manager, "after", key=b"k", base_sequence=log.log_end, **PRODUCER)
            assert after.first_offset == log.log_end - 1

    def check_content(self, found: list[tuple[int, str]], known: list[tuple[int, str]], start: Offset) -> None:
        assert found == known[start : start + len(found)]


def tell_appends(manager: LogManager, trial: Trial) -> None:
    manager.topics.create("orders", 1, SMALL, NOW)
    for number in range(7):
        trial.send(manager)
        if number in (2, 5):
            trial.flush(manager)
        if number == 4:
            manager.run_due(NOW + 60_000)


def tell_retention(manager: LogManager, trial: Trial) -> None:
    manager.topics.create("orders", 1, SMALL | {"retention.ms": "1000"}, NOW)
    for number in range(6):
        trial.send(manager, now_ms=NOW + 500 * number)
    trial.flush(manager)
    trial.promises.may_be_gone = len(trial.promises.sent)
    assert manager.retain(NOW + 2200) == []
    manager.run_due(NOW + 120_000)
    manager.delete_records(P0, Offset(5))
    trial.send(manager, now_ms=NOW + 2000)


class Compacted(Trial):
    """A trial of which only the newest record of each key must be left."""

    def check_content(self, found: list[tuple[int, str]], known: list[tuple[int, str]], start: Offset) -> None:
        assert set(found) <= set(known)
        assert found == sorted(set(found))
        # Every key is `n % 2`: its newest record that was promised is there.
        last = self.promises.flushed
        assert {offset for offset, _ in found} >= set(range(max(last - 2, 0), last))


def tell_compaction(manager: LogManager, trial: Trial) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    manager.topics.create("orders", 1, SMALL | settings, NOW)
    for number in range(7):
        trial.send(manager, key=b"k%d" % (number % 2))
    trial.flush(manager)
    assert manager.compact(NOW) == []
    manager.run_due(NOW + 60_000)
    trial.send(manager, key=b"k1")


def tell_topics(manager: LogManager, trial: Trial) -> None:
    manager.topics.create("orders", 1, SMALL, NOW)
    trial.send(manager)
    manager.topics.alter("orders", NOW, partitions=2, settings={"retention.ms": "77"})
    trial.send(manager)


@pytest.mark.slow
@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(Trial(tell_appends), id="appends"),
        deep(Trial(tell_retention), id="retention"),
        deep(Compacted(tell_compaction), id="compaction"),
        deep(Trial(tell_topics), id="topics"),
    ],
)
def test_a_manager_that_dies_anywhere_keeps_its_promises(trial: Trial) -> None:
    counts = every_crash(
        trial.make, trial.run, trial.check, trial.recover, limit=LIMIT, seed=SEED,
        promised=lambda: trial.promises.key(),  # noqa: PLW0108 (promises are made anew)
    )  # fmt: skip
    assert counts.states > 30
