"""The codecs of batches: from the number in the attributes to functions, with memory bounded whatever the bytes claim.

Everything is decompressed in pieces of at most `CHUNK_BYTES`; what the pieces add up to is up to who takes them. What
is accepted is what Kafka's own decompressors accept, which is more than the formats' specifications in some places
(bytes after a gzip or LZ4 end are ignored) and less in others (one LZ4 frame, independent blocks).
Sources: Apache Kafka 4.3.0, GzipCompression, SnappyCompression, Lz4BlockInputStream, ZstdCompression; Java 17,
GZIPInputStream; snappy-java 1.1.10, SnappyInputStream; RFC 1952; RFC 8878.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import struct
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from enum import IntEnum
from functools import cache, partial
from types import ModuleType
from typing import Final

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.codec import lz4_frame, snappy_stream

CHUNK_BYTES: Final = 1 << 20
"""The largest piece that decompression yields."""
HELD_LIMIT: Final = 32 << 20
"""The most bytes that are decompressed into one piece of memory (a whole set, a block of snappy, a record), unless a
caller allows more: beyond it, `UnsupportedFormat` is raised. A reader holds up to three such pieces."""

_FEED_BYTES: Final = 16 << 10  # what a decompressor is given at once; it copies what it has not used of that

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_HEADER_CRC, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 0x02, 0x04, 0x08, 0x10
_GZIP_LEAST_HEADER: Final = 10
_GZIP_TRAILER: Final = struct.Struct("<II")  # CRC-32 and size of the content
_GZIP_WRITTEN_HEADER: Final = _GZIP_MAGIC + bytes(7)
_GZIP_IGNORED_REST: Final = 18  # Java looks for a further member only in more bytes than these

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_FRAME_START: Final = struct.Struct("<II")  # magic, and in a skippable frame the bytes that follow
_ZSTD_MOST_FRAMES: Final = 10_000  # producers write one; each costs its set-up, even if it is empty
_ZSTD_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)


class Codec(IntEnum):
    """The codecs by their number in the attributes; 5 to 7 are free."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress_stream(codec: int, payload: memoryview, *, magic: int, limit: int = HELD_LIMIT) -> Iterator[bytes]:
    """Yield what `payload` decompresses to, in pieces of 1 to `CHUNK_BYTES` bytes.

    `magic` is that of the batch, or of the wrapper whose value `payload` is. Memory is a few pieces; for zstd also the
    window that the frame asks for, 128 MiB at most, and for snappy a block of at most `limit` bytes. Faults may come up
    at any piece: `BatchCorrupt` if the stream breaks its format or ends early, `UnsupportedFormat` for a codec that is
    not known or not installed, and for a larger block of snappy.
    """
    try:
        for chunk in _decompressor(codec, magic, limit)(payload):
            if 0 < len(chunk) <= CHUNK_BYTES:
                yield bytes(chunk)
            else:
                yield from map(bytes, pieces_of(memoryview(chunk)))
    except ImportError as absent:
        raise _not_installed(codec, absent) from None


def decompress(codec: int, payload: memoryview, *, magic: int, limit: int = HELD_LIMIT) -> bytes:
    """Return all that `payload` decompresses to, if that is at most `limit` bytes.

    Memory is `limit` and what `decompress_stream` needs. Raises as that does, and `UnsupportedFormat` beyond `limit`:
    it may be a bomb, or data that Kafka would read and we will not; neither is damage.
    """
    if codec == Codec.ZSTD and magic == 2 and (whole_frame := _small_zstd(payload, limit)) is not None:
        return whole_frame
    whole = io.BytesIO()
    for chunk in decompress_stream(codec, payload, magic=magic, limit=limit):
        if whole.tell() + len(chunk) > limit:
            raise UnsupportedFormat(f"decompresses to more than {limit} bytes")
        whole.write(chunk)
    return whole.getvalue()


