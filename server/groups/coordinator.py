"""Groups: the coordinator of all groups. What changes a group is answered once its records count by the flush policy.

Protocol: `start`, then anything, then `stop`; all for the thread of the listener's loop. Over a store that is read-only
nothing is written and no session ends: groups and offsets are shown as the log has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from server.api.clock import Handle, Timers
from server.api.errors import ErrorCode
from server.groups.classic.group import Group
from server.groups.classic.kept import bytes_of
from server.groups.classic.member import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from server.groups.classic.world import GroupState, Identity
from server.groups.commits import Commits
from server.groups.expiry import expired
from server.groups.format.records import GroupKey, GroupValue
from server.groups.offsets import Place
from server.groups.partitions import Partitions
from server.groups.settings import CoordinatorSettings
from server.groups.shard import Change, Shard, stored
from server.store.store import Store
from storage.base.errors import LogmendError
from storage.base.units import TopicPartition


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
    """All groups: requests of members, groups as a whole, and `commits` for offsets, over `partitions`."""

    def __init__(self, store: Store, timers: Timers, settings: CoordinatorSettings | None = None) -> None:
        self._store, self._timers = store, timers
        self.settings = settings or CoordinatorSettings()
        self.partitions = Partitions(store, timers, self.settings)
        self.commits = Commits(store, self.partitions, timers, self.settings)
        self._check: Handle | None = None

    def start(self) -> None:
        """Begin to read the groups; by the loop's thread, while it runs."""
        self.partitions.start()
        self._check_later()

    def stop(self) -> None:
        """Answer every client that waits, and end."""
        if self._check is not None:
            self._check.cancel()
        self.partitions.stop()

    # Members

    def join(self, group_id: str, request: JoinRequest, answer: Callable[[JoinAnswer], None]) -> None:
        """Have a member join, as `Group.join` does."""
        shard, limits = self.partitions.shard_of(group_id), self.settings.group
        if isinstance(shard, ErrorCode):
            answer(JoinAnswer(shard, request.member_id))
        elif not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            answer(JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        elif self._store.is_read_only:
            answer(JoinAnswer(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id))
        elif shard.is_taken(group_id):
            answer(JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif error := self._size_fault(shard.known(group_id), request):
            answer(JoinAnswer(error, request.member_id))
        elif (group := shard.known(group_id)) is not None:
            group.join(request, answer)
        elif request.member_id:
            answer(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            self._make_group(shard, group_id).join(request, answer)

    def _size_fault(self, group: Group | None, request: JoinRequest) -> ErrorCode | None:
        """Return why more would be kept of a member than there is room for; None if there is room."""
        size = bytes_of(request)
        if size > self.settings.group.most_of_member:
            return ErrorCode.INVALID_REQUEST
        more = size - (0 if group is None else group.kept_of(request))
        return None if self.partitions.kept.has_room(more) else ErrorCode.GROUP_MAX_SIZE_REACHED

    def abandon(self, group_id: str, answer: Callable[[JoinAnswer], None]) -> None:
        """Have a new member go whose connection is gone, as `Group.abandon` does."""
        group = self._member_group(group_id)
        if not isinstance(group, ErrorCode):
            group.abandon(answer)

    def _make_group(self, shard: Shard, group_id: str) -> Group:
        """Return a new group, whose record is the first that is written of it."""
        changes = shard.replace_newer(group_id)
        group = shard.make(group_id)
        shard.write(
            [*changes, (GroupKey(group_id), GroupValue(state_timestamp=group.facts.state_timestamp))]
        ).add_done_callback(_seen)
        return group

    def sync(self, group_id: str, request: SyncRequest, answer: Callable[[SyncAnswer], None]) -> None:
        """Answer with the assignment of a member, as `Group.sync` does."""
        group = self._member_group(group_id)
        if isinstance(group, ErrorCode):
            answer(SyncAnswer(group))
        else:
            group.sync(request, answer)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Take a heartbeat as `Group.heartbeat` does. While its group is being read the answer is NONE."""
        group = self._member_group(group_id)
        if isinstance(group, ErrorCode):
            return ErrorCode.NONE if group is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else group
        return group.heartbeat(member_id, instance_id, generation)

    def leave(self, group_id: str, identities: Sequence[Identity]) -> list[ErrorCode] | ErrorCode:
        """Take members out; return an error code for each, or one that refuses all."""
        group = self._member_group(group_id)
        if group is ErrorCode.UNKNOWN_MEMBER_ID:
            return [group] * len(identities)
        return group if isinstance(group, ErrorCode) else group.leave(identities)

    def _member_group(self, group_id: str) -> Group | ErrorCode:
        shard = self.partitions.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        if self._store.is_read_only:
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return shard.known(group_id) or ErrorCode.UNKNOWN_MEMBER_ID

    # Groups as a whole

    async def delete(self, group_id: str) -> ErrorCode:
        """Remove an empty group with its offsets."""
        shard = self.partitions.shard_of_any(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        if self._store.is_read_only:
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        group = shard.known(group_id)
        if group is None and group_id not in shard.image.newer:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if shard.is_taken(group_id) or (group is not None and group.facts.state is not GroupState.EMPTY):
            return ErrorCode.NON_EMPTY_GROUP
        return await stored(shard, shard.remove(group_id))

    def lags(self, number: int | None = None) -> list[Lag]:
        """Return how far every group is behind in every partition that it has committed an offset in.

        With a `number` only groups in that partition of `__consumer_offsets`: with many groups all would take long.
        """
        ends: dict[Place, int | None] = {}
        lags = []
        for shard in self.partitions.shards if number is None else self.partitions.shards[number : number + 1]:
            for group_id, place, offset in shard.image.offsets.positions():
                if place not in ends:
                    ends[place] = self._end_of(place)
                end = ends[place]
                lags.append(Lag(group_id, *place, offset, end, None if end is None else max(end - offset, 0)))
        return lags

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
        """Expire one partition after another; clients are answered in between."""
        if number >= len(self.partitions.shards):
            self._check_later()
            return
        if self.partitions.shards[number].fault is None:
            self.expire(self.partitions.shards[number])
        self._check = self._timers.call_later(0, lambda: self._check_from(number + 1))

    def expire(self, shard: Shard) -> None:
        """Remove offsets and groups that were not used within the retention time."""
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
    """Ignore a failure: the store reports it, and the log keeps the previous state."""
    if not written.cancelled():
        written.exception()
