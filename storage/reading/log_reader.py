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
from typing import Final, NamedTuple, Protocol, runtime_checkable

from storage.base.errors import FileVanished
from storage.base.rows import COLUMNS, CONTROL_NONE, BatchRows, Folded, Scanned, Stop
from storage.batch.batch import BatchHeader, parse_header
from storage.disk.buffers import PAGE_BYTES, page_aligned
from storage.disk.fs import ReadFile
from storage.kernel.fold import SegmentFold
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
_ZERO_BEGINNING: Final = 12
"""Bytes of a batch that may all be zero, those of its base offset and of its size, which as a whole is never 0."""
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""How far above the base offset of its segment an offset may lie."""

OnFolded = Callable[[int], None]
"""Called now and then with the file position up to which batches are folded."""
OnRows = Callable[[BatchRows, int, memoryview, int], None]
"""Called with the rows, their count, the bytes they came from and `origin`, the file position of those bytes.

Batch i begins in them at `rows.position[i] - origin`. They are empty for a batch that is larger than the window."""


@runtime_checkable
class MappableFile(Protocol):
    """A file whose bytes the kernel can map, as a plain file of a disk."""

    def descriptor(self) -> int:
        """Return the number of the open file, -1 for one that cannot be mapped after all."""


@runtime_checkable
class SparseFile(Protocol):
    """A file that knows which of its bytes are stored."""

    def stored_from(self, position: int) -> tuple[int, int] | None:
        """Return where, from `position` on, bytes are stored, and where that ends; None if nothing follows."""

    def tells_every_hole(self) -> bool:
        """Tell whether that may be believed of bytes that nothing else has."""


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
        self._buffer = _Buffer(page_aligned(2 * window))
        self._rows = BatchRows(rows)

    def begin(
        self,
        file: ReadFile,
        path: PurePath,
        size: int,
        next_offset: int,
        on_rows: OnRows,
        *,
        start: int = 0,
        checksums: bool = True,
    ) -> LogWalk:
        """Return a walk that does as `scan`, without `checksums` as `walk`, and pauses where its caller likes.

        Other calls may come in between: the walk then reads the batch again that it was in.
        """
        step = _RowsStep(self._rows, on_rows, scan_batches if checksums else walk_headers)
        return LogWalk(self._buffer, step, file, path, size, start, next_offset)

    def scan(
        self, file: ReadFile, path: PurePath, size: int, next_offset: int, on_rows: OnRows, *, start: int = 0
    ) -> LogScan:
        """Check every batch in the bytes from `start` to `size` of `file`, and hand them on in pieces.

        `next_offset` is the lowest offset that the first batch may have. `on_rows` is called for each window; rows and
        bytes are reused afterwards. Raises `ReadFault`, and `FileVanished` if the file is shorter than `size`: a broker
        may truncate under us.
        """
        return self.begin(file, path, size, next_offset, on_rows, start=start).run()

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
        self,
        file: ReadFile,
        path: PurePath,
        size: int,
        next_offset: int,
        fold: SegmentFold,
        on_folded: OnFolded,
        *,
        start: int = 0,
    ) -> LogScan:
        """Check every batch in the bytes from `start` to `size` of `file` and fold it, without rows, which is faster.

        Raises as `scan` does. A plain file of a disk is not even copied, as long as nothing is wrong with it: what
        is, is read to be judged.
        """
        if start > size:
            raise ValueError(f"from {start} on in a file of {size} bytes")
        step = _FoldStep(self._rows, fold, on_folded)
        walk = LogWalk(self._buffer, step, file, path, size, start, next_offset)
        number = file.descriptor() if size - start >= _WORTH_MAPPING and isinstance(file, MappableFile) else -1
        if number >= 0:
            walk.pass_mapped(step, number)
        return walk.run()

    def walk(
        self, file: ReadFile, path: PurePath, size: int, next_offset: int, on_rows: OnRows, *, start: int = 0
    ) -> LogScan:
        """Like `scan` without checksums: the headers alone, for bytes that are verified elsewhere."""
        return self.begin(file, path, size, next_offset, on_rows, start=start, checksums=False).run()


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


class _Buffer:
    """The memory that the walks of one thread share; `owner` is the one whose bytes are in it."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.owner: LogWalk | None = None


