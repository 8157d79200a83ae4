"""Signals: SIGINT and SIGTERM stop the work, SIGUSR1 asks how far it is."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

_Handler = Callable[..., Any]


class Terminated(BaseException):
    """SIGTERM arrived; not an `Exception`, so that nothing on the way takes it for a fault."""


@contextlib.contextmanager
def handled(*, stop: Callable[[], None], tell: Callable[[], None]) -> Iterator[None]:
    """Raise `KeyboardInterrupt` or `Terminated` in the main thread on the first signal to stop, having called `stop`.

    `stop` makes the threads of the work give up; without it the main thread would wait for all that was begun. `tell`
    is called on SIGUSR1. In another thread than the main one, where signals cannot be handled, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> NoReturn:
        stop()
        raise KeyboardInterrupt

    def terminate(*_: object) -> NoReturn:
        stop()
        raise Terminated

    with _installed({signal.SIGINT: interrupt, signal.SIGTERM: terminate, signal.SIGUSR1: lambda *_: tell()}):
        yield


@contextlib.contextmanager
def stopping(stop: Callable[[str], None], reload: Callable[[], None] | None = None) -> Iterator[None]:
    """End a service cleanly: call `stop` with the name of the first SIGINT or SIGTERM; a second one ends it at once.

    `reload` is called on SIGHUP.
    """
    names: list[str] = []

    def end(number: int, _frame: object) -> None:
        if names:
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
        names.append(signal.Signals(number).name)
        stop(names[0])

    handlers: dict[signal.Signals, _Handler] = {signal.SIGTERM: end, signal.SIGINT: end}
    if reload is not None:
        handlers[signal.SIGHUP] = lambda *_: reload()
    with _installed(handlers):
        yield


@contextlib.contextmanager
def _installed(handlers: Mapping[signal.Signals, _Handler]) -> Iterator[None]:
    """Handle signals like this within the context."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def nothing() -> None:
    """Do nothing: there is no work whose threads would have to stop, or no progress to tell of."""
