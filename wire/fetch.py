"""The Fetch response, its records as ranges of files: nothing is copied.

Source: Apache Kafka 4.3.0, FetchResponse.json, versions 4 to 17.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from wire.segments import Segment, let_go
from wire.writer import Writer

_FLEXIBLE_FROM: Final = 12
_IDS_FROM: Final = 13
_HEAD: Final = struct.Struct(">ihi")  # throttle time, error, session
_PARTITION_4: Final = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset
_PARTITION: Final = struct.Struct(">ihqqq")  # and the log start
_ABORTED: Final = struct.Struct(">qq")
_EPOCH_END: Final = struct.Struct(">iq")  # epoch, its end; no tagged fields of its own
_LEADER: Final = struct.Struct(">ii")
_REPLICA: Final = struct.Struct(">i")
_NO_RECORDS: Final[tuple[Segment, ...]] = ()
Values = Mapping[str, Any]


def write_fetch(version: int, correlation_id: int, values: Values) -> list[Segment]:
    """Return the response. `values` are as for `wire.messages.encode`, but `records` is a list of segments.

    Of tagged fields `diverging_epoch` and `current_leader` are known. The files of the segments are let go of if there
    is no response because of an error.
    """
    try:
        return _written(version, correlation_id, values)
    except BaseException:
        for topic in values.get("responses", ()):
            for partition in topic["partitions"]:
                let_go(list(partition.get("records") or ()))
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
    found = []
    if (diverging := values.get("diverging_epoch")) is not None:
        found.append((0, _EPOCH_END.pack(diverging["epoch"], diverging["end_offset"]) + b"\0"))
    if (leader := values.get("current_leader")) is not None:
        found.append((1, _LEADER.pack(leader["leader_id"], leader["leader_epoch"]) + b"\0"))
    return found
