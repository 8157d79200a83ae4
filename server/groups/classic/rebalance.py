"""Rebalance: how a group gets from one generation to the next.

    EMPTY -> PREPARING (members come in) -> COMPLETING (leader assigns) -> STABLE -> PREPARING ...

Source: Apache Kafka 4.3.0, GroupMetadataManager (the classic half).
"""

from __future__ import annotations

from typing import Final

from server.api.errors import ErrorCode
from server.groups.classic.facts import GroupFacts
from server.groups.classic.member import Member, SyncAnswer
from server.groups.classic.timers import Sessions, SyncPhase, Timer
from server.groups.classic.world import GroupSettings, GroupState, World

_CAN_REBALANCE: Final = frozenset((GroupState.STABLE, GroupState.COMPLETING, GroupState.EMPTY))
AFTER_JOIN: Final = frozenset((GroupState.STABLE, GroupState.COMPLETING))


class Rebalance:
    """It alone changes state and generation of `facts`, and removes members whose session ended."""

    def __init__(self, facts: GroupFacts, world: World, settings: GroupSettings) -> None:
        self._facts, self._world, self._settings = facts, world, settings
        self.sessions = Sessions(world, self._session_ended, self._complete_if_prepared)
        self.syncs = SyncPhase(world)
        self._join_timer = Timer(world)
        self._has_joined = False
        """Whether a member came while the first members of an empty group are waited for."""

    def request(self) -> None:
        """Begin a rebalance, or go on with the one that is under way."""
        if self._facts.state in _CAN_REBALANCE:
            self.prepare()
        else:
            self.complete_if_all_are_in()

    def prepare(self) -> None:
        """Ask all members to join again: those that wait for an assignment now, the others at their next heartbeat."""
        if self._facts.state is GroupState.COMPLETING:
            self._hand_out({}, ErrorCode.REBALANCE_IN_PROGRESS)
        self.syncs.end()
        is_first = self._facts.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING)
        timeout_ms = self._facts.roster.rebalance_timeout_ms()
        if is_first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            left_ms = max(timeout_ms - delay_ms, 0)
            self._join_timer.restart(delay_ms, lambda: self._first_members_came(delay_ms, left_ms))
        elif self._are_all_in():
            self._complete_join()
        else:
            self._join_timer.restart(timeout_ms, self._complete_join)

    def add(self, member: Member) -> None:
        """Take a member in that waits to have joined."""
        self.sessions.release(member.member_id)
        if self._facts.state is GroupState.PREPARING and self._facts.previous is GroupState.EMPTY:
            self._has_joined = True
        self._facts.roster.add(member)
        self._world.kept.charge(member)
        self.sessions.extend(member, self._settings.new_member_timeout_ms)
        self.request()

    def remove(self, member_id: str, error: ErrorCode) -> None:
        """Take a member out, and answer with `error` what it waits for; nothing if the id is unknown."""
        self.sessions.release(member_id)
        if (member := self._facts.roster.remove(member_id)) is not None:
            self._world.kept.release(member)
            member.dismiss(error)

    def complete_if_all_are_in(self) -> None:
        """Begin the next generation if it waits for no member; an empty group waits its delay in any case."""
        if self._facts.previous is not GroupState.EMPTY:
            self._complete_if_prepared()

    def store_assignment(self, assignments: dict[str, bytes]) -> None:
        """Store what the leader assigned, by member id; the members get it once it counts."""
        facts, generation = self._facts, self._facts.generation

        def done(error: ErrorCode) -> None:
            if facts.state is not GroupState.COMPLETING or facts.generation != generation:
                return
            if error:
                self._hand_out({}, error)
                self.request()
            else:
                self._hand_out(assignments, ErrorCode.NONE)
                self._enter(GroupState.STABLE)

        self._world.store(facts.group_id, facts.value(assignments), done)

    def die(self) -> None:
        """Enter the last state; no timer is left but those of members."""
        self._enter(GroupState.DEAD)
        self.sessions.release_all()
        self._join_timer.cancel()
        self.syncs.end()

    def _first_members_came(self, delay_ms: int, remaining_ms: int) -> None:
        """Wait on while new members keep coming, up to the rebalance timeout."""
        if self._facts.state is not GroupState.PREPARING:
            return
        if self._has_joined and remaining_ms:
            self._has_joined = False
            next_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            left_ms = max(remaining_ms - delay_ms, 0)
            self._join_timer.restart(next_ms, lambda: self._first_members_came(next_ms, left_ms))
        else:
            self._complete_join()

    def _complete_if_prepared(self) -> None:
        if self._facts.state is GroupState.PREPARING and self._are_all_in():
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation with those who came; dynamic members that did not are out."""
        facts, roster = self._facts, self._facts.roster
        if facts.state is not GroupState.PREPARING:
            return
        self._join_timer.cancel()
        for member in [member for member in roster if member.awaits_join is None and member.instance_id is None]:
            self.remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if roster.members and not roster.elect_leader():
            # Only static members are left, and none of them came back.
            self._join_timer.restart(roster.rebalance_timeout_ms(), self._complete_join)
            return
        facts.begin_generation()
        if not roster.members:
            self._enter(GroupState.EMPTY)
            self._world.store(facts.group_id, facts.value({}), lambda _: None)
            return
        self._enter(GroupState.COMPLETING)
        self.syncs.begin(roster.members)
        for member in roster:
            member.is_new = False
            self.sessions.extend(member)
            member.answer_join(facts.joined(member))
        generation = facts.generation
        self.syncs.limit(roster.rebalance_timeout_ms(), lambda: self._sync_expired(generation))

    def _hand_out(self, assignments: dict[str, bytes], error: ErrorCode) -> None:
        for member in self._facts.roster:
            member.assignment = assignments.get(member.member_id, b"")
            self._world.kept.charge(member)
            if member.awaits_sync is not None:
                member.answer_sync(SyncAnswer(error) if error else self._facts.synced(member))
                self.sessions.extend(member)

    def _sync_expired(self, generation: int) -> None:
        """Go on without the members that joined and did not ask for their assignment."""
        if self._facts.generation == generation and self._facts.state in AFTER_JOIN and self.syncs.missing:
            for member_id in tuple(self.syncs.missing):
                self.remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            self.prepare()

    def _session_ended(self, member: Member) -> None:
        if self._facts.roster.members.get(member.member_id) is not member or member.is_alive:
            return
        self.remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if self._facts.state in AFTER_JOIN:
            self.request()
        else:
            self._complete_if_prepared()

    def _are_all_in(self) -> bool:
        return not self.sessions.has_reserved and self._facts.roster.waiting() == len(self._facts.roster)

    def _enter(self, state: GroupState) -> None:
        self._facts.enter(state, self._world.now_ms())
