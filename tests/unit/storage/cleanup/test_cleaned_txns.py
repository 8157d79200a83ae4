"""Which data belongs to aborted transactions, and which markers are no longer needed."""

from __future__ import annotations

from storage.base.rows import ABORT, COMMIT
from storage.cleanup.cleaned_txns import CleanedTransactions
from storage.index.txn_index import AbortedTxn

LEADER_CHANGE = 2


def data(transactions: CleanedTransactions, producer: int, offset: int) -> bool:
    return transactions.meet_data(producer, offset, is_transactional=True)


def aborted(producer: int, first: int, last: int) -> AbortedTxn:
    return AbortedTxn(producer, first, last, last + 1)


def test_data_is_aborted_from_the_first_offset_of_its_transaction_to_the_marker() -> None:
    transactions = CleanedTransactions()
    transactions.add([aborted(1, 5, 9)])
    assert not data(transactions, 1, 4)
    assert data(transactions, 1, 5)
    assert not data(transactions, 2, 6)
    assert data(transactions, 1, 8)
    assert not transactions.meet_marker(1, 9, ABORT)
    assert not data(transactions, 1, 10)
    assert transactions.kept == [aborted(1, 5, 9)]


def test_data_outside_of_transactions_is_never_aborted() -> None:
    transactions = CleanedTransactions()
    transactions.add([aborted(1, 0, 9)])
    assert not transactions.meet_data(1, 3, is_transactional=False)


def test_an_abort_marker_is_needed_while_there_is_data_of_its_transaction() -> None:
    transactions = CleanedTransactions()
    transactions.add([aborted(1, 0, 2), aborted(1, 5, 7)])
    assert data(transactions, 1, 1)
    assert not transactions.meet_marker(1, 2, ABORT)
    assert transactions.meet_marker(1, 7, ABORT)
    assert transactions.kept == [aborted(1, 0, 2)]
    assert transactions.meet_marker(3, 8, ABORT)


def test_a_commit_marker_is_needed_while_there_is_data_of_its_own_transaction() -> None:
    transactions = CleanedTransactions()
    assert not data(transactions, 1, 0)
    assert not transactions.meet_marker(1, 1, COMMIT)
    assert transactions.meet_marker(1, 5, COMMIT)
    assert not data(transactions, 1, 6)
    assert transactions.meet_marker(2, 7, COMMIT)
    assert not transactions.meet_marker(1, 8, COMMIT)


def test_a_transaction_that_is_added_for_each_segment_it_spans_counts_once() -> None:
    transactions = CleanedTransactions()
    transactions.add([aborted(1, 0, 9)])
    assert data(transactions, 1, 0)
    transactions.add([aborted(1, 0, 9)])
    assert data(transactions, 1, 5)
    assert not transactions.meet_marker(1, 9, ABORT)
    assert not data(transactions, 1, 10)
    assert transactions.kept == [aborted(1, 0, 9)]


def test_transactions_of_several_producers_begin_in_the_order_of_the_log() -> None:
    transactions = CleanedTransactions()
    transactions.add([aborted(2, 6, 20), aborted(1, 3, 10), aborted(1, 12, 15)])
    assert [data(transactions, producer, offset) for producer, offset in ((2, 5), (1, 5), (2, 6))] == [
        False, True, True,
    ]  # fmt: skip
    assert not transactions.meet_marker(1, 10, ABORT)
    assert [data(transactions, 1, offset) for offset in (11, 12)] == [False, True]


def test_an_empty_control_batch_may_go_and_other_kinds_never() -> None:
    transactions = CleanedTransactions()
    assert transactions.meet_marker(1, 0, None)
    assert not transactions.meet_marker(-1, 1, LEADER_CHANGE)
