"""Error codes for clients where a transaction, or the log of transactions, refuses a request."""

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
    """Return the code for a client; before version `knows_fenced` it is not PRODUCER_FENCED."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED and version < knows_fenced else code


def coordinator_code(error: Exception) -> ErrorCode:
    """Return the code for a change that was not logged: to be tried again, unless the batch is too large."""
    if isinstance(error, RecordTooLarge | AppendTooLarge):
        return ErrorCode.INVALID_REQUEST
    assert isinstance(error, LogmendError), error
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def produce_code(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Return the code for a producer whose batch may not be stored because of `code`.

    A temporary refusal is NOT_ENOUGH_REPLICAS, after which every producer tries again. `knows_abortable`: its request
    is of version 11 at least, and it goes on with the next transaction; older ones end. Source: Apache Kafka 4.3.0,
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
    """Return the code for a client whose offsets may not be part of a transaction because of `code`.

    Source: Apache Kafka 4.3.0, GroupCoordinatorService.
    """
    answer = produce_code(code, knows_abortable=False)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if answer is ErrorCode.NOT_ENOUGH_REPLICAS else answer
