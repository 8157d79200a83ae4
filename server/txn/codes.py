"""What clients are told where a transaction, or the log of transactions, says no."""

from __future__ import annotations

from typing import Final

from server.api.errors import ErrorCode
from storage.base.errors import LogmendError
from storage.base.refusals import AppendTooLarge, RecordTooLarge

_RETRIED: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


def fenced_for(code: ErrorCode, version: int, knows_fenced: int) -> ErrorCode:
    """Return what a client of a request before version `knows_fenced` is told in place of PRODUCER_FENCED."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED and version < knows_fenced else code


def coordinator_code(error: Exception) -> ErrorCode:
    """Return the code for a change that did not get into the log: to be tried again, unless it never will."""
    if isinstance(error, RecordTooLarge | AppendTooLarge):
        return ErrorCode.INVALID_REQUEST
    assert isinstance(error, LogmendError), error
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def produce_code(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Return what a producer is told when its batch may not be stored because of `code`.

    What passes is NOT_ENOUGH_REPLICAS, which every producer tries again after. `knows_abortable`: its request is of
    version 11 at least, and it goes on with the next transaction; older ones end. Source: Apache Kafka 4.3.0,
    AddPartitionsToTxnManager, ReplicaManager.
    """
    if code in _RETRIED:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


def offsets_code(code: ErrorCode) -> ErrorCode:
    """Return what a client is told when its offsets may not be part of a transaction because of `code`.

    Source: Apache Kafka 4.3.0, GroupCoordinatorService.
    """
    told = produce_code(code, knows_abortable=False)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if told is ErrorCode.NOT_ENOUGH_REPLICAS else told
