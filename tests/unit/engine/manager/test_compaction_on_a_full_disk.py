"""A disk that is full while a log is compacted: nothing is lost, and in a swap the directory goes offline."""

from __future__ import annotations

import errno

import pytest
from support.managers import NOW, P0, SMALL, A, FailingFs, append, open_manager, records
from support.memory_fs import MemoryFs
from support.wrapped_fs import Call

from engine.manager.manager import LogManager
from storage.base.errors import DiskFull

SETTINGS = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def filled(fs: FailingFs) -> LogManager:
    manager = open_manager(fs)
    manager.topics.create("orders", 1, SETTINGS, NOW)
    for number in range(12):
        append(manager, str(number), key=b"k%d" % (number % 2))
    return manager


def newest(manager: LogManager) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records(manager)}


def is_of_cleaned(call: Call) -> bool:
    return call.path.suffix == ".cleaned" and call.method in ("append", "create")


@pytest.mark.parametrize("method", ["append", "create"])
def test_without_room_for_the_new_segment_the_log_stays_as_it_is_and_is_tried_again(method: str) -> None:
    inner = MemoryFs({"/a/": b""})
    fs = FailingFs(inner, errno.ENOSPC, lambda call: is_of_cleaned(call) and call.method == method)
    manager = filled(fs)
    wanted, before = newest(manager), len(list(records(manager)))
    fs.is_broken = True
    (fault,) = manager.compact(NOW)
    assert isinstance(fault, DiskFull)
    assert manager.offline == {}
    assert newest(manager) == wanted
    assert append(manager, "more", key=b"k0").first_offset == 12
    fs.is_broken = False
    assert manager.compact(NOW) == []
    assert len(list(records(manager))) < before
    assert newest(manager) == {**wanted, b"k0": b"more"}
    assert not [name for name in inner.contents("/a/orders-0") if name.endswith(".cleaned")]


@pytest.mark.parametrize("nth", range(1, 9))
def test_in_the_middle_of_the_swap_the_directory_goes_offline_and_the_next_opening_puts_it_right(nth: int) -> None:
    inner, seen = MemoryFs({"/a/": b""}), []

    def fails(call: Call) -> bool:
        if call.method == "rename" and call.path.is_relative_to(A / "orders-0"):
            seen.append(call)
        return call.method == "rename" and len(seen) >= nth

    fs = FailingFs(inner, errno.ENOSPC, fails)
    manager = filled(fs)
    wanted = newest(manager)
    fs.is_broken = True
    (fault,) = manager.compact(NOW)
    assert isinstance(fault, DiskFull)
    assert list(manager.offline) == [A]
    again = open_manager(inner)
    assert newest(again) == wanted
    assert again.compact(NOW) == []
    assert newest(again) == wanted
    assert again.log(P0).log_end == 12
