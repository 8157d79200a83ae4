"""Reading a log of any size through one window."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path, PurePath
from typing import Self

import pytest
from support.batches import batch_v2, legacy

from storage.base.errors import FileVanished
from storage.base.rows import COLUMNS, BatchRows, Stop
from storage.disk.fs import OsFs
from storage.kernel.fold import SegmentFold
from storage.reading.log_reader import LogReader, LogScan, OnRows, find_sound_batch, is_zero

OVERHEAD = 61


def sized(base_offset: int, size: int, **more: int) -> bytes:
    return batch_v2(base_offset, payload=bytes(size - OVERHEAD), count=1, **more)


def scan(
    path: Path, window: int = 1 << 20, next_offset: int = 0, size: int | None = None
) -> tuple[LogScan, list[tuple[int, ...]]]:
    found: list[tuple[int, ...]] = []

    def on_rows(rows: BatchRows, count: int, data: memoryview, origin: int) -> None:
        for i in range(count):
            found.append(tuple(getattr(rows, name)[i] for name in COLUMNS))
            if data:
                at = rows.position[i] - origin
                assert int.from_bytes(data[at : at + 8], "big") == rows.base_offset[i]

    with OsFs().open_read(path) as file:
        whole = path.stat().st_size if size is None else size
        return LogReader(window, 4).scan(file, path, whole, next_offset, on_rows), found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    sizes = [61, 100, 5000, 70, 300, 64, 9000, 61, 61, 62, 63, 200]
    path.write_bytes(b"".join(sized(n, size, leader_epoch=n // 4, producer_id=n) for n, size in enumerate(sizes)))
    return path


@pytest.mark.parametrize("window", [61, 64, 100, 128, 200, 1000, 5000, 5001, 8192, 1 << 20])
def test_the_size_of_the_window_changes_nothing(log: Path, window: int) -> None:
    wanted = scan(log)
    assert wanted[0] == LogScan(log.stat().st_size, 12, Stop.END)
    assert len(wanted[1]) == 12
    assert scan(log, window) == wanted


class Counted:
    """A file that adds up the bytes that are read from it."""

    def __init__(self, data: bytes) -> None:
        self._data, self.bytes_read = data, 0

    def read_into(self, position: int, target: memoryview) -> int:
        part = self._data[position : position + len(target)]
        target[: len(part)] = part
        self.bytes_read += len(part)
        return len(part)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


def offsets_into(found: list[int]) -> OnRows:
    return lambda rows, count, _window, _origin: found.extend(rows.last_offset[:count])


@pytest.mark.parametrize("piece", [1, 100, 5000])
def test_a_walk_that_pauses_reads_no_byte_twice(log: Path, piece: int) -> None:
    file, size, found = Counted(log.read_bytes()), log.stat().st_size, list[int]()
    walk, pauses, end = LogReader(10_000, 4).begin(file, log, size, 0, offsets_into(found)), 0, None
    while end is None:
        assert walk.position <= walk.read_to == file.bytes_read
        assert found == list(range(walk.next_offset))
        end = walk.advance(piece)
        pauses += end is None
    assert (end, found, file.bytes_read) == (LogScan(size, 12, Stop.END), list(range(12)), size)
    assert pauses


@pytest.mark.parametrize("window", [61, 128, 8192, 1 << 20])
def test_walks_that_share_a_reader_and_take_turns_see_what_each_would_see_alone(log: Path, window: int) -> None:
    reader, size = LogReader(window, 4), log.stat().st_size
    first, second = list[int](), list[int]()
    with OsFs().open_read(log) as file:
        walks = [reader.begin(file, log, size, 0, offsets_into(found)) for found in (first, second)]
        ends: list[LogScan | None] = [None, None]
        while None in ends:
            ends = [end or walk.advance(64) for walk, end in zip(walks, ends, strict=True)]
    assert ends == [LogScan(size, 12, Stop.END)] * 2
    assert first == second == list(range(12))


def test_a_large_batch_of_an_old_format_gives_the_same_row(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        legacy(7, magic=1, value=bytes(3000), timestamp=99) + legacy(8, magic=1, value=b"x", timestamp=100)
    )
    assert scan(path, 128) == scan(path)
    assert [row[COLUMNS.index("max_timestamp")] for row in scan(path)[1]] == [99, 100]


@pytest.mark.parametrize("window", [61, 128, 1 << 20])
def test_an_incomplete_last_batch_ends_the_chain_before_it(log: Path, window: int) -> None:
    data = log.read_bytes()
    for cut in (1, 100, 199):
        log.write_bytes(data[:-cut])
        assert scan(log, window)[0] == LogScan(len(data) - 200, 11, Stop.NEED_MORE)


@pytest.mark.parametrize("window", [128, 1 << 20])
@pytest.mark.parametrize(("at", "new", "stop"), [
    (30, b"\xff", Stop.BAD_CRC),
    (8, struct.pack(">i", 13), Stop.BAD_SIZE),
    (16, b"\x07", Stop.UNKNOWN_MAGIC),
    (16, b"\x07\0\0\0\0", Stop.BAD_MAGIC),
    (16, b"\xff", Stop.BAD_MAGIC),
    (0, struct.pack(">q", 1), Stop.BAD_ORDER),
])  # fmt: skip
def test_damage_in_a_large_batch_is_told_alike(log: Path, window: int, at: int, new: bytes, stop: Stop) -> None:
    data, place = bytearray(log.read_bytes()), 161
    data[place + at : place + at + len(new)] = new
    log.write_bytes(data)
    found = scan(log, window)[0]
    assert (found.valid_size, found.next_offset, found.stop) == (place, 2, stop)


def test_a_base_offset_that_was_raised_is_blamed_and_not_the_batch_behind_it(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[161:169] = struct.pack(">q", 1000)
    log.write_bytes(data)
    assert scan(log)[0] == LogScan(161, 2, Stop.BAD_ORDER, blamed_earlier=True)
    assert scan(log, 128)[0] == LogScan(161, 2, Stop.BAD_ORDER, blamed_earlier=True)


def test_a_batch_that_stands_twice_is_blamed_itself(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(sized(0, 100) + sized(1, 100) + sized(1, 100) + sized(2, 100))
    assert scan(path)[0] == LogScan(200, 2, Stop.BAD_ORDER)


def test_a_file_that_has_shrunk_is_no_damage(log: Path) -> None:
    with pytest.raises(FileVanished):
        scan(log, size=log.stat().st_size + 1)


def test_the_next_sound_batch_is_found_behind_damage(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    with OsFs().open_read(log) as file:
        assert find_sound_batch(file, len(data), 162, 2) == 5161
        assert find_sound_batch(file, len(data), 162, 12) is None


def test_zeroes_are_zero_to_the_last_byte(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" + bytes(3 << 20))
    with OsFs().open_read(PurePath(path)) as file:
        assert is_zero(file, 1, 1 + (3 << 20))
        assert not is_zero(file, 0, 10)
    path.write_bytes(bytes((2 << 20) + 5) + b"x")
    with OsFs().open_read(path) as file:
        assert not is_zero(file, 0, (2 << 20) + 6)


@pytest.mark.parametrize("window", [61, 100, 5000, 8192, 1 << 20])
@pytest.mark.parametrize("cut", [0, 1, 150])
def test_folding_without_rows_gives_what_folding_rows_gives(log: Path, window: int, cut: int) -> None:
    size = log.stat().st_size - cut
    by_rows, folded = SegmentFold(0), SegmentFold(0)
    with OsFs().open_read(log) as file:
        reader = LogReader(window, 4)
        wanted = reader.scan(file, log, size, 0, lambda rows, count, *_: by_rows.add(rows, count))
        assert reader.fold(file, log, size, 0, folded, lambda _: None) == wanted
    assert folded.digest == by_rows.digest
    assert folded.offset_index() == by_rows.offset_index()
    assert list(folded.producer_events) == list(by_rows.producer_events)


def test_the_blame_for_offsets_that_go_back_is_the_same_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(sized(offset, 100) for offset in (0, 1, 2, 900, 3, 4)))
    wanted, _ = scan(path)
    with OsFs().open_read(path) as file:
        found = LogReader().fold(file, path, 600, 0, SegmentFold(0), lambda _: None)
    assert found == wanted == LogScan(300, 3, Stop.BAD_ORDER, blamed_earlier=True)


class Watched:
    """A file that notes where each read begins, in the file and in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int, int]] = []

    def read_into(self, position: int, target: memoryview) -> int:
        part = self.data[position : position + len(target)]
        target[: len(part)] = part
        place = ctypes.addressof(ctypes.c_char.from_buffer(target))
        self.reads.append((position, place, len(part)))
        return len(part)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


