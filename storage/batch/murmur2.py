"""Which partition a key belongs to: the hash of Kafka's Java client.

Source: Apache Kafka 4.3.0, Utils.murmur2, BuiltInPartitioner.partitionForKey.
"""

from __future__ import annotations

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 1 << 31


def murmur2(data: bytes) -> int:
    """Return the hash, an int32 as Java has it."""
    whole = len(data) & ~3
    value = _SEED ^ (len(data) & _MASK)
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * _FACTOR & _MASK
        mixed = (mixed ^ mixed >> 24) * _FACTOR & _MASK
        value = value * _FACTOR & _MASK ^ mixed
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    value ^= value >> 15
    return value - 2 * (value & _SIGN)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition, 0 up to below `partitions`, that the Java client sends a record with this key to."""
    if partitions < 1:
        raise ValueError(f"{partitions} partitions")
    return (murmur2(key) & (_SIGN - 1)) % partitions
