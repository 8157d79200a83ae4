"""Groups: the coordinator of all groups, over the partitions of `__consumer_offsets`.

Each partition is read once, beside whatever else goes on; its groups are answered COORDINATOR_LOAD_IN_PROGRESS until
then. One that cannot be read is tried again, and answers COORDINATOR_NOT_AVAILABLE meanwhile. What changes a group or
an offset is answered once its records count by the flush policy of the store.

Protocol: `start`, then anything, then `stop`; all for the thread of the listener's loop. Over a store that is read-only
nothing is written and no session ends: groups and offsets are shown as the log has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from server.api.clock import Handle, Timers
from server.api.errors import ErrorCode
from server.groups.classic.group import Group
from server.groups.classic.member import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from server.groups.classic.world import GroupState, Identity
from server.groups.expiry import expired
from server.groups.image import Image, read_image, read_on
from server.groups.offsets import Place
from server.groups.records import NO_TOPIC_ID, GroupKey, GroupValue, OffsetKey, OffsetValue, partition_of
from server.groups.settings import CoordinatorSettings
from server.groups.shard import Change, NotStored, Shard, refused
from server.store.store import INTERNAL_TOPICS
from storage.base.errors import CorruptData, LogmendError
from storage.base.units import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"

_RETRY_MS: Final = 10_000


class Position(NamedTuple):
    """What a member commits for a partition; `leader_epoch` -1 where it does not know."""

    place: Place
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


class Committer(NamedTuple):
    """Who commits: generation -1 and no member id for somebody outside of the group."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class Fetched(NamedTuple):
    """A committed offset as it is asked for; without one the value is None."""

    place: Place
    value: OffsetValue | None
    error: ErrorCode = ErrorCode.NONE


class Lag(NamedTuple):
    """How far a group is behind in a partition: committed offset, high watermark, records between them.

    The last two are None where the partition is gone or cannot be read.
    """

    group_id: str
    topic: str
    partition: int
    committed: int
    end: int | None
    lag: int | None


