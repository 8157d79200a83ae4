"""What a coordinator says of groups, asked until it has read them: one that has just begun may not have."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

PATIENCE_SECONDS = 90.0
# The codes that Java's admin client asks again for; librdkafka's passes them on.
NOT_YET = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}

T = TypeVar("T")


def when_loaded(ask: Callable[[], T]) -> T:
    """Return what `ask` returns once it no longer raises that the coordinator is not ready."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def positions(bootstrap: str, group: str) -> dict[int, int]:
    """Return the committed offset of each partition of the one topic that the group reads.

    A consumer asks: librdkafka's admin client crashes if a coordinator is not ready (confluentinc/librdkafka 5040).
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        topics = consumer.list_topics(timeout=PATIENCE_SECONDS).topics
        places = [
            TopicPartition(name, number)
            for name, topic in topics.items()
            if not name.startswith("__")
            for number in topic.partitions
        ]
        committed = when_loaded(lambda: consumer.committed(places, PATIENCE_SECONDS))
        return {place.partition: place.offset for place in committed if place.offset >= 0}
    finally:
        consumer.close()


def members(bootstrap: str, group: str) -> list[str]:
    """Return the ids of the group's members in order."""
    admin = _admin(bootstrap)
    described = when_loaded(lambda: admin.describe_consumer_groups([group])[group].result(PATIENCE_SECONDS))
    return sorted(str(member.member_id) for member in described.members)
