"""`logmend serve --read-only`: a stock client reads what a killed broker left, and nothing on the disk changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.targets import Listener
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from serve.serving import QUIET, WAIT, consumer, left_by_a_broker, read_all, torn
from support.command import logmend
from support.trees import contents

from storage.batch.batch import split_batches
from storage.batch.record import records_of


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return left_by_a_broker("transactions", tmp_path_factory.mktemp("left"))


@pytest.fixture(scope="module")
def served(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    before = contents(log_dir)
    with Listener(log_dir, tmp_path_factory.mktemp("out"), "--read-only") as listener:
        yield listener.bootstrap
    assert contents(log_dir) == before, "serving read-only has changed the directory"


def in_files(log_dir: Path, partition: str) -> list[tuple[int, bytes | None]]:
    """Return offset and value of every record in the files, markers left out, by reading them ourselves."""
    found = []
    for log in sorted((log_dir / partition).glob("*.log")):
        for batch in split_batches(log.read_bytes()):
            if not batch[22] & 0x20:  # a control batch
                found += [(record.offset, record.value) for record in records_of(batch)]
    return found


def test_topics_and_node_are_those_of_the_broker(served: str, log_dir: Path) -> None:
    found = AdminClient({"bootstrap.servers": served, **QUIET}).list_topics(timeout=WAIT)
    assert {name: len(topic.partitions) for name, topic in found.topics.items()}["payments"] == 2
    properties = dict(
        line.split("=", 1) for line in (log_dir / "meta.properties").read_text().splitlines() if "=" in line
    )
    assert (found.cluster_id, list(found.brokers)) == (properties["cluster.id"], [int(properties["node.id"])])


def test_every_record_is_read_as_it_is_in_the_files(served: str, log_dir: Path) -> None:
    with consumer(served, **{"isolation.level": "read_uncommitted"}) as found:
        records = read_all(found, "payments")
    for number, messages in records.items():
        wanted = in_files(log_dir, f"payments-{number}")
        assert [(message.offset(), message.value()) for message in messages] == wanted


def test_a_committed_reader_sees_neither_what_was_aborted_nor_what_is_open(served: str) -> None:
    with consumer(served, **{"isolation.level": "read_uncommitted"}) as found:
        everything = {number: {m.offset() for m in part} for number, part in read_all(found, "payments").items()}
        ends = {n: found.get_watermark_offsets(TopicPartition("payments", n), timeout=WAIT) for n in everything}
    with consumer(served, **{"isolation.level": "read_committed"}) as found:
        committed = read_all(found, "payments")
    for number, messages in committed.items():
        offsets = {message.offset() for message in messages}
        assert offsets < everything[number]
        assert max(offsets) < ends[number][1]
        assert not [m for m in messages if b"abort" in (m.value() or b"")]


def test_reading_begins_at_any_offset_also_within_a_batch(served: str, log_dir: Path) -> None:
    offsets = [offset for offset, _ in in_files(log_dir, "payments-0")]
    for start in (offsets[1], offsets[len(offsets) // 2], offsets[-1]):
        with consumer(served, **{"isolation.level": "read_uncommitted"}) as found:
            assert [m.offset() for m in read_all(found, "payments", start)[0]] == [o for o in offsets if o >= start]


def test_offsets_are_found_by_time(served: str) -> None:
    with consumer(served, **{"isolation.level": "read_uncommitted"}) as found:
        messages = read_all(found, "payments")[0]
        first = messages[len(messages) // 2].timestamp()[1]
        wanted = next(m.offset() for m in messages if m.timestamp()[1] >= first)
        (answer,) = found.offsets_for_times([TopicPartition("payments", 0, first)], timeout=WAIT)
    # A marker of a transaction may be the first entry of that time.
    assert answer.offset == wanted or (answer.offset < wanted and answer.offset not in {m.offset() for m in messages})


def test_a_start_behind_the_end_is_out_of_range_and_resets_the_reader(served: str) -> None:
    with consumer(served, **{"auto.offset.reset": "earliest", "isolation.level": "read_uncommitted"}) as found:
        messages = read_all(found, "payments", 10**9)
    assert all(part[0].offset() == 0 for part in messages.values())


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_producer_is_told_at_once_that_it_may_not(served: str, idempotent: bool) -> None:
    errors: list[int] = []
    producer = Producer({"bootstrap.servers": served, "enable.idempotence": idempotent, **QUIET})
    producer.produce("payments", b"x", on_delivery=lambda error, _: errors.append(error.code()))
    assert producer.flush(WAIT) == 0
    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_settings_of_topics_and_broker_are_shown(served: str) -> None:
    admin = AdminClient({"bootstrap.servers": served, **QUIET})
    asked = [ConfigResource("topic", "payments"), ConfigResource("topic", "nowhere")]
    shown, missing = (
        future for _, future in sorted(admin.describe_configs(asked).items(), key=lambda e: -len(e[0].name))
    )
    assert shown.result(WAIT)["cleanup.policy"].value in ("delete", "compact")
    assert missing.exception(WAIT) is not None


@pytest.fixture(scope="module")
def torn_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = left_by_a_broker("transactions", tmp_path_factory.mktemp("torn"))
    torn(found)
    return found


def test_a_torn_directory_is_served_up_to_its_last_sound_batch_and_stays_as_it_is(
    torn_dir: Path, log_dir: Path, tmp_path: Path
) -> None:
    before = contents(torn_dir)
    with (
        Listener(torn_dir, tmp_path, "--read-only") as listener,
        consumer(listener.bootstrap, **{"isolation.level": "read_uncommitted"}) as found,
    ):
        records = read_all(found, "payments")
        epochs = {m.leader_epoch() for part in records.values() for m in part}
    assert contents(torn_dir) == before
    assert epochs == {0}
    for number, messages in records.items():
        whole = in_files(log_dir, f"payments-{number}")
        shown = [(message.offset(), message.value()) for message in messages]
        assert shown == whole[: len(shown)]
        assert 0 < len(whole) - len(shown) < 300
    assert logmend("plan", torn_dir).returncode == 1, "there is still something to repair"


def test_a_directory_that_somebody_holds_is_not_served(tmp_path: Path, log_dir: Path) -> None:
    own = left_by_a_broker("transactions", tmp_path / "left")
    with Listener(own, tmp_path / "first"), pytest.raises(RuntimeError, match="in use"):
        Listener(own, tmp_path / "second", "--read-only").start()
