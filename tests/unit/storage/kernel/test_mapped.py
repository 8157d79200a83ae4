"""Folding a file that is mapped instead of read: the same answers, and no death by what a mapping cannot give."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path, PurePath

import pytest
from support.batches import batch_v2
from support.plain_file import Plain

from storage.base.errors import FileVanished
from storage.base.rows import BatchRows, Stop
from storage.disk import os_files
from storage.disk.fs import OsFs, ReadFile
from storage.kernel.fold import SegmentFold
from storage.kernel.scan import kernel_name
from storage.reading import log_reader
from storage.reading.log_reader import LogReader, LogScan

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.skipif(kernel_name() != "c", reason="only the C kernel maps files")


def some_log(seed: int, size: int) -> bytearray:
    """Return batches of sizes, producers, epochs and times as they come."""
    rng = random.Random(seed)
    log, offset = bytearray(), 0
    while len(log) < size:
        length = rng.choice((1, 40, 40, 900, 16_000, 70_000))
        more = {"producer_id": rng.randrange(-1, 3), "leader_epoch": offset // 500, "max_timestamp": offset}
        log += batch_v2(offset, payload=rng.randbytes(length), count=1, **more)
        offset += 1 + (rng.random() < 0.01)
    return log


def folded(file: ReadFile, path: PurePath, size: int) -> tuple[LogScan, list[object]]:
    fold, told = SegmentFold(0, block_offsets=64), list[int]()
    found = LogReader(1 << 16).fold(file, path, size, 0, fold, told.append)
    assert told == sorted(told), "progress goes back"
    facts = [fold.digest, fold.batch_count, fold.offset_index(), fold.time_index(), fold.epochs, fold.blocks()]
    return found, [*facts, list(fold.producer_events), fold.gaps, fold.next_offset]


def check_alike(path: Path, size: int | None = None) -> LogScan:
    whole = path.stat().st_size if size is None else size
    with OsFs().open_read(path) as file:
        mapped, read = folded(file, path, whole), folded(Plain(file), path, whole)
    assert mapped == read
    return mapped[0]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pieces that are mapped as small as batches are, and no multiple of a page."""
    monkeypatch.setattr(log_reader, "MAPPED_BYTES", 100_003)
    monkeypatch.setattr(log_reader, "_WORTH_MAPPING", 0)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", range(6))
