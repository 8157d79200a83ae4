"""Finding a batch in one call of the kernel is finding it header by header."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from support.batches import TS, batch_v2, legacy
from support.log_in_memory import MemoryEpochs
from support.plain_file import Plain
from support.wrapped_fs import WrappedFs

from storage.base.config import LogConfig
from storage.base.errors import BatchCorrupt
from storage.base.units import Offset
from storage.batch.batch import encode_batch_v2, parse_header
from storage.batch.record import Record, encode_batch
from storage.disk import _disk, fs
from storage.disk.fs import Fs, OsFs, ReadFile
from storage.log.log import Log
from storage.log.log_types import LogSetup, TimestampOffset
from storage.reading.segment_walk import BatchPlace, batches_since, first_batch_reaching

pytestmark = pytest.mark.skipif(fs._disk is None, reason="the kernel was not built")


def some_log(rng: random.Random) -> tuple[bytearray, int]:
    """Return batches with gaps, times that go back, and now and then an old format, a cut or a broken header."""
    log, offset = bytearray(), 0
    for _ in range(rng.randrange(1, 60)):
        made = rng.random()
        if made < 0.03:
            log += legacy(offset, rng.randrange(2), value=bytes(rng.randrange(200)))
        else:
            size = rng.choice((0, 10, 500, 8131, 20_000))
            count = rng.randrange(1, 4)
            log += batch_v2(offset, payload=bytes(size), count=count, max_timestamp=offset + rng.randrange(-5, 5))
            offset += count - 1
        offset += 1 + (rng.random() < 0.1)
    if rng.random() < 0.2:
        at = rng.randrange(len(log))
        log[at] ^= 1 << rng.randrange(8)
    return log[: len(log) - rng.choice((0, 0, 0, 1, 40, 61))], offset


def answers(file: ReadFile, end: int, offset: int) -> list[BatchPlace | str | None]:
    found: list[BatchPlace | str | None] = []
    try:
        found.append(first_batch_reaching(file, 0, end, Offset(offset)))
        found += list(batches_since(file, 0, end, offset))
    except BatchCorrupt as error:
        found.append(str(error))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_both_ways_find_the_same_batch(tmp_path: Path, seed: int) -> None:
    rng, path = random.Random(seed), tmp_path / "log"
    log, last = some_log(rng)
    path.write_bytes(log)
    with OsFs().open_read(path) as file:
        for _ in range(30):
            end, offset = rng.choice((len(log), rng.randrange(len(log) + 1))), rng.randrange(-1, last + 3)
            assert answers(file, end, offset) == answers(Plain(file), end, offset)


def test_the_kernel_finds_what_is_plain_and_leaves_what_is_odd(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first, second = batch_v2(0, count=3), batch_v2(3, payload=bytes(9000), count=2, max_timestamp=77)
    path.write_bytes(first + second + legacy(9, 1))
    end = path.stat().st_size
    with OsFs().open_read(path) as file:
        seek = file.seek_offset  # type: ignore[attr-defined]
        assert seek(b"", 0, end, 4, BatchPlace) == (len(first), len(second), 3, 4, 77, 2)
        assert type(seek(b"", 0, end, 4, BatchPlace)) is BatchPlace
        assert seek(b"", 0, end, 5, BatchPlace) is None, "an old format comes before it"
        assert seek(b"", 0, len(first) + 100, 4, BatchPlace) is None, "it does not end by there"
        since = file.seek_batch  # type: ignore[attr-defined]
        assert since(0, end, TS, BatchPlace) == (0, len(first), 0, 2, TS + 2, 2)
        assert since(len(first), end, TS, BatchPlace) is None, "an old format comes before it"
        with pytest.raises(TypeError, match="a type of tuples is wanted"):
            seek(b"", 0, end, 4, list)
        with pytest.raises(TypeError, match="6 arguments are wanted, not 5"):
            _disk.seek_offset(0, b"", 0, end, 4)  # type: ignore[call-arg]
        with pytest.raises(OverflowError):
            seek(b"", 0, end, 1 << 64, BatchPlace)
    assert seek(b"", 0, end, 4, BatchPlace) is None, "it is closed"


def test_a_file_may_be_closed_beside_a_search(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(batch_v2(n, payload=bytes(4000)) for n in range(500)))
    end, file = path.stat().st_size, OsFs().open_read(path)
    found: list[object] = []

    def search() -> None:
        while not found or found[-1] is not None:
            found.append(file.seek_offset(b"", 0, end, 499, BatchPlace))  # type: ignore[attr-defined]

    thread = threading.Thread(target=search)
    thread.start()
    while len(found) < 20:
        pass
    file.close()
    thread.join(60)
    assert not thread.is_alive()
    assert {one for one in found if one is not None} == {found[0]}


def random_batch(rng: random.Random, offset: int) -> bytes:
    """Return a batch with gaps, times that go back, and now and then a codec, append time, or an old format."""
    if rng.random() < 0.03:
        return legacy(offset, rng.randrange(2), value=bytes(rng.randrange(200)), timestamp=TS + offset)
    count, size = rng.choice((1, 3, 20)), rng.choice((0, 100, 3000))
    records = [
        Record(offset + n, TS + offset + rng.randrange(-60, 60), key=b"k", value=bytes(rng.randrange(size + 1)))
        for n in sorted({0, *rng.sample(range(60), count)})
    ]
    made = encode_batch(records, codec=rng.choice((0, 0, 0, 0, 0, 0, 4)), leader_epoch=0)
    if rng.random() < 0.05:
        header = parse_header(made)
        return encode_batch_v2(header._replace(attributes=header.attributes | 8), made[61:])
    return made


def write_random(directory: Path, rng: random.Random, interval: int) -> Log:
    """Append to a log of several segments as a follower does, which writes what it is given."""
    directory.mkdir()
    config = LogConfig(internal_segment_bytes=200_000, index_interval_bytes=interval)
    log = Log.open(OsFs(), directory, config, LogSetup(MemoryEpochs()), now_ms=TS)
    while len(log.segments) < 4:
        data, offset = b"", log.log_end
        for _ in range(rng.choice((1, 1, 3))):
            offset += rng.random() < 0.1
            batch = random_batch(rng, offset)
            data, offset = data + batch, parse_header(memoryview(batch)).last_offset + 1
        log.append_as_follower(data, leader_epoch=0, now_ms=TS)
    return log


def opened(seen: Fs, directory: Path) -> Log:
    log = Log.open(seen, directory, LogConfig(), LogSetup(MemoryEpochs()), now_ms=TS, is_clean=True)
    assert hasattr(log.segments.all[0].reader(), "seek_time") == (type(seen) is OsFs)
    return log


@pytest.mark.parametrize(("seed", "interval"), [(n, (0, 300, 4096, 20_000)[n % 4]) for n in range(12)])
def test_a_log_answers_the_same_with_the_kernel_and_without(tmp_path: Path, seed: int, interval: int) -> None:
    rng = random.Random(seed)
    directory = tmp_path / "orders-0"
    write_random(directory, rng, interval).close()
    quick, plain = opened(OsFs(), directory), opened(WrappedFs(OsFs()), directory)
    assert len(quick.segments) > 2
    taken = 0
    for n in range(400):
        offset = Offset(rng.randrange(quick.log_start, quick.log_end))
        timestamp = TS + rng.randrange(-70, quick.log_end + 70)
        assert quick.read(offset, 1)[1:] == plain.read(offset, 1)[1:]
        if n > 300:
            quick._state.log_start = plain._state.log_start = Offset(rng.randrange(2000))
        assert quick.offset_for_time(timestamp) == plain.offset_for_time(timestamp)
        taken += quick.segments.all[1].find_record(timestamp, 0, TimestampOffset) is not None
    assert taken > 100
    quick.close_abruptly()
    plain.close_abruptly()
