"""What a survey tells of how much there is and how far it got, and that telling it costs no second listing."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path, PurePath

import pytest
from support.batches import batch_v2

from recovery.logdir import nearness
from recovery.logdir.survey import LIST_ALL, SilentReporter, plan_log_dir
from recovery.plan.plan import PlanOptions
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset
from storage.disk.fs import FileStat, OsFs

PARTITIONS, SEGMENTS = 70, 3
ALL = {f"orders-{number}" for number in range(PARTITIONS)}


class Recorder(SilentReporter):
    """What was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.bytes = self.read = self.segments = 0
        self._turn = threading.Lock()

    def listed(self, partition: str, total_bytes: int, segments: int) -> None:
        with self._turn:
            self.told.append(("listed", partition))
            self.bytes += total_bytes
            self.segments += segments

    def scanned(self, partition: str, size: int) -> None:
        with self._turn:
            self.told.append(("scanned", partition))
            self.read += size

    def segment_done(self, partition: str) -> None:
        with self._turn:
            self.told.append(("segment_done", partition))

    def of(self, kind: str) -> list[str]:
        return [partition for told, partition in self.told if told == kind]


class Listing(OsFs):
    """Counts how often each directory is listed."""

    def __init__(self) -> None:
        self.listings: Counter[str] = Counter()

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        self.listings[directory.name] += 1
        return super().entries(directory)


@pytest.fixture(autouse=True)
def several_threads_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small logs in memory are read by one thread, whatever was asked for; that is for another test."""
    monkeypatch.setattr(nearness, "MANY", 1 << 30)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many partitions, none of which was ever flushed."""
    top = tmp_path_factory.mktemp("data")
    for name in ALL:
        (top / name).mkdir()
        for base in range(0, 2 * SEGMENTS, 2):
            (top / name / segment_file_name(Offset(base), FileRole.LOG)).write_bytes(batch_v2(base, 2))
    return top


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("list_ahead", [1, 5, LIST_ALL])
def test_all_that_is_to_be_read_is_told_once_and_then_read(log_dir: Path, jobs: int, list_ahead: int) -> None:
    seen, fs = Recorder(), Listing()
    plan_log_dir(fs, log_dir, PlanOptions(), seen, jobs, list_ahead=list_ahead)
    assert sorted(seen.of("listed")) == sorted(ALL)
    assert seen.bytes == seen.read == PARTITIONS * SEGMENTS * len(batch_v2(0, 2))
    assert seen.segments == len(seen.of("segment_done")) == PARTITIONS * SEGMENTS
    assert {name: fs.listings[name] for name in ALL} == dict.fromkeys(ALL, 1)
    for name in ALL:
        assert seen.told.index(("listed", name)) < seen.told.index(("scanned", name))


def test_where_nobody_changes_the_directory_all_is_known_before_the_first_byte_is_read(log_dir: Path) -> None:
    seen = Recorder()
    plan_log_dir(OsFs(), log_dir, PlanOptions(), seen, 1, list_ahead=LIST_ALL)
    assert [kind for kind, _ in seen.told[:PARTITIONS]] == ["listed"] * PARTITIONS


def test_with_several_threads_listing_waits_for_no_scan(log_dir: Path) -> None:
    """The last partition is listed while the first is still being read, although only 64 scans are ahead."""
    seen, is_listed = Recorder(), threading.Event()

    class Waiting(Recorder):
        def listed(self, partition: str, total_bytes: int, segments: int) -> None:
            super().listed(partition, total_bytes, segments)
            if len(self.of("listed")) == PARTITIONS:
                is_listed.set()

        def segment_done(self, partition: str) -> None:
            assert is_listed.wait(60)
            super().segment_done(partition)

    seen = Waiting()
    plan_log_dir(OsFs(), log_dir, PlanOptions(), seen, 2, list_ahead=LIST_ALL)
    assert len(seen.of("segment_done")) == PARTITIONS * SEGMENTS


def test_beside_a_broker_a_partition_is_listed_right_before_it_is_read(log_dir: Path) -> None:
    seen = Recorder()
    plan_log_dir(OsFs(), log_dir, PlanOptions(), seen, 1)
    order = list(dict.fromkeys(seen.told))
    assert [kind for kind, _ in order] == ["listed", "scanned", "segment_done"] * PARTITIONS


def test_the_plan_is_the_same_however_it_was_made(log_dir: Path) -> None:
    ids = {
        plan_log_dir(OsFs(), log_dir, PlanOptions(), None, jobs, list_ahead=ahead).plan.plan_id
        for jobs in (1, 3)
        for ahead in (1, LIST_ALL)
    }
    assert len(ids) == 1
