"""Produce where nothing may be written: clients get the error at once.

A producer that is refused a topic gives up with the reason; after any other code it would try again for minutes. Where
Produce were not there at all, librdkafka would not read either.
"""

from __future__ import annotations

from typing import Final

from server.api.dispatch import Answer, Call, Handler
from server.api.errors import CloseConnection, ErrorCode
from server.api.versions import ApiKey

_REASON: Final = "this directory is served read-only"


def handlers() -> dict[int, Handler]:
    """Return the handler."""
    return {ApiKey.PRODUCE: _produce}


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
