"""Snappy as Kafka reads and writes it: the stream of snappy-java ("xerial"), or one bare block.

Not the framing that snappy itself defines. Source: Apache Kafka 4.3.0, SnappyCompression; snappy-java 1.1.10,
SnappyInputStream and SnappyCodec.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Final

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.layout import Layout

STREAM_HEADER: Final = Layout(
    ("Q", "magic"),
    ("i", "version"),
    ("i", "least compatible version"),
)

_MAGIC: Final = b"\x82SNAPPY\x00"
_VERSION: Final = 1
_REPEATED_HEADER: Final = _MAGIC[:4]
_SIZE_FIELD: Final = 4
_WRITTEN_BLOCK_BYTES: Final = 32 << 10
_MOST_RATIO: Final = 22  # an element of 3 bytes copies 64 at most


def decode_stream(payload: memoryview, *, limit: int) -> Iterator[bytearray]:
    """Yield the blocks of `payload`, decompressed.

    Payloads that do not begin with the stream's magic are one bare block. Up to 3 bytes behind the last block are
    ignored. Raises `BatchCorrupt`, and `UnsupportedFormat` for a block that makes more than `limit` bytes, before
    anything of that size is allocated.
    """
    import cramjam  # noqa: PLC0415 (costs every start, needed for few logs)

    if len(payload) < STREAM_HEADER.size or bytes(payload[: len(_MAGIC)]) != _MAGIC:
        yield _decompress_block(cramjam, payload, limit)
        return
    position = STREAM_HEADER.size
    while len(payload) - position >= _SIZE_FIELD:
        field = bytes(payload[position : position + _SIZE_FIELD])
        if field == _REPEATED_HEADER:  # streams in sequence
            position += STREAM_HEADER.size
            if position > len(payload):
                raise BatchCorrupt("snappy: ends inside a header")
            magic, version, _ = STREAM_HEADER.unpack_from(payload, position - STREAM_HEADER.size)
            # Brokers ask for the version here, though not in the first header, and only behind a whole magic.
            if magic == int.from_bytes(_MAGIC, "big") and version < _VERSION:
                raise BatchCorrupt(f"snappy: version {version} in a further header")
            continue
        position += _SIZE_FIELD
        size = int.from_bytes(field, "big", signed=True)
        if not 0 <= size <= len(payload) - position:
            raise BatchCorrupt(f"snappy: block of {size} bytes, {len(payload) - position} are left")
        yield _decompress_block(cramjam, payload[position : position + size], limit)
        position += size


def encode_stream(data: bytes) -> Iterator[bytes]:
    """Yield the parts of a stream that holds `data`."""
    from cramjam import snappy  # noqa: PLC0415 (costs every start, needed for few logs)

    yield STREAM_HEADER.pack(int.from_bytes(_MAGIC, "big"), _VERSION, _VERSION)
    for start in range(0, len(data), _WRITTEN_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _WRITTEN_BLOCK_BYTES]))
        yield len(block).to_bytes(_SIZE_FIELD, "big") + block


def _decompress_block(cramjam: ModuleType, block: memoryview, limit: int) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _MOST_RATIO * len(block):
            raise BatchCorrupt(f"snappy: block of {len(block)} bytes cannot make {size}")
        if size > limit:
            raise UnsupportedFormat(f"snappy: one block makes {size} bytes, more than {limit}")
        plain = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, plain)
    except cramjam.DecompressionError as fault:
        raise BatchCorrupt(str(fault)) from None
    return plain
