"""Groups under random schedules: clients that join, sync, beat, leave, fall silent, ask twice, and stores that fail.

`LOGMEND_GROUP_SCHEDULES` of them, from seed `LOGMEND_GROUP_SEED` on. What must hold at every step: a request has at
most one answer; of one generation everybody hears the same protocol and, unless an instance changed its id, the same
leader, who gives to each a part of its own. At the end, with clients that behave, the group settles with exactly them;
and when they are gone nothing is left.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from support.group_world import RANGE, Asked, Room, subscription

from server.api.errors import ErrorCode
from server.groups.classic.group import Group
from server.groups.classic.member import JoinAnswer, SyncAnswer, SyncRequest
from server.groups.classic.world import GroupSettings, GroupState

SCHEDULES = int(os.environ.get("LOGMEND_GROUP_SCHEDULES", "300"))
SEED = int(os.environ.get("LOGMEND_GROUP_SEED", "0"))
STEPS = 150
SESSION, REBALANCE = 10_000, 20_000
PROTOCOLS = (  # all have both: of a group that is restored only the one that it had is known
    (*RANGE, ("sticky", subscription("orders", "clicks"))),
    (("range", subscription("orders")), ("sticky", subscription("orders"))),
    (("sticky", subscription("clicks")), ("range", subscription("clicks"))),
)
FORGET = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED))


class Client:
    """A consumer as clients are written: it does what the answers tell it to."""

    def __init__(self, name: str, schedule: Schedule, instance_id: str | None) -> None:
        self.name, self.schedule, self.instance_id = name, schedule, instance_id
        self.rng = schedule.rng
        self.member_id, self.is_silent = "", False
        self.joined: JoinAnswer | None = None
        self.assigned: SyncAnswer | None = None
        self.waits: Asked | None = None
        self.protocols = self.rng.choice(PROTOCOLS)

    def step(self) -> None:
        if self.is_silent:
            return
        if self.waits is not None:
            if not self.waits.is_answered:
                return
            answer, self.waits = self.waits.answers[0], None
            self.hear(answer)
        elif self.joined is None:
            self.ask_to_join()
        elif self.assigned is None:
            self.ask_for_assignment()
        else:
            self.hear_error(self.schedule.room.beat(self.joined, self.instance_id))

    def ask_to_join(self) -> None:
        self.waits = self.schedule.asked(
            self.schedule.room.join(
                self.member_id,
                client_id=self.name,
                instance_id=self.instance_id,
                protocols=self.protocols,
                session_timeout_ms=SESSION,
                rebalance_timeout_ms=REBALANCE,
                needs_known_id=self.rng.random() < 0.9,
                can_skip_assignment=self.rng.random() < 0.7,
            )
        )

    def ask_for_assignment(self) -> None:
        joined = self.joined
        assert joined is not None
        given = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            given = {each.member_id: f"{joined.generation}/{each.member_id}".encode() for each in joined.members}
        self.waits = Asked()
        request = SyncRequest(joined.member_id, self.instance_id, joined.generation, None, joined.protocol, given)
        self.schedule.room.group.sync(request, self.waits)
        self.schedule.asked(self.waits)

    def hear(self, answer: JoinAnswer | SyncAnswer) -> None:
        if isinstance(answer, JoinAnswer):
            if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = answer.member_id
            if answer.error is ErrorCode.NONE:
                self.joined, self.assigned = answer, None
                return
        elif answer.error is ErrorCode.NONE:
            self.assigned = answer
            return
        self.hear_error(answer.error)

    def hear_error(self, error: ErrorCode) -> None:
        if error:
            self.joined = self.assigned = None
        if error in FORGET:
            self.member_id = ""

    def misbehave(self) -> None:
        match self.rng.randrange(7):
            case 0:
                self.is_silent = True
            case 1 if self.joined is not None:
                self.schedule.room.group.leave([(self.joined.member_id, self.instance_id)])
                self.joined = self.assigned = self.waits = None
                self.member_id = ""
            case 2:  # its connection is gone, and so is the answer
                self.waits = None
            case 3:  # its process begins anew
                self.waits, self.member_id, self.joined, self.assigned = None, "", None, None
            case 4:
                self.protocols = self.rng.choice(PROTOCOLS)
                self.joined = self.assigned = self.waits = None
            case 5:
                self.joined = self.assigned = self.waits = None
            case _:
                self.is_silent = False


class Schedule:
    """One group, some clients, and what they were told."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        delay = self.rng.choice((0, 3_000))
        size = self.rng.choice((2, 1_000, 1_000))
        self.room = Room(GroupSettings(initial_rebalance_delay_ms=delay, new_member_timeout_ms=60_000, max_size=size))
        self.size = size
        self.requests: list[Asked] = []
        self.told: dict[int, tuple[str | None, str | None]] = {}
        self.generation = 0
        self.clients = [
            Client(f"c{n}", self, f"i{n % 2}" if self.rng.random() < 0.3 else None)
            for n in range(self.rng.randint(1, 5))
        ]

    def asked(self, asked: Asked) -> Asked:
        self.requests.append(asked)
        return asked

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
            self.check()

    def step(self) -> None:
        world, kind = self.room.world, self.rng.random()
        if kind < 0.7:
            self.rng.choice(self.clients).step()
        elif kind < 0.8:
            self.rng.choice(self.clients).misbehave()
        elif kind < 0.84:
            world.holds, world.fails = self.rng.random() < 0.5, ErrorCode.NONE
            if self.rng.random() < 0.3:
                world.fails = ErrorCode.COORDINATOR_NOT_AVAILABLE
            world.settle()
        elif kind < 0.86 and world.stored:
            self.restart()
        else:
            world.pass_ms(self.rng.choice((1, 500, 3_000, 11_000)))

    def restart(self) -> None:
        """End the group with all who wait, and go on with what is stored; every client loses its connection."""
        self.room.world.settle()
        self.room.group.die()
        value = self.room.world.stored[-1]
        self.room.group = Group.restored("g", value, self.room.world, self.room.settings)
        self.room.group.wake()
        self.generation = min(self.generation, value.generation)
        self.told.clear()

    def check(self) -> None:
        group = self.room.group
        assert all(len(asked.answers) <= 1 for asked in self.requests)
        assert group.facts.generation >= self.generation
        self.generation = group.facts.generation
        assert (group.facts.roster.leader in group.facts.roster.members) == bool(group.facts.roster.members)
        assert set(group.facts.roster.static.values()) <= group.facts.roster.members.keys()
        assert group.facts.state is not GroupState.EMPTY or not group.facts.roster.members
        assert group.facts.state not in (GroupState.STABLE, GroupState.COMPLETING) or group.facts.protocol is not None
        for client in self.clients:
            if client.joined is not None and client.assigned is not None:
                given = client.assigned.assignment.decode()
                assert given == "" or int(given.partition("/")[0]) <= client.joined.generation
        for asked in self.requests:
            if (
                asked.is_answered
                and isinstance(asked.answers[0], JoinAnswer)
                and asked.answers[0].error is ErrorCode.NONE
            ):
                self.hear(asked.join)
        self.requests = [asked for asked in self.requests if not asked.is_answered]

    def hear(self, joined: JoinAnswer) -> None:
        has_instances = any(client.instance_id for client in self.clients)
        told = joined.protocol, None if has_instances else joined.leader
        assert self.told.setdefault(joined.generation, told) == told
        assert {each.member_id for each in joined.members} >= ({joined.member_id} if joined.members else set())

    def settle(self) -> list[Client]:
        """Let all clients behave, for as long as anything may take; return those that fit into the group."""
        self.room.world.holds, self.room.world.fails = False, ErrorCode.NONE
        self.room.world.settle()
        kept: dict[str, Client] = {}
        for client in self.clients:  # of two with one instance, one has been fenced for good
            kept[client.instance_id or client.name] = client
        living = list(kept.values())[: self.size]
        for client in living:
            client.is_silent, client.waits = False, None
        for _ in range(60):
            for client in living:
                for _ in range(2):
                    client.step()
            self.room.world.pass_ms(2_000)
            self.check()
        return living


