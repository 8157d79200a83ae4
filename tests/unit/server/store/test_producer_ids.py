"""Producer ids are never given out twice, whatever is lost in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import PurePath
from typing import TypeVar

import pytest
from support.managers import NOW, A, B, batch, open_manager
from support.memory_fs import MemoryFs

from engine.manager.manager import LogManager
from server.store.producer_ids import (
    BLOCK,
    FILE_NAME,
    FIRST,
    OutOfIds,
    ProducerIds,
    decode_next,
    reserve_block,
    unstored,
)
from storage.base.errors import CheckpointCorrupt, CorruptData, UnsupportedFormat, WriteFault
from storage.base.units import INT64_MAX, TopicPartition
from storage.disk.fs import Fs, read_all

T = TypeVar("T")


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await work

    return asyncio.run(main())


def ids_of(fs: Fs, manager: LogManager) -> ProducerIds:
    async def reserve(least: int) -> range:
        await asyncio.sleep(0)
        return reserve_block(fs, manager, least)

    return ProducerIds(reserve)


async def draw_many(ids: ProducerIds, count: int) -> list[int]:
    return list(await asyncio.gather(*(ids.draw() for _ in range(count))))


def test_ids_are_given_out_one_after_another_from_1_shl_40_on() -> None:
    fs = MemoryFs()
    with open_manager(fs) as manager:
        assert run(draw_many(ids_of(fs, manager), 2 * BLOCK + 1)) == [*range(FIRST, FIRST + 2 * BLOCK + 1)]
        assert decode_next(read_all(fs, A / FILE_NAME, 4096)) == FIRST + 3 * BLOCK


def test_a_restart_goes_on_behind_the_block_that_was_begun() -> None:
    fs = MemoryFs()
    with open_manager(fs) as manager:
        assert run(ids_of(fs, manager).draw()) == FIRST
    with open_manager(fs) as manager:
        assert run(ids_of(fs, manager).draw()) == FIRST + BLOCK


def test_ids_are_above_those_that_a_log_knows() -> None:
    fs = MemoryFs()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 2, {}, NOW)
        high = FIRST + 123_456
        manager.append(
            TopicPartition("orders", 1), batch("a", producer_id=high, producer_epoch=0, base_sequence=0), NOW
        )
        manager.append(TopicPartition("orders", 0), batch("a", producer_id=7, producer_epoch=0, base_sequence=0), NOW)
        assert run(ids_of(fs, manager).draw()) == high + 1


def test_ids_are_above_those_that_were_noted() -> None:
    ids = unstored(seen=FIRST + 5)
    ids.note_seen(FIRST + 9)
    assert run(ids.draw()) == FIRST + 10

    async def later() -> list[int]:
        first = await ids.draw()
        ids.note_seen(first + 3 * BLOCK)
        return [first, await ids.draw()]

    assert run(later()) == [FIRST + 11, FIRST + 12 + 3 * BLOCK]


def test_ids_that_are_stored_nowhere_begin_above_what_was_seen() -> None:
    assert run(draw_many(unstored(), 3)) == [FIRST, FIRST + 1, FIRST + 2]
    assert run(unstored(FIRST + 77).draw()) == FIRST + 78


def test_one_log_directory_of_two_is_enough_to_remember() -> None:
    fs = MemoryFs()
    with open_manager(fs, [A, B]) as manager:
        run(ids_of(fs, manager).draw())
    for path in (A, B):
        fs.remove(path / FILE_NAME)
        with open_manager(fs, [A, B]) as manager:
            drawn = run(ids_of(fs, manager).draw())
        assert drawn > FIRST
        assert decode_next(read_all(fs, path / FILE_NAME, 4096)) == drawn + BLOCK


def test_a_note_that_cannot_be_read_counts_for_nothing_beside_one_that_can() -> None:
    fs = MemoryFs()
    with open_manager(fs, [A, B]) as manager:
        run(ids_of(fs, manager).draw())
        fs.truncate(A / FILE_NAME, 3)
        assert run(ids_of(fs, manager).draw()) == FIRST + BLOCK


def test_without_any_note_that_can_be_read_no_id_is_given_out() -> None:
    fs = MemoryFs()
    with open_manager(fs) as manager:
        ids = ids_of(fs, manager)
        run(draw_many(ids, BLOCK))
        fs.truncate(A / FILE_NAME, 3)
        with pytest.raises(CorruptData, match=FILE_NAME):
            run(ids.draw())


def test_a_block_that_could_not_be_noted_is_not_given_out_and_the_next_one_is() -> None:
    calls: list[int] = []

    async def reserve(least: int) -> range:
        calls.append(least)
        await asyncio.sleep(0)
        if len(calls) == 1:
            raise WriteFault("write", PurePath("/a"), OSError(28, "full"))
        return range(least, least + BLOCK)

    async def both() -> list[object]:
        ids = ProducerIds(reserve)
        failed = await asyncio.gather(ids.draw(), ids.draw(), return_exceptions=True)
        return [*failed, await ids.draw()]

    first, second, third = run(both())
    assert isinstance(first, WriteFault)
    assert isinstance(second, WriteFault)
    assert third == FIRST
    assert len(calls) == 2


def test_the_end_of_all_ids_is_refused() -> None:
    fs = MemoryFs()
    with open_manager(fs) as manager:
        ids = ids_of(fs, manager)
        ids.note_seen(INT64_MAX - 1)
        with pytest.raises(OutOfIds):
            run(ids.draw())


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "next": -1}', b'{"version": 1, "next": true}']
)
def test_a_broken_note_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode_next(data)


def test_a_note_of_a_later_version_is_unknown() -> None:
    with pytest.raises(UnsupportedFormat, match="version 2"):
        decode_next(b'{"version": 2, "next": 5}')


def test_who_asks_just_when_a_block_has_come_gets_an_id_of_it() -> None:
    reserved: asyncio.Future[range] | None = None

    async def main() -> list[int]:
        nonlocal reserved
        reserved = asyncio.get_running_loop().create_future()
        ids = ProducerIds(lambda _least: asyncio.shield(reserved))
        first = asyncio.ensure_future(ids.draw())
        await asyncio.sleep(0)
        reserved.set_result(range(FIRST, FIRST + BLOCK))
        found = [await ids.draw() for _ in range(6)]  # at each moment from there on
        return sorted([await first, *found])

    assert run(main()) == [*range(FIRST, FIRST + 7)]
