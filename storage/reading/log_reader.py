"""Reads a `.log` once, from front to back, through one reused buffer, and hands its batches on as rows.

The scanner sees windows; this module moves them over a file of any size. Memory is the window and the rows, whatever
the bytes claim: a batch that does not fit the window is summed in pieces.
Source of the walk: Apache Kafka 4.3.0, FileLogInputStream and LogSegment.recover.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable
from pathlib import PurePath
from typing import Final, NamedTuple, Protocol

from storage.base.errors import FileVanished
from storage.batch.batch import BatchHeader, parse_header
from storage.disk.buffers import PAGE_BYTES, page_aligned
from storage.disk.fs import OsReadFile, ReadFile
from storage.kernel.fold import SegmentFold
from storage.kernel.rows import COLUMNS, CONTROL_NONE, BatchRows, Folded, Scanned, Stop
from storage.kernel.scan import crc32c, find_batch, scan_batches, walk_headers

WINDOW_BYTES: Final = 2 << 20
"""What one read asks for. Smaller ones cost more for each byte; larger ones leave the processor's caches."""
MAPPED_BYTES: Final = 8 << 20
"""What is folded in one go of a file that need not be copied: as much is resident in each thread meanwhile."""
_WORTH_MAPPING: Final = 256 << 10
ROWS: Final = 8192
_LEAST: Final = 61
_ZEROES_BYTES: Final = 256 << 10
_ZEROES: Final = bytes(_ZEROES_BYTES)
_TOLD_BYTES: Final = 4 << 20
_SEARCH_BYTES: Final = 4 << 20
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""How far above the base offset of its segment an offset may lie."""

OnFolded = Callable[[int], None]
"""Called now and then with the file position up to which batches are folded."""
OnRows = Callable[[BatchRows, int, memoryview, int], None]
"""Called with the rows, their count, the bytes they came from and `origin`, the file position of those bytes.

