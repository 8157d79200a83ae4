"""A connection without its socket: what is begun when, answered in which order, and what ends it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.kio_messages import request_frame, request_of

from server.api.dispatch import Call, Client, Dispatcher, ListenerInfo
from server.api.errors import CloseConnection
from server.net.conversation import Conversation, Tally
from server.net.limits import Limits
from wire.frame import Budget, Frame
from wire.messages import Request
from wire.segments import FileRange, Segment

PRODUCE, METADATA, JOIN_GROUP, HEARTBEAT = 0, 3, 11, 12
LIMITS = Limits()


class Sent:
    """A sink that keeps what it gets, and is congested when it is told to be."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.closed: str | None = None
        self.is_congested = self.ends = False

    def send(self, segments: list[Segment]) -> None:
        first = segments[0]
        assert not isinstance(first, FileRange)
        self.ids.append(int.from_bytes(bytes(first[4:8]), "big"))

    def close(self, reason: str) -> None:
        self.closed = self.closed or reason

    def close_when_sent(self) -> None:
        self.ends = True

    def look(self) -> None: ...


class Talk:
    """A conversation with handlers whose answers a test gives by the order of the requests."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.begun: list[Call] = []
        self.answers: list[asyncio.Future[Any]] = []
        self.sink, self.tally, self.budget = Sent(), Tally(), Budget(1 << 30)
        self.account = self.budget.account()
        handlers = {PRODUCE: self.later, METADATA: self.at_once, HEARTBEAT: self.later, JOIN_GROUP: self.later}
        self.dispatcher = Dispatcher(handlers, ListenerInfo("here", 9092), lambda: 5)
        self.conversation = Conversation(self.dispatcher, self.sink, Client("127.0.0.1"), limits, self.tally, None)

    def later(self, call: Call) -> Awaitable[Any]:
        self.begun.append(call)
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def at_once(self, call: Call) -> dict[str, object]:
        self.begun.append(call)
        return {}

    def ask(self, *asked: tuple[int, int]) -> None:
        """Have requests come in together, each a key and a correlation id."""
        self.conversation.take([self.frame(key, number) for key, number in asked])

    def frame(self, key: int, number: int) -> Frame:
        version = {PRODUCE: 9, METADATA: 9, HEARTBEAT: 3}.get(key, 0)
        data = request_frame(request_of(key, version, random.Random(3)), number)
        self.account.add(len(data))
        return Frame(memoryview(data), self.account)

    async def answer(self, place: int, value: object = None) -> None:
        self.answers[place].set_result({"responses": []} if value is None else value)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        await asyncio.wait_for(test(), 60)

    asyncio.run(within())


def test_answers_come_in_the_order_of_the_requests_whichever_is_ready_first() -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask((PRODUCE, 1), (PRODUCE, 2), (PRODUCE, 3))
        assert len(talk.begun) == 3
        await talk.answer(2)
        await talk.answer(1)
        assert talk.sink.ids == []
        await talk.answer(0)
        assert talk.sink.ids == [1, 2, 3]

    run(test)


def test_only_produce_overlaps_and_nothing_begins_behind_a_request_that_waits() -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask((PRODUCE, 1), (METADATA, 2), (HEARTBEAT, 3), (PRODUCE, 4))
        assert [call.request.correlation_id for call in talk.begun] == [1]
        await talk.answer(0)
        assert [call.request.correlation_id for call in talk.begun] == [1, 2, 3]
        assert talk.sink.ids == [1, 2]
        await talk.answer(1, {})
        assert [call.request.correlation_id for call in talk.begun] == [1, 2, 3, 4]

    run(test)


def test_no_more_produce_requests_overlap_than_the_limit_says() -> None:
    async def test() -> None:
        talk = Talk(Limits(overlapping=2))
        talk.ask(*[(PRODUCE, number) for number in range(5)])
        assert len(talk.begun) == 2
        await talk.answer(0)
        assert len(talk.begun) == 3

    run(test)


def test_nothing_begins_and_nothing_more_is_read_while_the_peer_does_not_take_answers() -> None:
    async def test() -> None:
        talk = Talk()
        talk.sink.is_congested = True
        talk.ask((METADATA, 1))
        assert (talk.begun, talk.conversation.wants_more) == ([], False)
        talk.sink.is_congested = False
        talk.conversation.pump()
        assert talk.sink.ids == [1]
        assert talk.conversation.wants_more

    run(test)


def test_reading_stops_with_more_requests_queued_than_the_limit_and_goes_on_later() -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask((HEARTBEAT, 0), *[(METADATA, number) for number in range(1, 5)])
        assert talk.conversation.wants_more
        talk.ask((METADATA, 5))
        assert not talk.conversation.wants_more
        await talk.answer(0, {})
        assert talk.sink.ids == [0, 1, 2, 3, 4, 5]
        assert talk.conversation.wants_more

    run(test)


def test_many_requests_at_once_let_other_connections_have_their_turn() -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask(*[(METADATA, number) for number in range(100)])
        assert 0 < len(talk.begun) < 100
        while len(talk.begun) < 100:
            await asyncio.sleep(0)
        assert talk.sink.ids == list(range(100))

    run(test)


def test_a_request_without_an_answer_is_followed_by_the_next() -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask((PRODUCE, 1), (METADATA, 2))
        talk.answers[0].set_result(None)  # acks 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert talk.sink.ids == [2]

    run(test)


def test_memory_is_given_back_with_the_answer_and_with_the_end() -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask((PRODUCE, 1), (PRODUCE, 2), (METADATA, 3))
        before = talk.budget.used
        await talk.answer(0)
        assert 0 < talk.budget.used < before
        talk.conversation.over()
        assert talk.budget.used == 0

    run(test)


def test_a_request_to_join_a_group_is_given_up_with_its_connection_and_an_append_is_not() -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask((JOIN_GROUP, 1))
        talk.conversation.over()
        other = Talk()
        other.ask((PRODUCE, 1))
        other.conversation.over()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert talk.answers[0].cancelled()
        assert not other.answers[0].cancelled()

    run(test)


@pytest.mark.parametrize(
    "frame", [b"\0\7\0\0\0\0\0\1\xff\xff", b"\0\3\0\x63\0\0\0\1\xff\xff", b"\0\3\0\1", b"\0\3\0\1\0\0\0\1\0\1x\0\0\0\5"]
)
def test_what_is_not_served_or_no_request_ends_the_connection(frame: bytes) -> None:
    async def test() -> None:
        talk = Talk()
        told: list[str] = []
        talk.tally.report = lambda kind, _: told.append(kind)
        talk.account.add(len(frame))
        talk.conversation.take([Frame(memoryview(frame), talk.account)])
        assert talk.sink.closed
        assert (talk.sink.ids, told, talk.tally.closed) == ([], ["refused"], {"refused": 1})

    run(test)


def test_an_unknown_version_of_api_versions_is_answered_with_its_range_in_version_0() -> None:
    async def test() -> None:
        talk = Talk()
        data = b"\0\x12\0\x63\0\0\0\x09\xff\xff"
        talk.account.add(len(data))
        talk.conversation.take([Frame(memoryview(data), talk.account)])
        assert (talk.sink.ids, talk.sink.closed) == ([9], None)

    run(test)


@pytest.mark.parametrize("fault", [RuntimeError("boom"), CloseConnection("no"), MemoryError()])
def test_whatever_a_handler_raises_ends_its_connection_and_no_client_sees_an_error_code(fault: Exception) -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask((PRODUCE, 1), (PRODUCE, 2))
        talk.answers[0].set_exception(fault)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert talk.sink.closed is not None
        assert talk.sink.ids == []
        kind = "refused" if isinstance(fault, CloseConnection) else "fault"
        assert talk.tally.closed == {kind: 1}

    run(test)


def test_an_answer_that_fits_no_message_ends_the_connection() -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask((HEARTBEAT, 1))
        await talk.answer(0, {"error_code": "what"})
        assert talk.sink.closed
        assert talk.sink.ids == []

    run(test)


def test_what_is_answered_behind_the_end_is_let_go_of() -> None:
    class File:
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    async def test() -> None:
        talk = Talk()
        talk.ask((PRODUCE, 1))
        talk.conversation.over()
        file: Any = File()
        await talk.answer(0, {"responses": [{"partitions": [{"records": [FileRange(file, 0, 10)]}]}]})
        assert file.is_closed
        assert talk.sink.ids == []

    run(test)


def test_the_end_finishes_what_was_begun_and_drops_the_rest() -> None:
    async def test() -> None:
        talk = Talk()
        talk.ask((HEARTBEAT, 1), (METADATA, 2))
        talk.conversation.end()
        assert talk.conversation.is_busy
        await talk.answer(0, {})
        assert (talk.sink.ids, talk.conversation.is_busy, talk.budget.used) == ([1], False, 0)
        talk.ask((METADATA, 3))
        assert (talk.sink.ids, talk.budget.used) == ([1], 0)

    run(test)


def test_a_large_request_other_than_produce_is_refused() -> None:
    async def test() -> None:
        talk = Talk(Limits(other_frame=10))
        talk.ask((METADATA, 1))
        assert talk.begun == []
        assert talk.sink.closed
        other = Talk(Limits(other_frame=10))
        other.ask((PRODUCE, 1))
        assert len(other.begun) == 1

    run(test)


async def come_about(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_requests_wait_while_the_one_before_is_prepared_and_begin_in_their_order() -> None:
    async def test() -> None:
        talk, prepared = Talk(), []

        def prepare(_: Request) -> object:
            prepared.append(asyncio.get_running_loop().create_future())
            return prepared[-1]

        talk.dispatcher.preparing[PRODUCE] = prepare
        talk.ask((PRODUCE, 1), (PRODUCE, 2))
        assert (len(prepared), talk.begun) == (1, [])
        prepared[0].set_result("looked at")
        await come_about(lambda: len(prepared) == 2)
        assert [call.prepared for call in talk.begun] == ["looked at"]
        prepared[1].set_result("as well")
        await come_about(lambda: len(talk.begun) == 2)
        await talk.answer(1)
        await talk.answer(0)
        await come_about(lambda: len(talk.sink.ids) == 2)
        assert talk.sink.ids == [1, 2]

    run(test)


def test_a_preparation_is_given_up_with_its_connection() -> None:
    async def test() -> None:
        talk = Talk()
        prepared: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        talk.dispatcher.preparing[PRODUCE] = lambda _: prepared
        talk.ask((PRODUCE, 1))
        await asyncio.sleep(0)
        talk.conversation.over()
        await come_about(prepared.cancelled)
        assert talk.begun == []

    run(test)
