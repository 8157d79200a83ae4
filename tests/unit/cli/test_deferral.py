"""Signals wait while a log is written to, and are not forgotten."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from cli.deferral import deferred
from cli.signals import Terminated, handled, nothing


@pytest.fixture(autouse=True)
def as_in_the_command() -> Iterator[None]:
    with handled(stop=nothing, tell=nothing):
        yield


def send(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_a_signal_takes_effect_at_the_end_of_what_must_not_be_interrupted() -> None:
    done = []

    def work() -> None:
        with deferred():
            send()
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]


def test_a_signal_that_came_before_takes_effect_where_it_may() -> None:
    with deferred() as deferral:
        send(signal.SIGTERM)
        with pytest.raises(Terminated), deferral.interruptible():
            raise AssertionError("it is not begun")


def test_where_it_may_a_signal_takes_effect_at_once_and_only_there() -> None:
    done = []

    def work() -> None:
        with deferred() as deferral:
            with pytest.raises(KeyboardInterrupt), deferral.interruptible():
                send()
            send()
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]


def test_afterwards_signals_are_as_before() -> None:
    with deferred():
        pass
    with pytest.raises(KeyboardInterrupt):
        send()


def test_without_signals_nothing_happens_and_other_threads_change_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with deferred() as deferral, deferral.interruptible():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
