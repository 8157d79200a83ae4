"""Topics and log directories of the engine, as handlers see them."""

from __future__ import annotations

from engine.logdir.log_dir import LogDir
from engine.manager.topics import Topic
from server.api.views import LogDirView, TopicView


def topic_view(topic: Topic, before: TopicView | None) -> TopicView:
    """Return a topic as it is now: `before` itself if nothing has changed."""
    entry = TopicView(topic.name, topic.topic_id, topic.partitions, topic.config, topic.settings)
    return before if before == entry else entry


def log_dir_view(log_dir: LogDir) -> LogDirView:
    """Return a log directory as it is now."""
    partitions = log_dir.partitions.copy() if log_dir.offline is None else {}
    sizes = {name: partition.log.size for name, partition in partitions.items()}
    return LogDirView(log_dir.path, log_dir.offline, sizes)
