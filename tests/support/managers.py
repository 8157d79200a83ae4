"""Log managers on disks in memory, and what tests put into them."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeVar

from support.wrapped_fs import READING, Call, WrappedFs

from engine.manager.manager import LogManager
from engine.settings.options import ManagerOptions
from storage.base.units import Offset, TopicPartition
from storage.batch.batch import split_batches
from storage.batch.record import Record, encode_batch, records_of
from storage.disk.fs import Fs, read_fault, write_fault
from storage.log.log_types import Appended, Isolation

T = TypeVar("T")
A, B = PurePath("/a"), PurePath("/b")
NOW = 1_700_000_000_000
P0 = TopicPartition("orders", 0)


_NUMBERS = itertools.count(1)


def draw_id() -> bytes:
    """Return an id that was not drawn before."""
    return next(_NUMBERS).to_bytes(16, "little")


def options(**more: Any) -> ManagerOptions:
    """Return options for a disk that nobody else has."""
    return ManagerOptions(
        **{"lock": lambda _: contextlib.nullcontext(), "draw_id": draw_id, "cleaner_memory_bytes": 1 << 16, **more}
    )


def open_manager(fs: Fs, paths: Sequence[PurePath] = (A,), now_ms: int = NOW, **more: Any) -> LogManager:
    return LogManager.open(fs, paths, now_ms, options(**more))


def batch(*values: str | bytes, timestamp: int = NOW, key: bytes | None = None, **more: Any) -> bytes:
    """Return a batch as a client sends it."""
    made = [value.encode() if isinstance(value, str) else value for value in values]
    return encode_batch([Record(n, timestamp, key=key, value=value) for n, value in enumerate(made)], **more)


def append(manager: LogManager, *values: str, name: TopicPartition = P0, now_ms: int = NOW, **more: Any) -> Appended:
    done = manager.append(name, batch(*values, **more), now_ms)
    assert done is not None
    return done


def records(manager: LogManager, name: TopicPartition = P0, start: int = 0) -> Iterator[Record]:
    """Yield the records from `start` on."""
    offset = Offset(start)
    while data := manager.read(name, offset, 1 << 20, Isolation.LOG_END).load():
        for each in split_batches(data):
            for record in records_of(each):
                offset = Offset(record.offset + 1)
                yield record


def values(manager: LogManager, name: TopicPartition = P0, start: int = 0) -> list[str]:
    return [(record.value or b"").decode() for record in records(manager, name, start)]


SMALL: Mapping[str, str] = {"internal.segment.bytes": "200"}
"""Settings under which a segment takes two small batches."""


class FailingFs(WrappedFs):
    """While `is_broken`, every call that `fails` picks is refused with `errno`."""

    def __init__(self, inner: Fs, errno: int, fails: Callable[[Call], bool], *, is_broken: bool = False) -> None:
        super().__init__(inner)
        self._errno, self._fails, self.is_broken = errno, fails, is_broken

    def _do(self, call: Call, action: Callable[[], T]) -> T:
        if self.is_broken and self._fails(call):
            fault = read_fault if call.method in READING else write_fault
            raise fault(f"{call.method} (made to fail)", call.path, OSError(self._errno, os.strerror(self._errno)))
        return action()
