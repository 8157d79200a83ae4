"""Produce and InitProducerId where nothing may be written: clients are told at once, and librdkafka still reads.

Without InitProducerId librdkafka takes the broker for one of before 0.11 and does nothing at all. A producer that is
refused a topic gives up with the reason; after any other code it would try again for minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

from server.dispatch import Answer, Call, Handler
from server.errors import CloseConnection, ErrorCode
from server.versions import ApiKey

_FIRST_ID: Final = 1 << 40
_REASON: Final = "this directory is served read-only"


def handlers() -> dict[int, Handler]:
    """Return the handlers."""
    ids = itertools.count(_FIRST_ID)

    def init_producer_id(call: Call) -> Mapping[str, object]:
        if call.body.transactional_id is not None:
            return {"error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "producer_epoch": -1}
        return {"error_code": ErrorCode.NONE, "producer_id": next(ids), "producer_epoch": 0}

    return {ApiKey.PRODUCE: _produce, ApiKey.INIT_PRODUCER_ID: init_producer_id}


def _produce(call: Call) -> Answer:
    if call.body.acks == 0:
        raise CloseConnection(_REASON)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {
        "responses": [
            {
                "name": topic.name,
                "partition_responses": [
                    {"index": each.index, "error_code": code, "base_offset": -1, "error_message": _REASON}
                    for each in topic.partition_data
                ],
            }
            for topic in call.body.topic_data
        ]
    }