class LogWalk:
    """One pass over one file. `position`, `next_offset`: where the chain of sound batches ends so far."""

    def __init__(
        self,
        buffer: _Buffer,
        step: _Step,
        file: ReadFile,
        path: PurePath,
        size: int,
        start: int,
        next_offset: int,
    ) -> None:
        self._shared, self._buffer = buffer, buffer.view
        self._step, self._file, self._path, self._size = step, file, path, size
        self._window = len(self._buffer) // 2
        self._at = self._have = self._window  # buffer[at:have] holds the file from `position` on
        self._last_position, self._before_last = start, next_offset
        self.position, self.next_offset = start, next_offset

    @property
    def read_to(self) -> int:
        """The position up to which bytes were read."""
        return self.position + self._have - self._at

    def run(self) -> LogScan:
        """Walk to the end of the chain."""
        while (scan := self.advance(self._size)) is None:
            pass
        return scan

    def advance(self, size: int) -> LogScan | None:
        """Walk about `size` bytes on, at least a window; return how far the chain reaches once it ends, None before.

        Raises as `LogReader.scan` does.
        """
        until = self.position + size
        self._take_buffer()
        while True:
            self._fill()
            folded = self._step.window(self._buffer[self._at : self._have], self.position, self.next_offset)
            self._pass(folded)
            self._at += folded.size
            stop, is_at_end = folded.stop, self.read_to == self._size
            if stop is Stop.NEED_MORE and not is_at_end:
                stop = Stop.END if self._have - self._at < self._window else self._pass_large()
            if stop is not Stop.END or is_at_end:
                self._shared.owner = None
                return self._result(stop, self._buffer[self._at : self._have])
            if self.position >= until:
                return None

    def pass_mapped(self, step: _FoldStep, descriptor: int) -> None:
        """Pass over the sound batches at the beginning, without a copy of their bytes.

        No verdict on what follows comes from here, nor a fault: an end of the file that moves under us, a sector that
        cannot be read and a batch that is too large all look alike.
        """
        while self.position < self._size:
            end = min(self.position + MAPPED_BYTES, self._size)
            folded = step.mapped(descriptor, self.position, end, self.next_offset)
            if folded is None or not folded.size:
                break
            self._pass(folded)
            if folded.stop not in (Stop.END, Stop.NEED_MORE):
                break
        # Behind the end of a file its last page shows zero bytes, with which a batch may end.
        self._take_buffer()
        if self.position and not self._file.read_into(self.position - 1, self._buffer[:1]):
            raise _shrunk(self._path, self.position - 1)

    def _take_buffer(self) -> None:
        """Forget what was read ahead if another walk has used the buffer."""
        if self._shared.owner is not self:
            self._shared.owner = self
            self._at = self._have = self._window

    def _fill(self) -> None:
        """Read what comes behind buffer[at:have] into the second half of the buffer, and move that to right before it.

        Reads end where a page of the file does, and pages of the file go to pages of memory.
        """
        left, position = self._have - self._at, self.read_to
        first = self._window + (position % PAGE_BYTES if self._window > PAGE_BYTES else 0)
        self._buffer[first - left : first] = self._buffer[self._at : self._have]
        wanted = min(2 * self._window - first, self._size - position)
        count = self._file.read_into(position, self._buffer[first : first + wanted])
        if count < wanted:
            raise _shrunk(self._path, position + count)
        self._at, self._have = first - left, first + count

    def _pass(self, folded: Folded) -> None:
        """Move behind sound batches, and remember the last one, on which blame may fall."""
        if folded.size:
            self._last_position, self._before_last = folded.last_position, folded.before_last
        self.position, self.next_offset = self.position + folded.size, folded.next_offset

    def _pass_large(self) -> Stop:
        """Judge the batch at `position`, which is larger than the window, and pass it if it is sound.

        Returns END then, NEED_MORE where the file ends inside it, else what is wrong with it.
        """
        stop = self._large_batch(self.position, self.next_offset, self._buffer[self._at : self._have])
        if stop is Stop.END:
            header = parse_header(self._buffer[self._at : self._have], 0)
            self._pass(self._step.one(self.position, header, self.next_offset))
            self._at = self._have = self._window
        return stop

    def _result(self, stop: Stop, rest: memoryview) -> LogScan:
        """Say where the sound chain ends; when offsets go back, find out which of the two batches is the liar."""
        position, next_offset = self.position, self.next_offset
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

    def _large_batch(self, position: int, next_offset: int, begun: memoryview) -> Stop:
        """Check the batch at `position`, which is larger than the window; END if it is sound.

        `begun` is its beginning. Returns NEED_MORE where the file ends inside it.
        """
        header = parse_header(begun, 0)
        size = header.size
        if position + size > self._size:
            return Stop.NEED_MORE
        if self._step.verify and self._checksum(position, size, header.magic) != header.crc:
            return Stop.BAD_MAGIC if header.magic > 2 else Stop.BAD_CRC
        if header.magic > 2:
            return Stop.UNKNOWN_MAGIC
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            return Stop.BAD_ORDER
        return Stop.END

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
    those with a base offset from `next_offset` to 2147483647 above it. Time is linear in the bytes searched; holes are
    passed over where the file system may be believed.
    """
    buffer = memoryview(bytearray(min(_SEARCH_BYTES, max(size - start, 1))))
    step = max(len(buffer) * 3 // 4, 1)
    sparse = _truthful(file)
    position = start
    while position < size:
        if sparse is not None:
            if (stored := sparse.stored_from(position)) is None:
                return None
            position = max(position, stored[0] - _ZERO_BEGINNING)
        count = file.read_into(position, buffer[: min(len(buffer), size - position)])
        found = find_batch(buffer[:count], 0, lowest=next_offset, highest=next_offset + MAX_RELATIVE_OFFSET)
        if found >= 0:
            return position + found
        if position + count >= size:
            break
        position += step
    return None


def is_zero(
    file: ReadFile, start: int, size: int, *, skip_holes: bool = False, progress: Callable[[int], None] = lambda _: None
) -> bool:
    """Tell whether every byte from `start` to `size` is zero, reading no further than the first that is not.

    Holes that the file system reports are not read where it may be believed; with `skip_holes`, of a file that can be
    rebuilt, on every file system: there have been some that reported a hole where bytes had just been written.
    `progress` is called with the bytes that were passed since its last call.
    """
    sparse = file if skip_holes and isinstance(file, SparseFile) else _truthful(file)
    block, position, end = bytearray(), start, size
    while position < size:
        before = position
        if sparse is not None:
            if (stored := sparse.stored_from(position)) is None:
                break
            position, end = stored
        length = max(min(_ZEROES_BYTES, end - position, size - position), 0)
        # Of the kind that compares all at once: memoryviews go byte by byte, fifty times slower.
        block = block if len(block) == length else bytearray(length)
        with memoryview(block) as buffer:
            file.read_into(position, buffer)
        if block != _ZEROES[:length]:
            return False
        position += length
        progress(position - before)
    return True


def _truthful(file: ReadFile) -> SparseFile | None:
    return file if isinstance(file, SparseFile) and file.tells_every_hole() else None
