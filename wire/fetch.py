"""The Fetch request, which comes more often than any other, and its response, with ranges of files as records.

Attributes of the request are called as in kio; what no reader of ours asks for is read over.
Source: Apache Kafka 4.3.0, FetchRequest.json and FetchResponse.json, versions 4 to 17.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from wire.reading import Reader
from wire.segments import Segment, close_files
from wire.writer import Writer

_FLEXIBLE_FROM: Final = 12
_IDS_FROM: Final = 13
_REPLICA_UP_TO: Final = 14
_SESSIONS_FROM: Final = 7
_RACK_FROM: Final = 11
_HEAD: Final = struct.Struct(">ihi")  # throttle time, error, session
_PARTITION_4: Final = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset
_PARTITION: Final = struct.Struct(">ihqqq")  # and the log start
_ABORTED: Final = struct.Struct(">qq")
_EPOCH_END: Final = struct.Struct(">iq")  # epoch, its end; no tagged fields of its own
_LEADER: Final = struct.Struct(">ii")
_REPLICA: Final = struct.Struct(">i")
_NO_RECORDS: Final[tuple[Segment, ...]] = ()
Values = Mapping[str, Any]


class FetchPartition(NamedTuple):
    """One partition of a request; epochs are -1 where there is none."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


class FetchTopic(NamedTuple):
    """One topic, by name or, from version 13 on, by id."""

    topic: str
    topic_id: bytes
    partitions: list[FetchPartition]


class FetchBody(NamedTuple):
    """A Fetch request; `max_wait` in ms."""

    max_wait: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]


_ZERO_ID: Final = bytes(16)
_OF_REQUEST: Final = struct.Struct(">iiib")  # max wait, min bytes, max bytes, isolation
_SESSION: Final = struct.Struct(">ii")
_OF_PARTITION: Final = {
    4: struct.Struct(">iqi"),
    5: struct.Struct(">iq8xi"),
    9: struct.Struct(">iiq8xi"),
    12: struct.Struct(">iiqi8xi"),
}
"""From which version on: index, leader epoch (9), offset, epoch of the record before (12), log start (5), bytes."""


def read_fetch(data: memoryview, position: int, version: int) -> tuple[FetchBody, int]:
    """Return the body that begins at `position`, and the position behind it; raises `MessageInvalid`."""
    reader = Reader(data, position, is_flexible=version >= _FLEXIBLE_FROM)
    if version <= _REPLICA_UP_TO:
        reader.take(4)
    wait, least, most, isolation = reader.unpack(_OF_REQUEST)
    session, epoch = reader.unpack(_SESSION) if version >= _SESSIONS_FROM else (0, -1)
    topics = [_topic(reader, version) for _ in range(reader.count())]
    if version >= _SESSIONS_FROM:
        for _ in range(reader.count()):
            _skip_forgotten(reader, version)
    if version >= _RACK_FROM:
        reader.text()
    reader.skip_tags()
    return FetchBody(wait, least, most, isolation, session, epoch, topics), reader.position


def _topic(reader: Reader, version: int) -> FetchTopic:
    is_by_id = version >= _IDS_FROM
    topic_id = bytes(reader.take(16)) if is_by_id else _ZERO_ID
    name = "" if is_by_id else reader.text() or ""
    layout = _OF_PARTITION[max(first for first in _OF_PARTITION if first <= version)]
    partitions = []
    for _ in range(reader.count()):
        fields = reader.unpack(layout)
        reader.skip_tags()
        if len(fields) == 3:
            partitions.append(FetchPartition(*fields))
        elif len(fields) == 4:
            index, epoch, offset, size = fields
            partitions.append(FetchPartition(index, offset, size, epoch))
        else:
            index, epoch, offset, fetched, size = fields
            partitions.append(FetchPartition(index, offset, size, epoch, fetched))
    reader.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def _skip_forgotten(reader: Reader, version: int) -> None:
    if version >= _IDS_FROM:
        reader.take(16)
    else:
        reader.text()
    reader.take(4 * reader.count())
    reader.skip_tags()


def write_fetch(version: int, correlation_id: int, values: Values) -> list[Segment]:
    """Return the response. `values` are as for `wire.messages.encode`, but `records` is a list of segments.

    Of tagged fields `diverging_epoch` and `current_leader` are known. The files of the segments are closed if an
    error leaves no response.
    """
    try:
        return _written(version, correlation_id, values)
    except BaseException:
        for topic in values.get("responses", ()):
            for partition in topic["partitions"]:
                close_files(list(partition.get("records") or ()))
        raise


def _written(version: int, correlation_id: int, values: Values) -> list[Segment]:
    out = Writer(correlation_id, is_flexible=version >= _FLEXIBLE_FROM)
    head = _HEAD.pack(0, values.get("error_code", 0), values.get("session_id", 0))
    out.raw(head if version >= 7 else head[:4])
    topics = values.get("responses", ())
    out.count(len(topics))
    for topic in topics:
        if version >= _IDS_FROM:
            out.raw(topic["topic_id"])
        else:
            out.text(topic["topic"])
        out.count(len(topic["partitions"]))
        for partition in topic["partitions"]:
            _write_partition(out, version, partition)
        out.tags()
    out.tags()
    return out.finished()


def _write_partition(out: Writer, version: int, values: Values) -> None:
    index, error, watermark = values["partition_index"], values.get("error_code", 0), values.get("high_watermark", -1)
    stable, start = values.get("last_stable_offset", -1), values.get("log_start_offset", -1)
    if version >= 5:
        out.raw(_PARTITION.pack(index, error, watermark, stable, start))
    else:
        out.raw(_PARTITION_4.pack(index, error, watermark, stable))
    aborted: Sequence[tuple[int, int]] | None = values.get("aborted_transactions")
    out.count(-1 if aborted is None else len(aborted))
    for producer_id, first_offset in aborted or ():
        out.raw(_ABORTED.pack(producer_id, first_offset))
        out.tags()
    if version >= 11:
        out.raw(_REPLICA.pack(values.get("preferred_read_replica", -1)))
    out.records(values.get("records") or _NO_RECORDS)
    out.tags(_tagged(values))


def _tagged(values: Values) -> list[tuple[int, bytes]]:
    tags = []
    if (diverging := values.get("diverging_epoch")) is not None:
        tags.append((0, _EPOCH_END.pack(diverging["epoch"], diverging["end_offset"]) + b"\0"))
    if (leader := values.get("current_leader")) is not None:
        tags.append((1, _LEADER.pack(leader["leader_id"], leader["leader_epoch"]) + b"\0"))
    return tags
