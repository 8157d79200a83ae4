"""Fetch: ranges of the logs, as they are in the files; waits for more where there is not enough.

There are no fetch sessions: a full fetch is answered whatever session it names, as a broker does, and one that goes on
with a session gets an error.
Source: Apache Kafka 4.3.0, ReplicaManager.fetchMessages, DelayedFetch, KafkaApis.handleFetchRequest; KIP-74, KIP-227.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from server.api.clock import Handle
from server.api.dispatch import Answer, Call, Handler
from server.api.errors import ErrorCode
from server.api.lookup import ZERO_ID, TopicIds, code_for, log_for
from server.api.ranges import SharedFiles
from server.api.versions import ApiKey
from server.api.views import ReadStore
from server.handlers.parts import Parts
from storage.base.errors import LogmendError
from storage.base.units import Offset, TopicPartition
from storage.log.log_types import Fetched, Isolation, ReadableLog
from wire.messages import get, milliseconds
from wire.segments import Segment, close_files

MOST_BYTES: Final = 57_671_680
"""A broker's `fetch.max.bytes`: more is not sent in one answer, but for a batch that is larger by itself."""
MOST_WAIT_MS: Final = 300_000
_IDS_FROM: Final = 13
_COPIED: Final = 512 << 10
"""Bytes of one answer that are read into memory; ranges behind that go from the file however small they are."""
_NOTHING: Final = Fetched()
_FULL_FETCH: Final = (-1, 0)
"""Session epochs that end a session or ask for a new one."""


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handler."""
    files, ids = SharedFiles(), TopicIds(parts.store)

    def fetch(call: Call) -> Answer | asyncio.Future[Answer]:
        if get(call.body, "session_epoch", -1) not in _FULL_FETCH:
            return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND}
        request = _Fetch(parts, files, ids, call)
        request.read_all()
        if request.is_enough or not request.parts:
            return request.answer()
        return request.wait()

    return {ApiKey.FETCH: fetch}


@dataclass(slots=True)
class _Part:
    """One partition of a request, and what was found of it."""

    name: TopicPartition | None
    asked: Any
    code: int = ErrorCode.NONE
    log: ReadableLog | None = None
    found: Fetched = _NOTHING
    diverging: tuple[int, int] | None = None


@dataclass(slots=True)
class _Topic:
    """One topic of a request."""

    name: str
    topic_id: bytes
    parts: list[_Part] = field(default_factory=list)


class _Fetch:
    """A request at work."""

    def __init__(self, parts: Parts, files: SharedFiles, ids: TopicIds, call: Call) -> None:
        self._store: ReadStore = parts.store
        self._timers, self._files, self._ids = parts.timers, files, ids
        body = call.body
        self._isolation = Isolation.COMMITTED if body.isolation_level == 1 else Isolation.HIGH_WATERMARK
        self._max_bytes = max(min(body.max_bytes, MOST_BYTES), 0)
        self._min_bytes = min(body.min_bytes, self._max_bytes)
        self._wait_ms = min(max(milliseconds(body.max_wait), 0), MOST_WAIT_MS)
        self._topics = [self._topic(topic, call.version) for topic in body.topics]
        self.parts = [part for topic in self._topics for part in topic.parts]
        self._size = 0
        self._has_errors = False
        self._future: asyncio.Future[Answer] | None = None
        self._timer: Handle | None = None
        self._ends: list[Callable[[], None]] = []
        self._changed: dict[int, _Part] = {}

    def _topic(self, request: Any, version: int) -> _Topic:
        if version < _IDS_FROM:
            topic = _Topic(request.topic, ZERO_ID)
            name: str | None = request.topic
        else:
            topic_id = request.topic_id
            name = self._ids.name_of(topic_id)
            topic = _Topic(name or "", topic_id)
        for partition in request.partitions:
            if name is None:
                topic.parts.append(_Part(None, partition, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                topic.parts.append(_Part(TopicPartition(name, partition.partition), partition))
        return topic

    # ---- reading

    def read_all(self) -> None:
        """Look into every log."""
        for part in self.parts:
            self._read(part)

    @property
    def is_enough(self) -> bool:
        """Whether the answer need not wait."""
        return self._has_errors or self._wait_ms == 0 or self._size >= self._min_bytes

    def _read(self, part: _Part) -> None:
        """Look into one log; what was found of it before counts no more."""
        self._size -= part.found.size
        part.found, part.diverging = _NOTHING, None
        if part.name is not None:
            part.code = ErrorCode.NONE
            try:
                self._read_log(part, part.name)
            except LogmendError as error:
                part.code = code_for(self._store, part.name, error)
        self._size += part.found.size
        self._has_errors = self._has_errors or bool(part.code) or part.diverging is not None

    def _read_log(self, part: _Part, name: TopicPartition) -> None:
        request = part.asked
        log = part.log = log_for(self._store, name, get(request, "current_leader_epoch", -1))
        part.diverging = self._divergence(name, request)
        if part.diverging is not None:
            return
        left = max(self._max_bytes - self._size, 0)
        fetched = log.read(
            Offset(request.fetch_offset), max(min(request.partition_max_bytes, left), 0),
            isolation=self._isolation, min_one=self._size == 0,
        )  # fmt: skip
        if fetched.is_first_cut and self._size:
            fetched = Fetched(aborted=fetched.aborted)  # a part of a batch is of no use
        part.found = fetched

    def _divergence(self, name: TopicPartition, request: Any) -> tuple[int, int] | None:
        """Return where the log leaves what the client has read, None if it does not."""
        epoch = get(request, "last_fetched_epoch", -1)
        if epoch < 0:
            return None
        end = self._store.end_offset_for_epoch(name, epoch)
        if end is None:
            return -1, -1
        return end if end[0] < epoch or end[1] < request.fetch_offset else None

    # ---- waiting

    def wait(self) -> asyncio.Future[Answer]:
        """Return a future that is done when there is enough, or the time is over."""
        future = self._future = asyncio.get_running_loop().create_future()
        for part in self.parts:
            if part.name is not None:
                self._ends.append(self._store.on_append(part.name, lambda part=part: self._moved(part)))  # type: ignore[misc]
        self._timer = self._timers.call_later(self._wait_ms, self._finish)
        future.add_done_callback(lambda _: self._end_watches())
        return future

    def _moved(self, part: _Part) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._look_again)
        self._changed[id(part)] = part

    def _look_again(self) -> None:
        changed, self._changed = self._changed, {}
        if self._future is None or self._future.done():
            return
        for part in changed.values():
            self._read(part)
        if self.is_enough:
            self._finish()

    def _finish(self) -> None:
        if self._future is None or self._future.done():
            return
        try:
            answer = self.answer()
        except Exception as error:  # noqa: BLE001 (the client must get an answer)
            self._future.set_exception(error)
        else:
            self._future.set_result(answer)

    def _end_watches(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for end in self._ends:
            end()
        self._ends.clear()

    # ---- answering

    def answer(self) -> Mapping[str, object]:
        """Return the answer, with ranges that stay readable until they are sent."""
        copied = 0
        topics: list[dict[str, object]] = []
        for topic in self._topics:
            partitions = []
            for part in topic.parts:
                records = self._records(part, copied)
                copied += sum(len(piece) for piece in records if not isinstance(piece, tuple))
                partitions.append(self._partition(part, records))
            topics.append({"topic": topic.name, "topic_id": topic.topic_id, "partitions": partitions})
        return {"responses": topics}

    def _records(self, part: _Part, copied: int) -> list[Segment]:
        """Return the range that was found; if its file was closed since, nothing: the client asks again."""
        fetched = part.found
        if fetched.file is None or not fetched.size:
            return []
        try:
            small = {} if copied < _COPIED else {"small": 0}
            return [self._files.segment(fetched.file, fetched.position, fetched.size, **small)]
        except ValueError:
            return []
        except OSError:
            part.code = ErrorCode.KAFKA_STORAGE_ERROR
        except LogmendError as error:
            assert part.name is not None  # it has been read
            part.code = code_for(self._store, part.name, error)
        return []

    def _partition(self, part: _Part, records: list[Segment]) -> dict[str, object]:
        values: dict[str, object] = {"partition_index": part.asked.partition, "error_code": part.code}
        log = part.log
        if part.code or log is None:
            close_files(records)
            return values
        values["high_watermark"], values["last_stable_offset"] = log.high_watermark, log.last_stable_offset
        values["log_start_offset"] = log.log_start
        if part.diverging is not None:
            values["diverging_epoch"] = {"epoch": part.diverging[0], "end_offset": part.diverging[1]}
        if part.found.aborted is not None:
            values["aborted_transactions"] = [(txn.producer_id, txn.first_offset) for txn in part.found.aborted]
        elif self._isolation is Isolation.COMMITTED:
            values["aborted_transactions"] = []
        values["records"] = records
        return values
