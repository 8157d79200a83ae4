"""`logmend read --isolation read_committed`: nothing of transactions that are open or were aborted."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
from golden.golden import extract
from support.batches import marker
from support.calling import call as logmend
from support.command import start
from support.managers import NOW, P0, append

from cli.engine.read import records_between
from engine.client.view import LogView
from engine.manager.manager import LogManager
from engine.settings.options import ManagerOptions
from storage.base.rows import ABORT
from storage.base.units import Offset
from storage.batch.batch import attributes_of, ensure_sound, split_batches
from storage.batch.payload import control_kind
from storage.batch.record import records_of
from storage.disk.fs import OsFs, ReadOnlyFs, read_all
from storage.log.log_types import Isolation
from storage.producers.producers import Origin

IN_TRANSACTION = attributes_of(is_transactional=True)


class Story:
    """A log with three producers: 1 aborts, 2 commits, 3 stays open."""

    def __init__(self, manager: LogManager) -> None:
        self.manager = manager
        self._sequences: dict[int, int] = {}

    def send(self, producer: int, value: str) -> None:
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + 1
        append(
            self.manager, value, producer_id=producer, producer_epoch=0, base_sequence=sequence, flags=IN_TRANSACTION
        )

    def end(self, producer: int, *, commit: bool) -> None:
        self.manager.append(P0, marker(0, producer, commit=commit), NOW, origin=Origin.COORDINATOR)

    def tell(self) -> None:
        append(self.manager, "plain")
        self.send(1, "a1")
        self.send(2, "b1")
        append(self.manager, "between")
        self.send(1, "a2")
        self.end(1, commit=False)
        self.send(1, "a3")
        self.send(2, "b2")
        self.end(2, commit=True)
        self.end(1, commit=True)
        self.send(3, "c1")
        append(self.manager, "behind")


COMMITTED = ["plain", "b1", "between", "a3", "b2"]
ALL = ["plain", "a1", "b1", "between", "a2", "a3", "b2", "c1", "behind"]


@pytest.fixture(params=["300", "100000"], ids=["many segments", "one segment"])
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    with LogManager.open(OsFs(), [PurePath(tmp_path)], NOW, ManagerOptions()) as opened:
        opened.topics.create("orders", 1, {"internal.segment.bytes": request.param}, NOW)
        told = Story(opened)
        told.tell()
        yield told


def read(log_dir: Path, *words: object) -> list[str]:
    done: subprocess.CompletedProcess[str] = logmend("read", "--topic", "orders", "--log-dir", log_dir, *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["value"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("is_owned", [True, False])
def test_only_what_was_committed_is_printed(story: Story, tmp_path: Path, is_owned: bool) -> None:
    if not is_owned:
        story.manager.close()
    assert read(tmp_path) == ALL
    assert read(tmp_path, "--isolation", "read_uncommitted") == ALL
    assert read(tmp_path, "--isolation", "read_committed") == COMMITTED
    assert read(tmp_path, "--isolation", "read_committed", "--from", 4) == ["a3", "b2"]
    assert read(tmp_path, "--isolation", "read_committed", "--from", "latest") == []


def test_who_follows_waits_for_the_end_of_a_transaction(story: Story, tmp_path: Path) -> None:
    words = ("--follow", "--isolation", "read_committed", "--count", len(COMMITTED) + 3)
    following = start("read", "--topic", "orders", "--log-dir", tmp_path, *words)
    assert following.stdout is not None
    assert [json.loads(following.stdout.readline())["value"] for _ in COMMITTED] == COMMITTED
    story.send(1, "a4")
    story.end(3, commit=True)
    assert [json.loads(following.stdout.readline())["value"] for _ in range(2)] == ["c1", "behind"]
    story.end(1, commit=False)
    append(story.manager, "last")
    out, err = following.communicate(timeout=180)
    assert (following.returncode, err) == (0, "")
    assert [json.loads(line)["value"] for line in out.splitlines()] == ["last"]


def committed_in(directory: Path) -> list[tuple[int, Any]]:
    """Return the committed records of a log by what its markers say, all of it in memory."""
    waiting: dict[int, list[tuple[int, Any]]] = {}
    found: list[tuple[int, Any]] = []
    for path in sorted(directory.glob("*.log")):
        for batch in split_batches(memoryview(read_all(OsFs(), PurePath(path), 1 << 30))):
            header = ensure_sound(batch)
            if header.is_control:
                ended = waiting.pop(header.producer_id, [])
                found += [] if control_kind(header, batch) == ABORT else ended
                continue
            records = [(record.offset, record.value) for record in records_of(batch)]
            (waiting.setdefault(header.producer_id, []) if header.is_transactional else found).extend(records)
    return sorted(found)


def test_of_a_brokers_transactions_that_is_what_its_markers_say(tmp_path: Path) -> None:
    data = extract("transactions", tmp_path) / "0" / "data"
    seen = aborted = 0
    for directory in sorted(data.glob("*-[0-9]*")):
        if directory.name.startswith("__"):
            continue
        with contextlib.closing(LogView(ReadOnlyFs(OsFs()), PurePath(directory))) as view:
            found = [
                (record.offset, record.value)
                for record in records_between(view, view.log_start, view.last_stable_offset, Isolation.COMMITTED)
            ]
            every = sum(1 for _ in records_between(view, Offset(view.log_start), view.log_end))
            stable = view.last_stable_offset
        assert found == [entry for entry in committed_in(directory) if entry[0] < stable]
        seen, aborted = seen + len(found), aborted + every - len(found)
    assert seen > 0
    assert aborted > 0
