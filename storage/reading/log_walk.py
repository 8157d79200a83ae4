"""The batches of a `.log` or of a KRaft snapshot, one after another, damaged ones included.

A recovery stops at the first fault; a dump or an audit goes on: over a batch whose checksum does not hold by its size
field, and over bytes that are no batch to the next sound one. Where all is well, `storage.reading.log_reader` is
faster.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from storage.base.errors import BatchCorrupt
from storage.batch.batch import HEADER_V0, HEADER_V2, BatchHeader, parse_header
from storage.disk.buffers import page_aligned
from storage.disk.fs import ReadFile
from storage.kernel.scan import crc32c, find_batch
from storage.reading.log_reader import MAX_RELATIVE_OFFSET, find_sound_batch, is_zero

_WINDOW_BYTES: Final = 1 << 20
_NEAR_BYTES: Final = 512 << 10
_HEADER_BYTES: Final = HEADER_V2.size


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch by its header, at `position` of the file."""

    position: int
    header: BatchHeader
    checksum_holds: bool

    @property
    def is_sound(self) -> bool:
        """Its checksum holds, and its magic is known."""
        return self.checksum_holds and self.header.magic <= 2


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes of a file that are not what they should be; `size` is None where it cannot be told."""

    position: int
    size: int | None
    reason: str


class Window:
    """A piece of a file in memory, moved forward as the caller reads on."""

    def __init__(self, file: ReadFile, size: int) -> None:
        self._file, self.size = file, size
        self._buffer = page_aligned(min(_WINDOW_BYTES, max(size, 1)))
        self._at = self._have = 0

    def peek(self, position: int, length: int) -> memoryview:
        """Return up to `length` bytes, at most a window, from `position` on; fewer only at the end of the file.

        What was returned before is void.
        """
        length = min(length, len(self._buffer), self.size - position)
        if not self._at <= position <= position + length <= self._at + self._have:
            self._at = position
            wanted = min(len(self._buffer), self.size - position)
            self._have = self._file.read_into(position, self._buffer[:wanted])
        start = position - self._at
        return self._buffer[start : min(start + length, self._have)]

    def read(self, position: int, length: int) -> bytes:
        """Return `length` bytes from `position` on; fewer only at the end of the file."""
        if length <= len(self._buffer):
            return bytes(self.peek(position, length))
        target = bytearray(min(length, self.size - position))
        return bytes(target[: self._file.read_into(position, memoryview(target))])

    def checksum(self, position: int, header: BatchHeader) -> int:
        """Return what the bytes of a batch sum to, in pieces: a batch may be larger than memory."""
        at, end, value = position + (21 if header.magic >= 2 else 16), position + header.size, 0
        while at < end:
            piece = self.peek(at, end - at)
            if not piece:
                break
            value = crc32c(piece, value) if header.magic >= 2 else zlib.crc32(piece, value)
            at += len(piece)
        return value


def walk(file: ReadFile, size: int, start: int = 0, next_offset: int = 0) -> Iterator[Batch | Fault]:
    """Yield every batch of the file, and the faults between them, from `start` to its end.

    `next_offset` is the lowest offset that the first of them should have. Of damage that hides where the next batch
    begins, all bytes up to the next sound batch are one fault. Time is linear in the bytes, however many faults.
    """
    window, position = Window(file, size), start
    while position < size:
        item = _batch_at(window, position)
        if isinstance(item, Fault):
            rest = _bounded(file, window, item, next_offset)
            yield rest
            position += rest.size or size
            continue
        if item.is_sound:
            if item.header.base_offset < next_offset or item.header.last_offset < item.header.base_offset:
                yield Fault(position, item.header.size, f"offsets do not follow {next_offset - 1}, the last before")
            next_offset = max(next_offset, item.header.last_offset + 1)
        yield item
        position += item.header.size


def _batch_at(window: Window, position: int) -> Batch | Fault:
    left = window.size - position
    if left < HEADER_V0.size:
        return Fault(position, left, f"{left} bytes at the end are less than a batch header")
    try:
        header = parse_header(window.peek(position, _HEADER_BYTES))
    except BatchCorrupt as fault:
        return Fault(position, None, fault.reason)
    if header.size > left:
        return Fault(position, None, f"the size field says {header.size} bytes, {left} are left")
    return Batch(position, header, window.checksum(position, header) == header.crc)


def _bounded(file: ReadFile, window: Window, fault: Fault, next_offset: int) -> Fault:
    """Return the fault with its size: up to the next sound batch, else to the end of the file."""
    size = window.size
    sound = _sound_in(window, fault.position + 1, next_offset)
    if sound is None:
        if is_zero(file, fault.position, size):
            return Fault(fault.position, size - fault.position, "zero bytes to the end of the file")
        sound = find_sound_batch(file, size, fault.position + 1, next_offset)
    end = size if sound is None else sound
    behind = "" if sound is None else f"; the next sound batch is at {sound}"
    return Fault(fault.position, end - fault.position, fault.reason + behind)


def _sound_in(window: Window, start: int, next_offset: int) -> int | None:
    """Return where the next sound batch begins if it is in memory: many small faults must not each read far ahead."""
    ahead = window.peek(start, _NEAR_BYTES)
    found = find_batch(ahead, 0, lowest=next_offset, highest=next_offset + MAX_RELATIVE_OFFSET)
    return start + found if found >= 0 else None
