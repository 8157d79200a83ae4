"""While our own logs are compacted, clients get their turn; and what they do to the log meanwhile harms nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.managers import batch, options, records
from support.service_parts import MovedClock, Told

from daemon.own.owned import OwnSetup, OwnWorker
from daemon.status.model import DirState
from engine.manager.manager import LogManager
from storage.base.units import Offset, TopicPartition
from storage.disk.fs import OsFs, lock_log_dir

P0 = TopicPartition("orders", 0)
SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "internal.segment.bytes": "300"}
KEYS, ROUNDS = 7, 20


class Compacting:
    """A worker over a log of many segments; `meanwhile` is called by another thread for each piece of a compaction."""

    def __init__(self, path: Path) -> None:
        self.clock, self.events = MovedClock(), Told()
        self.meanwhile: Callable[[LogManager], None] | None = None
        self.pieces = 0
        self.failed: list[BaseException] = []
        made = replace(options(cleaner_throttle=self._throttle), lock=lock_log_dir)
        self.worker = OwnWorker(OsFs(), [PurePath(path)], made, OwnSetup(self.events, self.clock))
        self.worker.start()
        self.worker.engine.run(lambda m: m.topics.create("orders", 1, SETTINGS, self.clock.now_ms()))
        self.worker.engine.run(self._fill)

    def _fill(self, manager: LogManager) -> None:
        for number in range(KEYS * ROUNDS):
            self.append(manager, number % KEYS, f"value {number}")

    def append(self, manager: LogManager, key: int, value: str) -> None:
        made = batch(value, key=f"k{key}".encode(), timestamp=self.clock.now_ms())
        manager.append(P0, made, self.clock.now_ms())

    def _throttle(self, size: int) -> None:
        """Stand between two pieces: a client does something to the end before the compaction goes on."""
        self.pieces += 1
        call = self.meanwhile
        if call is None:
            return
        client = threading.Thread(target=self._call, args=(call,))
        client.start()
        client.join(60)
        assert not client.is_alive(), "the client did not get its turn"

    def _call(self, call: Callable[[LogManager], None]) -> None:
        try:
            self.worker.engine.run(call)
        except BaseException as error:  # noqa: BLE001 (looked at by the test)
            self.failed.append(error)

    def compact(self) -> None:
        """Let the schedules run until a compaction was due."""
        before = self.pieces
        for _ in range(40):
            self.clock.advance(1)
            self.worker.step()
            if self.pieces > before:
                return

    @property
    def values(self) -> dict[bytes | None, bytes | None]:
        """The newest value of each key."""
        return self.worker.engine.run(
            lambda m: {each.key: each.value for each in records(m, start=m.log(P0).log_start)}
        )


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Compacting]:
    made = Compacting(tmp_path / "own")
    yield made
    made.meanwhile = None
    made.worker.stop()
    assert made.events.of("schedule_failed") == []
    assert made.worker.status()[0].state is DirState.STOPPED


def expected(rounds: int = ROUNDS) -> dict[bytes | None, bytes | None]:
    return {f"k{key}".encode(): f"value {KEYS * (rounds - 1) + key}".encode() for key in range(KEYS)}


def put_back(own: Compacting, number: int) -> None:
    """Append the last value of a key once more."""
    own.worker.engine.run(lambda m: own.append(m, number, f"value {KEYS * (ROUNDS - 1) + number}"))


def left_of_first(own: Compacting) -> int:
    """Return how many are left of the records that the log was filled with."""
    return own.worker.engine.run(lambda m: sum(each.offset < KEYS * ROUNDS for each in records(m)))


def test_appends_get_their_turn_between_the_pieces_of_a_compaction_and_none_is_lost(own: Compacting) -> None:
    appended: list[int] = []

    def client(manager: LogManager) -> None:
        self_made = len(appended)
        own.append(manager, self_made % KEYS, f"later {self_made}")
        appended.append(self_made)

    segments = own.worker.engine.run(lambda m: len(m.log(P0).segments.all))
    own.meanwhile = client
    own.compact()
    own.meanwhile = None
    assert own.failed == []
    assert len(appended) == own.pieces > segments, "a turn for each piece"
    assert left_of_first(own) < 2 * KEYS
    later: dict[bytes | None, bytes | None] = {
        f"k{number % KEYS}".encode(): f"later {number}".encode() for number in appended
    }
    assert own.values == {**expected(), **later}
    assert own.worker.engine.run(lambda m: m.log(P0).log_end) == KEYS * ROUNDS + len(appended)


@pytest.mark.parametrize("what", ["delete the topic", "truncate", "delete records", "compact too", "retain"])
def test_what_clients_do_to_the_log_meanwhile_harms_neither_it_nor_the_directory(own: Compacting, what: str) -> None:
    calls: dict[str, Callable[[LogManager], Any]] = {
        "delete the topic": lambda m: m.topics.delete("orders", own.clock.now_ms()),
        "truncate": lambda m: m.truncate(P0, Offset(KEYS * ROUNDS // 2), own.clock.now_ms()),
        "delete records": lambda m: m.delete_records(P0, Offset(KEYS * ROUNDS // 2)),
        "compact too": lambda m: m.compact(own.clock.now_ms()),
        "retain": lambda m: m.retain(own.clock.now_ms()),
    }

    def once(manager: LogManager) -> None:
        if own.pieces == 3:
            own.meanwhile = None
            calls[what](manager)

    own.meanwhile = once
    own.compact()
    own.meanwhile = None
    assert own.failed == []
    assert own.worker.status()[0].state is DirState.SERVING
    if what == "delete the topic":
        assert own.worker.engine.run(lambda m: [*m.partitions()]) == []
        return
    for number in range(KEYS):
        put_back(own, number)
    own.compact()
    assert own.values == expected()
