"""InitProducerId: a producer id for an idempotent producer, or the next epoch of a transactional id.

Source: Apache Kafka 4.3.0, KafkaApis.handleInitProducerIdRequest.
"""

from __future__ import annotations

from typing import Final, cast

from server.api.dispatch import Call, Handler, Values
from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.api.views import Parts
from server.txn.codes import coordinator_code, fenced_for
from server.txn.transaction import Producer
from storage.base.errors import LogmendError
from wire.messages import get, milliseconds

_NONE: Final = -1
_KNOWS_FENCED: Final = 4
"""The first version whose clients know PRODUCER_FENCED."""


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handler; without transactions, as in the read-only mode, it refuses transactional ids."""

    async def init_producer_id(call: Call) -> Values:
        try:
            producer = await _init(parts, call)
        except LogmendError as error:
            return _refusal(coordinator_code(error))
        if isinstance(producer, ErrorCode):
            return _refusal(fenced_for(producer, call.version, _KNOWS_FENCED))
        return {"error_code": ErrorCode.NONE, "producer_id": producer.id, "producer_epoch": producer.epoch}

    return {ApiKey.INIT_PRODUCER_ID: init_producer_id}


async def _init(parts: Parts, call: Call) -> Producer | ErrorCode:
    transactional_id = call.body.transactional_id
    current = Producer(get(call.body, "producer_id", _NONE), get(call.body, "producer_epoch", _NONE))
    if (current.id == _NONE) != (current.epoch == _NONE):
        return ErrorCode.INVALID_REQUEST
    if transactional_id is None:
        return Producer(await parts.producer_ids.draw(), 0)
    if parts.transactions is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    timeout_ms = milliseconds(call.body.transaction_timeout)
    given = None if current.id == _NONE else current
    return cast("Producer | ErrorCode", await parts.transactions.init_producer_id(transactional_id, timeout_ms, given))


def _refusal(code: ErrorCode) -> Values:
    return {"error_code": code, "producer_id": _NONE, "producer_epoch": _NONE}