Batch i begins in them at `rows.position[i] - origin`. They are empty for a batch that is larger than the window."""


class LogScan(NamedTuple):
    """How far the chain of sound batches reaches.

    `valid_size`: bytes of the file from its beginning that are whole, sound batches in order. `next_offset`: what the
    next batch should begin with. `stop`: END when that is the whole file, NEED_MORE for an incomplete last batch,
    otherwise what is wrong at `valid_size`. `blamed_earlier`: the batch at `valid_size` was itself passed by the
    scanner, but the one behind it fits only if it is taken out (its base offset, which no checksum covers, is wrong).
    """

    valid_size: int
    next_offset: int
    stop: Stop
    blamed_earlier: bool = False


class LogReader:
    """The buffers of one thread. Not to be shared between threads; each call reads one file."""

    def __init__(self, window: int = WINDOW_BYTES, rows: int = ROWS) -> None:
        if window < _LEAST:
            raise ValueError(f"window {window}: a batch header takes {_LEAST} bytes")
        self._buffer = page_aligned(2 * window)
        self._rows = BatchRows(rows)

    def scan(
        self, file: ReadFile, path: PurePath, size: int, next_offset: int, on_rows: OnRows, *, start: int = 0
    ) -> LogScan:
        """Check every batch in the bytes from `start` to `size` of `file`, and hand them on in pieces.

        `next_offset` is the lowest offset that the first batch may have. `on_rows` is called for each window; rows and
        bytes are reused afterwards. Raises `ReadFault`, and `FileVanished` if the file is shorter than `size`: a broker
        may truncate under us.
        """
        step = _RowsStep(self._rows, on_rows, scan_batches)
        return _Walk(self._buffer, step, file, path, size).run(start, next_offset)

    def ends_of(self, data: bytes, position: int, next_offset: int) -> tuple[int, int] | None:
        """Return last offset and magic of the last batch of bytes that are nothing but sound batches, else None.

        `position` is theirs in the file; `next_offset` the lowest offset that the first batch may have.
        """
        rows = self._rows
        scanned = scan_batches(memoryview(data), rows, position=position, next_offset=next_offset)
        if scanned.stop is not Stop.END or scanned.size != len(data) or not scanned.count:
            return None
        return rows.last_offset[scanned.count - 1], rows.magic[scanned.count - 1]

    def fold(
        self, file: ReadFile, path: PurePath, size: int, next_offset: int, fold: SegmentFold, on_folded: OnFolded
    ) -> LogScan:
        """Check every batch in the first `size` bytes of `file` and fold it; nobody sees rows, which is faster.

        Raises as `scan` does. A plain file of a disk is not even copied, as long as nothing is wrong with it: what
        is, is read to be judged.
        """
        step = _FoldStep(self._rows, fold, on_folded)
        walk = _Walk(self._buffer, step, file, path, size)
        number = file.descriptor() if isinstance(file, OsReadFile) and size >= _WORTH_MAPPING else -1
        position, next_offset = walk.mapped(step, number, next_offset) if number >= 0 else (0, next_offset)
        return walk.run(position, next_offset)

    def walk(
        self, file: ReadFile, path: PurePath, size: int, next_offset: int, on_rows: OnRows, *, start: int = 0
    ) -> LogScan:
        """Like `scan` without checksums: the headers alone, for bytes that are verified elsewhere."""
        step = _RowsStep(self._rows, on_rows, walk_headers)
        return _Walk(self._buffer, step, file, path, size).run(start, next_offset)


class _Step(Protocol):
    """What is done with the batches of a window."""

    verify: bool

    def window(self, window: memoryview, position: int, next_offset: int) -> Folded:
        """Take in the sound batches at the beginning of a window."""

    def one(self, position: int, header: BatchHeader, next_offset: int) -> Folded:
        """Take in a single sound batch of which only the header is in memory."""


class _RowsStep:
    """Hands rows on."""

    def __init__(self, rows: BatchRows, on_rows: OnRows, scan: Callable[..., Scanned]) -> None:
        self._rows, self._on_rows, self._scan = rows, on_rows, scan
        self.verify = scan is scan_batches

    def window(self, window: memoryview, position: int, next_offset: int) -> Folded:
        size = last_position = before_last = 0
        while True:
            left = window[size:]
            scanned = self._scan(left, self._rows, position=position + size, next_offset=next_offset)
            if scanned.count:
                last_position, before_last, next_offset = self._ends(scanned.count, next_offset)
                self._on_rows(self._rows, scanned.count, left, position + size)
            size += scanned.size
            if scanned.stop is not Stop.ROWS_FULL:
                return Folded(size, scanned.stop, next_offset, last_position, before_last)

    def one(self, position: int, header: BatchHeader, next_offset: int) -> Folded:
        _fill_row(self._rows, position, header)
        last_position, before_last, next_offset = self._ends(1, next_offset)
        self._on_rows(self._rows, 1, memoryview(b""), position)
        return Folded(header.size, Stop.END, next_offset, last_position, before_last)

    def _ends(self, count: int, next_offset: int) -> tuple[int, int, int]:
        rows = self._rows
        before_last = rows.last_offset[count - 2] + 1 if count > 1 else next_offset
        return rows.position[count - 1], before_last, rows.last_offset[count - 1] + 1


class _FoldStep:
    """Folds; tells how far it is every few windows."""

    verify = True

    def __init__(self, rows: BatchRows, fold: SegmentFold, on_folded: OnFolded) -> None:
        self._rows, self._fold, self._on_folded = rows, fold, on_folded
        self._told = 0

    def window(self, window: memoryview, position: int, next_offset: int) -> Folded:
        folded = self._fold.scan(window, self._rows, position=position, next_offset=next_offset)
        self._tell(position + folded.size)
        return folded

    def mapped(self, descriptor: int, position: int, end: int, next_offset: int) -> Folded | None:
        """Do as `window` with bytes of a file, as `SegmentFold.scan_file` says."""
        folded = self._fold.scan_file(descriptor, self._rows, position=position, end=end, next_offset=next_offset)
        if folded is not None:
            self._tell(position + folded.size)
        return folded

    def one(self, position: int, header: BatchHeader, next_offset: int) -> Folded:
        _fill_row(self._rows, position, header)
        self._fold.add(self._rows, 1)
        self._tell(position + header.size)
        return Folded(header.size, Stop.END, header.last_offset + 1, position, next_offset)

    def _tell(self, position: int) -> None:
        if position - self._told >= _TOLD_BYTES:
            self._on_folded(position)
            self._told = position


class _Walk:
    """One pass over one file."""

    def __init__(self, buffer: memoryview, step: _Step, file: ReadFile, path: PurePath, size: int) -> None:
        self._buffer, self._step, self._file, self._path, self._size = buffer, step, file, path, size
        self._window = len(buffer) // 2
        self._last_position = self._before_last = 0

    def run(self, start: int, next_offset: int) -> LogScan:
        position, at, have = start, self._window, self._window  # buffer[at:have] holds the file from `position` on
        while True:
            at, have = self._fill(position, at, have)
            folded = self._step.window(self._buffer[at:have], position, next_offset)
            next_offset = self._noted(folded)
            stop, at, position = folded.stop, at + folded.size, position + folded.size
            at_end = position + have - at == self._size
            if stop is Stop.END and not at_end:
                continue
            if stop is Stop.NEED_MORE and not at_end:
                if have - at < self._window:
                    continue
                large = self._large_batch(position, next_offset, self._buffer[at:have])
                if large is not None:
                    stop, size = large
                    if stop is Stop.END:
                        header = parse_header(self._buffer[at:have], 0)
                        next_offset = self._noted(self._step.one(position, header, next_offset))
                        position, at, have = position + size, self._window, self._window
                        continue
            return self._result(position, next_offset, stop, self._buffer[at:have])

    def mapped(self, step: _FoldStep, descriptor: int, next_offset: int) -> tuple[int, int]:
        """Pass over the sound batches at the beginning; return where they end, and the lowest offset behind them.

        No verdict on what follows comes from here, nor a fault: an end of the file that moves under us, a sector that
        cannot be read and a batch that is too large all look alike.
        """
        position = 0
        while position < self._size:
            folded = step.mapped(descriptor, position, min(position + MAPPED_BYTES, self._size), next_offset)
            if folded is None or not folded.size:
                break
            position, next_offset = position + folded.size, self._noted(folded)
            if folded.stop not in (Stop.END, Stop.NEED_MORE):
                break
        # Behind the end of a file its last page shows zero bytes, with which a batch may end.
        if position and not self._file.read_into(position - 1, self._buffer[:1]):
            raise _shrunk(self._path, position - 1)
        return position, next_offset

    def _fill(self, position: int, at: int, have: int) -> tuple[int, int]:
        """Read what comes behind buffer[at:have] into the second half of the buffer, and move that to right before it.

        Reads end where a page of the file does, and pages of the file go to pages of memory.
        """
        left = have - at
        first = self._window + ((position + left) % PAGE_BYTES if self._window > PAGE_BYTES else 0)
        self._buffer[first - left : first] = self._buffer[at:have]
        wanted = min(2 * self._window - first, self._size - position - left)
        count = self._file.read_into(position + left, self._buffer[first : first + wanted])
        if count < wanted:
            raise _shrunk(self._path, position + left + count)
        return first - left, first + count

    def _noted(self, folded: Folded) -> int:
        """Remember the last batch, on which blame may fall; return what may come next."""
        if folded.size:
            self._last_position, self._before_last = folded.last_position, folded.before_last
        return folded.next_offset

    def _result(self, position: int, next_offset: int, stop: Stop, rest: memoryview) -> LogScan:
        """Say where the sound chain ends; when offsets go back, find out which of the two batches is the liar."""
        if stop is Stop.BAD_ORDER:
            header = parse_header(rest, 0)
            last_had_gap = self._rows_base(self._last_position) > self._before_last
            if position > self._last_position and last_had_gap and header.base_offset >= self._before_last:
                return LogScan(self._last_position, self._before_last, stop, blamed_earlier=True)
        return LogScan(position, next_offset, stop)

    def _rows_base(self, position: int) -> int:
        base = memoryview(bytearray(8))
        self._file.read_into(position, base)
        return int.from_bytes(base, "big", signed=True)

    def _large_batch(self, position: int, next_offset: int, begun: memoryview) -> tuple[Stop, int] | None:
        """Check the batch at `position`, which is larger than the window; END if it is sound, and its size.

        `begun` is its beginning. Returns None where the file ends inside it.
        """
        header = parse_header(begun, 0)
        size = header.size
        if position + size > self._size:
            return None
        if self._step.verify and self._checksum(position, size, header.magic) != header.crc:
            return Stop.BAD_MAGIC if header.magic > 2 else Stop.BAD_CRC, size
        if header.magic > 2:
            return Stop.UNKNOWN_MAGIC, size
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            return Stop.BAD_ORDER, size
        return Stop.END, size

    def _checksum(self, position: int, size: int, magic: int) -> int:
        first = 21 if magic >= 2 else 16
        piece = page_aligned(self._window)
        done, value = first, 0
        while done < size:
            part = piece[: min(len(piece), size - done)]
            if self._file.read_into(position + done, part) < len(part):
                raise _shrunk(self._path, position + done)
            value = crc32c(part, value) if magic >= 2 else zlib.crc32(part, value)
            done += len(part)
        return value


def _fill_row(rows: BatchRows, position: int, header: BatchHeader) -> None:
    for name in COLUMNS:
        getattr(rows, name)[0] = getattr(header, name, -1)
    rows.position[0] = position
    rows.control[0] = CONTROL_NONE  # markers are small; no control batch is larger than a window


def _shrunk(path: PurePath, position: int) -> FileVanished:
    return FileVanished(f"reading at {position}", path, OSError(errno.ESTALE, "it has shrunk"))


def find_sound_batch(file: ReadFile, size: int, start: int, next_offset: int) -> int | None:
    """Return the position of the first batch at or behind `start` that is whole, sound and could follow, or None.

    Only asked on damage, and only to say what lies behind it; it never moves a cut. Works through the file in windows
    that overlap by a quarter, so that memory stays bounded; a batch larger than that may go unnoticed. Candidates are
    those with a base offset from `next_offset` to 2147483647 above it. Time is linear in the bytes searched.
    """
    buffer = memoryview(bytearray(min(_SEARCH_BYTES, max(size - start, 1))))
    step = max(len(buffer) * 3 // 4, 1)
    for position in range(start, size, step):
        count = file.read_into(position, buffer[: min(len(buffer), size - position)])
        found = find_batch(buffer[:count], 0, lowest=next_offset, highest=next_offset + MAX_RELATIVE_OFFSET)
        if found >= 0:
            return position + found
        if position + count >= size:
            break
    return None


def is_zero(file: ReadFile, start: int, size: int, *, skip_holes: bool = False) -> bool:
    """Tell whether every byte from `start` to `size` is zero, reading no further than the first that is not.

    With `skip_holes` the holes of the file are not read. That is for files that can be rebuilt: there have been file
    systems that took bytes for a hole that had just been written.
    """
    stored_from = file.stored_from if skip_holes and isinstance(file, OsReadFile) else None
    found, position, end = bytearray(), start, size
    while position < size:
        if stored_from is not None:
            if (stored := stored_from(position)) is None:
                break
            position, end = stored
        length = max(min(_ZEROES_BYTES, end - position, size - position), 0)
        # Of the kind that compares all at once: memoryviews go byte by byte, fifty times slower.
        found = found if len(found) == length else bytearray(length)
        with memoryview(found) as buffer:
            file.read_into(position, buffer)
        if found != _ZEROES[:length]:
            return False
        position += length
    return True
