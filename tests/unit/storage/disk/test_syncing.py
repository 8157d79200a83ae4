"""Several files are made durable side by side, in no more threads than there are files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.base.errors import WriteFault
from storage.disk.fs import OsFs, OsWriteFile, WriteFile
from storage.disk.syncing import sync_all


class Told(OsWriteFile):
    """A file of the disk of which a sync does what it was told."""

    meanwhile: Callable[[], None]

    def sync(self) -> None:
        self.meanwhile()
        super().sync()


def sync(directory: Path, *meanwhile: Callable[[], None], threads: int) -> None:
    """Sync as many files as there are calls to make meanwhile."""
    with contextlib.ExitStack() as opened:
        made: list[WriteFile] = []
        for number, each in enumerate(meanwhile):
            file = opened.enter_context(OsFs().create(directory / str(number)))
            assert isinstance(file, OsWriteFile)
            file.__class__ = Told
            file.meanwhile = each  # type: ignore[attr-defined]
            made.append(file)
        sync_all(made, threads)


def test_as_many_are_synced_at_a_time_as_there_are_threads_the_asking_one_among_them(tmp_path: Path) -> None:
    meeting, who = threading.Barrier(3), set()

    def meet() -> None:
        who.add(threading.current_thread())
        meeting.wait(60)

    sync(tmp_path, *[meet] * 6, threads=3)
    assert len(who) == 3
    assert threading.current_thread() in who


def test_one_thread_syncs_all_in_their_order(tmp_path: Path) -> None:
    done: list[int] = []
    before = threading.active_count()
    calls = [lambda number=number: done.append(number) for number in range(4)]
    sync(tmp_path, *calls, threads=1)  # type: ignore[arg-type]
    assert done == [0, 1, 2, 3]
    assert threading.active_count() == before


def test_the_first_fault_in_order_is_raised_once_no_sync_is_under_way(tmp_path: Path) -> None:
    ended: list[int] = []
    both = threading.Barrier(2)

    def fail(number: int) -> None:
        both.wait(60)
        ended.append(number)
        raise WriteFault("syncing", tmp_path / str(number), OSError(5, "EIO"))

    failing = [lambda: fail(0), lambda: fail(1)]
    with pytest.raises(WriteFault) as caught:
        sync(tmp_path, *failing, threads=2)
    assert (caught.value.path, sorted(ended)) == (tmp_path / "0", [0, 1])