def compress(codec: int, data: bytes, *, magic: int = 2, level: int | None = None) -> bytes:
    """Return `data` compressed as Kafka's producers do; other bytes than theirs, with the same content.

    `level` is one of gzip, LZ4 or zstd in Kafka's numbers, None the default, which for LZ4 is the fast mode that Kafka
    calls 9. Snappy has no levels.
    Raises `UnsupportedFormat` as `decompress_stream` does.
    """
    try:
        return _compress(codec, data, magic, level)
    except ImportError as absent:
        raise _not_installed(codec, absent) from None


def _compress(codec: int, data: bytes, magic: int, level: int | None) -> bytes:
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _gzip(data, -1 if level is None else level)
        case Codec.SNAPPY:
            return b"".join(snappy_stream.encode_stream(data))
        case Codec.LZ4:
            return b"".join(lz4_frame.encode_frame(data, magic=magic, level=level))
        case Codec.ZSTD:
            _refuse_old_magic(magic)
            return bytes(_zstd().compress(data) if level is None else _zstd().compress(data, level))
        case _:
            raise UnsupportedFormat(f"codec {codec}")


def pieces_of(data: memoryview) -> Iterator[memoryview]:
    """Yield `data` in pieces of at most `CHUNK_BYTES`."""
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def _decompressor(
    codec: int, magic: int, limit: int
) -> Callable[[memoryview], Iterator[bytes | bytearray | memoryview]]:
    match codec:
        case Codec.NONE:
            return pieces_of
        case Codec.GZIP:
            return _gunzip
        case Codec.SNAPPY:
            return lambda payload: snappy_stream.decode_stream(payload, limit=limit)
        case Codec.LZ4:
            return lambda payload: lz4_frame.decode_frame(payload, magic=magic)
        case Codec.ZSTD:
            _refuse_old_magic(magic)
            return _unzstd
        case _:
            raise UnsupportedFormat(f"codec {codec}")


def load_codecs() -> None:
    """Import the packages of the codecs that are installed.

    Loaded before an effect: a process that has no file descriptor left would call a codec not installed.
    """
    for load in (_zstd, partial(importlib.import_module, "cramjam")):
        with contextlib.suppress(ImportError):
            load()


def _not_installed(codec: int, absent: ImportError) -> UnsupportedFormat:
    return UnsupportedFormat(f"codec {codec} needs the package {absent.name}, which is not installed")


def _refuse_old_magic(magic: int) -> None:
    if magic < 2:
        raise BatchCorrupt(f"zstd does not exist in magic {magic}")


# gzip: members in sequence, read as Java's GZIPInputStream does


def _gunzip(payload: memoryview) -> Iterator[bytes]:
    position = _gzip_header_end(payload, 0)
    if position is None:
        raise BatchCorrupt("gzip: no header")
    while position is not None:
        position = yield from _gzip_member(payload, position)
        if len(payload) - position <= _GZIP_IGNORED_REST:
            return
        position = _gzip_header_end(payload, position)


def _gzip_header_end(payload: memoryview, start: int) -> int | None:
    """Return the position behind the member header at `start`, None where there is none."""
    position = start + _GZIP_LEAST_HEADER
    if bytes(payload[start : start + 3]) != _GZIP_MAGIC or position > len(payload):
        return None
    flags = payload[start + 3]
    if flags & _GZIP_EXTRA:
        position += 2 + int.from_bytes(payload[position : position + 2], "little")
    for text in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & text:
            position = _behind_zero(payload, position)
    if flags & _GZIP_HEADER_CRC:
        stored = int.from_bytes(payload[position : position + 2], "little")
        if zlib.crc32(payload[start:position]) & 0xFFFF != stored:
            return None
        position += 2
    return position if position <= len(payload) else None


def _behind_zero(payload: memoryview, start: int) -> int:
    for position in range(start, len(payload), 256):
        place = bytes(payload[position : position + 256]).find(0)
        if place >= 0:
            return position + place + 1
    return len(payload) + 1


