"""Requests about transactions: who takes part, how they end, and what there is to see of them.

Source: Apache Kafka 4.3.0, KafkaApis, TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from server.api.dispatch import Call, Handler, Values
from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.handlers.parts import Parts
from server.store.store import Store
from server.txn.codes import fenced_for
from server.txn.coordinator import Transactions
from server.txn.records import State
from server.txn.transaction import Producer, Transaction
from storage.base.names import INTERNAL_TOPICS
from storage.base.units import TopicPartition
from wire.messages import get

_KNOWS_FENCED: Final = 2
_STATES: Final = {state.title: state for state in State}


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers; nothing without a coordinator of transactions."""
    if parts.transactions is None:
        return {}
    served = _Served(parts.store, parts.transactions)
    return {
        ApiKey.ADD_PARTITIONS_TO_TXN: served.add_partitions,
        ApiKey.ADD_OFFSETS_TO_TXN: served.add_offsets,
        ApiKey.END_TXN: served.end,
        ApiKey.LIST_TRANSACTIONS: served.list_transactions,
        ApiKey.DESCRIBE_TRANSACTIONS: served.describe_transactions,
    }


class _Served:
    def __init__(self, store: Store, transactions: Transactions) -> None:
        self._store, self._transactions = store, transactions

    async def add_partitions(self, call: Call) -> Values:
        body = call.body
        producer = Producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        names = [TopicPartition(topic.name, n) for topic in body.v3_and_below_topics for n in topic.partitions]
        faults = {name: fault for name in names if (fault := self._fault(name)) is not None}
        if faults:  # all of them or none
            codes = {name: faults.get(name, ErrorCode.OPERATION_NOT_ATTEMPTED) for name in names}
        else:
            code = await self._transactions.add_partitions(body.v3_and_below_transactional_id, producer, names)
            codes = dict.fromkeys(names, fenced_for(code, call.version, _KNOWS_FENCED))
        return {"results_by_topic_v3_and_below": _by_topic(codes)}

    def _fault(self, name: TopicPartition) -> ErrorCode | None:
        """Return what speaks against a partition taking part."""
        if name.topic in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._store.topics().get(name.topic)
        is_there = topic is not None and 0 <= name.partition < topic.partitions
        return None if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def add_offsets(self, call: Call) -> Values:
        body = call.body
        if not body.group_id:
            return {"error_code": ErrorCode.INVALID_GROUP_ID}
        producer = Producer(body.producer_id, body.producer_epoch)
        code = await self._transactions.add_offsets(body.transactional_id, producer, body.group_id)
        return {"error_code": fenced_for(code, call.version, _KNOWS_FENCED)}

    async def end(self, call: Call) -> Values:
        body = call.body
        producer = Producer(body.producer_id, body.producer_epoch)
        code = await self._transactions.end(body.transactional_id, producer, commits=body.committed)
        return {"error_code": fenced_for(code, call.version, _KNOWS_FENCED)}

    # ---- to see

    def list_transactions(self, call: Call) -> Values:
        body = call.body
        if self._transactions.shards.is_loading:
            return {"error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        filters = _Filter(body, call.now_ms)
        return {
            "error_code": ErrorCode.NONE,
            "unknown_state_filters": [name for name in body.state_filters if name not in _STATES],
            "transaction_states": [_listed(each) for each in self._transactions.shards if filters.takes(each)],
        }

    def describe_transactions(self, call: Call) -> Values:
        return {"transaction_states": [self._described(each) for each in call.body.transactional_ids]}

    def _described(self, transactional_id: str) -> dict[str, object]:
        transaction = self._transactions.shards.get(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if transaction is None:
            transaction = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if isinstance(transaction, ErrorCode):
            return {"error_code": transaction, "transactional_id": transactional_id, "transaction_start_time": -1}
        facts = transaction.facts
        by_topic = groupby(sorted(facts.partitions), key=lambda name: name.topic)
        return {
            "error_code": ErrorCode.NONE,
            "transactional_id": transactional_id,
            "transaction_state": facts.state.title,
            "transaction_timeout": facts.timeout_ms,
            "transaction_start_time": facts.started_ms,
            "producer_id": facts.producer_id,
            "producer_epoch": facts.epoch,
            "topics": [{"topic": topic, "partitions": [n.partition for n in names]} for topic, names in by_topic],
        }


class _Filter:
    """What a client wants to see; nothing asked for is everything."""

    def __init__(self, body: Any, now_ms: int) -> None:
        self._states = {_STATES[name] for name in body.state_filters if name in _STATES}
        self._has_states = bool(body.state_filters)
        self._producer_ids = frozenset(body.producer_id_filters)
        self._least_ms = int(get(body, "duration_filter", -1))
        self._now_ms = now_ms

    def takes(self, transaction: Transaction) -> bool:
        facts = transaction.facts
        if self._producer_ids and facts.producer_id not in self._producer_ids:
            return False
        if self._has_states and facts.state not in self._states:
            return False
        return self._least_ms < 0 or self._now_ms - facts.started_ms > self._least_ms


def _listed(transaction: Transaction) -> dict[str, object]:
    facts = transaction.facts
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": facts.producer_id,
        "transaction_state": facts.state.title,
    }


def _by_topic(codes: Mapping[TopicPartition, ErrorCode]) -> list[dict[str, object]]:
    def results(names: Iterable[TopicPartition]) -> list[dict[str, object]]:
        return [{"partition_index": name.partition, "partition_error_code": codes[name]} for name in names]

    by_topic = groupby(sorted(codes), key=lambda name: name.topic)
    return [{"name": topic, "results_by_partition": results(names)} for topic, names in by_topic]
