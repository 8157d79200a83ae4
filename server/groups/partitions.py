"""Partitions: the partitions of `__consumer_offsets`, read once each, and which of them a group is in.

A partition is read beside everything else; its groups are answered COORDINATOR_LOAD_IN_PROGRESS until then. One that
cannot be read is tried again, and answers COORDINATOR_NOT_AVAILABLE meanwhile. For the thread of the listener's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from server.api.clock import Timers
from server.api.errors import ErrorCode
from server.groups.classic.kept import MemberBytes
from server.groups.format.records import partition_of
from server.groups.image import Image, read_image, read_on
from server.groups.settings import CoordinatorSettings
from server.groups.shard import Shard, refused
from server.store.store import INTERNAL_TOPICS, Store
from storage.base.errors import CorruptData, LogmendError
from storage.base.units import TopicPartition
from storage.log.log_types import ReadableLog

OFFSETS_TOPIC: Final = "__consumer_offsets"

_RETRY_MS: Final = 10_000


class Partitions:
    """The partitions, as soon as there is such a topic; `start` first, `stop` last."""

    def __init__(self, store: Store, timers: Timers, settings: CoordinatorSettings) -> None:
        self._store, self._timers, self._settings = store, timers, settings
        self.report: Callable[[str, str], None] = lambda _kind, _reason: None
        """Receives partitions that cannot be read, with the kind `coordinator`."""
        self.kept = MemberBytes(settings.group.most_of_members)
        self.shards: list[Shard] = []
        self.faults: dict[int, str] = {}
        """Why partitions could not be read, by their numbers."""
        self._loading: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def start(self) -> None:
        """Begin to read the partitions that exist; in the running loop."""
        self._find()

    def stop(self) -> None:
        """Answer every client that waits, and read no further."""
        self._is_stopped = True
        for task in self._loading:
            task.cancel()
        for shard in self.shards:
            shard.close()

    async def loaded(self) -> None:
        """Return once every partition has been read, or could not be."""
        while self._loading:
            await asyncio.wait(self._loading)

    async def ensure_topic(self) -> ErrorCode:
        """Create `__consumer_offsets` if it is missing; return why that failed, or NONE."""
        self._find()
        if not self.shards and not self._store.is_read_only and not self._is_stopped:
            try:
                await self._store.ensure_internal(OFFSETS_TOPIC)
            except LogmendError as error:
                return refused(error)
            self._find()
        return ErrorCode.NONE if self.shards else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _find(self) -> None:
        topic = self._store.topics().get(OFFSETS_TOPIC)
        if self.shards or topic is None:
            return
        for number in range(topic.partitions):
            name = TopicPartition(OFFSETS_TOPIC, number)
            self.shards.append(Shard(name, self._store, self._timers, self._settings, self.kept))
        for shard in self.shards:
            self._load(shard)

    def _load(self, shard: Shard) -> None:
        """Read a partition: one that is empty at once, another one in a thread."""
        try:
            log = self._store.log(shard.name)
            if log.high_watermark <= log.log_start:
                shard.open(Image())
                return
        except LogmendError as error:
            self._failed(shard, error)
            return
        task = asyncio.ensure_future(self._read(shard, log))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _read(self, shard: Shard, log: ReadableLog) -> None:
        loop = asyncio.get_running_loop()
        try:
            image = await loop.run_in_executor(None, read_image, log)
            while (seen := image.next_offset) < log.high_watermark:  # a marker may have come meanwhile
                await loop.run_in_executor(None, read_on, log, image)
                if image.next_offset == seen:
                    break
        except LogmendError as error:
            self._failed(shard, error)
        else:
            strangers = [id_ for id_ in image.ids() if self.partition_of(id_) != shard.name.partition]
            if strangers and not self._store.is_read_only:
                with_count = f"with {len(self.shards)} partitions: some are missing, or more were made"
                self._failed(shard, CorruptData(f"group {strangers[0]} does not belong here {with_count}"))
                return
            self.faults.pop(shard.name.partition, None)
            shard.open(image)

    def _failed(self, shard: Shard, error: LogmendError) -> None:
        if self.faults.get(shard.name.partition) != str(error):
            self.report("coordinator", f"{shard.name}: {error}")
        self.faults[shard.name.partition] = str(error)
        shard.fault = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not isinstance(error, CorruptData):  # damage is still there in ten seconds
            self._timers.call_later(_RETRY_MS, lambda: self._try_again(shard))

    def _try_again(self, shard: Shard) -> None:
        if not self._is_stopped:
            shard.fault = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            self._load(shard)

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that a group is in, or will be once there is such a topic."""
        self._find()
        return partition_of(group_id, len(self.shards) or INTERNAL_TOPICS[OFFSETS_TOPIC][0])

    def shard_of(self, group_id: str) -> Shard | ErrorCode:
        """Return where a group is, or why it cannot be answered now."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self.shard_of_any(group_id)

    def shard_of_any(self, group_id: str) -> Shard | ErrorCode:
        """Return where a group is, whose id may be empty, or why it cannot be answered now."""
        self._find()
        if not self.shards:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self.shards[partition_of(group_id, len(self.shards))]
        if self._store.is_read_only:  # where directories are missing, their number says nothing
            shard = next((each for each in self.shards if each.fault is None and each.has(group_id)), shard)
        return shard if shard.fault is None else shard.fault
