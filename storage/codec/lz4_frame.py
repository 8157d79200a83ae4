"""LZ4 frames as Kafka reads and writes them: a subset of the LZ4 frame format, and one old mistake.

The frame is walked here, only its blocks are decompressed by a library: libraries refuse the header checksum that
Kafka got wrong in magic 0, and accept the frames that Kafka does not.
Source: Apache Kafka 4.3.0, Lz4BlockInputStream and Lz4BlockOutputStream; LZ4 frame format 1.5.1; xxHash specification.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from storage.base.errors import BatchCorrupt

_MAGIC: Final = b"\x04\x22\x4d\x18"
_VERSION_MASK, _VERSION_1 = 0xC0, 0x40
_INDEPENDENT, _BLOCK_SUMS, _CONTENT_SIZE, _CONTENT_SUM, _RESERVED_FLAGS = 0x20, 0x10, 0x08, 0x04, 0x03
_BLOCK_SIZES: Final = {0x40: 1 << 16, 0x50: 1 << 18, 0x60: 1 << 20, 0x70: 1 << 22}
_STORED: Final = 0x80000000
_U32: Final = struct.Struct("<I")

_WRITTEN_DESCRIPTOR: Final = b"\x60\x40"  # version 1, independent blocks; blocks of 64 KiB
_WRITTEN_BLOCK_BYTES: Final = 1 << 16
_LEAST_SLOW_LEVEL: Final = 3
_FAST_LEVEL: Final = 9  # Kafka's default, which is not what the slow mode calls 9


def decode_frame(payload: memoryview, *, magic: int) -> Iterator[memoryview]:
    """Yield the blocks of the frame that `payload` begins with, decompressed; each is overwritten by the next.

    The header checksum is not looked at in wrappers of `magic` 0, of which old brokers summed too many bytes. Not
    verified: content size and content checksum. Whatever follows the frame is ignored. Raises `BatchCorrupt`.
    """
    from cramjam import DecompressionError, lz4  # noqa: PLC0415 (costs every start, needed for few logs)

    flags, block_bytes, position = _parse_descriptor(payload, magic)
    buffer = memoryview(bytearray(block_bytes))
    while True:
        field = _read_u32(payload, position)
        size, position = field & ~_STORED, position + 4
        if not size:
            break
        if size > block_bytes:
            raise BatchCorrupt(f"LZ4: block of {size} bytes in a frame of {block_bytes}")
        block = payload[position : position + size]
        if len(block) < size:
            raise BatchCorrupt("LZ4: ends inside a block")
        position += size
        if flags & _BLOCK_SUMS:
            if _read_u32(payload, position) != xxhash32(block):
                raise BatchCorrupt("LZ4: block checksum")
            position += 4
        if field & _STORED:
            yield block
            continue
        try:
            yield buffer[: lz4.decompress_block_into(block, buffer)]
        except DecompressionError as fault:
            raise BatchCorrupt(f"LZ4: {fault}") from None
    if flags & _CONTENT_SUM:
        _read_u32(payload, position)


def encode_frame(data: bytes, *, magic: int, level: int | None = None) -> Iterator[bytes]:
    """Yield the parts of a frame that holds `data`, with the header checksum that `magic` wants.

    `level` 1 to 17 is that of the slow mode, in which those up to 3 are the same, as are those from 12 on; None or 9
    is the fast mode, as in Kafka.
    """
    from cramjam import lz4  # noqa: PLC0415 (costs every start, needed for few logs)

    slow_level = None if level == _FAST_LEVEL else level
    summed = _MAGIC + _WRITTEN_DESCRIPTOR if magic == 0 else _WRITTEN_DESCRIPTOR
    yield _MAGIC + _WRITTEN_DESCRIPTOR + header_checksum(summed)
    for start in range(0, len(data), _WRITTEN_BLOCK_BYTES):
        plain = data[start : start + _WRITTEN_BLOCK_BYTES]
        if slow_level is None:
            block = bytes(lz4.compress_block(plain, store_size=False))
        else:
            block = _only_block(bytes(lz4.compress(plain, level=max(slow_level, _LEAST_SLOW_LEVEL))))
        if len(block) < len(plain):
            yield _U32.pack(len(block)) + block
        else:
            yield _U32.pack(len(plain) | _STORED) + plain
    yield _U32.pack(0)


def _only_block(frame: bytes) -> bytes:
    """Return the block of a frame that holds one: the library has its slow mode for whole frames alone."""
    start = 15 if frame[4] & _CONTENT_SIZE else 7
    field = _U32.unpack_from(frame, start)[0]
    return frame[start + 4 : start + 4 + (field & ~_STORED)]


def header_checksum(descriptor: bytes) -> bytes:
    """Return the byte that ends a frame's header: the second lowest of the sum of its flags up to there."""
    return bytes(((xxhash32(memoryview(descriptor)) >> 8) & 0xFF,))


