"""The coordinator of transactions answers as a broker's: the same requests, one by one, to both, in seeded orders.

The broker has `transaction.version` 1. Producer ids are compared by the order in which they came up. Where the one says
that it is busy and the other waits, each is asked again until it is not.
"""

from __future__ import annotations

import io
import os
import random
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from clients.targets import Listener
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from interop.kafka_lab import Cluster, run_java
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from support.waiting import until

from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from storage.batch.batch import TRANSACTIONAL_BIT
from storage.batch.record import Record, encode_batch
from wire.building import builder

pytestmark = [pytest.mark.slow, pytest.mark.deep]

PATIENCE = 100.0
BUSY = {
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS,
}  # fmt: skip
STEPS = int(os.environ.get("LOGMEND_TXN_STEPS", "250"))
SEED = int(os.environ.get("LOGMEND_TXN_SEED", "1"))


class Wire:
    """One connection on which one request after another is asked."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE)

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: int, version: int, **fields: object) -> Any:
        entity = builder(load_request_schema(api_key, version))(fields)
        out = io.BytesIO()
        out.write(struct.pack(">hhih", api_key, version, 1, -1))
        if entity.__flexible__:
            out.write(b"\0")
        entity_writer(type(entity))(out, entity)
        data = out.getvalue()
        self._socket.sendall(struct.pack(">i", len(data)) + data)
        (size,) = struct.unpack(">i", self._take(4))
        schema = load_response_schema(api_key, version)
        data = self._take(size)
        if api_key == ApiKey.DESCRIBE_TRANSACTIONS:  # whose times may be -1, which kio does not read
            data = data.replace(b"\xff" * 8, bytes(8))
        answer, _ = entity_reader(schema)(data, 5 if schema.__flexible__ else 4)
        return answer

    def _take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            more = self._socket.recv(size - len(taken))
            assert more, "the connection was closed"
            taken += more
        return bytes(taken)


@dataclass
class Asker:
    """Asks one of the two, and knows its producer ids by the order in which they came up."""

    wire: Wire
    ids: list[int] = field(default_factory=list)

    def until_idle(self, api_key: int, version: int, code_of: Any, **fields: object) -> Any:
        def settled() -> Any:
            answer = self.wire.ask(api_key, version, **fields)
            return None if code_of(answer) in BUSY else (answer,)

        return until(settled, PATIENCE, say=lambda: fields)[0]

    def id_of(self, number: int) -> int:
        return self.ids[number] if number >= 0 else -1

    def init(self, tid: str, version: int, number: int, epoch: int, timeout_ms: int) -> tuple[int, ...]:
        answer = self.until_idle(
            ApiKey.INIT_PRODUCER_ID, version, lambda each: each.error_code, transactional_id=tid,
            transaction_timeout=timeout_ms, producer_id=self.id_of(number), producer_epoch=epoch,
        )  # fmt: skip
        if answer.error_code:
            return (int(answer.error_code),)
        if answer.producer_id not in self.ids:
            self.ids.append(answer.producer_id)
        return 0, self.ids.index(answer.producer_id), answer.producer_epoch

    def add(self, tid: str, version: int, number: int, epoch: int, partitions: list[int]) -> tuple[int, ...]:
        def codes(answer: Any) -> list[int]:
            return [each.partition_error_code for topic in answer.results_by_topic_v3_and_below
                    for each in topic.results_by_partition]  # fmt: skip

        answer = self.until_idle(
            ApiKey.ADD_PARTITIONS_TO_TXN, version, lambda each: max(codes(each)), v3_and_below_transactional_id=tid,
            v3_and_below_producer_id=self.id_of(number), v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": "orders", "partitions": partitions}],
        )  # fmt: skip
        return tuple(sorted(codes(answer)))

    def end(self, tid: str, version: int, number: int, epoch: int, commits: bool) -> tuple[int, ...]:
        answer = self.until_idle(
            ApiKey.END_TXN, version, lambda each: each.error_code, transactional_id=tid,
            producer_id=self.id_of(number), producer_epoch=epoch, committed=commits,
        )  # fmt: skip
        return (int(answer.error_code),)

    def add_offsets(self, tid: str, version: int, number: int, epoch: int) -> tuple[int, ...]:
        answer = self.until_idle(
            ApiKey.ADD_OFFSETS_TO_TXN, version, lambda each: each.error_code, transactional_id=tid, group_id=tid,
            producer_id=self.id_of(number), producer_epoch=epoch,
        )  # fmt: skip
        return (int(answer.error_code),)

    def commit_offset(self, tid: str, version: int, number: int, epoch: int, offset: int) -> tuple[int, ...]:
        answer = self.until_idle(
            ApiKey.TXN_OFFSET_COMMIT, version, lambda each: each.topics[0].partitions[0].error_code,
            transactional_id=tid, group_id=tid, producer_id=self.id_of(number), producer_epoch=epoch, generation_id=-1,
            member_id="", topics=[{"name": "orders", "partitions": [
                {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}]}],
        )  # fmt: skip
        return (int(answer.topics[0].partitions[0].error_code),)

    def produce(
        self, tid: str, version: int, number: int, epoch: int, partition: int, sequence: int
    ) -> tuple[int, ...]:
        batch = encode_batch(
            [Record(0, 1, value=b"v")], producer_id=self.id_of(number), producer_epoch=epoch, base_sequence=sequence,
            flags=TRANSACTIONAL_BIT,
        )  # fmt: skip
        answer = self.until_idle(
            ApiKey.PRODUCE, version, lambda each: each.responses[0].partition_responses[0].error_code,
            transactional_id=tid, acks=-1, timeout=30_000,
            topic_data=[{"name": "orders", "partition_data": [{"index": partition, "records": batch}]}],
        )  # fmt: skip
        told = answer.responses[0].partition_responses[0]
        return int(told.error_code), told.base_offset

    def describe(self, tid: str) -> tuple[object, ...]:
        def settled() -> Any:
            (state,) = self.wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[tid]).transaction_states
            return None if state.transaction_state.startswith("Prepare") and not state.error_code else state

        found = until(settled, PATIENCE)
        if found.error_code:
            return (int(found.error_code),)
        number = self.ids.index(found.producer_id) if found.producer_id in self.ids else -1
        partitions = sorted((topic.topic, *topic.partitions) for topic in found.topics if topic.topic == "orders")
        return found.transaction_state, number, found.producer_epoch, partitions

    def offset(self, tid: str) -> tuple[int, ...]:
        asked = [{"name": "orders", "partition_indexes": [0]}]
        (topic,) = self.wire.ask(ApiKey.OFFSET_FETCH, 7, group_id=tid, topics=asked, require_stable=True).topics
        return int(topic.partitions[0].error_code), topic.partitions[0].committed_offset


class Script:
    """Draws requests; what was answered decides what there is to draw from."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._producers: dict[str, list[tuple[int, int]]] = {"t0": [], "t1": []}
        self._sequences: dict[tuple[int, int, int], int] = {}
        self._offset = 0

    def draw(self) -> tuple[str, tuple[Any, ...]]:
        rng = self._rng
        tid = rng.choice(["t0", "t1"])
        known = self._producers[tid]
        if not known or rng.random() < 0.12:
            current = rng.choice(known[-2:]) if known and rng.random() < 0.5 else (-1, -1)
            version = rng.randint(3, 5) if current[0] >= 0 else rng.randint(0, 5)
            return "init", (tid, version, *current, rng.choice([60_000, 60_000, 0, 900_001]))
        number, epoch = known[-1] if rng.random() < 0.8 else rng.choice(known)
        if rng.random() < 0.04:
            epoch += rng.choice([-1, 1])
        draw = rng.random()
        if rng.random() < 0.04 and not 0.3 <= draw < 0.6:
            # Not batches under another's id: a broker may say first that the log has a newer epoch of that producer.
            tid = "t0" if tid == "t1" else rng.choice(["t1", "gone"])
        who = (tid, rng.randint(0, 3), number, epoch)
        if draw < 0.3:
            return "add", (*who, sorted(rng.sample(range(4) if rng.random() < 0.1 else range(3), rng.randint(1, 2))))
        if draw < 0.6:
            partition = rng.randrange(3)
            sequence = self._sequences.get((number, epoch, partition), 0)
            return "produce", (tid, rng.choice([3, 7, 9, 11]), number, epoch, partition, sequence)
        if draw < 0.7:
            return "add_offsets", who
        if draw < 0.8:
            self._offset += 1
            return "commit_offset", (*who, self._offset)
        return "end", (*who, rng.random() < 0.5)

    def note(self, what: str, asked: tuple[Any, ...], answer: tuple[int, ...]) -> None:
        if what == "init" and answer[0] == 0:
            self._producers[asked[0]].append((answer[1], answer[2]))
        if what == "produce" and answer[0] == 0:
            self._sequences[asked[2], asked[3], asked[4]] = asked[5] + 1