@pytest.mark.parametrize("sizes", [[1000] * 300, [61, 5000, 70_000, 61, 12_345] * 5, [4096] * 100])
@pytest.mark.parametrize("skipped", [0, 1, 5])
def test_pages_of_a_file_are_read_into_pages_of_memory_and_each_only_once(sizes: list[int], skipped: int) -> None:
    batches = [sized(n, size) for n, size in enumerate(sizes)]
    data, start = b"".join(batches), len(b"".join(batches[:skipped]))
    file, found = Watched(data), []
    scanned = LogReader(1 << 16, 64).scan(
        file,
        PurePath("log"),
        len(data),
        skipped,
        lambda rows, count, *_: found.extend(rows.base_offset[:count]),
        start=start,
    )
    assert scanned == LogScan(len(data), len(sizes), Stop.END)
    assert found == list(range(skipped, len(sizes)))
    large = [len(b"".join(batches[:n])) for n, size in enumerate(sizes) if size > 1 << 16]
    at = start
    for position, place, size in file.reads:
        if any(begin < position < begin + 70_000 for begin in large) and position != at:
            continue  # a batch larger than the window is summed in pieces of its own
        assert (position - place) % 4096 == 0
        at = position + size
    if not large:
        assert sum(size for *_, size in file.reads) == len(data) - start