def _gzip_member(payload: memoryview, position: int) -> Generator[bytes, None, int]:
    """Yield the content of the member whose header ends at `position`; return the position behind its trailer."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    crc = size = 0
    rest = b""
    while not inflater.eof:
        piece: bytes | memoryview = rest or payload[position : position + _FEED_BYTES]
        if not piece:
            raise BatchCorrupt("gzip: ends inside a member")
        position += 0 if rest else len(piece)
        try:
            chunk = inflater.decompress(piece, CHUNK_BYTES)
        except zlib.error as fault:
            raise BatchCorrupt(f"gzip: {fault}") from None
        rest = inflater.unconsumed_tail
        crc, size = zlib.crc32(chunk, crc), size + len(chunk)
        if chunk:
            yield chunk
    position -= len(inflater.unused_data)
    trailer = payload[position : position + _GZIP_TRAILER.size]
    if len(trailer) < _GZIP_TRAILER.size:
        raise BatchCorrupt("gzip: ends inside the trailer")
    if _GZIP_TRAILER.unpack(trailer) != (crc, size & 0xFFFFFFFF):
        raise BatchCorrupt("gzip: checksum or size of the content")
    return position + _GZIP_TRAILER.size


def _gzip(data: bytes, level: int) -> bytes:
    deflater = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    body = deflater.compress(data) + deflater.flush()
    return _GZIP_WRITTEN_HEADER + body + _GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)


# zstd: frames in sequence, some to be skipped


@cache
def _zstd() -> ModuleType:
    """Return the module, once all of it is there: `sys.modules` has it while another thread still imports it.

    Kept, because a batch of 1 KiB is not decompressed in much more time than `import_module` takes to find the module.
    """
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def _small_zstd(payload: memoryview, limit: int) -> bytes | None:
    """Return the content of a small payload that is one frame, which nearly all are; None says: look closer."""
    if len(payload) > _FEED_BYTES or bytes(payload[:4]) != _ZSTD_MAGIC:
        return None
    try:
        zstd = _zstd()
    except ImportError:
        return None
    decoder = zstd.ZstdDecompressor()
    try:
        content: bytes = decoder.decompress(payload, CHUNK_BYTES)
    except zstd.ZstdError:
        return None
    return content if decoder.eof and not decoder.unused_data and len(content) <= limit else None


def _unzstd(payload: memoryview) -> Iterator[bytes]:
    zstd = _zstd()
    position = frames = 0
    while position < len(payload):
        number, size = _ZSTD_FRAME_START.unpack(bytes(payload[position : position + _ZSTD_FRAME_START.size]).ljust(8))
        if number in _ZSTD_SKIPPABLE:
            position = _end_of_frame(position, position + _ZSTD_FRAME_START.size + size, len(payload))
            continue
        frames += 1
        if frames > _ZSTD_MOST_FRAMES:
            raise UnsupportedFormat(f"zstd: more than {_ZSTD_MOST_FRAMES} frames")
        try:
            position = yield from _zstd_frame(zstd, payload, position)
        except zstd.ZstdError as fault:
            raise BatchCorrupt(f"zstd: {fault}") from None


def _zstd_frame(zstd: ModuleType, payload: memoryview, position: int) -> Generator[bytes, None, int]:
    """Yield the content of the frame at `position`; return the position behind it."""
    start = position
    decoder = zstd.ZstdDecompressor()  # refuses windows above 128 MiB, as Kafka's does
    while not decoder.eof:
        piece = payload[position : position + _FEED_BYTES] if decoder.needs_input else b""
        if decoder.needs_input and not piece:
            return _end_of_frame(start, position + 1, len(payload))
        position += len(piece)
        chunk: bytes = decoder.decompress(piece, CHUNK_BYTES)
        if chunk:
            yield chunk
    return position - len(decoder.unused_data)


def _end_of_frame(start: int, end: int, size: int) -> int:
    """Return where a frame from `start` to `end` ends in a payload of `size` bytes.

    Brokers do not notice that a frame is cut if there is one before it: what it gave so far counts.
    """
    if end > size and start == 0:
        raise BatchCorrupt("zstd: ends inside a frame")
    return min(end, size)