def _parse_descriptor(payload: memoryview, magic: int) -> tuple[int, int, int]:
    """Return flags, largest block in bytes, and the position of the first block."""
    if len(payload) < len(_MAGIC) + 3:
        raise BatchCorrupt("LZ4: ends inside the header")
    if bytes(payload[:4]) != _MAGIC:
        raise BatchCorrupt("LZ4: no frame")
    flags, block_code = payload[4], payload[5]
    if flags & _VERSION_MASK != _VERSION_1 or flags & _RESERVED_FLAGS or not flags & _INDEPENDENT:
        raise BatchCorrupt(f"LZ4: frame flags {flags:02x}")
    if block_code not in _BLOCK_SIZES:
        raise BatchCorrupt(f"LZ4: block size code {block_code:02x}")
    end = 14 if flags & _CONTENT_SIZE else 6
    if len(payload) <= end:
        raise BatchCorrupt("LZ4: ends inside the header")
    if magic > 0 and bytes(payload[end : end + 1]) != header_checksum(bytes(payload[4:end])):
        raise BatchCorrupt("LZ4: header checksum")
    return flags, _BLOCK_SIZES[block_code], end + 1


def _read_u32(payload: memoryview, position: int) -> int:
    if len(payload) - position < _U32.size:
        raise BatchCorrupt("LZ4: ends before its end mark")
    return int(_U32.unpack_from(payload, position)[0])


_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK: Final = 0xFFFFFFFF
_STRIPE: Final = struct.Struct("<4I")


def xxhash32(data: memoryview) -> int:
    """Return the 32-bit xxHash of `data` with seed 0."""
    whole = len(data) - len(data) % _STRIPE.size
    value = _sum_stripes(data[:whole]) if whole else _PRIME_5
    value += len(data)
    words = len(data) - len(data) % 4
    for (word,) in _U32.iter_unpack(data[whole:words]):
        value = value + word * _PRIME_3 & _MASK
        value = (value << 17 | value >> 15) * _PRIME_4 & _MASK
    for byte in data[words:]:
        value = value + byte * _PRIME_5 & _MASK
        value = (value << 11 | value >> 21) * _PRIME_1 & _MASK
    value &= _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16


def _sum_stripes(data: memoryview) -> int:
    first, second, third, fourth = _PRIME_1 + _PRIME_2 & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK
    for one, two, three, four in _STRIPE.iter_unpack(data):
        first = first + one * _PRIME_2 & _MASK
        first = (first << 13 | first >> 19) * _PRIME_1 & _MASK
        second = second + two * _PRIME_2 & _MASK
        second = (second << 13 | second >> 19) * _PRIME_1 & _MASK
        third = third + three * _PRIME_2 & _MASK
        third = (third << 13 | third >> 19) * _PRIME_1 & _MASK
        fourth = fourth + four * _PRIME_2 & _MASK
        fourth = (fourth << 13 | fourth >> 19) * _PRIME_1 & _MASK
    return (
        (first << 1 | first >> 31)
        + (second << 7 | second >> 25)
        + (third << 12 | third >> 20)
        + (fourth << 18 | fourth >> 14)
    ) & _MASK
