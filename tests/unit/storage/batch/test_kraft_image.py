"""What the records of a metadata log add up to, of topics and settings."""

from __future__ import annotations

import pytest

from storage.base.errors import BatchCorrupt
from storage.batch.kraft import MetadataRecord
from storage.batch.kraft_image import ALL_BROKERS, MetadataImage

ORDERS, CLICKS = bytes(15) + b"\1", bytes(15) + b"\2"
TOPIC, BROKER = 2, 4


def text(value: str | None) -> bytes:
    return b"\0" if value is None else bytes([len(value.encode()) + 1]) + value.encode()


def topic(name: str, topic_id: bytes) -> MetadataRecord:
    return MetadataRecord(2, 0, text(name) + topic_id + b"\0")


def config(kind: int, resource: str, name: str, value: str | None) -> MetadataRecord:
    return MetadataRecord(4, 0, bytes([kind]) + text(resource) + text(name) + text(value) + b"\0")


def removal(topic_id: bytes) -> MetadataRecord:
    return MetadataRecord(9, 0, topic_id + b"\0")


def image(*records: MetadataRecord) -> MetadataImage:
    made = MetadataImage()
    for record in records:
        made.apply(record)
    return made


def test_the_last_word_on_a_setting_counts_and_null_takes_it_back() -> None:
    found = image(
        topic("orders", ORDERS),
        config(TOPIC, "orders", "retention.ms", "1"),
        config(TOPIC, "orders", "retention.ms", "2"),
        config(TOPIC, "orders", "segment.ms", "5"),
        config(TOPIC, "orders", "segment.ms", None),
        config(TOPIC, "orders", "never.set", None),
    )
    assert found.topic_ids == {"orders": ORDERS}
    assert found.topic_configs == {"orders": {"retention.ms": "2"}}


def test_what_is_set_for_brokers_is_kept_apart() -> None:
    found = image(config(BROKER, "", "log.retention.ms", "9"), config(BROKER, "3", "log.retention.ms", "7"))
    assert found.broker_configs == {ALL_BROKERS: {"log.retention.ms": "9"}, "3": {"log.retention.ms": "7"}}
    assert found.topic_configs == {}


def test_a_topic_that_is_removed_takes_its_settings_along() -> None:
    found = image(
        topic("orders", ORDERS), config(TOPIC, "orders", "retention.ms", "1"), removal(ORDERS), topic("orders", CLICKS)
    )
    assert (found.topic_ids, found.topic_configs) == ({"orders": CLICKS}, {})


def test_other_records_and_other_resources_change_nothing() -> None:
    found = image(MetadataRecord(27, 0, b"?"), config(16, "group", "retention.ms", "1"), removal(ORDERS))
    assert found == MetadataImage()


@pytest.mark.parametrize("key", [2, 4, 9])
def test_a_record_that_is_cut_short_is_told(key: int) -> None:
    with pytest.raises(BatchCorrupt):
        image(MetadataRecord(key, 0, b"\2\7"))
