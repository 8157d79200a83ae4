"""Producer ids that no two producers share: taken in blocks of 1,000, each noted on disk before its first id is used.

They begin at 1<<40, which no broker that takes the directory back ever reaches, and above every id in the logs.
`logmend-producer-ids.json` at the top of each log directory holds the beginning of the next block: the highest of them
counts, so that one directory may be lost. The rest of a block is never used once the listener stops.

    {"version": 1, "next": 1099511628776}
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePath
from typing import Final

from engine.manager.manager import LogManager
from engine.settings.refusals import NoLogDir
from storage.base.errors import CheckpointCorrupt, CorruptData, FileVanished, LogmendError, UnsupportedFormat
from storage.base.units import INT64_MAX
from storage.disk.fs import Fs, ReadFs, read_all, replace_atomically

FILE_NAME: Final = "logmend-producer-ids.json"
"""No name of Kafka's and no suffix of its: brokers of every release ignore plain files that they do not know."""
FIRST: Final = 1 << 40
BLOCK: Final = 1000
_VERSION: Final = 1
_LIMIT: Final = 4096

Reserve = Callable[[int], Awaitable[range]]
"""Reserves a block of ids, none below the number given, that no other call ever returns."""


class ProducerIds:
    """Unused producer ids. For the thread of the listener's loop alone."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._block = range(0)
        self._least = FIRST
        self._reserving: asyncio.Future[None] | None = None

    def note_seen(self, producer_id: int) -> None:
        """Never give out this id or one below it."""
        self._least = max(self._least, producer_id + 1)

    async def draw(self) -> int:
        """Return an id that no producer has. Raises what reserving a block raises; the next call tries again."""
        while True:
            block = self._block = range(max(self._block.start, self._least), self._block.stop)
            if block:
                self._block = block[1:]
                return block.start
            await self._fill()

    async def _fill(self) -> None:
        """Get the next block; calls at the same time wait for the same one."""
        if self._reserving is None:
            self._reserving = asyncio.ensure_future(self._take())
        await asyncio.shield(self._reserving)

    async def _take(self) -> None:
        try:
            self._block = await self._reserve(self._least)
        finally:  # before another call sees this one done and the block still empty
            self._reserving = None


def unstored(seen: int = 0) -> ProducerIds:
    """Return ids above `seen` that are noted nowhere; for directories that must not change."""
    end = max(FIRST, seen + 1)

    async def reserve(least: int) -> range:
        nonlocal end
        start = max(end, least)
        end = start + BLOCK
        return range(start, end)

    return ProducerIds(reserve)


def reserve_block(fs: Fs, manager: LogManager, least: int) -> range:
    """Note on disk, durably, that a block is taken, and return it; none of its ids is below `least`.

    Raises `NoLogDir` if no log directory is there to take the note, `WriteFault`, `OutOfIds`, and `CorruptData` if
    there are notes and none can be read: there may be ids in use that no log remembers.
    """
    online = [log_dir for log_dir in manager.log_dirs if log_dir.offline is None]
    if not online:
        raise NoLogDir({log_dir.path: (log_dir.offline or "", log_dir.status) for log_dir in manager.log_dirs})
    start = max(FIRST, least, highest_known(manager) + 1, _highest_noted(fs, [log_dir.path for log_dir in online]))
    if start > INT64_MAX - BLOCK:
        raise OutOfIds(f"no producer ids are left above {start - 1}")
    for log_dir in online:
        with manager.fenced(log_dir):
            replace_atomically(fs, log_dir.path / FILE_NAME, encode_next(start + BLOCK))
    return range(start, start + BLOCK)


class OutOfIds(LogmendError):
    """Some log holds a producer id so high that none is left above it."""


def _highest_noted(fs: ReadFs, paths: Sequence[PurePath]) -> int:
    noted: list[int] = []
    bad: list[CorruptData] = []
    for path in paths:
        try:
            noted.append(read_next(fs, path))
        except CorruptData as error:
            bad.append(error)
    highest = max(noted, default=0)
    if bad and not highest:
        raise bad[0]
    return highest


def highest_known(manager: LogManager) -> int:
    """Return the highest producer id that a log knows, -1 without any."""
    return max((max(p.log.producers.state.entries, default=-1) for _, p in manager.partitions()), default=-1)


def read_next(fs: ReadFs, log_dir: PurePath) -> int:
    """Return where the next block begins by the note of a log directory, 0 without one. Raises as `decode_next`."""
    path = log_dir / FILE_NAME
    try:
        return decode_next(read_all(fs, path, _LIMIT))
    except FileVanished:
        return 0
    except CorruptData as error:
        error.path = path
        raise


def decode_next(data: bytes) -> int:
    """Return the number in a note; raises `CheckpointCorrupt` and, for a later version, `UnsupportedFormat`."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise CheckpointCorrupt("not JSON") from None
    version, start = (document.get("version"), document.get("next")) if isinstance(document, dict) else (None, None)
    if not isinstance(version, int) or version < _VERSION:
        raise CheckpointCorrupt("no version")
    if version > _VERSION:
        raise UnsupportedFormat(f"{FILE_NAME} of version {version}; {_VERSION} is known")
    if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start <= INT64_MAX:
        raise CheckpointCorrupt("no next producer id")
    return start


def encode_next(start: int) -> bytes:
    """Return the note that the next block begins at `start`."""
    return (json.dumps({"version": _VERSION, "next": start}) + "\n").encode()
