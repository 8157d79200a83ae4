"""What a file system has not stored is zero and is not read: of indexes anywhere, of logs where it may be believed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest
from support.batches import batch_v2
from support.command import environment
from support.faults import write_tree
from support.log_dirs import SOUND, place
from support.needs import impossible

from recovery.partition.inventory import resolve, take_inventory
from recovery.segment.segment_report import ScanOptions
from recovery.segment.verify import scan_segment
from storage.disk.fs import OsFs
from storage.disk.os_files import OsReadFile
from storage.reading.log_reader import LogReader, find_sound_batch, is_zero

MIB = 1 << 20
Patch = pytest.MonkeyPatch


def sparse(path: Path, size: int, *written: tuple[int, bytes]) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
        for position, data in written:
            file.seek(position)
            file.write(data)
    return path


class Counting(OsReadFile):
    """Passes reads on and counts their bytes."""

    def __init__(self, inner: OsReadFile) -> None:
        super().__init__(inner._path, inner._raw)
        self.read = 0

    def read_into(self, position: int, target: memoryview) -> int:
        self.read += len(target)
        return super().read_into(position, target)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def looked_at(path: Path, start: int, size: int, *, skip_holes: bool) -> tuple[bool, int]:
    with OsFs().open_read(path) as file:
        assert isinstance(file, OsReadFile)
        counting = Counting(file)
        return is_zero(counting, start, size, skip_holes=skip_holes), counting.read


def has_holes(path: Path) -> bool:
    return path.stat().st_blocks * 512 < path.stat().st_size


WRITTEN = {
    "nothing": [],
    "zeros at the beginning": [(0, bytes(5000))],
    "zeros in the middle": [(3 * MIB + 17, bytes(300_000))],
    "a byte at the beginning": [(0, b"x")],
    "a byte in the middle": [(5 * MIB + 4711, b"x")],
    "the last byte": [(10 * MIB - 1, b"x")],
    "zeros, and a byte behind them": [(2 * MIB, bytes(700_000)), (8 * MIB, b"x")],
}


@pytest.mark.parametrize("start", [0, 1, 4096, 3 * MIB, 10 * MIB - 1])
@pytest.mark.parametrize("kind", WRITTEN)
def test_with_or_without_holes_the_answer_is_the_same(kind: str, start: int, tmp_path: Path) -> None:
    path = sparse(tmp_path / "file", 10 * MIB, *WRITTEN[kind])
    wanted = not any(path.read_bytes()[start:])
    assert looked_at(path, start, 10 * MIB, skip_holes=True)[0] is wanted
    assert looked_at(path, start, 10 * MIB, skip_holes=False)[0] is wanted


def test_holes_are_not_read(tmp_path: Path, monkeypatch: Patch) -> None:
    path = sparse(tmp_path / "file", 10 * MIB, (0, b"entries" * 100), (6 * MIB, bytes(4096)))
    if not has_holes(path):
        impossible("this file system stores zeros")
    monkeypatch.setattr(OsReadFile, "tells_every_hole", lambda _: False)
    assert looked_at(path, 700, 10 * MIB, skip_holes=False) == (True, 10 * MIB - 700)
    answer, read = looked_at(path, 700, 10 * MIB, skip_holes=True)
    assert answer
    assert 0 < read <= 256 << 10
    monkeypatch.setattr(OsReadFile, "tells_every_hole", lambda _: True)
    assert looked_at(path, 700, 10 * MIB, skip_holes=False) == (True, read)


@pytest.mark.parametrize("is_truthful", [True, False])
def test_a_batch_behind_a_hole_is_found_wherever_its_first_zeros_begin(
    tmp_path: Path, is_truthful: bool, monkeypatch: Patch
) -> None:
    """Offset 3 has seven zeros before it, and up to eleven bytes of a batch may lie in a hole."""
    monkeypatch.setattr(OsReadFile, "tells_every_hole", lambda _: is_truthful)
    batch = batch_v2(3, 2)
    for before in range(12):
        place = 6 * MIB - before
        path = sparse(tmp_path / f"{before}", 30 * MIB, (place, batch))
        with OsFs().open_read(path) as file:
            assert find_sound_batch(file, 30 * MIB, 1, 3) == place
            assert find_sound_batch(file, 30 * MIB, place + 1, 3) is None


@pytest.mark.parametrize("is_truthful", [True, False])
def test_progress_tells_of_every_zero_byte_that_is_passed(
    tmp_path: Path, is_truthful: bool, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(OsReadFile, "tells_every_hole", lambda _: is_truthful)
    home = write_tree(tmp_path / "data", SOUND)
    log = home / place(20)
    size = log.stat().st_size
    os.truncate(log, 5 * MIB)
    files = resolve(take_inventory(OsFs(), home / "orders-0"), {}).segments[-1]
    steps: list[int] = []
    options = ScanOptions(4096, 10 << 20, None)
    report = scan_segment(OsFs(), files, options, LogReader(), in_scope=True, active=True, progress=steps.append)
    assert (report.valid_size, report.damage and report.damage.zeroes) == (size, True)
    assert sum(steps) == 5 * MIB
    if not is_truthful:
        assert max(steps) <= MIB


def test_a_sparse_log_of_a_tebibyte_is_verified_and_recovered_without_reading_its_zeros(tmp_path: Path) -> None:
    home = write_tree(tmp_path / "data", SOUND)
    log = home / place(20)
    size = log.stat().st_size
    try:
        os.truncate(log, 1 << 40)
    except OSError as error:
        impossible(f"no file of this size here: {error}")
    with OsFs().open_read(log) as file:
        if not (isinstance(file, OsReadFile) and file.tells_every_hole()):
            impossible("a file system that is not known to tell of every hole")
    for words, status in ((["verify"], 1), (["plan"], 1), (["recover"], 0), (["verify", "--depth", "full"], 0)):
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *words, str(home)], env=environment(), capture_output=True, timeout=180,
            check=False, cwd="/",
        )  # fmt: skip
        assert done.returncode == status, done.stderr
    assert log.stat().st_size == size


@pytest.mark.parametrize("refusal", [22, 95])
def test_a_file_system_that_knows_no_holes_is_read(refusal: int, tmp_path: Path, monkeypatch: Patch) -> None:
    path = sparse(tmp_path / "file", 2 * MIB, (MIB, b"x"))

    def lseek(*_: object) -> int:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "lseek", lseek)
    assert looked_at(path, 0, 2 * MIB, skip_holes=True)[0] is False
    assert looked_at(path, MIB + 1, 2 * MIB, skip_holes=True) == (True, MIB - 1)


@pytest.mark.parametrize("skip_holes", [True, False])
def test_of_a_file_that_has_shrunk_what_is_left_is_told_of(tmp_path: Path, skip_holes: bool) -> None:
    path = sparse(tmp_path / "file", MIB, (10, b"x"))
    assert looked_at(path, 100, 3 * MIB, skip_holes=skip_holes)[0] is True
    assert looked_at(path, 2 * MIB, 3 * MIB, skip_holes=skip_holes)[0] is True


def test_what_was_written_through_a_mapping_and_not_synced_is_no_hole(tmp_path: Path) -> None:
    """As a broker writes its indexes; a kill leaves them so."""
    import mmap  # noqa: PLC0415 (here alone)

    path = sparse(tmp_path / "file", 10 * MIB)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 10 * MIB) as mapped:
        mapped[7 * MIB] = 1
        assert looked_at(path, 8, 10 * MIB, skip_holes=True)[0] is False
    assert looked_at(path, 8, 10 * MIB, skip_holes=True)[0] is False
