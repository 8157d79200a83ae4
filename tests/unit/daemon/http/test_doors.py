"""Which connection goes when all places are taken."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from daemon.http.doors import Door, Doors


def test_a_slow_reader_of_an_answer_goes_after_those_who_do_not_ask_and_not_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(Doors, "time", staticmethod(lambda: now))
    doors = Doors(limit=2)

    def come() -> tuple[Door, Mock]:
        transport = Mock(spec=asyncio.Transport)
        door = Door(Mock(spec=asyncio.Protocol), doors)
        door.connection_made(transport)
        return door, transport

    reader, idle = come(), come()
    doors.begun(Mock(transport=reader[1]), 60.0)
    asking = come()
    assert idle[1].abort.called
    assert not reader[1].abort.called
    idle[0].connection_lost(None)
    doors.begun(Mock(transport=asking[1]), 60.0)
    refused = come()
    assert refused[1].abort.called, "both are being answered, and had no time to take it"
    assert doors.refused == 1
    now = 6.0
    late = come()
    assert reader[1].abort.called
    assert not late[1].abort.called
    assert doors.refused == 1
