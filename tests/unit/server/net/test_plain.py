"""The plain transport: files go by the kernel, a peer that does not read stops everything, a file that shrinks too."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from server.api.dispatch import Call, Client, Dispatcher, ListenerInfo
from server.api.ranges import SharedFiles
from server.net.conversation import Conversation, Tally
from server.net.limits import Limits
from server.net.plain import PlainTransport
from storage.disk.fs import OsFs, ReadFile
from wire.frame import Budget, FrameReader
from wire.segments import FileRange

FETCH = 1
SIZE = 40 << 20
ASK = b"\0\1\0\4\0\0\0\7\xff\xff" + bytes.fromhex("ffffffff 00000000 00000000 7fffffff 00 00000000")


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Pair:
    """A transport and the other end of its socket."""

    def __init__(self, answer: Callable[[Call], Any]) -> None:
        here, self.peer = socket.socketpair()
        here.setblocking(False)
        self.peer.setblocking(False)
        self.tally, self.budget, self.closed = Tally(), Budget(1 << 30), asyncio.Event()
        account = self.budget.account()
        reader = FrameReader(Limits().frame, account)
        dispatcher = Dispatcher({FETCH: answer}, ListenerInfo("h", 1), lambda: 0)
        memory = memoryview(bytearray(1 << 16))
        self.transport = PlainTransport(here, reader, memory, self.tally, "h", account, lambda _: self.closed.set())
        talk = Conversation(dispatcher, self.transport, Client("h"), Limits(), self.tally, None)
        self.transport.begin(talk)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.transport.close()
        self.peer.close()

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.peer, data)

    async def receive(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            piece = await asyncio.get_running_loop().sock_recv(self.peer, 1 << 20)
            if not piece:
                break
            got += piece
        return bytes(got)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        await asyncio.wait_for(test(), 60)

    asyncio.run(within())


def answering(files: SharedFiles, opened: ReadFile, size: int, position: int = 0) -> Callable[[Call], Any]:
    def answer(_: Call) -> dict[str, object]:
        records = [files.segment(opened, position, size)]
        partition = {"partition_index": 0, "records": records}
        return {"responses": [{"topic": "t", "topic_id": bytes(16), "partitions": [partition]}]}

    return answer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.log"
    path.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
    return path


@pytest.fixture
def opened(file: Path) -> Iterator[ReadFile]:
    with OsFs().open_read(file) as found:
        yield found


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


HEAD = 53
"""Bytes before the records of the one partition, with the size of the frame."""


@pytest.mark.parametrize("size", [1, 5000, (32 << 10) + 1, SIZE - 3])
def test_a_range_of_a_file_arrives_behind_its_head_whatever_its_size(file: Path, opened: ReadFile, size: int) -> None:
    async def test() -> None:
        async with Pair(answering(SharedFiles(), opened, size, 3)) as pair:
            await pair.send(framed(ASK) * 2)
            got = await pair.receive(2 * (HEAD + size))
            assert int.from_bytes(got[:4], "big") == HEAD + size - 4
            wanted = file.read_bytes()[3 : 3 + size]
            assert got[HEAD : HEAD + size] == got[2 * HEAD + size :] == wanted

    run(test)


def test_a_peer_that_does_not_read_costs_one_open_file_and_stops_further_requests(opened: ReadFile) -> None:
    asked = 0
    files = SharedFiles()

    async def test() -> None:
        answer = answering(files, opened, SIZE)

        def counted(call: Call) -> Any:
            nonlocal asked
            asked += 1
            return answer(call)

        before = open_files()
        pairs = [Pair(counted) for _ in range(5)]
        for pair in pairs:
            await pair.send(framed(ASK) * 50)
        while asked < 5:
            await asyncio.sleep(0.01)
        for _ in range(50):
            await asyncio.sleep(0)
        assert asked == 5
        assert all(pair.transport.is_congested and not pair.transport.conversation.wants_more for pair in pairs)
        assert open_files() == before + 2 * 5 + 1
        for pair in pairs:
            pair.transport.close()
        assert open_files() == before + 5
        for pair in pairs:
            pair.peer.close()

    run(test)


def test_a_file_that_shrinks_while_it_is_sent_ends_the_connection_and_nothing_is_made_up(
    file: Path, opened: ReadFile
) -> None:
    async def test() -> None:
        async with Pair(answering(SharedFiles(), opened, SIZE)) as pair:
            await pair.send(framed(ASK))
            got = len(await pair.receive(1 << 20))
            os.truncate(file, 2 << 20)
            got += len(await pair.receive(SIZE))
            await pair.closed.wait()
            assert got < SIZE

    run(test)


def test_a_segment_that_is_closed_and_removed_is_still_sent_whole(file: Path, opened: ReadFile) -> None:
    async def test() -> None:
        files = SharedFiles()
        found = files.segment(opened, 0, SIZE)
        assert isinstance(found, FileRange)
        partition = {"partition_index": 0, "records": [found]}
        answer = {"responses": [{"topic": "t", "topic_id": bytes(16), "partitions": [partition]}]}
        data = file.read_bytes()
        async with Pair(lambda _: answer) as pair:
            await pair.send(framed(ASK))
            opened.close()
            file.unlink()
            assert (await pair.receive(HEAD + SIZE))[HEAD:] == data
        with pytest.raises(ValueError, match="closed"):
            files.segment(opened, 0, SIZE)

    run(test)


def test_a_handler_that_fails_in_the_read_callback_ends_its_connection_alone() -> None:
    async def test() -> None:
        def answer(_: Call) -> Any:
            raise MemoryError

        async with Pair(answer) as pair, Pair(lambda _: {}) as other:
            await pair.send(framed(ASK))
            await pair.closed.wait()
            await other.send(framed(ASK))
            assert len(await other.receive(4 + 12)) == 16
            assert not other.closed.is_set()

    run(test)


def test_a_peer_that_leaves_midway_gives_its_memory_back() -> None:
    async def test() -> None:
        async with Pair(lambda _: {}) as pair:
            await pair.send((50 << 20).to_bytes(4, "big") + bytes(100))
            while not pair.budget.used:
                await asyncio.sleep(0)
            assert pair.budget.used == 100
            pair.peer.close()
            await pair.closed.wait()
            assert pair.budget.used == 0

    run(test)


def test_an_announced_size_above_the_limit_ends_the_connection_before_memory_is_taken() -> None:
    async def test() -> None:
        async with Pair(lambda _: {}) as pair:
            await pair.send((101 << 20).to_bytes(4, "big"))
            await pair.closed.wait()
            assert (pair.budget.used, pair.tally.closed) == (0, {"frame": 1})

    run(test)