def test_a_mapped_log_folds_as_a_log_that_is_read(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(some_log(seed, 1 << 20))
    assert check_alike(path).stop is Stop.END


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", range(20))
def test_damage_is_told_alike_wherever_it_is(tmp_path: Path, seed: int) -> None:
    rng, path = random.Random(seed), tmp_path / "log"
    log = some_log(seed, 500_000)
    at = rng.randrange(len(log))
    kinds = (log[at] ^ 1 << rng.randrange(8)).to_bytes(1, "big"), bytes(5000), rng.randbytes(70)
    broken = rng.choice(kinds)
    log[at : at + len(broken)] = broken
    path.write_bytes(log[: len(log) - rng.randrange(100)])
    check_alike(path)


@pytest.mark.usefixtures("small_pieces")
def test_a_batch_larger_than_what_is_mapped_at_once_is_read_in_pieces(tmp_path: Path) -> None:
    path, large = tmp_path / "log", batch_v2(1, payload=bytes(300_000), count=1)
    path.write_bytes(batch_v2(0, payload=b"x", count=1) + large + batch_v2(2, payload=b"x", count=1))
    assert check_alike(path) == LogScan(path.stat().st_size, 3, Stop.END)


@pytest.mark.parametrize("left", [0, 1, 4096, 300_000, (1 << 20) - 1])
def test_a_log_that_has_become_shorter_is_no_damage(tmp_path: Path, left: int) -> None:
    path = tmp_path / "log"
    log = some_log(1, 1 << 20)
    path.write_bytes(log[:left])
    with OsFs().open_read(path) as file, pytest.raises(FileVanished, match="ESTALE"):
        folded(file, path, len(log))


def test_zero_bytes_behind_the_end_of_a_file_are_not_taken_for_its_own(tmp_path: Path) -> None:
    """Up to the end of its last page a mapping shows them, and a batch may end with such."""
    path = tmp_path / "log"
    log = some_log(5, 1 << 20)
    log += batch_v2(10**6, payload=bytes(100), count=1)
    path.write_bytes(log[:-3])
    with OsFs().open_read(path) as file, pytest.raises(FileVanished, match=f"at {len(log) - 1} .*ESTALE"):
        folded(file, path, len(log))


def test_bytes_that_cannot_be_had_end_the_fold_before_them(tmp_path: Path) -> None:
    """What is folded by then stays folded: an unreadable sector raises the same signal as the end of a file."""
    path, rows = tmp_path / "log", BatchRows(8)
    log = some_log(2, 100_000)
    path.write_bytes(log + bytes(-len(log) % 4096))
    fold, wanted = SegmentFold(0), SegmentFold(0)
    sound = wanted.scan(memoryview(log), rows)
    with path.open("r+b") as file:
        before = fold.scan_file(file.fileno(), rows, position=0, end=len(log), next_offset=0)
        beyond = fold.scan_file(file.fileno(), rows, position=len(log), end=8 << 20, next_offset=fold.next_offset)
        os.ftruncate(file.fileno(), 0)
        gone = fold.scan_file(file.fileno(), rows, position=0, end=len(log), next_offset=0)
    assert before is not None
    assert beyond is not None
    assert gone is not None
    assert (before.size, before.next_offset) == (len(log), sound.next_offset)
    assert (beyond.size, beyond.stop, gone.size, gone.stop) == (0, Stop.BAD_SIZE, 0, Stop.NEED_MORE)
    assert (fold.batch_count, fold.digest) == (wanted.batch_count, wanted.digest)


def test_a_fold_that_is_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    path, rows = tmp_path / "log", BatchRows(8)
    log = some_log(3, 400_000)
    path.write_bytes(log[:200_000])
    cut, whole = SegmentFold(0), SegmentFold(0)
    with path.open("r+b") as file:
        first = cut.scan_file(file.fileno(), rows, position=0, end=len(log), next_offset=0)
        assert first is not None
        assert first.stop is Stop.NEED_MORE
        assert 0 < first.size <= 200_704
        path.write_bytes(log)
        rest = cut.scan_file(file.fileno(), rows, position=first.size, end=len(log), next_offset=first.next_offset)
    whole.scan(memoryview(log), rows)
    assert rest is not None
    assert first.size + rest.size == len(log)
    assert (cut.digest, cut.offset_index(), cut.batch_count) == (whole.digest, whole.offset_index(), whole.batch_count)


def test_threads_whose_files_shrink_do_not_disturb_those_whose_files_do_not(tmp_path: Path) -> None:
    log, found = some_log(4, 1 << 20), dict[int, tuple[LogScan, list[object]] | str]()
    paths = [tmp_path / str(n) for n in range(4)]
    for n, path in enumerate(paths):
        path.write_bytes(log if n % 2 else log[:500_000])

    def work(n: int) -> None:
        for _ in range(20):
            with OsFs().open_read(paths[n]) as file:
                try:
                    found[n] = folded(file, paths[n], len(log))
                except FileVanished as error:
                    found[n] = str(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[1] == found[3]
    assert isinstance(found[1], tuple)
    assert found[1][0].valid_size == len(log)
    assert all(isinstance(found[n], str) and "ESTALE" in str(found[n]) for n in (0, 2))


_USE = """
import mmap, os, signal, sys
from storage.kernel.fold import SegmentFold
from storage.base.rows import BatchRows
{before}
with open(sys.argv[1], "rb") as file:
    SegmentFold(0).scan_file(file.fileno(), BatchRows(8), position=0, end=8 << 20, next_offset=0)
{after}
"""


TOUCHED = """
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
os.truncate(sys.argv[1], 0)
mapped[0]
"""


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("", "os.kill(os.getpid(), signal.SIGBUS); print('lives')", -signal.SIGBUS),
        ("signal.signal(signal.SIGBUS, signal.SIG_IGN)", "os.kill(os.getpid(), signal.SIGBUS)", 0),
        ("signal.signal(signal.SIGBUS, lambda *_: sys.exit(7))", "os.kill(os.getpid(), signal.SIGBUS)", 7),
        ("import faulthandler; faulthandler.enable()", "os.kill(os.getpid(), signal.SIGBUS)", -signal.SIGBUS),
        ("", TOUCHED, -signal.SIGBUS),
    ],
)  # fmt: skip
def test_a_signal_that_is_not_ours_does_what_it_did(tmp_path: Path, before: str, after: str, status: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(100_000))
    code = _USE.format(before=before, after=after)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == status, done.stderr


def test_a_file_whose_descriptor_is_not_the_kernels_is_read_and_not_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    with OsFs().open_read(path) as file:
        assert file.descriptor() >= 0  # type: ignore[attr-defined]
        monkeypatch.setattr(os_files, "LINUX", False)
        assert file.descriptor() == -1  # type: ignore[attr-defined]
