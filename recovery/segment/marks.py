"""Marks: how far a guard has read a segment, with what proves that those bytes are still the ones that it read.

A mark is the saved fold of the bytes below its position. Who proves it goes on from there, and comes out as if it had
read everything. What the proof rests on, and what it does not cover: docs/understand/marks.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from recovery.segment.segment_files import SegmentFiles
from storage.base.errors import CorruptData, printable
from storage.batch.batch import HEADER_V2, parse_header
from storage.disk.fs import ReadFile, ReadFs
from storage.kernel.fold import SegmentFold
from storage.kernel.scan import crc32c
from storage.reading.log_reader import WINDOW_BYTES, SparseFile

FILE_NAME: Final = "marks.sqlite"
"""In the state directory of a guard."""
EVENT_LIMIT: Final = 50_000
"""Producer events that are kept of a scan, and so of the fold in a mark."""
HEADER_BYTES: Final = HEADER_V2.size
_VERSION: Final = 1
_NUMBERS: Final = struct.Struct(
    "<"
    "i"  # version
    "Q"  # device
    "Q"  # inode
    "q"  # base offset
    "q"  # index interval
    "q"  # largest size of an index
    "q"  # position
    "q"  # next offset
    "q"  # size of the offset index
    "Q"  # its digest
    "q"  # size of the time index
    "Q"  # its digest
    "q"  # made, milliseconds
    "?"  # durable
)
_SIZE: Final = struct.Struct("<i")
_NONE: Final = -1
_SUM: Final = struct.Struct("<I")
_ONLY_MAGIC_2: Final = 1 << 2
_FIRST_SUMMED: Final = 21
"""Where, in a batch of magic 2, the bytes under its checksum begin."""


class Mark(NamedTuple):
    """How far a segment was read and found sound.

    `header` is that of the last batch before `position`. Sizes and digests of the indexes are those of the entries that
    a rebuild of the bytes below `position` gives, without the closing entry of the time index; `index_digest` makes
    them. `fold` is a saved fold. `is_durable`: the bytes below `position` were synced after they had been read.
    """

    directory: str
    topic_id: str | None
    device: int
    inode: int
    base_offset: int
    index_interval_bytes: int
    max_index_size: int
    position: int
    next_offset: int
    header: bytes
    index_size: int
    index_digest: int
    time_index_size: int
    time_index_digest: int
    fold: bytes
    boot_id: str
    made_ms: int
    is_durable: bool = False

    def encode(self) -> bytes:
        """Return the mark as bytes with a checksum of their own."""
        data = _NUMBERS.pack(
            _VERSION, self.device, self.inode, self.base_offset, self.index_interval_bytes, self.max_index_size,
            self.position, self.next_offset, self.index_size, self.index_digest, self.time_index_size,
            self.time_index_digest, self.made_ms, self.is_durable,
        )  # fmt: skip
        topic_id = None if self.topic_id is None else self.topic_id.encode()
        for part in (_name_bytes(self.directory), topic_id, self.header, self.fold, self.boot_id.encode()):
            data += _SIZE.pack(_NONE) if part is None else _SIZE.pack(len(part)) + part
        return data + _SUM.pack(crc32c(memoryview(data)))


def _name_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def decode_mark(data: bytes) -> Mark:
    """Return the mark that `Mark.encode` wrote; `ValueError` for what is damaged or of another version."""
    body = memoryview(data)[: -_SUM.size]
    if len(data) < _NUMBERS.size + _SUM.size or _SUM.pack(crc32c(body)) != data[-_SUM.size :]:
        raise ValueError("a mark is damaged")
    version, device, inode, *numbers = _NUMBERS.unpack_from(body)
    if version != _VERSION:
        raise ValueError(f"a mark of version {version}, this is {_VERSION}")
    base, interval, most, position, following, size, digest, time_size, time_digest, made_ms, is_durable = numbers
    parts: list[bytes | None] = []
    at = _NUMBERS.size
    while at < len(body):
        (length,) = _SIZE.unpack_from(body, at)
        at += _SIZE.size
        parts.append(None if length == _NONE else bytes(body[at : at + length]))
        at += max(length, 0)
    directory, topic_id, header, fold, boot_id = parts
    if directory is None or header is None or fold is None or boot_id is None:
        raise ValueError("a mark lacks a part")
    return Mark(
        directory.decode("utf-8", "surrogateescape"), None if topic_id is None else topic_id.decode(), device, inode,
        base, interval, most, position, following, header, size, digest, time_size, time_digest, fold, boot_id.decode(),
        made_ms, is_durable,
    )  # fmt: skip


Marks = Mapping[tuple[str, int], tuple[Mark, ...]]
"""By partition directory and base offset: the latest and the latest durable one, that which reaches farther first."""


def index_digest(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return 64 bits over the bytes of an index; `before` is what this gave for those that come before them."""
    high = zlib.crc32(data, before >> 32)
    return high << 32 | crc32c(memoryview(data), before & 0xFFFFFFFF)


