"""Numbers of variable size, as records of magic 2 and KRaft's structures use them; pure.

Seven bits a byte, lowest first, the top bit says that more follow; signed numbers are zig-zag. As Kafka does, readers
accept more bytes than a number needs and cut off bits beyond its width, but no sixth (int64: eleventh) byte.
Source: Apache Kafka 4.3.0, ByteUtils.
"""

from __future__ import annotations

from typing import Final

from storage.base.errors import BatchCorrupt

_INT32_BITS: Final = 32
_INT64_BITS: Final = 64


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Return the unsigned int32 at `position` and the position behind it; raises `BatchCorrupt`."""
    return _read(data, position, _INT32_BITS)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the int32 at `position` and the position behind it; raises `BatchCorrupt`."""
    if position < len(data) and (first := data[position]) < 0x80:
        return (first >> 1) ^ -(first & 1), position + 1
    value, position = _read(data, position, _INT32_BITS)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Return the int64 at `position` and the position behind it; raises `BatchCorrupt`."""
    value, position = _read(data, position, _INT64_BITS)
    return (value >> 1) ^ -(value & 1), position


def _read(data: bytes, position: int, bits: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, bits, 7):  # 5 or 10 bytes at most
        if position >= len(data):
            raise BatchCorrupt("the bytes end inside a varint")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << bits) - 1), position
    raise BatchCorrupt(f"a varint of int{bits} goes on after its last byte")


def encode_uvarint(value: int) -> bytes:
    """Return `value`, 0 to 4294967295, as an unsigned varint; negative int32 values as their two's complement."""
    return _encode(value & 0xFFFFFFFF)


def encode_varint(value: int) -> bytes:
    """Return the int32 or int64 `value` as a zig-zag varint; the two differ in nothing but their range."""
    return _encode(value << 1 if value >= 0 else ~(value << 1))


def _encode(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
