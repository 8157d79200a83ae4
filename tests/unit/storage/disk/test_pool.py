"""Calls in a few threads."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from storage.disk.pool import Pool, run_all


def test_results_come_in_the_order_of_the_items_however_the_calls_end() -> None:
    second_ended = threading.Event()

    def call(item: int) -> int:
        if item == 0:
            assert second_ended.wait(60)
        else:
            second_ended.set()
        return item * 10

    assert run_all(call, range(5), 2, "test") == [0, 10, 20, 30, 40]


def test_as_many_calls_are_made_at_a_time_as_there_are_threads_and_no_more() -> None:
    meeting, running, most = threading.Barrier(3), 0, 0
    turn = threading.Lock()

    def call(_: int) -> None:
        nonlocal running, most
        with turn:
            running += 1
            most = max(most, running)
        meeting.wait(60)
        with turn:
            running -= 1
        meeting.wait(60)

    run_all(call, range(9), 3, "test")
    assert most == 3


def test_the_first_that_failed_in_the_order_of_the_items_is_raised_and_nothing_is_begun_after_it() -> None:
    begun: list[int] = []
    both = threading.Barrier(2)

    def call(item: int) -> None:
        begun.append(item)
        if item < 2:
            both.wait(60)
            raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        run_all(call, range(2), 2, "test")
    begun.clear()

    def fail(item: int) -> None:
        begun.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        run_all(fail, range(100), 1, "test")
    assert begun == [0]


def test_no_thread_is_left_and_whatever_was_given_is_done_when_the_context_ends() -> None:
    before = threading.active_count()
    done: list[int] = []
    with Pool(2, "test") as pool:
        for item in range(20):
            pool.submit(partial(done.append, item))
    assert sorted(done) == list(range(20))
    assert threading.active_count() == before


def test_what_has_not_begun_is_dropped_where_the_context_ends_by_an_error() -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def first() -> None:
        begun.set()
        assert go_on.wait(60)
        done.append(0)

    class Dropping(Pool):
        def drop(self) -> None:
            super().drop()
            go_on.set()

    def leave() -> None:
        with Dropping(1, "test") as pool:
            pool.submit(first)
            pool.submit(lambda: done.append(1))
            assert begun.wait(60)
            raise KeyError("ended")

    with pytest.raises(KeyError):
        leave()
    assert done == [0]


def test_a_task_raises_what_its_call_raised_each_time_it_is_asked() -> None:
    with Pool(1, "test") as pool:
        task = pool.submit(partial(int, "no number"))
        for _ in range(2):
            with pytest.raises(ValueError, match="no number"):
                task.result()
        assert task.is_done


def test_a_call_that_goes_first_goes_before_those_that_wait_and_behind_other_first_ones() -> None:
    go_on = threading.Event()
    order: list[int] = []
    with Pool(1, "test") as pool:
        pool.submit(partial(go_on.wait, 60))
        for item in range(3):
            pool.submit(partial(order.append, item))
        for item in range(10, 13):
            pool.submit(partial(order.append, item), first=True)
        go_on.set()
    assert order == [10, 11, 12, 0, 1, 2]


def test_a_call_that_has_not_begun_can_be_made_by_whoever_waits_for_it_and_is_made_once() -> None:
    go_on = threading.Event()
    made: list[threading.Thread] = []
    with Pool(1, "test") as pool:
        pool.submit(partial(go_on.wait, 60))
        task = pool.submit(lambda: made.append(threading.current_thread()))
        task.run()
        task.result()
        go_on.set()
    assert made == [threading.current_thread()]
