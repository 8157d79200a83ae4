"""kafka-python, of the line 2.0 and of the line 3."""

from __future__ import annotations

import time as clock
from collections.abc import Iterable
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from protocol import Found, Grouping, Member, Reading, Refused, key, numbered, serve, value

OLD = kafka.__version__.startswith("2.0")
WAIT_MS = 60_000
STRATEGIES: dict[str, Any] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
}
if not OLD:  # the sticky one of 2.0.2 fails by itself: object of type 'dict_itemiterator' has no len()
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.structs import OffsetAndMetadata

    STRATEGIES["sticky"] = StickyPartitionAssignor
    STRATEGIES["cooperative-sticky"] = CooperativeStickyAssignor


def consumer(bootstrap: str, **settings: Any) -> KafkaConsumer:
    common = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "check_crcs": True}
    return KafkaConsumer(bootstrap_servers=bootstrap, **common, **settings)


class KafkaPythonMember(Member):
    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        super().__init__()
        settings = {"partition_assignment_strategy": [STRATEGIES[strategy]], "heartbeat_interval_ms": 500}
        self.consumer = consumer(bootstrap, group_id=group, **settings)
        self.topic = topic

    def open(self) -> None:
        # Version 3 assigns by what it knows of the topic when it joins, now and then nothing, and leaves it at that.
        self.consumer.partitions_for_topic(self.topic)
        self.consumer.subscribe([self.topic])

    def step(self) -> None:
        found = self.consumer.poll(timeout_ms=100)
        for place, messages in found.items():
            for message in messages:
                self.took(place.partition, message.offset, message.value)
        if found:
            self.commit()  # version 3 takes no commit while it gives partitions back

    def assigned(self) -> Iterable[str]:
        return [str(place.partition) for place in self.consumer.assignment()]

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.commit()
        self.consumer.close(autocommit=False)