class Circumstances(NamedTuple):
    """What a mark is held against, besides the files: the partition as it is now, and how indexes are written."""

    directory: str
    topic_id: str | None
    index_interval_bytes: int
    max_index_size: int
    boot_id: str
    """Of the running system; empty where it is unknown."""


def prove(mark: Mark, file: ReadFile, files: SegmentFiles, now: Circumstances) -> str | None:
    """Return why the bytes below a mark may not be the ones that were read, None where it is proven that they are.

    `file` is the open log. Reads the last batch below the mark, nothing else. Raises `ReadFault`.
    """
    return _name_doubt(mark, files, now) or _fold_doubt(mark) or _file_doubt(mark, file)


def _name_doubt(mark: Mark, files: SegmentFiles, now: Circumstances) -> str | None:
    stat = files.log_stat
    if (mark.directory, mark.base_offset) != (now.directory, files.base_offset):
        return "it is a mark of another segment"
    if mark.topic_id != now.topic_id:
        return f"the topic id was {printable(mark.topic_id or 'none')} and is {printable(now.topic_id or 'none')}"
    if (mark.device, mark.inode) != (stat.device, stat.inode):
        return "the file is another one"
    if stat.links != 1:
        return f"the file has {stat.links} names: a process that knows another one may have written to it"
    if stat.size < mark.position:
        return f"{mark.position} bytes were read, the file has {stat.size}"
    if (mark.index_interval_bytes, mark.max_index_size) != (now.index_interval_bytes, now.max_index_size):
        return "it is of other settings of the indexes"
    if not mark.is_durable and (not now.boot_id or mark.boot_id != now.boot_id):
        return "the system was started since, and what was read was not synced before"
    return None


def _fold_doubt(mark: Mark) -> str | None:
    """Return why the argument of docs/understand/marks.md does not hold for the batches that were read."""
    try:
        fold = SegmentFold.restore(mark.fold)
    except ValueError as error:
        return str(error)
    facts = fold.facts
    if fold.settings != (mark.base_offset, mark.index_interval_bytes, mark.max_index_size, EVENT_LIMIT):
        return "its fold was made with other settings"
    if fold.index_sizes != (mark.index_size, mark.time_index_size) or facts.next_offset != mark.next_offset:
        return "its fold is not the one of this mark"
    if facts.magics != _ONLY_MAGIC_2:
        return "nothing, or batches of an older format, were read"
    if facts.first_offset != mark.base_offset or facts.gaps:
        return "offsets are missing, as compaction leaves it"
    if facts.epoch_fall is not None or facts.range_fault is not None or facts.index_overflow:
        return "it is a log of which the whole has to be known"
    return None


def _file_doubt(mark: Mark, file: ReadFile) -> str | None:
    """Return why the last batch below the mark is not the one that was read; it is read and summed."""
    try:
        header = parse_header(memoryview(mark.header), 0)
    except CorruptData:
        return "it has no header"
    start = mark.position - header.size
    if len(mark.header) != HEADER_BYTES or header.magic != 2 or start < 0:
        return "its header is none"
    if header.last_offset + 1 != mark.next_offset or header.leader_epoch < 0:
        return "its header tells no leader epoch, or other offsets"
    there = memoryview(bytearray(min(header.size, WINDOW_BYTES)))
    if file.read_into(start, there) < len(there) or there[:HEADER_BYTES] != mark.header:
        return "the batch before the mark is another one"
    total, done = crc32c(there[_FIRST_SUMMED:]), len(there)
    while done < header.size:
        part = there[: min(len(there), header.size - done)]
        if file.read_into(start + done, part) < len(part):
            return "the file has become shorter"
        total, done = crc32c(part, total), done + len(part)
    if total != header.crc:
        return "the batch before the mark is damaged"
    if isinstance(file, SparseFile):
        stored = file.stored_from(0)
        if stored is None or stored[0] > 0 or stored[1] < mark.position:
            return "the file has a hole below the mark: not all of it has reached the disk"
    return None


def known_indexes(fs: ReadFs, files: SegmentFiles, mark: Mark) -> tuple[bytes, bytes] | None:
    """Return what belongs to a mark of both indexes, from the files; None unless both begin with it.

    Raises `ReadFault`.
    """
    offsets = _read_prefix(fs, files.index, mark.index_size, mark.index_digest)
    times = _read_prefix(fs, files.time_index, mark.time_index_size, mark.time_index_digest)
    return None if offsets is None or times is None else (offsets, times)


def _read_prefix(fs: ReadFs, path: PurePath, size: int, digest: int) -> bytes | None:
    data = bytearray(size)
    if size:
        with fs.open_read(path) as file, memoryview(data) as view:
            if file.read_into(0, view) < size:
                return None
    return bytes(data) if index_digest(data) == digest else None
