"""Crashes a procedure at each of its effects and tries everything that each crash may leave.

For every effect of `run` the machine dies just before it, and once after the last one. Each state of the disk that may
remain is a machine of its own: `recover` runs on it, is itself crashed at each of *its* effects with everything that
may remain then, and `check` judges every end. A check fails by raising; the error names effect, state and seed.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from support.memory_fs import Crashed, MemoryFs, Remainder

from storage.disk.fs import Fs


@dataclass
class Counts:
    """What was tried. `everything` says whether no state was left out."""

    seed: int
    effects: int = 0
    states: int = 0
    double_states: int = 0
    everything: bool = True
    effects_of_recovery: int = 0
    """Of the longest of them."""

    def __str__(self) -> str:
        how = "all states" if self.everything else "a sample of the states"
        return (
            f"{self.effects} effects, {self.states} states, {self.double_states} double states "
            f"({how}, recovery has up to {self.effects_of_recovery} effects), seed {self.seed}"
        )


class CrashFailure(AssertionError):
    """A crash left what `check` does not accept, or what `recover` cannot handle; the cause is the error of those."""


@dataclass
class _Search:
    make: Callable[[], MemoryFs]
    run: Callable[[Fs], None]
    check: Callable[[MemoryFs], None]
    recover: Callable[[Fs], None] | None
    strict: bool
    sector: int
    counts: Counts
    promised: Callable[[], Hashable] | None
    rng: random.Random
    tried: set[tuple[int, Hashable]] = field(default_factory=set)
    tried_twice: set[tuple[int, Hashable]] = field(default_factory=set)

    def died_before(self, effect: int) -> MemoryFs:
        """Return the machine as it died before this effect of a fresh run, or after the run if it has fewer."""
        fs = self.make()
        fs.stop_before(fs.effects + effect)
        with contextlib.suppress(Crashed):
            self.run(fs)
        return fs

    def remainders(self, died: MemoryFs, limit: int) -> list[Remainder]:
        found, complete = died.some_crash_states(limit, self.rng, strict=self.strict, sector=self.sector)
        self.counts.everything &= complete
        return found

    def key(self, left: Remainder) -> tuple[int, Hashable] | None:
        """Return what makes a state equal to another; without `promised` no two are: what they must hold may differ."""
        return None if self.promised is None else (left.fingerprint, self.promised())

    def try_state(self, left: Remainder, died: MemoryFs, doubles: int) -> None:
        """Recover from one state and check; then, with `doubles`, from as many crashes of that recovery."""
        if (key := self.key(left)) in self.tried_twice:
            return
        if key is not None:
            self.tried_twice.add(key)
            self.tried.add(key)
        self.counts.states += 1
        points: list[list[Remainder]] = []
        fs = left.to_fs(died)
        if doubles:
            fs.before_effect = lambda at: points.append(self.remainders(at, doubles))
        self.judge(fs, left, [died])
        if not doubles:
            return
        self.counts.effects_of_recovery = max(self.counts.effects_of_recovery, fs.effects)
        points.append(self.remainders(fs, doubles))
        for number, again in self._new_ones(points, left.fingerprint, doubles):
            self.counts.double_states += 1
            self.judge(again.to_fs(fs), again, [died, fs], inner_effect=number)

    def _new_ones(self, points: list[list[Remainder]], first: int, limit: int) -> list[tuple[int, Remainder]]:
        """Return the states that a crash of the recovery left and that were not tried yet, at most `limit`."""
        found: dict[int, tuple[int, Remainder]] = {}
        for number, states in enumerate(points, 1):
            for state in states:
                if state.fingerprint != first and self.key(state) not in self.tried:
                    found.setdefault(state.fingerprint, (number, state))
        chosen = list(found.values())
        if len(chosen) > limit:
            self.counts.everything = False
            chosen = self.rng.sample(chosen, limit)
        self.tried.update(key for _, state in chosen if (key := self.key(state)) is not None)
        return chosen

    def judge(self, fs: MemoryFs, left: Remainder, died: list[MemoryFs], inner_effect: int = 0) -> None:
        try:
            if self.recover is not None:
                self.recover(fs)
            fs.before_effect = None
            self.check(fs)
        except Exception as error:
            story = _story(error, left.to_fs(died[-1]), died, inner_effect, self.counts)
            raise CrashFailure(story) from error


def every_crash(
    make: Callable[[], MemoryFs],
    run: Callable[[Fs], None],
    check: Callable[[MemoryFs], None],
    recover: Callable[[Fs], None] | None = None,
    depth: int = 2,
    limit: int = 10_000,
    seed: int = 0,
    *,
    strict: bool = False,
    sector: int = 512,
    promised: Callable[[], Hashable] | None = None,
) -> Counts:
    """Try every crash of `run`, and with `depth` 2 every crash of the recovery after each; return and print the counts.

    `make` gives a machine before `run`, each time the same; a ledger that `run` fills (what it was told to be durable)
    is emptied there. `check` is given the machine after `recover`, or as the crash left it where there is none, while
    the ledger stands as it stood at the crash; it must not change the machine. `promised` returns what is in
    the ledger, or a constant where there is none: with it, an equal state with equal promises is tried once only.

    Up to `limit` states, and as many double states, are tried; of more a sample is drawn, from `seed`, with a share for
    every effect. Raises `CrashFailure` with the whole story at the first one that fails.
    """
    counts = Counts(seed)
    search = _Search(make, run, check, recover, strict, sector, counts, promised, random.Random(seed))
    points = _effects(search) + 1
    counts.effects = points - 1
    expected = _first_states(search, points, limit) if depth > 1 and recover is not None else 0
    for point, left_over in zip(range(1, points + 1), _shares(limit, points, counts), strict=True):
        died = search.died_before(point)
        for left in search.remainders(died, left_over):
            share = (limit - counts.double_states) // max(expected - counts.states, 1)
            search.try_state(left, died, max(share, 4) if expected else 0)
    print(f"every crash: {counts}")
    return counts


def _effects(search: _Search) -> int:
    fs = search.make()
    before = fs.effects
    search.run(fs)
    if fs.effects == before:
        raise ValueError("run has no effect: there is nothing to crash")
    return fs.effects - before


def _shares(limit: int, points: int, counts: Counts) -> Iterator[int]:
    """Yield how many states each effect may have: an equal share of what those before it have left."""
    for done in range(points):
        yield max((limit - counts.states) // (points - done), 2)


def _first_states(search: _Search, points: int, limit: int) -> int:
    """Return about how many states there will be to recover from."""
    everything, total = search.counts.everything, 0
    for point in range(1, points + 1):
        total += len(search.remainders(search.died_before(point), max(limit // points, 2)))
    search.counts.everything = everything
    return max(total, 1)


def _story(error: Exception, before: MemoryFs, died: list[MemoryFs], inner_effect: int, counts: Counts) -> str:
    first = died[0]
    lines = [f"{type(error).__name__}: {error}", f"{counts}", f"the machine died after effect {first.effects}:"]
    lines += [f"    {number}. {effect}" for number, effect in enumerate(first.history, 1)]
    if inner_effect:
        lines.append(f"and again before effect {inner_effect} of its recovery:")
        lines += [f"    {number}. {effect}" for number, effect in enumerate(died[1].history, 1)]
    lines.append("which left:")
    lines += [f"    {path}: {_glimpse(data)}" for path, data in itertools.islice(before.contents().items(), 40)]
    return "\n".join(lines)


def _glimpse(data: bytes) -> str:
    shown = data[:32].hex(" ", 4)
    return f"{len(data)} bytes: {shown}{' …' if len(data) > 32 else ''}"