class Driver(Grouping):
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin: Any = None

    @property
    def admin(self) -> Any:
        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        return self._admin

    def hello(self) -> dict[str, str]:
        return {"client": "kafka-python", "version": kafka.__version__}

    def topics(self) -> dict[str, int]:
        reader = consumer(self.bootstrap)
        found = {name: len(reader.partitions_for_topic(name) or ()) for name in reader.topics()}
        reader.close()
        return found

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        if OLD:
            self.admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)], timeout_ms=WAIT_MS)
        else:
            options = {"num_partitions": partitions, "replication_factor": 1, "configs": config}
            self.admin.create_topics({topic: options}, timeout_ms=WAIT_MS)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic], timeout_ms=WAIT_MS)

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions({topic: NewPartitions(partitions) if OLD else partitions}, timeout_ms=WAIT_MS)

    def configs(self, topic: str) -> dict[str, str]:
        if OLD:
            answer = self.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])[0]
            (code, message, _, _, entries), *_ = answer.resources
            if code:
                raise Refused(kafka.errors.for_code(code).__name__, message)
            return {entry[0]: entry[1] for entry in entries}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self.admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in found.items()}

    def alter(self, topic: str, name: str, to: str) -> None:
        self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: to})])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self.admin.delete_records({place: before})[place]["low_watermark"])

    def cluster(self) -> dict[str, Any]:
        found = self.admin.describe_cluster()
        return {"id": found["cluster_id"], "nodes": [f"{node['host']}:{node['port']}" for node in found["brokers"]]}

    def produce(
        self, topic: str, partitions: list[int], first: int, count: int, codec: str = "none", acks: str = "all",
        idempotent: bool = False, size: int = 0, time: int = 0, settings: dict[str, Any] | None = None,
    ) -> list[int]:  # fmt: skip
        told: dict[str, Any] = {"compression_type": None if codec == "none" else codec, "linger_ms": 5}
        told["acks"] = acks if acks == "all" else int(acks)
        if not OLD:
            told["enable_idempotence"] = idempotent
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, **told, **(settings or {}))
        try:
            return self._send(producer, topic, partitions, first, count, size, time)
        finally:
            producer.close(timeout=10)

    def _send(
        self, producer: Any, topic: str, partitions: list[int], first: int, count: int, size: int = 0, time: int = 0
    ) -> list[int]:
        sent = []
        for number, partition in numbered(first, count, partitions):
            stamp = time + number - first if time else None
            sent.append(producer.send(topic, value(number, size), key(number), partition=partition, timestamp_ms=stamp))
        producer.flush(60)
        return sorted(future.get(60).offset for future in sent)

    def consume(
        self,
        topic: str,
        partitions: list[int],
        count: int,
        start: int | str = "earliest",
        isolation: str = "uncommitted",
    ) -> Found:
        reader = consumer(self.bootstrap, **({} if OLD else {"isolation_level": f"read_{isolation}"}))
        places = [TopicPartition(topic, partition) for partition in partitions]
        reader.assign(places)
        if start == "earliest":
            reader.seek_to_beginning(*places)
        else:
            for place in places:
                reader.seek(place, int(start))
        reading = Reading(count)
        while reading.wants_more():
            for place, messages in reader.poll(timeout_ms=100).items():
                for message in messages:
                    reading.add(place.partition, message.offset, message.value)
        reader.close()
        return reading.found

    def offsets(self, topic: str, partition: int, at: list[int | str]) -> list[int]:
        reader, place = consumer(self.bootstrap), TopicPartition(topic, partition)
        found = []
        for wanted in at:
            if wanted == "earliest":
                found.append(reader.beginning_offsets([place])[place])
            elif wanted == "latest":
                found.append(reader.end_offsets([place])[place])
            elif wanted == "max":
                found.append(self.admin.list_partition_offsets({place: -3})[place].offset)
            else:
                by_time = reader.offsets_for_times({place: wanted})[place]
                found.append(-1 if by_time is None or by_time.offset < 0 else by_time.offset)
        reader.close()
        return [int(offset) for offset in found]

    def committed(self, group: str, topic: str, partitions: list[int]) -> list[int | None]:
        places = [TopicPartition(topic, partition) for partition in partitions]
        found = (
            self.admin.list_consumer_group_offsets(group, partitions=places)
            if OLD
            else self.admin.list_group_offsets({group: places})[group]
        )
        offsets = [found[place].offset if place in found else -1 for place in places]
        return [offset if offset >= 0 else None for offset in offsets]

    def groups(self) -> list[str]:
        if OLD:
            return [name for name, _ in self.admin.list_consumer_groups()]
        return [group["group_id"] for group in self.admin.list_groups()]

    def describe_group(self, group: str) -> dict[str, Any]:
        if OLD:
            found = self.admin.describe_consumer_groups([group])[0]
            return {"state": found.state, "members": len(found.members), "strategy": found.protocol}
        told = self.admin.describe_groups([group])[group]
        return {
            "state": told["group_state"],
            "members": len(told["members"]),
            "strategy": told["protocol_data"],
        }

    def delete_group(self, group: str) -> None:
        if OLD:
            ((_, error),) = self.admin.delete_consumer_groups([group])
            name = error.__name__
        else:
            name = self.admin.delete_groups([group])[group]
        if name not in ("NoError", "OK"):
            raise Refused(name)

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        place = TopicPartition(topic, partition)
        error = self.admin.delete_group_offsets(group, [place])[place]
        if error.__name__ != "NoError":
            raise Refused(error.__name__)

    def member(self, group: str, topic: str, strategy: str) -> Member:
        return KafkaPythonMember(self.bootstrap, group, topic, strategy)

    def _transactional(self, name: str) -> Any:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=name, linger_ms=5)
        producer.init_transactions()
        return producer

    def transact(self, name: str, topic: str, partitions: list[int], steps: list[list[Any]]) -> None:
        producer = self._transactional(name)
        for first, count, outcome in steps:
            producer.begin_transaction()
            self._send(producer, topic, partitions, first, count)
            if outcome == "commit":
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.close()

    def move(self, name: str, group: str, source: str, to: str, count: int, outcome: str) -> None:
        reader = consumer(self.bootstrap, group_id=group, isolation_level="read_committed", max_poll_records=count)
        place = TopicPartition(source, 0)
        reader.assign([place])
        position = reader.committed(place) or 0
        reader.seek(place, position)
        producer = self._transactional(name)
        producer.begin_transaction()
        moved, until = 0, clock.monotonic() + 60
        while moved < count and clock.monotonic() < until:
            for message in reader.poll(timeout_ms=500, max_records=count - moved).get(place, ()):
                producer.send(to, message.value, partition=0)
                position, moved = message.offset + 1, moved + 1
        if moved < count:
            raise Refused("NothingToMove")
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(position, "", -1)}, reader.group_metadata())
        if outcome == "commit":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        producer.close()
        reader.close()

    def fence(self, name: str, topic: str) -> None:
        first = self._transactional(name)
        first.begin_transaction()
        self._send(first, topic, [0], 0, 1)
        second = self._transactional(name)
        try:
            self._send(first, topic, [0], 1, 1)
            first.commit_transaction()
        finally:
            first.close(timeout=0)
            second.close()


if __name__ == "__main__":
    serve(Driver)
