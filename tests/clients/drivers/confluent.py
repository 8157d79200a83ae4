"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import confluent_kafka
import confluent_kafka.admin
from protocol import Found, Grouping, Member, Reading, Refused, key, numbered, serve, value

# As any: its types say little, and not what it takes and gives.
client: Any = confluent_kafka
admin: Any = confluent_kafka.admin
Consumer, Producer, TopicPartition = client.Consumer, client.Producer, client.TopicPartition
KafkaException = confluent_kafka.KafkaException

WAIT = 60


class ConfluentMember(Member):
    def __init__(
        self, bootstrap: str, group: str, topic: str, strategy: str, instance: str, more: dict[str, Any]
    ) -> None:
        super().__init__()
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "topic.metadata.refresh.interval.ms": 5000,
            "heartbeat.interval.ms": 500,
        }
        if instance:
            settings["group.instance.id"] = instance
        self.consumer, self.topic = Consumer(settings | more), topic
        self.cooperative = "cooperative" in strategy

    def open(self) -> None:
        self.consumer.subscribe([self.topic], on_revoke=self._revoked)

    def _revoked(self, consumer: Any, partitions: Any) -> None:
        self.commit()
        if self.cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def step(self) -> None:
        for message in self.consumer.consume(500, 0.1):
            if message.error() is None:
                self.took(message.partition(), message.offset(), message.value())
            else:
                self.error = str(message.error())

    def assigned(self) -> Iterable[str]:
        return [str(place.partition) for place in self.consumer.assignment()]

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":
                raise

    def close(self) -> None:
        self.consumer.close()