@pytest.fixture(scope="module")
def broker(kafka_kit: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = Cluster(tmp_path_factory.mktemp("broker"))
    one = cluster[0]
    one.configure()
    features = ("--feature", "transaction.version=1")
    where = ("-t", cluster.cluster_id, "-c", str(one.properties))
    run_java(cluster.version, one.directory, one.output, "kafka.tools.StorageTool", "format", *where, *features)
    with cluster:
        yield cluster.bootstrap


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "data").mkdir()
    with Listener(tmp_path / "data", tmp_path / "listener", "--flush", "none") as found:
        yield found.bootstrap


def asker(bootstrap: str) -> Asker:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    if "orders" not in admin.list_topics(timeout=PATIENCE).topics:
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(PATIENCE)
    made = Asker(Wire(bootstrap))
    for kind, key in ((1, "t0"), (0, "t0")):
        made.until_idle(ApiKey.FIND_COORDINATOR, 2, lambda each: each.error_code, key=key, key_type=kind)
    return made


def test_a_broker_and_we_answer_alike_request_by_request(broker: str, listener: str) -> None:
    theirs, ours = asker(broker), asker(listener)
    script, told = Script(random.Random(SEED)), []
    for step in range(STEPS):
        what, asked = script.draw()
        expected, found = (getattr(each, what)(*asked) for each in (theirs, ours))
        told.append((what, asked, expected))
        assert found == expected, f"seed {SEED}, step {step}: {what}{asked}; before: {told[-8:-1]}"
        script.note(what, asked, expected)
        for tid in ("t0", "t1"):
            assert ours.describe(tid) == theirs.describe(tid), f"behind step {step}: {what}{asked}"
    assert ours.offset("t0") == theirs.offset("t0")
    codes = {answer[0] for _, _, answer in told}
    assert codes >= {0, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TRANSACTION_TIMEOUT}
    theirs.wire.close()
    ours.wire.close()