class Groups:
    """See the module. `verify` is asked whether a transaction that commits offsets here is open; None: it is not asked.

    It is given transactional id, producer id and epoch, and the partition of `__consumer_offsets`.
    """

    def __init__(self, store: Any, timers: Timers, settings: CoordinatorSettings | None = None) -> None:
        self._store, self._timers = store, timers
        self.settings = settings or CoordinatorSettings()
        self.verify: Callable[[str, int, int, int], ErrorCode] | None = None
        self.report: Callable[[str, str], None] = lambda _kind, _reason: None
        """Told of partitions that cannot be read, with the kind `coordinator`."""
        self.shards: list[Shard] = []
        self.faults: dict[int, str] = {}
        """Why partitions could not be read, of those that could not."""
        self._loading: set[asyncio.Task[None]] = set()
        self._check: Handle | None = None
        self._is_stopped = False

    # Beginning and end

    def start(self) -> None:
        """Begin to read what there is; by the loop's thread, while it runs."""
        self._find_partitions()
        self._check_later()

    def stop(self) -> None:
        """Answer everybody who waits, and be done."""
        self._is_stopped = True
        if self._check is not None:
            self._check.cancel()
        for task in self._loading:
            task.cancel()
        for shard in self.shards:
            shard.close()

    async def loaded(self) -> None:
        """Return once every partition has been read, or could not be."""
        while self._loading:
            await asyncio.wait(self._loading)

    async def ensure_topic(self) -> ErrorCode:
        """See to it that `__consumer_offsets` is there; return what keeps it from being so."""
        self._find_partitions()
        if not self.shards and not self._store.is_read_only and not self._is_stopped:
            try:
                await self._store.ensure_internal(OFFSETS_TOPIC)
            except LogmendError as error:
                return refused(error)
            self._find_partitions()
        return ErrorCode.NONE if self.shards else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _find_partitions(self) -> None:
        topic = self._store.topics().get(OFFSETS_TOPIC)
        if self.shards or topic is None:
            return
        for number in range(topic.partitions):
            name = TopicPartition(OFFSETS_TOPIC, number)
            self.shards.append(Shard(name, self._store, self._timers, self.settings))
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

    async def _read(self, shard: Shard, log: Any) -> None:
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

    # Where a group is

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that a group is in, or will be once there is such a topic."""
        self._find_partitions()
        return partition_of(group_id, len(self.shards) or INTERNAL_TOPICS[OFFSETS_TOPIC][0])

    def shard_of(self, group_id: str) -> Shard | ErrorCode:
        """Return where a group is, or why it cannot be answered now."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self._shard_of_any(group_id)

    def _shard_of_any(self, group_id: str) -> Shard | ErrorCode:
        self._find_partitions()
        if not self.shards:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self.shards[partition_of(group_id, len(self.shards))]
        if self._store.is_read_only:  # where directories are missing, their number says nothing
            shard = next((each for each in self.shards if each.fault is None and each.has(group_id)), shard)
        return shard if shard.fault is None else shard.fault

    # Members

    def join(self, group_id: str, request: JoinRequest, answer: Callable[[JoinAnswer], None]) -> None:
        """Have a member join; see `Group.join`."""
        shard, limits = self.shard_of(group_id), self.settings.group
        if isinstance(shard, ErrorCode):
            answer(JoinAnswer(shard, request.member_id))
        elif not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            answer(JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        elif self._store.is_read_only:
            answer(JoinAnswer(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id))
        elif shard.is_taken(group_id):
            answer(JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif (group := shard.known(group_id)) is not None:
            group.join(request, answer)
        elif request.member_id:
            answer(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            self._make_group(shard, group_id).join(request, answer)

    def _make_group(self, shard: Shard, group_id: str) -> Group:
        """Return a new group, which is written down before anything else of it."""
        changes = shard.replace_newer(group_id)
        group = shard.make(group_id)
        shard.write(
            [*changes, (GroupKey(group_id), GroupValue(state_timestamp=group.facts.state_timestamp))]
        ).add_done_callback(_seen)
        return group

    def sync(self, group_id: str, request: SyncRequest, answer: Callable[[SyncAnswer], None]) -> None:
        """Give a member its assignment; see `Group.sync`."""
        group = self._member_group(group_id)
        if isinstance(group, ErrorCode):
            answer(SyncAnswer(group))
        else:
            group.sync(request, answer)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Take a heartbeat; see `Group.heartbeat`. While its group is being read a member is told that all is well."""
        group = self._member_group(group_id)
        if isinstance(group, ErrorCode):
            return ErrorCode.NONE if group is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else group
        return group.heartbeat(member_id, instance_id, generation)

    def leave(self, group_id: str, identities: Sequence[Identity]) -> list[ErrorCode] | ErrorCode:
        """Let members go; return what became of each, or what keeps all from going."""
        group = self._member_group(group_id)
        if group is ErrorCode.UNKNOWN_MEMBER_ID:
            return [group] * len(identities)
        return group if isinstance(group, ErrorCode) else group.leave(identities)

    def _member_group(self, group_id: str) -> Group | ErrorCode:
        shard = self.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        if self._store.is_read_only:
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return shard.known(group_id) or ErrorCode.UNKNOWN_MEMBER_ID

    # Offsets

    async def commit(
        self, who: Committer, positions: Sequence[Position], *, knows_unknown_group: bool, retention_ms: int = -1
    ) -> list[ErrorCode]:
        """Commit offsets; return what became of each, once those that are taken count.

        A client that `knows_unknown_group` is told when there is no such group, others that its generation is over.
        With `retention_ms` of 0 or more offsets are kept for that long.
        """
        shard = self._shard_of_any(who.group_id)
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
        """Commit offsets as part of the open transaction of a producer (id and epoch), which ends it one way or other.

        Return what became of each, once it is in the log.
        """
        shard = self.shard_of(who.group_id)
        if isinstance(shard, ErrorCode):
            return [shard] * len(positions)
        error = self._commit_fault(shard, who, transactional=True, knows_unknown_group=False)
        if error is None and self.verify is not None:
            error = self.verify(transactional_id, *producer, shard.name.partition) or None
        if error is not None:
            return [error] * len(positions)
        return await self._write(shard, who.group_id, positions, self._timers.now_ms(), -1, producer)

    def end_transaction(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:  # noqa: FBT001, ARG002
        """Take the end of a producer's transaction, whose marker is in the log of a partition by now."""
        if partition < len(self.shards) and self.shards[partition].fault is None:
            self.shards[partition].image.offsets.end(producer_id, is_committed=committed)

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
            elif len(position.metadata or "") > self.settings.metadata_max_size:
                answers.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                answers.append(ErrorCode.NONE)
                metadata, topic_id = position.metadata or "", topic.topic_id or NO_TOPIC_ID
                value = OffsetValue(position.offset, position.leader_epoch, metadata, now_ms, expires_ms, topic_id)
                changes.append((OffsetKey(group_id, *position.place), value))
        error = await self._stored(shard, changes, producer)
        return [answer or error for answer in answers]

    async def _stored(self, shard: Shard, changes: Sequence[Change], producer: tuple[int, int] = (-1, -1)) -> ErrorCode:
        if not changes:
            return ErrorCode.NONE
        try:
            await shard.write(changes, producer_id=producer[0], producer_epoch=producer[1])
        except NotStored as refusal:
            return refusal.code
        return ErrorCode.NONE

    def fetch(self, group_id: str, places: Iterable[Place] | None, *, is_stable: bool) -> list[Fetched] | ErrorCode:
        """Return committed offsets of a group, all there are without `places`; or what keeps it from being told.

        With `is_stable` those that an open transaction may change are errors.
        """
        shard = self._shard_of_any(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        offsets, topics = shard.image.offsets, self._store.topics()
        found = []
        for place in sorted(offsets.of_group(group_id)) if places is None else places:
            topic = topics.get(place[0])
            if is_stable and offsets.is_pending(group_id, place):
                found.append(Fetched(place, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                value = offsets.get(group_id, place, topic.topic_id if topic is not None else None)
                if value is not None or places is not None:
                    found.append(Fetched(place, value))
        return found

    async def delete_offsets(self, group_id: str, places: Sequence[Place]) -> list[ErrorCode] | ErrorCode:
        """Remove committed offsets; return what became of each, or what keeps all from being removed."""
        shard = self.shard_of(group_id)
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
        error = await self._stored(shard, changes)
        return [answer or error for answer in answers]

    async def topic_deleted(self, topic: str, topic_id: bytes | None) -> None:
        """Remove what all groups have committed in a topic that is gone."""
        for shard in self.shards:
            if shard.fault is None:
                keys = sorted(shard.image.offsets.keys_of_topic(topic, topic_id))
                await self._stored(shard, [(key, None) for key in keys])

    # Groups as a whole

    async def delete(self, group_id: str) -> ErrorCode:
        """Remove an empty group with its offsets."""
        shard = self._shard_of_any(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        if self._store.is_read_only:
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        group = shard.known(group_id)
        if group is None and group_id not in shard.image.newer:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if shard.is_taken(group_id) or (group is not None and group.facts.state is not GroupState.EMPTY):
            return ErrorCode.NON_EMPTY_GROUP
        return await self._stored(shard, shard.remove(group_id))

    def lags(self, number: int | None = None) -> list[Lag]:
        """Return how far every group is behind in every partition that it has committed an offset in.

        With a `number` only groups in that partition of `__consumer_offsets`: with many groups all would take long.
        """
        ends: dict[Place, int | None] = {}
        found = []
        for shard in self.shards if number is None else self.shards[number : number + 1]:
            for group_id, place, offset in shard.image.offsets.positions():
                if place not in ends:
                    ends[place] = self._end_of(place)
                end = ends[place]
                found.append(Lag(group_id, *place, offset, end, None if end is None else max(end - offset, 0)))
        return found

    def _end_of(self, place: Place) -> int | None:
        try:
            return int(self._store.log(TopicPartition(*place)).high_watermark)
        except LogmendError:
            return None

    # Expiry

    def _check_later(self) -> None:
        if not self._store.is_read_only:
            self._check = self._timers.call_later(self.settings.check_interval_ms, lambda: self._check_from(0))

    def _check_from(self, number: int) -> None:
        """Look at one partition after another; clients are answered in between."""
        if number >= len(self.shards):
            self._check_later()
            return
        if self.shards[number].fault is None:
            self.expire(self.shards[number])
        self._check = self._timers.call_later(0, lambda: self._check_from(number + 1))

    def expire(self, shard: Shard) -> None:
        """Remove what nobody has used for as long as offsets are kept."""
        changes: list[Change] = []
        for group in shard.all_known():
            keys, is_over = expired(group.facts, shard.image.offsets, self._timers.now_ms(), self.settings.retention_ms)
            if is_over and group.facts.state is GroupState.EMPTY:
                changes += shard.remove(group.facts.group_id)
            else:
                changes += [(key, None) for key in keys]
        if changes:
            shard.write(changes).add_done_callback(_seen)


def _seen(written: asyncio.Future[None]) -> None:
    """Take notice of a failure nobody waits for: the store tells of it, and the log has things as they were."""
    if not written.cancelled():
        written.exception()
