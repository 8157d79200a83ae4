"""Every sequence of up to three steps of a running log manager, crashed at each effect of its last step.

Small and exhaustive: one partition of two segments, and all that can be done to it. What each crash may leave is
recovered, held against what was promised, opened, and recovered again. `LOGMEND_CRASH_STATES=all` takes every sequence
of three steps and every state (in any order: at most 500 an effect), and crashes the recoveries of a fifth of them
again; by default every single step and a sample of sequences. `LOGMEND_CRASH_SEED` draws others.
"""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from crash.engine_steps import HOME, LATER, OPTIONS, STEPS, Promises, begun, opened, run, sequences
from support.log_dirs import MARKER, plan_of, recover
from support.memory_fs import MemoryFs, Remainder
from support.recovered import assert_clean, assert_nothing_is_lost, assert_point_within_log, next_time
from support.tiers import deep

from engine.manager.manager import LogManager

STATES = os.environ.get("LOGMEND_CRASH_STATES", "8")
SEED = int(os.environ.get("LOGMEND_CRASH_SEED", "0"))
EVERYTHING = STATES == "all"
LIMITS = {False: 20_000, True: 500} if EVERYTHING else dict.fromkeys((False, True), int(STATES))
AGAIN_EVERY = 5 if EVERYTHING else 40
"""Of so many states the recovery of one is crashed again."""


class Judge:
    """Tries each state that is new once."""

    def __init__(self, *, strict: bool) -> None:
        self.strict, self.limit, self.rng = strict, LIMITS[strict], random.Random(SEED)
        self.tried: set[object] = set()
        self.counts: Counter[str] = Counter()

    def look(self, died: MemoryFs, promises: Promises) -> None:
        left_over, is_all = died.some_crash_states(self.limit, self.rng, strict=self.strict)
        self.counts["left out"] += not is_all
        for left in left_over:
            key = (left.fingerprint, promises.key())
            if key not in self.tried:
                self.tried.add(key)
                self.counts["states"] += 1
                self.try_state(left, died, promises)

    def try_state(self, left: Remainder, died: MemoryFs, promises: Promises) -> None:
        there = left.to_fs(died).contents(str(HOME)).items()
        # Temporary files were never in place, and a recovery that is made again writes its manifest anew.
        before = {name: data for name, data in there if not name.endswith((".tmp", ".logmend.json"))}
        if MARKER in before:  # then all that was ever said is durable
            promises = replace(promises, flushed=max(promises.said, default=promises.flushed - 1) + 1)
        fs = left.to_fs(died)
        assert_point_within_log(fs)
        points: list[tuple[MemoryFs, list[Remainder]]] = []
        if self.counts["states"] % AGAIN_EVERY == 0:
            most = 50 if EVERYTHING else 2
            fs.before_effect = lambda at: points.append((at, at.some_crash_states(most, self.rng)[0]))
        recover(fs, OPTIONS)
        fs.before_effect = None
        self.judge(fs, before, promises)
        for again in {each.fingerprint: each for _, states in points for each in states}.values():
            self.counts["double states"] += 1
            other = again.to_fs(fs)
            assert_point_within_log(other)
            recover(other, OPTIONS, created_ms=next_time(other))
            self.judge(other, before, promises)

    def judge(self, fs: MemoryFs, before: dict[str, bytes], promises: Promises) -> None:
        assert not plan_of(fs, OPTIONS).is_held, "what a crash leaves is taken for rot"
        assert_nothing_is_lost(before, fs.contents(str(HOME)))
        assert_point_within_log(fs)
        assert_clean(fs, OPTIONS)
        # A copy: it is opened and appended to, and this machine is to stay as it is.
        other = copy.deepcopy(fs)
        with opened(other) as manager:
            promises.judge(manager)
            go_on(manager)
        assert plan_of(other, OPTIONS).is_empty
        with opened(other) as manager:
            assert manager.offline == {}


def go_on(manager: LogManager) -> None:
    assert manager.retain(LATER) == []
    assert manager.compact(LATER) == []
    assert manager.remove_due(LATER + 120_000) == []


def chosen(strict: bool) -> Iterator[tuple[str, ...]]:
    longest = sequences(3)
    if EVERYTHING:
        yield from longest
        return
    rng = random.Random(f"{SEED}{strict}")
    share = {1: 1.0, 2: 0.15, 3: 0.008}
    yield from (names for names in longest if rng.random() < share[len(names)])


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600 if EVERYTHING else 900)
@pytest.mark.parametrize("strict", [pytest.param(False, id="in order"), deep(True, id="in any order")])
def test_whatever_was_done_in_whatever_order_a_crash_keeps_every_promise(strict: bool) -> None:
    judge, start = Judge(strict=strict), begun()
    effects = Counter[str]()
    for names in chosen(strict):
        try:
            effects[names[-1]] += run(names, judge.look, start)
            judge.counts["sequences"] += 1
        except Exception as error:
            raise AssertionError(f"{', '.join(names)}, {dict(judge.counts)}: {error}") from error
    assert effects.keys() == STEPS.keys()
    print(f"{dict(judge.counts)}, seed {SEED}; effects by step: {dict(effects)}")
    assert judge.counts["states"] > 100


FOUND = [
    ("delete", "create", "append", "append", "delete_records"),
    ("append", "delete_records", "delete_records", "delete_records", "delete_records"),
    ("append", "flush", "roll", "truncate", "flush_closed", "append", "flush"),
    ("append", "truncate", "roll"),
    ("truncate", "truncate", "retain"),
    ("retain", "delete_records"),
    ("restart", "truncate"),
    ("delete_records", "retain"),
]
"""Each was the end of a promise once."""


@pytest.mark.parametrize("names", FOUND, ids="-".join)
def test_a_sequence_that_failed_once_fails_no_more(names: tuple[str, ...]) -> None:
    judge = Judge(strict=False)
    judge.limit = 300
    run(names, judge.look, begun())
    assert judge.counts["states"] > 0
