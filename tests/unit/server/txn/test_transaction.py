"""A transactional id does what a broker's coordinator would let it do, and nothing else."""

from __future__ import annotations

import pytest

from server.api.errors import ErrorCode
from server.txn.records import Facts, State
from server.txn.transaction import LAST_EPOCH, Producer, Transaction
from storage.base.units import TopicPartition

NOW = 1_700_000_000_000
TIMEOUT = 60_000
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SETTLED = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


def made(state: State = State.EMPTY, producer_id: int = 7, epoch: int = 3, **more: object) -> Transaction:
    under_way = state in (State.ONGOING, *PREPARED)
    facts = Facts(producer_id, epoch, TIMEOUT, state, frozenset((P0,) if under_way else ()), NOW - 10, NOW - 20)
    return Transaction("t", facts._replace(**more))  # type: ignore[arg-type]


def done(transaction: Transaction, wanted: object) -> Facts:
    assert isinstance(wanted, Facts), wanted
    transaction.settle()
    assert transaction.facts == wanted
    return wanted


ME = Producer(7, 3)


# ---- init


def test_the_first_producer_of_an_id_has_epoch_0() -> None:
    transaction = Transaction.begin("t", 7, TIMEOUT, NOW)
    facts = done(transaction, transaction.init(TIMEOUT, None, NOW))
    assert facts == Facts(7, 0, TIMEOUT, State.EMPTY, frozenset(), NOW, -1, previous_producer_id=7)


def test_a_producer_that_had_another_id_before_the_id_was_forgotten_begins_with_epoch_0() -> None:
    transaction = Transaction.begin("t", 7, TIMEOUT, NOW)
    assert done(transaction, transaction.init(TIMEOUT, Producer(5, 9), NOW)).epoch == 0


@pytest.mark.parametrize("state", SETTLED)
def test_the_next_producer_of_an_id_has_the_next_epoch(state: State) -> None:
    transaction = made(state)
    facts = done(transaction, transaction.init(5_000, None, NOW))
    assert (facts.state, facts.producer_id, facts.epoch, facts.last_epoch) == (State.EMPTY, 7, 4, -1)
    assert (facts.timeout_ms, facts.started_ms, facts.updated_ms) == (5_000, -1, NOW)
    assert transaction.end(ME, NOW, commits=True) is ErrorCode.PRODUCER_FENCED
    assert transaction.add_partitions(ME, [P0], NOW) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", PREPARED)
def test_who_comes_while_the_markers_are_written_has_to_wait(state: State) -> None:
    assert made(state).init(TIMEOUT, None, NOW) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_who_comes_during_a_transaction_has_it_aborted_under_an_epoch_that_nobody_gets() -> None:
    transaction = made(State.ONGOING)
    facts = done(transaction, transaction.init(TIMEOUT, None, NOW))
    assert (facts.state, facts.epoch, facts.partitions) == (State.PREPARE_ABORT, 4, {P0})
    done(transaction, transaction.complete(NOW))
    assert done(transaction, transaction.init(TIMEOUT, None, NOW)).epoch == 5


def test_a_producer_that_failed_may_go_on_with_the_next_epoch() -> None:
    transaction = made(State.COMPLETE_ABORT)
    facts = done(transaction, transaction.init(TIMEOUT, ME, NOW))
    assert (facts.epoch, facts.last_epoch) == (4, 3)


def test_asked_once_more_by_a_producer_that_did_not_hear_it_the_answer_is_the_same() -> None:
    transaction = made(State.EMPTY)
    done(transaction, transaction.init(TIMEOUT, ME, NOW))
    facts = done(transaction, transaction.init(TIMEOUT, ME, NOW))
    assert (facts.epoch, facts.last_epoch) == (4, 3)


def test_a_producer_that_was_replaced_cannot_come_back() -> None:
    transaction = made(State.EMPTY)
    done(transaction, transaction.init(TIMEOUT, None, NOW))
    assert transaction.init(TIMEOUT, ME, NOW) is ErrorCode.PRODUCER_FENCED
    assert transaction.init(TIMEOUT, Producer(6, 4), NOW) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", SETTLED)