def partitions(clients: list[Client]) -> Iterator[tuple[str, str]]:
    for client in clients:
        assert client.joined is not None
        assert client.assigned is not None
        generation, _, owner = client.assigned.assignment.decode().partition("/")
        yield generation, owner


@pytest.mark.parametrize("start", range(SEED, SEED + SCHEDULES, 50))
def test_whatever_clients_do_the_group_settles_with_those_who_behave_and_each_has_its_own_part(start: int) -> None:
    for seed in range(start, min(start + 50, SEED + SCHEDULES)):
        schedule = Schedule(seed)
        schedule.run()
        living = schedule.settle()
        group, where = schedule.room.group, f"seed {seed}"
        assert group.facts.state is GroupState.STABLE, where
        assert sorted(group.facts.roster.members) == sorted(client.member_id for client in living), where
        owners = list(partitions(living))
        assert len({owner for _, owner in owners}) == len(living), where
        assert len({generation for generation, _ in owners}) == 1, where
        group.leave([(client.member_id, client.instance_id) for client in living])
        schedule.room.world.pass_ms(400_000)
        assert (group.facts.state, schedule.room.world.waiting) == (GroupState.EMPTY, 0), where


def test_every_request_is_answered_when_the_group_ends_at_any_moment() -> None:
    for seed in range(100):
        schedule = Schedule(seed)
        every: list[Asked] = []
        schedule.asked = lambda asked, every=every: every.append(asked) or asked  # type: ignore[method-assign, func-returns-value, misc]
        for _ in range(schedule.rng.randrange(STEPS)):
            schedule.step()
        schedule.room.world.settle()
        schedule.room.group.die()
        assert [len(asked.answers) for asked in every] == [1] * len(every), f"seed {seed}"
        assert schedule.room.world.waiting == 0, f"seed {seed}"
