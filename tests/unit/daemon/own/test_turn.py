"""The turn: whoever waits for it gets it when it is passed on."""

from __future__ import annotations

import threading

from support.waiting import until

from daemon.own.turn import Turn


def test_who_waits_has_had_it_before_it_comes_back() -> None:
    turn, had = Turn(), []

    def wait(number: int) -> None:
        with turn.taken():
            had.append(number)

    with turn.taken():
        threads = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
        for each in threads:
            each.start()
        until(lambda: turn.waiting == 5)
        assert had == []
        with turn.passed_on():
            pass
        assert sorted(had) == [0, 1, 2, 3, 4]
    for each in threads:
        each.join(30)


def test_while_nobody_waits_it_comes_back_at_once() -> None:
    turn = Turn()
    with turn.taken():
        with turn.passed_on():
            pass
        other = threading.Thread(target=lambda: turn.taken().__enter__(), daemon=True)
        other.start()
        until(lambda: turn.waiting == 1)
        assert other.is_alive(), "it is taken again"


def test_it_may_be_taken_once_more_by_who_has_it() -> None:
    turn = Turn()
    with turn.taken(), turn.taken():
        assert turn.waiting == 0
