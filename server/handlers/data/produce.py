"""Produce: batches into partitions, each for itself, answered by the flush policy.

With acks 0 the client waits for no answer, not even for the disk; an error ends the connection, so that the producer
notices. Source: Apache Kafka 4.3.0, KafkaApis.handleProduceRequest, ProduceRequest.validateRecords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from server.api.dispatch import Answer, Call, Handler, Preparation, Values
from server.api.errors import CloseConnection, ErrorCode, Refusal, code_of
from server.api.versions import ApiKey
from server.handlers.parts import Parts
from server.store.checker import Batch
from server.store.jobs import Entry, Outcome
from server.store.store import Store
from server.txn.codes import produce_code
from storage.append.append_records import Verdict
from storage.base.errors import DiskFull, EnvironmentFault, LogmendError
from storage.base.names import INTERNAL_TOPICS
from storage.base.refusals import Refused
from storage.base.units import TopicPartition
from storage.codec.compression import Codec
from storage.log.log_types import Appended
from wire.messages import Request
from wire.produce import PartitionProduceData, ProduceBody

Verify = Callable[[str, int, int, TopicPartition], ErrorCode]
"""Tells whether a transactional id's producer, of this epoch, may write to a partition by now."""

_ADMIN_CLIENT: Final = "__admin_client"
"""What a client that may write to internal topics calls itself."""
_KNOWS_ZSTD: Final = 7
_KNOWS_ABORTABLE: Final = 11
_MAGIC: Final = 16
_ATTRIBUTES: Final = 22
_PRODUCER: Final = slice(43, 51)
_PRODUCER_EPOCH: Final = slice(51, 53)
_HEADER: Final = 61
_TRANSACTIONAL: Final = 0x10
_CODEC: Final = 0x07
_NONE: Final = memoryview(b"")


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handler; the store is one that can be written to."""
    store: Store = parts.store

    def produce(call: Call) -> Answer | Awaitable[Answer]:
        body: ProduceBody = call.body
        if body.acks not in (-1, 0, 1):
            refusal = Refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {body.acks}")
            return _answer(store, body, [refusal] * sum(len(topic.partition_data) for topic in body.topic_data))
        verify: Verify | None = None if parts.transactions is None else parts.transactions.verify
        verdicts = iter(call.prepared or ())
        judged = [
            _with_verdict(_judge(call, topic.name, partition, verify), next(verdicts, None))
            for topic in body.topic_data
            for partition in topic.partition_data
        ]
        entries = [each for each in judged if isinstance(each, Entry)]
        done = store.append_all(entries) if entries else []
        if isinstance(done, list):
            return _answer(store, body, _merge(judged, done))
        return _wait(store, body, judged, done)

    return {ApiKey.PRODUCE: produce}


def preparation(store: Store) -> Preparation:
    """Return what has the compressed batches of a Produce walked before it is handled."""

    def prepare(request: Request) -> object:
        body: ProduceBody = request.body
        batches = [
            Batch(TopicPartition(topic.name, partition.index), partition.records or _NONE)
            for topic in body.topic_data
            for partition in topic.partition_data
        ]
        return store.checker.check(batches)

    return prepare


def _with_verdict(judged: Entry | Refusal, verdict: Verdict | None) -> Entry | Refusal:
    return judged if verdict is None or isinstance(judged, Refusal) else judged._replace(verdict=verdict)


async def _wait(
    store: Store, body: ProduceBody, judged: list[Entry | Refusal], done: asyncio.Future[list[Outcome]]
) -> Answer:
    try:
        outcomes = await done
    except LogmendError as error:  # the logs are being closed
        outcomes = [error] * sum(isinstance(each, Entry) for each in judged)
    return _answer(store, body, _merge(judged, outcomes))


def _merge(judged: list[Entry | Refusal], outcomes: list[Outcome]) -> list[Outcome]:
    waiting = iter(outcomes)
    return [next(waiting) if isinstance(each, Entry) else each for each in judged]


def _judge(call: Call, topic: str, partition: PartitionProduceData, verify: Verify | None) -> Entry | Refusal:
    """Return the batch to append, and the error that refuses it before the log is asked, if any."""
    name, records = TopicPartition(topic, partition.index), partition.records
    if topic in INTERNAL_TOPICS and call.client_id != _ADMIN_CLIENT:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic} is written by coordinators alone")
    if records is None or len(records) <= _MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD, "one record batch is wanted, there is none")
    if records[_MAGIC] != 2:
        return Refusal(ErrorCode.INVALID_RECORD, f"record batches have magic 2, this one has {records[_MAGIC]}")
    if len(records) < _HEADER:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes are no record batch")
    attributes = records[_ATTRIBUTES]
    if attributes & _CODEC == Codec.ZSTD and call.version < _KNOWS_ZSTD:
        return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {_KNOWS_ZSTD} or later")
    if attributes & _TRANSACTIONAL:
        return _judge_transactional(call, name, records, verify)
    return Entry(name, records)


def _judge_transactional(
    call: Call, name: TopicPartition, records: memoryview, verify: Verify | None
) -> Entry | Refusal:
    transactional_id = call.body.transactional_id
    if verify is None:
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "there are no transactions here")
    if transactional_id is None:
        return Refusal(ErrorCode.INVALID_TXN_STATE, "a transactional batch without a transactional id")
    producer_id = int.from_bytes(records[_PRODUCER], "big", signed=True)
    producer_epoch = int.from_bytes(records[_PRODUCER_EPOCH], "big", signed=True)
    code = verify(transactional_id, producer_id, producer_epoch, name)
    if code is ErrorCode.NONE:
        return Entry(name, records)
    code = produce_code(code, knows_abortable=call.version >= _KNOWS_ABORTABLE)
    return Refusal(code, f"partition {name} is not in the transaction")


# ---- the answer


def _answer(store: Store, body: ProduceBody, outcomes: list[Outcome]) -> Answer:
    if body.acks == 0:
        for outcome in outcomes:
            if isinstance(outcome, LogmendError):
                raise CloseConnection(f"produce with acks 0: {outcome}")
        return None
    remaining = iter(outcomes)
    responses = [
        {
            "name": topic.name,
            "partition_responses": [
                _told(store, TopicPartition(topic.name, partition.index), next(remaining))
                for partition in topic.partition_data
            ],
        }
        for topic in body.topic_data
    ]
    return {"responses": responses}


def _told(store: Store, name: TopicPartition, outcome: Outcome) -> Values:
    if isinstance(outcome, Appended):
        return {
            "index": name.partition,
            "error_code": ErrorCode.NONE,
            "base_offset": outcome.first_offset,
            "log_append_time": outcome.append_time_ms,
            "log_start_offset": _log_start(store, name),
        }
    return {
        "index": name.partition,
        "error_code": code_of(outcome),
        "base_offset": -1,
        "log_append_time": -1,
        "log_start_offset": -1,
        "error_message": _message(outcome),
    }


def _log_start(store: Store, name: TopicPartition) -> int:
    try:
        return store.log(name).log_start
    except LogmendError:  # it went offline, or was deleted, since
        return -1


def _message(error: LogmendError) -> str | None:
    """Return the message for a producer; it names no paths of this machine."""
    if isinstance(error, DiskFull):
        return "no space is left on the disk of this partition"
    if isinstance(error, EnvironmentFault):
        return "the disk of this partition fails"
    return str(error) if isinstance(error, Refused | Refusal) else None