def test_where_the_epochs_end_a_new_producer_id_begins(state: State) -> None:
    transaction = made(state, epoch=LAST_EPOCH)
    assert transaction.is_exhausted
    facts = done(transaction, transaction.init(TIMEOUT, None, NOW, new_id=99))
    assert (facts.producer_id, facts.epoch, facts.last_epoch, facts.previous_producer_id) == (99, 0, -1, 7)


def test_a_new_producer_id_is_given_again_to_who_did_not_hear_of_it() -> None:
    transaction = made(epoch=LAST_EPOCH)
    last = Producer(7, LAST_EPOCH)
    done(transaction, transaction.init(TIMEOUT, last, NOW, new_id=99))
    facts = done(transaction, transaction.init(TIMEOUT, last, NOW, new_id=100))
    assert (facts.producer_id, facts.epoch, facts.last_epoch) == (99, 0, LAST_EPOCH)


def test_a_producer_with_an_older_epoch_does_not_get_a_new_producer_id() -> None:
    assert made(epoch=LAST_EPOCH).init(TIMEOUT, ME, NOW, new_id=99) is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_can_still_be_fenced_off() -> None:
    transaction = made(State.ONGOING, epoch=LAST_EPOCH)
    assert done(transaction, transaction.init(TIMEOUT, None, NOW, new_id=99)).epoch == LAST_EPOCH + 1
    done(transaction, transaction.complete(NOW))
    assert done(transaction, transaction.init(TIMEOUT, None, NOW, new_id=99))[:2] == (99, 0)


# ---- a transaction


@pytest.mark.parametrize("state", SETTLED)
def test_the_first_partitions_begin_a_transaction(state: State) -> None:
    transaction = made(state)
    facts = done(transaction, transaction.add_partitions(ME, [P0], NOW))
    assert (facts.state, facts.partitions, facts.started_ms, facts.updated_ms) == (State.ONGOING, {P0}, NOW, NOW)


def test_more_partitions_do_not_begin_it_again() -> None:
    transaction = made(State.ONGOING)
    facts = done(transaction, transaction.add_partitions(ME, [P1], NOW))
    assert (facts.partitions, facts.started_ms) == ({P0, P1}, NOW - 20)


def test_partitions_that_take_part_already_change_nothing() -> None:
    transaction = made(State.ONGOING)
    assert transaction.add_partitions(ME, [P0], NOW) is ErrorCode.NONE
    assert transaction.pending is None


@pytest.mark.parametrize("state", PREPARED)
def test_no_partition_comes_in_while_the_markers_are_written(state: State) -> None:
    assert made(state).add_partitions(ME, [P0], NOW) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("other", [Producer(8, 3), Producer(6, 0)])
def test_another_producer_id_is_not_that_of_the_transaction(other: Producer) -> None:
    assert made(State.ONGOING).add_partitions(other, [P0], NOW) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert made(State.ONGOING).end(other, NOW, commits=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("epoch", [2, 4])
def test_another_epoch_is_fenced_off(epoch: int) -> None:
    assert made(State.ONGOING).add_partitions(Producer(7, epoch), [P1], NOW) is ErrorCode.PRODUCER_FENCED
    assert made(State.ONGOING).end(Producer(7, epoch), NOW, commits=True) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("commits", "decided", "ended"),
    [(True, State.PREPARE_COMMIT, State.COMPLETE_COMMIT), (False, State.PREPARE_ABORT, State.COMPLETE_ABORT)],
)
def test_a_transaction_is_decided_first_and_ended_when_the_markers_are_there(
    commits: bool, decided: State, ended: State
) -> None:
    transaction = made(State.ONGOING)
    facts = done(transaction, transaction.end(ME, NOW, commits=commits))
    assert (facts.state, facts.partitions, facts.epoch) == (decided, {P0}, 3)
    assert transaction.end(ME, NOW, commits=commits) is ErrorCode.CONCURRENT_TRANSACTIONS
    facts = done(transaction, transaction.complete(NOW))
    assert (facts.state, facts.partitions, facts.epoch) == (ended, frozenset(), 3)
    assert transaction.end(ME, NOW, commits=commits) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("state", "commits"),
    [
        (State.EMPTY, True), (State.EMPTY, False), (State.PREPARE_COMMIT, False), (State.PREPARE_ABORT, True),
        (State.COMPLETE_COMMIT, False), (State.COMPLETE_ABORT, True),
    ],
)  # fmt: skip
def test_what_is_decided_cannot_be_decided_otherwise(state: State, commits: bool) -> None:
    assert made(state).end(ME, NOW, commits=commits) is ErrorCode.INVALID_TXN_STATE


