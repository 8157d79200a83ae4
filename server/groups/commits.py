"""Commits: what clients ask of committed offsets. What changes one is answered once its record counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from server.api.clock import Timers
from server.api.errors import ErrorCode
from server.groups.classic.world import GroupState
from server.groups.format.records import NO_TOPIC_ID, OffsetKey, OffsetValue
from server.groups.offsets import Place
from server.groups.partitions import Partitions
from server.groups.settings import CoordinatorSettings
from server.groups.shard import Shard, stored
from server.store.store import Store


class Position(NamedTuple):
    """An offset that a member commits for a partition; `leader_epoch` is -1 where it knows none."""

    place: Place
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


class Committer(NamedTuple):
    """The client that commits: generation -1 and no member id for one outside of the group."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class Fetched(NamedTuple):
    """The answer for one partition; the value is None without a committed offset."""

    place: Place
    value: OffsetValue | None
    error: ErrorCode = ErrorCode.NONE


class Commits:
    """The committed offsets of all groups; for the thread of the listener's loop.

    `verify` returns whether a transaction may commit offsets, by transactional id, producer id, epoch, and partition of
    `__consumer_offsets`; without it every transaction may.
    """

    def __init__(self, store: Store, partitions: Partitions, timers: Timers, settings: CoordinatorSettings) -> None:
        self._store, self._partitions, self._timers, self._settings = store, partitions, timers, settings
        self.verify: Callable[[str, int, int, int], ErrorCode] | None = None

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that holds the offsets of a group."""
        return self._partitions.partition_of(group_id)

    async def commit(
        self, who: Committer, positions: Sequence[Position], *, knows_unknown_group: bool, retention_ms: int = -1
    ) -> list[ErrorCode]:
        """Commit offsets; return an error code for each, once those that are accepted count.

        With `knows_unknown_group` an unknown group is GROUP_ID_NOT_FOUND, else ILLEGAL_GENERATION.
        With `retention_ms` of 0 or more offsets are kept for that long.
        """
        shard = self._partitions.shard_of_any(who.group_id)
        if isinstance(shard, ErrorCode):
            return [shard] * len(positions)
        if error := self._commit_fault(shard, who, transactional=False, knows_unknown_group=knows_unknown_group):
            return [error] * len(positions)
        if (group := shard.known(who.group_id)) is not None:
            group.saw(who.member_id)
        now_ms = self._timers.now_ms()
        expires = now_ms + retention_ms if retention_ms >= 0 else -1
        return await self._write(shard, who.group_id, positions, now_ms, expires, (-1, -1))

    async def commit_in_transaction(
        self, transactional_id: str, producer: tuple[int, int], who: Committer, positions: Sequence[Position]
    ) -> list[ErrorCode]:
        """Commit offsets as part of the open transaction of a producer (id and epoch), whose end decides them.

        Return an error code for each, once it is in the log.
        """
        shard = self._partitions.shard_of(who.group_id)
        if isinstance(shard, ErrorCode):
            return [shard] * len(positions)
        error = self._commit_fault(shard, who, transactional=True, knows_unknown_group=False)
        if error is None and self.verify is not None:
            error = self.verify(transactional_id, *producer, shard.name.partition) or None
        if error is not None:
            return [error] * len(positions)
        return await self._write(shard, who.group_id, positions, self._timers.now_ms(), -1, producer)

    def end_transaction(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:  # noqa: FBT001, ARG002
        """Apply the end of a producer's transaction, whose marker is in the log of a partition by now."""
        if partition < len(self._partitions.shards) and self._partitions.shards[partition].fault is None:
            self._partitions.shards[partition].image.offsets.end(producer_id, is_committed=committed)

    def _commit_fault(
        self, shard: Shard, who: Committer, *, transactional: bool, knows_unknown_group: bool
    ) -> ErrorCode | None:
        if self._store.is_read_only:
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if who.group_id in shard.image.newer:
            is_open = who.generation < 0 and not shard.is_taken(who.group_id)
            return None if is_open else ErrorCode.UNKNOWN_MEMBER_ID
        group = shard.known(who.group_id)
        if group is not None:
            return group.facts.commit_fault(who.member_id, who.instance_id, who.generation, transactional=transactional)
        if who.generation < 0:
            return None
        return ErrorCode.GROUP_ID_NOT_FOUND if knows_unknown_group else ErrorCode.ILLEGAL_GENERATION

    async def _write(
        self,
        shard: Shard,
        group_id: str,
        positions: Sequence[Position],
        now_ms: int,
        expires_ms: int,
        producer: tuple[int, int],
    ) -> list[ErrorCode]:
        topics = self._store.topics()
        answers, changes = [], []
        for position in positions:
            topic = topics.get(position.place[0])
            if topic is None:
                answers.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif len(position.metadata or "") > self._settings.metadata_max_size:
                answers.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                answers.append(ErrorCode.NONE)
                metadata, topic_id = position.metadata or "", topic.topic_id or NO_TOPIC_ID
                value = OffsetValue(position.offset, position.leader_epoch, metadata, now_ms, expires_ms, topic_id)
                changes.append((OffsetKey(group_id, *position.place), value))
        error = await stored(shard, changes, producer)
        return [answer or error for answer in answers]

    def fetch(self, group_id: str, places: Iterable[Place] | None, *, is_stable: bool) -> list[Fetched] | ErrorCode:
        """Return committed offsets of a group, all of them without `places`, or why they cannot be read.

        With `is_stable` those that an open transaction may change are errors.
        """
        shard = self._partitions.shard_of_any(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        offsets, topics = shard.image.offsets, self._store.topics()
        answers = []
        for place in sorted(offsets.of_group(group_id)) if places is None else places:
            topic = topics.get(place[0])
            if is_stable and offsets.is_pending(group_id, place):
                answers.append(Fetched(place, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                value = offsets.get(group_id, place, topic.topic_id if topic is not None else None)
                if value is not None or places is not None:
                    answers.append(Fetched(place, value))
        return answers

    async def delete_offsets(self, group_id: str, places: Sequence[Place]) -> list[ErrorCode] | ErrorCode:
        """Remove committed offsets; return an error code for each, or one that refuses all."""
        shard = self._partitions.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        if self._store.is_read_only:
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        group = shard.known(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.facts.state is not GroupState.EMPTY and not group.facts.is_of_consumers:
            return ErrorCode.NON_EMPTY_GROUP
        topics, keys, answers, changes = self._store.topics(), shard.image.offsets.keys_of(group_id), [], []
        for place in places:
            answer = ErrorCode.NONE
            if place[0] not in topics:
                answer = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.facts.subscribes(place[0]):
                answer = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif (key := OffsetKey(group_id, *place)) in keys:
                changes.append((key, None))
            answers.append(answer)
        error = await stored(shard, changes)
        return [answer or error for answer in answers]

    async def topic_deleted(self, topic: str, topic_id: bytes | None) -> None:
        """Remove the offsets of all groups in a topic that was deleted."""
        for shard in self._partitions.shards:
            if shard.fault is None:
                keys = sorted(shard.image.offsets.keys_of_topic(topic, topic_id))
                await stored(shard, [(key, None) for key in keys])
