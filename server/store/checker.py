"""Checker: walks the records of compressed batches before they are appended, beside the loop and the engine.

A few KB may unpack to 256 MiB. A batch that unpacks to little is walked at once. One that unpacks to more goes to a
thread for short walks, and from there to one for long walks, each time from its beginning: so a client with ordinary
batches waits for no long walk, and at most two decompressors, with their windows, exist at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from daemon.own.engine import NotServing
from server.api.views import TopicView
from storage.append.append_records import Verdict, WalkEnded, walk_batch
from storage.base.errors import BatchCorrupt, LogmendError, UnsupportedFormat
from storage.base.rows import Walked
from storage.base.units import TopicPartition
from storage.batch.batch import HEADER_V2, BatchHeader, parse_header

_AT_ONCE_PACKED: Final = 16 << 10
_AT_ONCE: Final = 1 << 20
"""Bytes that the batches of one request may unpack to in the loop's thread."""
_SHORT: Final = 4 << 20
"""Bytes that a batch may unpack to in the thread for short walks."""


class Batch(NamedTuple):
    """What a client sends to a partition."""

    name: TopicPartition
    records: memoryview


class Checker:
    """Methods are for the loop's thread, but for `stop`. Walks of one request are made one after another."""

    def __init__(self, topics: Callable[[], Mapping[str, TopicView]]) -> None:
        self._topics = topics
        self._short, self._long = ThreadPoolExecutor(1, "check"), ThreadPoolExecutor(1, "check-long")
        self._is_over = threading.Event()

    def stop(self) -> None:
        """End all walks. Any thread."""
        self._is_over.set()
        for pool in (self._short, self._long):
            pool.shutdown(wait=False, cancel_futures=True)

    def check(self, batches: Sequence[Batch]) -> Sequence[Verdict | None] | Awaitable[Sequence[Verdict | None]]:
        """Return what `walk_batch` makes of each batch; None for one that the engine judges by itself.

        The awaitable raises `NotServing` once the listener stops.
        """
        verdicts: list[Verdict | None] = [None] * len(batches)
        headers = [self._header(batch) for batch in batches]
        left = _Allowance(_AT_ONCE)
        for place, (header, batch) in enumerate(zip(headers, batches, strict=True)):
            if header is None:
                continue
            if header.size <= _AT_ONCE_PACKED:
                verdicts[place] = _walk(header, batch.records, left.take)
            if verdicts[place] is None:
                return self._go_on(batches, headers, verdicts, place)
        return verdicts

    def _header(self, batch: Batch) -> BatchHeader | None:
        """Return the header of a compressed batch that the engine would not refuse without unpacking it."""
        topic, records = self._topics().get(batch.name.topic), batch.records
        if topic is None or not 0 <= batch.name.partition < topic.partitions or len(records) < HEADER_V2.size:
            return None
        try:
            header = parse_header(records)
        except LogmendError:
            return None
        is_walked = (
            header.magic == 2
            and header.codec
            and header.record_count > 0
            and header.size <= min(len(records), topic.config.max_message_bytes)
        )
        return header if is_walked else None

    async def _go_on(
        self,
        batches: Sequence[Batch],
        headers: Sequence[BatchHeader | None],
        verdicts: list[Verdict | None],
        first: int,
    ) -> Sequence[Verdict | None]:
        loop, is_given_up = asyncio.get_running_loop(), threading.Event()

        def goes_on(_: int) -> bool:
            return not self._is_over.is_set() and not is_given_up.is_set()

        try:
            for place in range(first, len(batches)):
                header, records = headers[place], batches[place].records
                if header is None:
                    continue
                left = _Allowance(_SHORT)
                verdict = await loop.run_in_executor(
                    self._short, _walk, header, records, lambda size, left=left: goes_on(size) and left.take(size)
                )
                if verdict is None:
                    verdict = await loop.run_in_executor(self._long, _walk, header, records, goes_on)
                if verdict is None:
                    raise NotServing("the listener stops")
                verdicts[place] = verdict
        except RuntimeError:  # the pools take nothing more
            raise NotServing("the listener stops") from None
        finally:
            is_given_up.set()
        return verdicts


class _Allowance:
    """Bytes that may be unpacked."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, size: int) -> bool:
        """Return whether so many bytes more may be unpacked."""
        self._left -= size
        return self._left >= 0


def _walk(header: BatchHeader, records: memoryview, goes_on: Callable[[int], bool]) -> Walked | Verdict | None:
    """Return what `walk_batch` returns or raises; None if `goes_on` has ended it."""
    try:
        return walk_batch(header, records, goes_on)
    except WalkEnded:
        return None
    except (BatchCorrupt, UnsupportedFormat) as fault:
        return fault
