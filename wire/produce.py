"""The body of a Produce request, its records as views of the frame: nothing is copied.

Attributes are called as in kio. Source: Apache Kafka 4.3.0, ProduceRequest.json, versions 3 to 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from wire.reading import Reader

FLEXIBLE_FROM: Final = 9


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
