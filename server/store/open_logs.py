"""OpenLogs: the log manager as the listener knows it, with its topics and log directories as handlers see them."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.own.engine import NotServing
from engine.logdir.log_dir import LogDir
from engine.manager.manager import LogManager
from engine.manager.topics import Topic
from server.api.views import LogDirView, TopicView


class OpenLogs:
    """The thread that has the engine's turn calls `see`; `topics` and `manager` are for any thread."""

    def __init__(self) -> None:
        self._manager: LogManager | None = None
        self._revision = -1
        """Of the engine's topics when `topics` was made of them."""
        self.topics: Mapping[str, TopicView] = {}
        """All topics by name; replaced as a whole, never changed."""

    @property
    def manager(self) -> LogManager:
        """The manager that was seen last; raises `NotServing` before."""
        if self._manager is None:
            raise NotServing("the logs are not open")
        return self._manager

    def see(self, manager: LogManager) -> None:
        """Take the manager that is open now; its topics stay as they are known."""
        self._manager = manager

    def refresh_topics(self, manager: LogManager) -> bool:
        """Take topics that changed; return whether any did."""
        if manager.topics.revision == self._revision:
            return False
        before, self._revision = self.topics, manager.topics.revision
        self.topics = {topic.name: _topic_view(topic, before.get(topic.name)) for topic in manager.topics.all()}
        return True

    def log_dirs(self) -> list[LogDirView]:
        """Return the log directories with the sizes of their partitions."""
        return [] if self._manager is None else [_log_dir_view(log_dir) for log_dir in self._manager.log_dirs]


def _topic_view(topic: Topic, before: TopicView | None) -> TopicView:
    """Return a topic as it is now: `before` itself if nothing has changed."""
    view = TopicView(topic.name, topic.topic_id, topic.partitions, topic.config, topic.settings)
    return before if before == view else view


def _log_dir_view(log_dir: LogDir) -> LogDirView:
    partitions = log_dir.partitions.copy() if log_dir.offline is None else {}
    sizes = {name: partition.log.size for name, partition in partitions.items()}
    return LogDirView(log_dir.path, log_dir.offline, sizes)