class Driver(Grouping):
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.common = {"bootstrap.servers": bootstrap}
        self.admin = admin.AdminClient(self.common)

    def hello(self) -> dict[str, str]:
        library = confluent_kafka.libversion()[0]
        return {"client": "confluent-kafka", "version": f"{confluent_kafka.__version__}, librdkafka {library}"}

    def topics(self) -> dict[str, int]:
        listed = self.admin.list_topics(timeout=WAIT).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        self.admin.create_topics([admin.NewTopic(topic, partitions, 1, config=config)])[topic].result(WAIT)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(WAIT)

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([admin.NewPartitions(topic, partitions)])[topic].result(WAIT)

    def configs(self, topic: str) -> dict[str, str]:
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
        found = self.admin.describe_configs([resource])[resource].result(WAIT)
        return {name: entry.value for name, entry in found.items()}

    def alter(self, topic: str, name: str, to: str) -> None:
        entry = admin.ConfigEntry(name, to, incremental_operation=admin.AlterConfigOpType.SET)
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(WAIT)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition, before)
        return int(self.admin.delete_records([place])[place].result(WAIT).low_watermark)

    def cluster(self) -> dict[str, Any]:
        found = self.admin.describe_cluster().result(WAIT)
        return {"id": found.cluster_id, "nodes": [f"{node.host}:{node.port}" for node in found.nodes]}

    def produce(
        self, topic: str, partitions: list[int], first: int, count: int, codec: str = "none", acks: str = "all",
        idempotent: bool = False, size: int = 0, time: int = 0, settings: dict[str, Any] | None = None,
    ) -> list[int]:  # fmt: skip
        told = {"acks": acks, "enable.idempotence": idempotent, "compression.type": codec, "linger.ms": 5}
        producer = Producer(self.common | told | (settings or {}))
        return self._send(producer, topic, partitions, first, count, size, time)

    def _send(
        self, producer: Any, topic: str, partitions: list[int], first: int, count: int, size: int = 0, at: int = 0
    ) -> list[int]:
        offsets: list[int] = []
        errors: list[Any] = []

        def done(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            elif message.offset() is not None:  # there is none without an acknowledgement
                offsets.append(message.offset())

        for number, partition in numbered(first, count, partitions):
            stamp = {"timestamp": at + number - first} if at else {}
            while True:
                try:
                    producer.produce(
                        topic, value(number, size), key(number), partition=partition, on_delivery=done, **stamp
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(WAIT)
        if errors:
            raise KafkaException(errors[0])
        if left:
            raise Refused("NotDelivered", f"{left} of {count} records")
        return sorted(offsets)

    def consume(
        self,
        topic: str,
        partitions: list[int],
        count: int,
        start: int | str = "earliest",
        isolation: str = "uncommitted",
    ) -> Found:
        consumer = Consumer(
            self.common
            | {
                "group.id": "reads-by-itself",
                "enable.auto.commit": False,
                "check.crcs": True,
                "isolation.level": f"read_{isolation}",
                "auto.offset.reset": "error",
                "fetch.queue.backoff.ms": 10,
            }
        )
        at = -2 if start == "earliest" else int(start)
        consumer.assign([TopicPartition(topic, partition, at) for partition in partitions])
        reading = Reading(count)
        while reading.wants_more():
            for message in consumer.consume(1000, 0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                reading.add(message.partition(), message.offset(), message.value())
        consumer.close()
        return reading.found

    def offsets(self, topic: str, partition: int, at: list[int | str]) -> list[int]:
        """Return an offset for each of "earliest", "latest", "max" or a time; -1 where there is none."""
        specs = {
            "earliest": admin.OffsetSpec.earliest(),
            "latest": admin.OffsetSpec.latest(),
            "max": admin.OffsetSpec.max_timestamp(),
        }
        found = []
        for wanted in at:
            spec = specs[wanted] if isinstance(wanted, str) else admin.OffsetSpec.for_timestamp(wanted)
            place = TopicPartition(topic, partition)
            found.append(int(self.admin.list_offsets({place: spec})[place].result(WAIT).offset))
        return found

    def committed(self, group: str, topic: str, partitions: list[int]) -> list[int | None]:
        places = [TopicPartition(topic, partition) for partition in partitions]
        # Not the admin client: it crashes if a coordinator is not ready (confluentinc/librdkafka 5040).
        consumer = Consumer(self.common | {"group.id": group})
        try:
            by_number = {place.partition: place.offset for place in consumer.committed(places, WAIT)}
        finally:
            consumer.close()
        return [by_number[number] if by_number[number] >= 0 else None for number in partitions]

    def groups(self) -> list[str]:
        return [group.group_id for group in self.admin.list_consumer_groups().result(WAIT).valid]

    def describe_group(self, group: str) -> dict[str, Any]:
        found = self.admin.describe_consumer_groups([group])[group].result(WAIT)
        return {"state": found.state.name, "members": len(found.members), "strategy": found.partition_assignor}

    def delete_group(self, group: str) -> None:
        self.admin.delete_consumer_groups([group])[group].result(WAIT)

    def set_offset(self, group: str, topic: str, partition: int, to: int) -> None:
        asked = client.ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, to)])
        told = self.admin.alter_consumer_group_offsets([asked])[group].result(WAIT)
        for place in told.topic_partitions:  # a coordinator that still loads is no exception to it
            if place.error is not None:
                raise KafkaException(place.error)

    def member(
        self, group: str, topic: str, strategy: str, instance: str = "", settings: dict[str, Any] | None = None
    ) -> Member:
        return ConfluentMember(self.bootstrap, group, topic, strategy, instance, settings or {})

    def _transactional(self, name: str) -> Any:
        producer = Producer(self.common | {"transactional.id": name, "linger.ms": 5})
        producer.init_transactions(WAIT)
        return producer

    def transact(self, name: str, topic: str, partitions: list[int], steps: list[list[Any]]) -> None:
        """Send `[first, count, "commit" or "abort"]`, each in a transaction of its own."""
        producer = self._transactional(name)
        for first, count, outcome in steps:
            producer.begin_transaction()
            self._send(producer, topic, partitions, first, count)
            if outcome == "commit":
                producer.commit_transaction(WAIT)
            else:
                producer.abort_transaction(WAIT)

    def move(self, name: str, group: str, source: str, to: str, count: int, outcome: str) -> None:
        """Copy `count` records of the first partition in a transaction, the group's position with them."""
        settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer(self.common | settings | {"isolation.level": "read_committed"})
        place = TopicPartition(source, 0)
        begin = consumer.committed([place], WAIT)[0].offset
        consumer.assign([TopicPartition(source, 0, max(begin, 0))])
        producer = self._transactional(name)
        producer.begin_transaction()
        position, until = max(begin, 0), time.monotonic() + WAIT
        for _ in range(count):
            message = consumer.poll(until - time.monotonic())
            if message is None or message.error() is not None:
                raise Refused("NothingToMove", message and message.error())
            producer.produce(to, message.value(), partition=0)
            position = message.offset() + 1
        told = [TopicPartition(source, 0, position)]
        producer.send_offsets_to_transaction(told, consumer.consumer_group_metadata(), WAIT)
        if outcome == "commit":
            producer.commit_transaction(WAIT)
        else:
            producer.abort_transaction(WAIT)
        consumer.close()

    def fence(self, name: str, topic: str) -> None:
        """Begin with one producer, then with a second of the same name; the first is to be told."""
        first = self._transactional(name)
        first.begin_transaction()
        self._send(first, topic, [0], 0, 1)
        self._transactional(name)
        self._send(first, topic, [0], 1, 1)
        first.commit_transaction(WAIT)


def kind_of(error: Exception) -> str:
    if isinstance(error, KafkaException):
        return str(error.args[0].name())
    return type(error).__name__


if __name__ == "__main__":
    serve(Driver, kind_of)