def test_while_a_change_is_pending_nothing_else_happens() -> None:
    transaction = made(State.ONGOING)
    transaction.end(ME, NOW, commits=True)
    assert transaction.end(ME, NOW, commits=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert transaction.add_partitions(ME, [P1], NOW) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert transaction.init(TIMEOUT, None, NOW) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert transaction.time_out(NOW + 10 * TIMEOUT) is None
    assert transaction.expire(NOW + 10 * TIMEOUT, 1) is None


def test_a_change_that_did_not_get_into_the_log_did_not_happen() -> None:
    transaction = made(State.ONGOING)
    before = transaction.facts
    for want in (
        lambda: transaction.end(ME, NOW, commits=True),
        lambda: transaction.init(TIMEOUT, None, NOW),
        lambda: transaction.add_partitions(ME, [P1], NOW),
    ):
        assert isinstance(want(), Facts)
        transaction.give_up()
        assert (transaction.facts, transaction.pending) == (before, None)


def test_a_transaction_of_the_second_protocol_is_completed_with_its_next_producer_id() -> None:
    left = made(State.PREPARE_COMMIT, epoch=LAST_EPOCH + 1, client_version=2, next_producer_id=99)
    facts = done(left, left.complete(NOW))
    assert (facts.producer_id, facts.epoch, facts.next_producer_id, facts.previous_producer_id) == (99, 0, -1, 7)


# ---- time


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced_off() -> None:
    transaction = made(State.ONGOING, started_ms=NOW)
    assert transaction.time_out(NOW + TIMEOUT) is None
    facts = done(transaction, transaction.time_out(NOW + TIMEOUT + 1))
    assert (facts.state, facts.epoch, facts.last_epoch) == (State.PREPARE_ABORT, 4, -1)
    assert transaction.end(ME, NOW, commits=True) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", [*SETTLED, *PREPARED])
def test_only_what_is_under_way_can_take_too_long(state: State) -> None:
    assert made(state, started_ms=0).time_out(NOW) is None


@pytest.mark.parametrize("state", SETTLED)
def test_an_id_that_was_silent_for_long_is_forgotten(state: State) -> None:
    transaction = made(state, updated_ms=NOW - 100)
    assert transaction.expire(NOW, 101) is None
    facts = transaction.expire(NOW, 100)
    assert facts is not None
    assert facts.state is State.DEAD


@pytest.mark.parametrize("state", [State.ONGOING, *PREPARED])
def test_an_id_with_a_transaction_is_not_forgotten(state: State) -> None:
    assert made(state, updated_ms=0).expire(NOW, 1) is None


# ---- may a batch come


def test_a_batch_may_come_for_a_partition_that_takes_part() -> None:
    transaction = made(State.ONGOING)
    assert transaction.verify(ME, P0) is ErrorCode.NONE
    assert transaction.verify(ME, P1) is ErrorCode.TRANSACTION_ABORTABLE
    assert transaction.verify(Producer(7, 2), P0) is ErrorCode.PRODUCER_FENCED
    assert transaction.verify(Producer(7, 4), P0) is ErrorCode.PRODUCER_FENCED
    assert transaction.verify(Producer(8, 3), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_no_batch_may_come_once_the_end_is_on_its_way() -> None:
    transaction = made(State.ONGOING)
    transaction.end(ME, NOW, commits=True)
    assert transaction.verify(ME, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
    transaction.settle()
    assert transaction.verify(ME, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
    done(transaction, transaction.complete(NOW))
    assert transaction.verify(ME, P0) is ErrorCode.TRANSACTION_ABORTABLE


def test_no_batch_may_come_before_a_partition_counts_as_added() -> None:
    transaction = made(State.EMPTY)
    transaction.add_partitions(ME, [P0], NOW)
    assert transaction.verify(ME, P0) is ErrorCode.TRANSACTION_ABORTABLE
    transaction.settle()
    assert transaction.verify(ME, P0) is ErrorCode.NONE
