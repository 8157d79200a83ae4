"""Look-ups of several handlers: topics by id, and the log that a request names."""

from __future__ import annotations

from collections.abc import Mapping

from server.api.errors import ErrorCode, Refusal, code_of
from server.api.views import ReadStore, TopicView
from storage.base.errors import LogmendError, ReadFault
from storage.base.units import TopicPartition
from storage.log.log_types import ReadableLog

ZERO_ID = bytes(16)


class TopicIds:
    """Topics by id; it is rebuilt when the topics have changed."""

    def __init__(self, store: ReadStore) -> None:
        self._store = store
        self._topics: Mapping[str, TopicView] = {}
        self._names: dict[bytes, str] = {}

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None if no topic has that id."""
        topics = self._store.topics()
        if topics is not self._topics:
            self._names = {topic.topic_id: topic.name for topic in topics.values() if topic.topic_id is not None}
            self._topics = topics
        return self._names.get(topic_id)


def log_for(store: ReadStore, name: TopicPartition, client_epoch: int) -> ReadableLog:
    """Return a log for a client that knows this leader epoch, -1 if it knows none.

    Raises as `ReadStore.log` does, and `Refusal` for an older leader epoch than ours, or a newer one.
    """
    log = store.log(name)
    if client_epoch >= 0 and (epoch := store.leader_epoch(name)) != client_epoch:
        code = ErrorCode.FENCED_LEADER_EPOCH if client_epoch < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise Refusal(code, code.name)
    return log


def code_for(store: ReadStore, name: TopicPartition, error: LogmendError) -> ErrorCode:
    """Return the error code for what a read of a log raised; a fault of the disk is reported to the store, too."""
    if isinstance(error, ReadFault):
        store.report(name, error)
    return code_of(error)
