"""Topics that are created because a client asks for their metadata; off by default.

The answer to the request that creates a topic still calls it unknown, as a broker's does: clients ask again. A request
for all topics creates none, whatever its flags say: some clients leave them undefined there.
Source: Apache Kafka 4.3.0, DefaultAutoTopicCreationManager; asked of a broker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from server.api.dispatch import Answer, Call, Handler
from server.api.versions import ApiKey
from server.api.views import TopicView
from server.store.store import Store
from storage.base.errors import LogmendError
from storage.base.names import INTERNAL_TOPICS
from wire.messages import get

Make = Callable[[str], Awaitable[TopicView]]
_MOST: Final = 1000
"""Topics that one request may make."""


def creating(handlers: dict[int, Handler], store: Store, make: Make) -> dict[int, Handler]:
    """Return the handlers, of which Metadata makes the topics that are asked for by name and are not there."""
    plain = handlers[ApiKey.METADATA]

    def metadata(call: Call) -> Answer | Awaitable[Answer]:
        missing = _missing(call, store)
        return _made(call, missing) if missing else plain(call)

    async def _made(call: Call, missing: list[str]) -> Answer:
        answer = plain(call)
        values = await answer if isinstance(answer, Awaitable) else answer
        for name in missing:
            with contextlib.suppress(LogmendError):  # then it stays unknown
                await make(name)
        return values

    return handlers | {ApiKey.METADATA: metadata}


def _missing(call: Call, store: Store) -> list[str]:
    if not call.body.topics or not get(call.body, "allow_auto_topic_creation", True):
        return []
    topics = store.topics()
    names = dict.fromkeys(each.name for each in call.body.topics if each.name is not None)
    return [name for name in names if name not in topics and name not in INTERNAL_TOPICS][:_MOST]
