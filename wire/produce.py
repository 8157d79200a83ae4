"""The Produce request, its records as views of the frame, of which nothing is copied; and its response.

Attributes are called as in kio. Source: Apache Kafka 4.3.0, ProduceRequest.json and ProduceResponse.json, versions 3 to
11.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from wire.reading import Reader
from wire.segments import Segment
from wire.writer import Writer

FLEXIBLE_FROM: Final = 9
_PARTITION: Final = struct.Struct(">ihqqq")  # index, error, base offset, append time, log start
_RARE: Final = frozenset(("node_endpoints", "throttle_time"))
_THROTTLE: Final = bytes(4)
_PLAIN: Final = frozenset(
    ("index", "error_code", "base_offset", "log_append_time", "log_start_offset", "error_message")
)


@dataclass(frozen=True, slots=True)
class PartitionProduceData:
    """The records for one partition; None is legal on the wire and no batch."""

    index: int
    records: memoryview | None


class TopicProduceData(NamedTuple):
    """The partitions of one topic."""

    name: str
    partition_data: tuple[PartitionProduceData, ...]


class ProduceBody(NamedTuple):
    """A Produce request. `acks`: 0, 1 or -1 for all; `timeout` in ms."""

    transactional_id: str | None
    acks: int
    timeout: int
    topic_data: tuple[TopicProduceData, ...]


def read_produce(data: memoryview, position: int, version: int) -> tuple[ProduceBody, int]:
    """Return the body that begins at `position`, and the position behind it; raises `MessageInvalid`."""
    reader = Reader(data, position, is_flexible=version >= FLEXIBLE_FROM)
    transactional_id, acks, timeout = reader.text(), reader.number(2), reader.number(4)
    topics = tuple(_topic(reader) for _ in range(reader.count()))
    reader.skip_tags()
    return ProduceBody(transactional_id, acks, timeout, topics), reader.position


def _topic(reader: Reader) -> TopicProduceData:
    name = reader.text() or ""
    partitions = tuple(_partition(reader) for _ in range(reader.count()))
    reader.skip_tags()
    return TopicProduceData(name, partitions)


def _partition(reader: Reader) -> PartitionProduceData:
    index, records = reader.number(4), reader.data()
    reader.skip_tags()
    return PartitionProduceData(index, records)


def write_produce(version: int, correlation_id: int, values: Mapping[str, Any]) -> list[Segment]:
    """Return the response with these values, as `wire.messages.encode` does; see `is_plain`."""
    out = Writer(correlation_id, is_flexible=version >= FLEXIBLE_FROM)
    out.count(len(values["responses"]))
    for topic in values["responses"]:
        out.text(topic["name"])
        out.count(len(topic["partition_responses"]))
        for each in topic["partition_responses"]:
            _write_partition(out, version, each)
        out.tags()
    out.raw(_THROTTLE)
    out.tags()
    return out.finished()


def _write_partition(out: Writer, version: int, values: Mapping[str, Any]) -> None:
    index, error, base = values["index"], values.get("error_code", 0), values.get("base_offset", -1)
    start = values.get("log_start_offset", -1)
    time = values.get("log_append_time")
    packed = _PARTITION.pack(index, error, base, -1 if time is None else time, start)
    out.raw(packed if version >= 5 else packed[:-8])
    if version >= 8:
        out.count(0)
        out.text(values.get("error_message"))
    out.tags()


def is_plain(values: Mapping[str, Any]) -> bool:
    """Return whether `write_produce` can write a response: no partition has one of the rare fields."""
    return _RARE.isdisjoint(values) and all(
        _PLAIN.issuperset(each) for topic in values["responses"] for each in topic["partition_responses"]
    )
