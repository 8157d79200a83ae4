"""What the checkpoints at the top of a log directory say of one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from recovery.kraft.topic_ids import TopicIds

SMALL_FILE_LIMIT: Final = 64 << 20
"""Bytes above which a checkpoint, a snapshot or another small file is not read."""


class Points(NamedTuple):
    """What the checkpoints of the log directory say of one partition.

    `recovery_point` is None where the checkpoint itself is lost; 0 where it has no entry. `clean`: the next start of a
    broker will take this log for cleanly shut down; `flushed`: it was, so all of it is durable.
    """

    recovery_point: int | None
    log_start: int
    clean: bool = False
    flushed: bool = False
    marker: bool = False
    running: bool = False
    """A broker holds the lock: what it is in the middle of is no leftover, and nothing is carried out."""
    metadata: bool = False
    """It is the KRaft metadata log."""
    has_log_start: bool = False
    """The log start offset is that of the checkpoint; without an entry there it is taken for 0."""
    topic: str = ""
    topic_ids: TopicIds | None = None
    """Of a KRaft broker, whose partitions must each have a topic id."""


def is_tiered(points: Points, local_start: int | None) -> bool:
    """Tell whether a remote tier may hold records of the partition. `local_start`: base of its first segment, if any.

    The metadata log knows; without one the checkpoint tells, in which a broker notes a log start offset below the
    first segment, or of 0, for tiered logs only.
    """
    if points.metadata:
        return False
    if points.has_log_start and points.log_start == 0:
        return True
    known = None if points.topic_ids is None else points.topic_ids.is_tiered(points.topic)
    if known is not None:
        return known
    return points.has_log_start and local_start is not None and points.log_start < local_start
