"""A world for groups with a clock of its own: time passes when the test says so, and stores when it says so, too."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from server.api.errors import ErrorCode
from server.groups.classic.group import Group
from server.groups.classic.kept import MemberBytes
from server.groups.classic.member import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from server.groups.classic.world import GroupSettings
from server.groups.format.records import GroupValue

NOW = 1_700_000_000_000


@dataclass(order=True, slots=True)
class _Later:
    due_ms: int
    number: int
    call: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.call = None


class FakeTimers:
    """Timers that go off in `pass_ms`, in their order."""

    def __init__(self) -> None:
        self._now, self._later, self._numbers = NOW, list[_Later](), itertools.count()

    def now_ms(self) -> int:
        return self._now

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> _Later:
        later = _Later(self._now + max(delay_ms, 0), next(self._numbers), callback)
        heapq.heappush(self._later, later)
        return later

    def pass_ms(self, passed: int) -> None:
        """Let time pass, and what is due happen when it is due."""
        until = self._now + passed
        while self._later and self._later[0].due_ms <= until:
            later = heapq.heappop(self._later)
            self._now = max(self._now, later.due_ms)
            if later.call is not None:
                later.call()
        self._now = until

    @property
    def waiting(self) -> int:
        """How many calls are still to come."""
        return sum(later.call is not None for later in self._later)


class FakeWorld(FakeTimers):
    """Stores at once, or with `holds` when `settle` is called; `fails` is what becomes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[GroupValue] = []
        self.holds, self.fails = False, ErrorCode.NONE
        self.kept = MemberBytes(1 << 30)
        self._ids = itertools.count(1)
        self._held: list[Callable[[ErrorCode], None]] = []

    def new_id(self) -> str:
        return str(next(self._ids))

    def store(self, group_id: str, value: GroupValue, done: Callable[[ErrorCode], None]) -> None:
        self.stored.append(value)
        self._held.append(done)
        if not self.holds:
            self.settle()

    def settle(self) -> None:
        held, self._held = self._held, []
        for done in held:
            done(self.fails)


class Asked:
    """A request that waits for its answer, of which there is one."""

    def __init__(self) -> None:
        self.answers: list[JoinAnswer | SyncAnswer] = []

    def __call__(self, answer: JoinAnswer | SyncAnswer) -> None:
        self.answers.append(answer)

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def join(self) -> JoinAnswer:
        (answer,) = self.answers
        assert isinstance(answer, JoinAnswer)
        return answer

    @property
    def sync(self) -> SyncAnswer:
        (answer,) = self.answers
        assert isinstance(answer, SyncAnswer)
        return answer


def subscription(*topics: str) -> bytes:
    """Return what a consumer tells the leader: version 0, topics, no user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


RANGE = (("range", subscription("orders")),)


class Room:
    """One group in a world of its own, with short ways to speak to it."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.world = FakeWorld()
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        self.group = Group.new("g", self.world, self.settings)

    def join(self, member_id: str = "", **more: object) -> Asked:
        """Have somebody join; the client's session is 10 s, its rebalance timeout 60 s."""
        asked = Asked()
        self.group.join(request(member_id, **more), asked)
        return asked

    def sync(self, joined: JoinAnswer, instance_id: str | None = None, **assignments: bytes) -> Asked:
        """Ask for the assignment of one that has joined; a leader brings those of all."""
        asked = Asked()
        given = {key.replace("_", "-"): value for key, value in assignments.items()}
        asking = SyncRequest(joined.member_id, instance_id, joined.generation, "consumer", joined.protocol, given)
        self.group.sync(asking, asked)
        return asked

    def beat(self, joined: JoinAnswer, instance_id: str | None = None) -> ErrorCode:
        return self.group.heartbeat(joined.member_id, instance_id, joined.generation)

    def enter(self, client: str = "c", **more: object) -> Asked:
        """Get an id and join with it."""
        member_id = self.join(client_id=client, **more).join.member_id
        return self.join(member_id, client_id=client, **more)

    def stable(self, *clients: str, **more: object) -> list[JoinAnswer]:
        """Have clients join and get their assignments; return what they were told, the leader first."""
        asked = [self.enter(client, **more) for client in clients]
        self.world.pass_ms(self.settings.initial_rebalance_delay_ms)
        joined = sorted((each.join for each in asked), key=lambda each: each.member_id != each.leader)
        return self.assign(joined)

    def assign(self, joined: list[JoinAnswer]) -> list[JoinAnswer]:
        """Let the leader give every member a piece named like it."""
        asked = [self.sync(each) for each in joined if each.member_id != each.leader]
        leader = next(each for each in joined if each.member_id == each.leader)
        given = {each.member_id: each.member_id.encode() for each in leader.members}
        done = Asked()
        self.group.sync(SyncRequest(leader.member_id, None, leader.generation, None, None, given), done)
        assert all(each.sync.error is ErrorCode.NONE for each in [done, *asked])
        return joined


def request(member_id: str = "", **more: object) -> JoinRequest:
    """Return a request to join."""
    plain: dict[str, object] = {
        "instance_id": None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": RANGE,
    }
    return JoinRequest(member_id, **(plain | more))  # type: ignore[arg-type]
