"""The requests about transactions, in every version, as clients get their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from support.wire_calls import INFO, NOW, answered

from server.api.dispatch import Handler
from server.api.errors import ErrorCode
from server.api.versions import VERSIONS, ApiKey
from server.api.views import Parts
from server.handlers.coordination.transactions import handlers
from server.txn.records import Facts, State
from server.txn.transaction import Producer, Transaction
from storage.base.units import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
ME = Producer(9, 4)


class Scripted:
    """Transactions that answer what they are told to, and note what they are asked."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE, *transactions: Transaction) -> None:
        self.code, self.calls, self.is_loading = code, list[tuple[Any, ...]](), False
        self._transactions = {each.transactional_id: each for each in transactions}

    async def add_partitions(self, *arguments: Any) -> ErrorCode:
        self.calls.append(arguments)
        return self.code

    async def add_offsets(self, *arguments: Any) -> ErrorCode:
        self.calls.append(arguments)
        return self.code

    async def end(self, *arguments: Any, commits: bool) -> ErrorCode:
        self.calls.append((*arguments, commits))
        return self.code

    def get(self, transactional_id: str) -> Any:
        await_ = self.code if self.code is not ErrorCode.NONE else None
        return self._transactions.get(transactional_id, await_)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._transactions.values())

    @property
    def shards(self) -> Scripted:
        return self


def served(scripted: Scripted) -> Mapping[int, Handler]:
    topics = {"orders": SimpleNamespace(partitions=2), "__consumer_offsets": SimpleNamespace(partitions=2)}
    store = SimpleNamespace(topics=lambda: topics)
    return handlers(Parts(store, INFO, SimpleNamespace(), transactions=scripted))  # type: ignore[arg-type]


def every(key: ApiKey) -> range:
    return range(VERSIONS[key].lowest, VERSIONS[key].highest + 1)


def add(scripted: Scripted, version: int, *topics: tuple[str, list[int]]) -> dict[tuple[str, int], int]:
    wanted = [{"name": name, "partitions": numbers} for name, numbers in topics]
    answer = answered(
        served(scripted), ApiKey.ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id="t",
        v3_and_below_producer_id=9, v3_and_below_producer_epoch=4, v3_and_below_topics=wanted,
    )  # fmt: skip
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


@pytest.mark.parametrize("version", every(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_partitions_take_part_all_together(version: int) -> None:
    scripted = Scripted()
    assert add(scripted, version, ("orders", [1, 0])) == {P0: 0, P1: 0}
    assert scripted.calls == [("t", ME, [P1, P0])]


def test_what_keeps_one_partition_out_keeps_all_of_them_out() -> None:
    scripted = Scripted()
    assert add(scripted, 3, ("orders", [0, 2]), ("gone", [0]), ("__consumer_offsets", [1])) == {
        P0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("orders", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("__consumer_offsets", 1): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert scripted.calls == []


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_only_clients_that_know_it_are_told_that_they_are_fenced(version: int, code: ErrorCode) -> None:
    scripted = Scripted(ErrorCode.PRODUCER_FENCED)
    assert add(scripted, version, ("orders", [0])) == {P0: code}
    fields = {"transactional_id": "t", "producer_id": 9, "producer_epoch": 4}
    answer = answered(served(scripted), ApiKey.END_TXN, version, **fields, committed=True)
    assert answer.error_code == code
    answer = answered(served(scripted), ApiKey.ADD_OFFSETS_TO_TXN, version, **fields, group_id="g")
    assert answer.error_code == code


@pytest.mark.parametrize("version", every(ApiKey.END_TXN))
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_ended_one_way_or_the_other(version: int, committed: bool) -> None:
    scripted = Scripted()
    answer = answered(
        served(scripted), ApiKey.END_TXN, version, transactional_id="t", producer_id=9, producer_epoch=4,
        committed=committed,
    )  # fmt: skip
    assert answer.error_code == 0
    assert scripted.calls == [("t", ME, committed)]


@pytest.mark.parametrize("version", every(ApiKey.ADD_OFFSETS_TO_TXN))
def test_offsets_of_a_group_take_part(version: int) -> None:
    scripted = Scripted()
    fields = {"transactional_id": "t", "producer_id": 9, "producer_epoch": 4}
    assert answered(served(scripted), ApiKey.ADD_OFFSETS_TO_TXN, version, **fields, group_id="g").error_code == 0
    assert scripted.calls == [("t", ME, "g")]
    answer = answered(served(scripted), ApiKey.ADD_OFFSETS_TO_TXN, version, **fields, group_id="")
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


OPEN = Transaction("open", Facts(9, 4, 60_000, State.ONGOING, frozenset((P0, P1)), NOW - 5, NOW - 10_000))
IDLE = Transaction("idle", Facts(8, 0, 5_000, State.EMPTY, updated_ms=NOW))
DONE = Transaction("done", Facts(7, 2, 5_000, State.COMPLETE_COMMIT, frozenset(), NOW, NOW - 1_000))


def listed(version: int = 1, **wanted: object) -> list[str]:
    answer = answered(served(Scripted(ErrorCode.NONE, OPEN, IDLE, DONE)), ApiKey.LIST_TRANSACTIONS, version, **wanted)
    assert answer.error_code == 0
    return [each.transactional_id for each in answer.transaction_states]


@pytest.mark.parametrize("version", every(ApiKey.LIST_TRANSACTIONS))
def test_transactions_are_listed_by_what_is_asked_for(version: int) -> None:
    assert listed(version) == ["open", "idle", "done"]
    assert listed(version, state_filters=["Ongoing", "CompleteCommit"]) == ["open", "done"]
    assert listed(version, producer_id_filters=[8, 9]) == ["open", "idle"]
    assert listed(version, state_filters=["Ongoing"], producer_id_filters=[8]) == []


def test_transactions_are_listed_by_how_long_they_take() -> None:
    assert listed(duration_filter=5_000, state_filters=["Ongoing", "CompleteCommit"]) == ["open"]


def test_states_that_nobody_knows_are_named_and_find_nothing() -> None:
    answer = answered(served(Scripted(ErrorCode.NONE, OPEN)), ApiKey.LIST_TRANSACTIONS, 1, state_filters=["Lost"])
    assert answer.unknown_state_filters == ("Lost",)
    assert answer.transaction_states == ()


def test_while_they_are_read_none_are_listed() -> None:
    scripted = Scripted(ErrorCode.NONE, OPEN)
    scripted.is_loading = True
    answer = answered(served(scripted), ApiKey.LIST_TRANSACTIONS, 0)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_transaction_is_described_with_its_partitions() -> None:
    answer = answered(
        served(Scripted(ErrorCode.NONE, OPEN, IDLE)), ApiKey.DESCRIBE_TRANSACTIONS, 0,
        transactional_ids=["open", "idle", "gone", ""],
    )  # fmt: skip
    shown, idle, gone, empty = answer.transaction_states
    assert (shown.error_code, shown.transaction_state, shown.producer_id, shown.producer_epoch) == (0, "Ongoing", 9, 4)
    assert [(each.topic, each.partitions) for each in shown.topics] == [("orders", (0, 1))]
    assert shown.transaction_start_time.timestamp() == (NOW - 10_000) / 1000
    assert (idle.transaction_state, idle.topics) == ("Empty", ())
    assert gone.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def test_without_a_coordinator_nothing_of_this_is_offered() -> None:
    assert handlers(Parts(None, INFO, SimpleNamespace())) == {}  # type: ignore[arg-type]
    assert asyncio.iscoroutinefunction(served(Scripted())[ApiKey.END_TXN])
