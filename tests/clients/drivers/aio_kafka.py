"""aiokafka."""

from __future__ import annotations

import asyncio
import threading
import time as clock
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import for_code
from protocol import Found, Grouping, Member, Reading, Refused, key, numbered, serve, value

Result = TypeVar("Result")
STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Loop:
    """An event loop on a thread of its own, so that clients go on with their heartbeats between two requests."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def __call__(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


class AioMember(Member, ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    def __init__(self, run: Loop, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        super().__init__()
        self.run_in, self.topic = run, topic

        async def make() -> AIOKafkaConsumer:
            return AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                partition_assignment_strategy=(STRATEGIES[strategy],),
                heartbeat_interval_ms=500,
            )

        self.consumer = run(make())

    def open(self) -> None:
        async def begin() -> None:
            self.consumer.subscribe([self.topic], listener=self)
            await self.consumer.start()

        self.run_in(begin())

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            await self.consumer.commit()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        pass

    def step(self) -> None:
        for place, messages in self.run_in(self.consumer.getmany(timeout_ms=100)).items():
            for message in messages:
                self.took(place.partition, message.offset, message.value)

    def assigned(self) -> Iterable[str]:
        return [str(place.partition) for place in self.consumer.assignment()]

    def commit(self) -> None:
        self.run_in(self.consumer.commit())

    def close(self) -> None:
        self.run_in(self.consumer.stop())


class Driver(Grouping):
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, self.run = bootstrap, Loop()

    async def _producer(self, **settings: Any) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, **settings)
        await producer.start()
        return producer

    async def _consumer(self, **settings: Any) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False, **settings)
        await consumer.start()
        return consumer

    def _with_admin(self, call: Any) -> Any:
        async def work() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await call(admin)
            finally:
                await admin.close()

        return self.run(work())

    def hello(self) -> dict[str, str]:
        return {"client": "aiokafka", "version": aiokafka.__version__}

    def topics(self) -> dict[str, int]:
        found = self._with_admin(lambda admin: admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in found}

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        answer = self._with_admin(
            lambda admin: admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])
        )
        for _, code, *message in answer.topic_errors:
            _refuse(code, message)

    def delete(self, topic: str) -> None:
        answer = self._with_admin(lambda admin: admin.delete_topics([topic]))
        for _, code in answer.topic_error_codes:
            _refuse(code)

    def grow(self, topic: str, partitions: int) -> None:
        answer = self._with_admin(lambda admin: admin.create_partitions({topic: NewPartitions(partitions)}))
        for _, code, message in answer.topic_errors:
            _refuse(code, message)

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._with_admin(lambda admin: admin.describe_configs([resource]))
        ((code, message, _, _, entries),) = answer.resources
        _refuse(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def alter(self, topic: str, name: str, to: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: to})
        (answer,) = self._with_admin(lambda admin: admin.alter_configs([resource]))
        for code, message, *_ in answer.resources:
            _refuse(code, message)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._with_admin(lambda admin: admin.delete_records({place: RecordsToDelete(before)}))[place])

    def cluster(self) -> dict[str, Any]:
        found = self._with_admin(lambda admin: admin.describe_cluster())
        return {"id": found["cluster_id"], "nodes": [f"{node['host']}:{node['port']}" for node in found["brokers"]]}

    def produce(
        self, topic: str, partitions: list[int], first: int, count: int, codec: str = "none", acks: str = "all",
        idempotent: bool = False, size: int = 0, time: int = 0, settings: dict[str, Any] | None = None,
    ) -> list[int]:  # fmt: skip
        told: dict[str, Any] = {
            "compression_type": None if codec == "none" else codec,
            "enable_idempotence": idempotent,
        }
        told["acks"] = acks if acks == "all" else int(acks)

        async def work() -> list[int]:
            producer = await self._producer(**told, **(settings or {}))
            try:
                return await self._send(producer, topic, partitions, first, count, size, time)
            finally:
                await producer.stop()

        return self.run(work())

    @staticmethod
    async def _send(
        producer: Any, topic: str, partitions: list[int], first: int, count: int, size: int = 0, time: int = 0
    ) -> list[int]:
        sent = []
        for number, partition in numbered(first, count, partitions):
            stamp = time + number - first if time else None
            sent.append(
                await producer.send(topic, value(number, size), key(number), partition=partition, timestamp_ms=stamp)
            )
        told = await asyncio.gather(*sent)
        return sorted(one.offset for one in told if one is not None)

    def consume(
        self,
        topic: str,
        partitions: list[int],
        count: int,
        start: int | str = "earliest",
        isolation: str = "uncommitted",
    ) -> Found:
        async def work() -> Found:
            consumer = await self._consumer(isolation_level=f"read_{isolation}", check_crcs=True)
            places = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(places)
            if start == "earliest":
                await consumer.seek_to_beginning(*places)
            else:
                for place in places:
                    consumer.seek(place, int(start))
            reading = Reading(count)
            while reading.wants_more():
                for place, messages in (await consumer.getmany(timeout_ms=100)).items():
                    for message in messages:
                        reading.add(place.partition, message.offset, message.value)
            await consumer.stop()
            return reading.found

        return self.run(work())

    def offsets(self, topic: str, partition: int, at: list[int | str]) -> list[int]:
        async def work() -> list[int]:
            consumer, place = await self._consumer(), TopicPartition(topic, partition)
            found: list[int] = []
            for wanted in at:
                if wanted == "earliest":
                    found.append((await consumer.beginning_offsets([place]))[place])
                elif wanted == "latest":
                    found.append((await consumer.end_offsets([place]))[place])
                else:
                    by_time = (await consumer.offsets_for_times({place: wanted}))[place]
                    found.append(-1 if by_time is None else by_time.offset)
            await consumer.stop()
            return found

        return self.run(work())

    def committed(self, group: str, topic: str, partitions: list[int]) -> list[int | None]:
        places = [TopicPartition(topic, partition) for partition in partitions]
        found = self._with_admin(lambda admin: admin.list_consumer_group_offsets(group, partitions=places))
        offsets = [found[place].offset if place in found else -1 for place in places]
        return [offset if offset >= 0 else None for offset in offsets]

    def groups(self) -> list[str]:
        return [found[0] for found in self._with_admin(lambda admin: admin.list_consumer_groups())]

    def describe_group(self, group: str) -> dict[str, Any]:
        (answer,) = self._with_admin(lambda admin: admin.describe_consumer_groups([group]))
        ((code, _, state, _, strategy, members, *_),) = answer.groups
        _refuse(code)
        return {"state": state, "members": len(members), "strategy": strategy}

    def member(self, group: str, topic: str, strategy: str) -> Member:
        return AioMember(self.run, self.bootstrap, group, topic, strategy)

    def transact(self, name: str, topic: str, partitions: list[int], steps: list[list[Any]]) -> None:
        async def work() -> None:
            producer = await self._producer(transactional_id=name)
            for first, count, outcome in steps:
                await producer.begin_transaction()
                await self._send(producer, topic, partitions, first, count)
                await (producer.commit_transaction() if outcome == "commit" else producer.abort_transaction())
            await producer.stop()

        self.run(work())

    def move(self, name: str, group: str, source: str, to: str, count: int, outcome: str) -> None:
        async def work() -> None:
            consumer = await self._consumer(group_id=group, isolation_level="read_committed")
            place = TopicPartition(source, 0)
            consumer.assign([place])
            position = await consumer.committed(place) or 0
            consumer.seek(place, position)
            producer = await self._producer(transactional_id=name)
            await producer.begin_transaction()
            moved, until = 0, clock.monotonic() + 60
            while moved < count and clock.monotonic() < until:
                batch = await consumer.getmany(timeout_ms=500, max_records=count - moved)
                for message in batch.get(place, ()):
                    await producer.send_and_wait(to, message.value, partition=0)
                    position, moved = message.offset + 1, moved + 1
            if moved < count:
                raise Refused("NothingToMove")
            await producer.send_offsets_to_transaction({place: position}, group)
            await (producer.commit_transaction() if outcome == "commit" else producer.abort_transaction())
            await producer.stop()
            await consumer.stop()

        self.run(work())

    def fence(self, name: str, topic: str) -> None:
        async def work() -> None:
            first = await self._producer(transactional_id=name)
            await first.begin_transaction()
            await self._send(first, topic, [0], 0, 1)
            second = await self._producer(transactional_id=name)
            try:
                await self._send(first, topic, [0], 1, 1)
                await first.commit_transaction()
            finally:
                await second.stop()

        self.run(work())


def _refuse(code: int, message: object = "") -> None:
    if code:
        raise Refused(for_code(code).__name__, message)


if __name__ == "__main__":
    serve(Driver)
