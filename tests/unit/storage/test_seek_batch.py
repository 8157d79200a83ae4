"""Finding a batch in one call of the kernel is finding it header by header."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from support.batches import batch_v2, legacy
from support.plain_file import Plain

from storage import fs
from storage.errors import BatchCorrupt
from storage.fs import OsFs, ReadFile
from storage.segment_walk import BatchPlace, batches_since, first_batch_reaching
from storage.units import Offset

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
        seek = file.seek_batch  # type: ignore[attr-defined]
        assert seek(0, end, 4, 1 << 62) == (len(first), len(second), 3, 4, 77, 2)
        assert seek(0, end, 5, 1 << 62) is None, "an old format comes before it"
        assert seek(0, len(first) + 100, 4, 1 << 62) is None, "it does not end by there"
    assert seek(0, end, 4, 1 << 62) is None, "it is closed"


def test_a_file_may_be_closed_beside_a_search(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(batch_v2(n, payload=bytes(4000)) for n in range(500)))
    end, file = path.stat().st_size, OsFs().open_read(path)
    found: list[object] = []

    def search() -> None:
        while not found or found[-1] is not None:
            found.append(file.seek_batch(0, end, 499, 1 << 62))  # type: ignore[attr-defined]

    thread = threading.Thread(target=search)
    thread.start()
    while len(found) < 20:
        pass
    file.close()
    thread.join(60)
    assert not thread.is_alive()
    assert {one for one in found if one is not None} == {found[0]}
