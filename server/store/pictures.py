"""From what the engine has to what the listener shows of it."""

from __future__ import annotations

from engine.logdir.log_dir import LogDir
from engine.manager.topics import Topic
from server.api.views import LogDirView, TopicView
from storage.base.units import Offset
from storage.batch.batch import HEADER_V2, parse_header


def view_of(topic: Topic, before: TopicView | None) -> TopicView:
    """Return a topic as it is now; `before`, if nothing has changed."""
    entry = TopicView(topic.name, topic.topic_id, topic.partitions, topic.config, topic.settings)
    return before if before == entry else entry


def log_dir_view(log_dir: LogDir) -> LogDirView:
    """Return a log directory as it is now."""
    there = log_dir.partitions.copy() if log_dir.offline is None else {}
    return LogDirView(log_dir.path, log_dir.offline, {name: each.log.size for name, each in there.items()})


def whole_batches(data: memoryview, offset: Offset) -> tuple[int, Offset]:
    """Return the size of the whole batches at the beginning of `data`, and the offset behind the last of them."""
    position = 0
    while len(data) - position >= HEADER_V2.size:
        header = parse_header(data, position)
        if header.size > len(data) - position:
            break
        position, offset = position + header.size, Offset(header.last_offset + 1)
    return position, offset
