"""Requests that cost much and are small; each is a frame without its size."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

from kio.index import load_request_schema
from support.batches import TS, batch_v2, record
from support.kio_messages import request_frame

from wire.building import builder

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
FIND_COORDINATOR, JOIN_GROUP, CREATE_TOPICS = 10, 11, 19
ZSTD: Final = 4
PIECE: Final = 1 << 20


def request(api_key: int, version: int, **fields: object) -> bytes:
    """Return a request with these fields, the others by default."""
    return request_frame(builder(load_request_schema(api_key, version))(fields))


@cache
def _zstd() -> Any:
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def packed(piece: bytes, times: int) -> bytes:
    """Return a zstd frame that unpacks to `piece` so many times."""
    zstd = _zstd()
    parameter = zstd.CompressionParameter
    made = zstd.ZstdCompressor(options={parameter.compression_level: 3, parameter.window_log: 23})
    many = max(1, PIECE // len(piece))
    out = [made.compress(piece * many) for _ in range(times // many)]
    out += [made.compress(piece * (times % many)), made.flush()]
    return b"".join(out)


def batch_of(piece: bytes, times: int, **fields: Any) -> bytes:
    """Return a batch that claims `times` records, each of which is `piece`."""
    return batch_v2(
        0, (), count=times, last_offset_delta=times - 1, payload=packed(piece, times), attributes=ZSTD, **fields
    )


@cache
def many_records(count: int = 36_000_000) -> bytes:
    """Return a batch of some 30 KB: records of seven bytes, without a key, of the first of January 1970."""
    return batch_of(record(0, key=None, value=None), count, base_timestamp=0, max_timestamp=0)


@cache
def large_records(count: int = 8, size: int = 31 << 20) -> bytes:
    """Return a batch of some 30 KB with records of 31 MiB."""
    return batch_v2(
        0, (), count=count, last_offset_delta=count - 1, attributes=ZSTD,
        payload=packed(record(0, value=bytes(size)), count), base_timestamp=TS, max_timestamp=TS,
    )  # fmt: skip


def produce(topic: str, batches: Sequence[bytes], *, partitions: int = 1) -> bytes:
    """Return a Produce of version 7 with these batches, spread over the partitions of a topic."""
    data = [{"index": number % partitions, "records": batch} for number, batch in enumerate(batches)]
    body = struct.pack(">hhih", PRODUCE, 7, 7, -1) + struct.pack(">hhi", -1, 1, 30_000) + struct.pack(">i", 1)
    body += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", len(data))
    return body + b"".join(struct.pack(">ii", each["index"], len(each["records"])) + each["records"] for each in data)


def metadata_of(count: int) -> bytes:
    """Return a Metadata request for so many topics that do not exist."""
    names = [{"name": f"n{number}"} for number in range(count)]
    return request(METADATA, 9, topics=names, allow_auto_topic_creation=False)


def join_of(group: str, size: int) -> bytes:
    """Return a JoinGroup that makes a member at once, who says so many bytes of itself and stays half an hour."""
    return request(
        JOIN_GROUP, 3, group_id=group, session_timeout=1_800_000, rebalance_timeout=1_800_000,
        protocol_type="consumer", protocols=[{"name": "range", "metadata": bytes(size)}],
    )  # fmt: skip
