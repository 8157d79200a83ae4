"""InitProducerId gives every producer an id of its own."""

from __future__ import annotations

from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import pytest
from support.wire_calls import INFO, answered

from server.api.errors import ErrorCode
from server.api.versions import VERSIONS, ApiKey
from server.handlers.data.producer_ids import handlers
from server.handlers.parts import Parts
from server.store.producer_ids import FIRST, ProducerIds, unstored
from server.txn.transaction import Producer
from storage.base.errors import WriteFault

KEY = ApiKey.INIT_PRODUCER_ID
EVERY = range(VERSIONS[KEY].lowest, VERSIONS[KEY].highest + 1)


def parts(**more: Any) -> Parts:
    return Parts(store=None, info=INFO, timers=SimpleNamespace(), **({"producer_ids": unstored()} | more))


class Asked:
    """Notes what transactions are asked for."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.calls: list[tuple[object, ...]] = []

    async def init_producer_id(self, *arguments: object) -> object:
        self.calls.append(arguments)
        return self.answer


@pytest.mark.parametrize("version", EVERY)
def test_an_idempotent_producer_gets_an_id_with_epoch_0(version: int) -> None:
    answer = answered(handlers(parts()), KEY, version, transaction_timeout=60_000)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, FIRST, 0)


def test_two_producers_get_two_ids() -> None:
    served = handlers(parts())
    assert [answered(served, KEY, 4).producer_id for _ in range(3)] == [FIRST, FIRST + 1, FIRST + 2]


def test_a_disk_that_says_no_is_tried_again_later() -> None:
    async def reserve(least: int) -> range:
        raise WriteFault("write", PurePath("/a"), OSError(5, "no"))

    answer = answered(handlers(parts(producer_ids=ProducerIds(reserve))), KEY, 5)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_without_transactions_a_transactional_id_is_refused_for_good() -> None:
    answer = answered(handlers(parts()), KEY, 4, transactional_id="t")
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_transactional_id_goes_to_the_transactions() -> None:
    asked = Asked(Producer(9, 4))
    served = handlers(parts(transactions=asked))
    answer = answered(served, KEY, 2, transactional_id="t", transaction_timeout=5_000)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 9, 4)
    answered(served, KEY, 3, transactional_id="t", transaction_timeout=6_000, producer_id=9, producer_epoch=3)
    assert asked.calls == [("t", 5_000, None), ("t", 6_000, Producer(9, 3))]


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_only_clients_that_know_it_are_told_that_they_are_fenced(version: int, code: ErrorCode) -> None:
    served = handlers(parts(transactions=Asked(ErrorCode.PRODUCER_FENCED)))
    assert answered(served, KEY, version, transactional_id="t").error_code == code


@pytest.mark.parametrize(("producer_id", "epoch"), [(9, -1), (-1, 0)])
def test_half_a_producer_is_senseless(producer_id: int, epoch: int) -> None:
    answer = answered(handlers(parts()), KEY, 3, producer_id=producer_id, producer_epoch=epoch)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
