"""A live broker, or its cluster, as the source of batches that are missing here: by Fetch, as any consumer does it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.offset_for_leader_epoch.v3.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v3.response import OffsetForLeaderEpochResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from checkpoint.leader_epoch import EpochStart
from cli.heal.kafka_client import Connection, KafkaUnreachable
from recovery.heal.replica import LARGEST_BATCH, Offer, ReplicaFacts, ReplicaUnusable
from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.names import is_cluster_metadata
from storage.base.units import Epoch, Offset, TopicPartition
from storage.batch.batch import ensure_sound, parse_header

_LEAST_BYTES: Final = 1 << 10
_MOST_BYTES: Final = 1 << 20
_MOST_EPOCHS: Final = 10_000
_LEAST_HEADER: Final = 61


class _Leader(NamedTuple):
    host: str
    port: int
    epoch: int
    topic_id: bytes | None


class BrokerSource:
    """The leaders of a cluster, found through one of its brokers. Connections are kept until `close`."""

    def __init__(self, host: str, port: int, properties: Mapping[str, str]) -> None:
        self.name = f"{host}:{port}"
        self.bytes_read = 0
        self._host, self._port, self._properties = host, port, dict(properties)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._leaders: dict[TopicPartition, _Leader] = {}

    def close(self) -> None:
        """Close what is open."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def facts(self, partition: TopicPartition) -> ReplicaFacts:
        """See `ReplicaSource`; a broker does not tell how far it has compacted."""
        try:
            connection, topic_id = self._leader(partition)
            data = self._fetch(connection, partition, None, _LEAST_BYTES)
            start = max(int(data.log_start_offset), 0)
            epochs = self._epochs(connection, partition, start)
            return ReplicaFacts(start, int(data.high_watermark), None, epochs, topic_id)
        except KafkaUnreachable as error:
            raise ReplicaUnusable(str(error)) from error

    def batches(self, partition: TopicPartition, first: int, until: int, size: int = _MOST_BYTES) -> Iterator[Offer]:
        """See `ReplicaSource`."""
        offset = first
        size = max(min(size, _MOST_BYTES), _LEAST_BYTES)
        while offset < until:
            try:
                data = self._fetch(self._leader(partition)[0], partition, offset, size)
            except KafkaUnreachable as error:
                raise ReplicaUnusable(str(error)) from error
            records = bytes(data.records or b"")
            self.bytes_read += len(records)
            before = offset
            for offer in self._sound(records):
                if offer.header.base_offset >= until:
                    return
                if offer.header.last_offset >= first:
                    yield offer
                offset = offer.header.last_offset + 1
            if offset <= before:
                return  # its log ends here, or what consumers may read does

    def _sound(self, records: bytes) -> Iterator[Offer]:
        """Yield the whole batches of an answer, of which the last may be cut off."""
        view, position = memoryview(records), 0
        try:
            while len(view) - position >= _LEAST_HEADER:
                size = parse_header(view, position).size
                if size > LARGEST_BATCH:
                    raise ReplicaUnusable(f"{self.name}: a batch of {size} bytes is more than is taken")
                if size > len(view) - position:
                    return
                batch = view[position : position + size]
                yield Offer(ensure_sound(batch), bytes(batch))
                position += size
        except (BatchCorrupt, UnsupportedFormat) as error:
            raise ReplicaUnusable(f"{self.name}: {error.reason}") from error

    # ---- asking

    def _connection(self, host: str, port: int) -> Connection:
        if (host, port) not in self._connections:
            self._connections[host, port] = Connection(host, port, self._properties)
        return self._connections[host, port]

    def _leader(self, partition: TopicPartition) -> tuple[Connection, bytes | None]:
        """Return a connection to the leader of a partition, and the id of its topic."""
        if is_cluster_metadata(partition):
            raise KafkaUnreachable(
                f"{self.name}: no broker serves {partition}; name the directory of another controller"
            )
        if partition not in self._leaders:
            self._leaders[partition] = self._find_leader(partition)
        leader = self._leaders[partition]
        return self._connection(leader.host, leader.port), leader.topic_id

    def _find_leader(self, partition: TopicPartition) -> _Leader:
        wanted = MetadataRequestTopic(topic_id=None, name=TopicName(partition.topic))
        request = MetadataRequest(
            topics=(wanted,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        answer = self._connection(self._host, self._port).ask(request, MetadataResponse)
        brokers = {broker.node_id: broker for broker in answer.brokers}
        for topic in answer.topics:
            for each in topic.partitions:
                if each.partition_index == partition.partition and each.leader_id in brokers:
                    leader = brokers[each.leader_id]
                    topic_id = topic.topic_id.bytes if topic.topic_id else None
                    return _Leader(leader.host, int(leader.port), int(each.leader_epoch), topic_id)
        raise KafkaUnreachable(f"{self.name}: it knows no leader of {partition}")

    def _fetch(self, connection: Connection, partition: TopicPartition, offset: int | None, size: int) -> Any:
        """Return the partition's part of an answer; without an offset only what it says of itself."""
        at = 0 if offset is None else offset
        part = FetchPartition(partition=i32(partition.partition), fetch_offset=i64(at), partition_max_bytes=i32(size))
        topic = FetchTopic(topic=TopicName(partition.topic), partitions=(part,))
        request = FetchRequest(
            max_wait=i32Timedelta.parse(datetime.timedelta(0)), min_bytes=i32(0), max_bytes=i32(size),
            isolation_level=i8(0), session_id=i32(0), session_epoch=i32(-1), topics=(topic,),
            forgotten_topics_data=(), rack_id="",
        )  # fmt: skip
        answer = connection.ask(request, FetchResponse)
        for found in answer.responses:
            for data in found.partitions:
                # Out of range, it still tells log start and watermark, which is all that is wanted without an offset.
                if data.error_code.value and not (offset is None and data.high_watermark >= 0):
                    raise KafkaUnreachable(f"{self.name}: {partition} at offset {at}: {data.error_code.name}")
                return data
        raise KafkaUnreachable(f"{self.name}: an answer without {partition}")

    def _epochs(self, connection: Connection, partition: TopicPartition, log_start: int) -> tuple[EpochStart, ...]:
        """Ask for the end of each epoch, the newest first: where the one before ends, an epoch began."""
        entries: list[EpochStart] = []
        epoch = self._leaders[partition].epoch
        while epoch >= 0 and len(entries) < _MOST_EPOCHS:
            older, start = self._epoch_end(connection, partition, epoch - 1) if epoch else (-1, log_start)
            entries.append(EpochStart(Epoch(epoch), Offset(max(start, 0))))
            if start <= log_start:
                break
            epoch = older
        return tuple(reversed(entries))

    def _epoch_end(self, connection: Connection, partition: TopicPartition, epoch: int) -> tuple[int, int]:
        part = OffsetForLeaderPartition(partition=i32(partition.partition), leader_epoch=i32(epoch))
        topic = OffsetForLeaderTopic(topic=TopicName(partition.topic), partitions=(part,))
        request = OffsetForLeaderEpochRequest(replica_id=BrokerId(-1), topics=(topic,))
        for found in connection.ask(request, OffsetForLeaderEpochResponse).topics:
            for each in found.partitions:
                if each.error_code.value:
                    raise KafkaUnreachable(f"{self.name}: {partition}: {each.error_code.name}")
                return int(each.leader_epoch), int(each.end_offset)
        return -1, -1
