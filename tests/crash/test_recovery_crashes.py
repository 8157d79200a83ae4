"""A recovery that dies at any of its effects, and the next one that dies too, ends as one that was never disturbed.

For every kind of damage: each effect of carrying out the plan, everything that may remain then, a recovery of that,
again crashed at each effect. What is demanded of every end is in `judged`. `LOGMEND_CRASH_STATES` is the number of
states, and of double states, for each kind: a few by default, `all` for every one there is; `LOGMEND_CRASH_SEED` draws
another sample.
"""

from __future__ import annotations

import copy
import itertools
import os
import random
from pathlib import PurePath

import pytest
from crash.harness import Counts, every_crash
from support.batches import batch_v2
from support.damages import KINDS, flip
from support.log_dirs import (
    MARKER,
    META,
    OPTIONS,
    POINTS,
    SOUND,
    STARTS,
    TOP,
    Files,
    checkpoint,
    damaged,
    live,
    on_disk,
    ours,
    place,
    plan_of,
    recover,
    sound,
)
from support.memory_fs import MemoryFs
from support.recovered import (
    assert_clean,
    assert_nothing_is_lost,
    assert_point_within_log,
    assert_restorable,
    next_time,
)
from support.tiers import deep, spread

from checkpoint.offsets import decode_offsets
from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import expire, restore
from recovery.plan.plan import PlanOptions
from storage.disk.fs import FileKind, Fs

STATES = os.environ.get("LOGMEND_CRASH_STATES", "24")
SEED = int(os.environ.get("LOGMEND_CRASH_SEED", "0"))
LIMIT = 1 << 40 if STATES == "all" else int(STATES)
SEEDS = 20 if STATES == "all" else 1
TWO = sound(("orders-0", "pay-3"))


class Trial:
    """One damaged directory, what becomes of it undisturbed, and the demands on every disturbed recovery."""

    def __init__(
        self,
        files: Files,
        options: PlanOptions = OPTIONS,
        unfinished: tuple[str, ...] = (".tmp",),
        *,
        strict: bool = False,
    ) -> None:
        self.files, self.options, self.unfinished, self.strict = files, options, unfinished, strict
        fs = on_disk(files)
        assert not plan_of(fs, options).is_empty, "see it fail first"
        # What somebody gives up may be flushed data: until the checkpoint follows the cut it lies above the end.
        self.point_is_within = not options.accept_loss and _point_is_within(fs)
        recover(fs, options)
        self.end = live(fs.contents(str(TOP)))

    def make(self) -> MemoryFs:
        return on_disk(self.files)

    def run(self, fs: Fs) -> None:
        recover(fs, self.options)

    def again(self, fs: Fs) -> None:
        assert isinstance(fs, MemoryFs)
        if self.point_is_within:
            assert_point_within_log(fs)
        found = fs.contents(str(TOP))
        assert_marker_speaks_of_what_was(self.files, found)
        assert_derived_files_follow_logs(self.files, found, self.end)
        recover(fs, self.options, created_ms=next_time(fs))

    def judge(self, fs: MemoryFs) -> None:
        found = fs.contents(str(TOP))
        now, wanted = self._compared(live(found)), self._compared(self.end)
        assert now == wanted, _differences(now, wanted)
        assert_nothing_is_lost(self.files, found)
        assert_clean(fs, self.options)
        assert_point_within_log(fs)
        if self.unfinished:
            assert_restorable(fs, self.files, unfinished=self.unfinished)
        # A last crash, right after the recovery came back, takes nothing of it away: the least and the most may remain.
        for left in fs.some_crash_states(2, random.Random(0))[0]:
            assert live(left.to_fs(fs).contents(str(TOP))) == live(found), "not all that was done is durable"

    def _compared(self, files: Files) -> Files:
        """Leave out the zeroes behind the indexes of the active segment, which may go or stay.

        Where names survive in any order, a temporary name may stay, and an empty file lose its own.
        """
        files = _without_padding(files)
        if self.strict:
            files = {name: data for name, data in files.items() if not name.endswith(".tmp")}
            files = {name: data for name, data in files.items() if data or not name.endswith(".txnindex")}
        return files

    def crash(self, limit: int = LIMIT, depth: int = 2, seed: int = SEED) -> Counts:
        return every_crash(
            self.make, self.run, self.judge, self.again, depth, limit, seed, strict=self.strict, promised=lambda: ()
        )  # fmt: skip


class MarkedTrial(Trial):
    """A trial beside a marker, which may stay; a recovery that finds files missing in the end takes it away."""

    def _compared(self, files: Files) -> Files:
        return {name: data for name, data in super()._compared(files).items() if name != MARKER}


BACKUP = PurePath("/backup/orders-0")


class LinkedTrial(Trial):
    """A trial on files that all have a second name in a backup made by `cp -al`."""

    def make(self) -> MemoryFs:
        fs = super().make()
        fs.plant(BACKUP, FileKind.DIRECTORY)
        for name in fs.entries(TOP / "orders-0"):
            fs.link(TOP / "orders-0" / name, BACKUP / name)
        fs.sync_dir(BACKUP)
        return fs

    def judge(self, fs: MemoryFs) -> None:
        wanted = {name.partition("/")[2]: data for name, data in self.files.items() if name.startswith("orders-0/")}
        assert fs.contents(str(BACKUP)) == wanted
        super().judge(fs)
        assert fs.contents(str(BACKUP)) == wanted


def assert_marker_speaks_of_what_was(before: Files, now: Files) -> None:
    """Whoever finds the clean shutdown marker trusts every file: it is the first to go."""
    if MARKER in now:
        if any(name.endswith(".swap") for name in before):
            return  # a loader finishes these whether the marker is there or not
        changed = _differences(_under_repair(now), _under_repair(before))
        assert not changed, f"the marker stands, and {changed} are not as they were at the clean stop"


def assert_derived_files_follow_logs(before: Files, now: Files, end: Files) -> None:
    """What is new beside a log was derived from it: by then the logs of its partition are as they will stay."""
    old = set(before.values())
    new = {name for name, data in _under_repair(now).items() if ".log" not in name and data not in old}
    for partition in {name.rpartition("/")[0] for name in new} - {""}:
        logs = [
            {name: data for name, data in files.items() if name.startswith(f"{partition}/") and name.endswith(".log")}
            for files in (now, end)
        ]
        assert logs[0] == logs[1], f"derived files of {partition} are new, and its logs are still to be changed"


def _under_repair(files: Files) -> Files:
    """Return what a broker reads: no copies, and nothing that is still being written."""
    return {name: data for name, data in live(files).items() if not name.endswith(".tmp")}


def _point_is_within(fs: MemoryFs) -> bool:
    try:
        assert_point_within_log(fs)
    except AssertionError:
        return False
    return True


def _without_padding(files: Files) -> Files:
    active = max((name for name in files if name.endswith(".log")), default="").removesuffix(".log")
    return {
        name: data.rstrip(b"\0") if name in (f"{active}.index", f"{active}.timeindex") else data
        for name, data in files.items()
    }


def _differences(found: Files, wanted: Files) -> list[str]:
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


@pytest.mark.parametrize("kind", KINDS)
def test_a_recovery_that_dies_anywhere_ends_as_one_undisturbed(kind: str) -> None:
    counts = Trial(damaged(KINDS[kind], files=SOUND)).crash()
    assert counts.states > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["swap_not_yet_in_place", "swap_half_renamed"])
def test_a_swap_beside_a_clean_marker_that_is_finished_anywhere_ends_as_undisturbed(kind: str) -> None:
    trial = MarkedTrial(damaged(KINDS[kind], files=SOUND | {MARKER: b""}))
    assert MARKER in trial.end
    assert trial.crash().states > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["torn_tail", deep("zero_tail"), "closed_index_padded", deep("damage_with_later_segments")]
)
def test_a_recovery_of_files_with_a_second_name_that_dies_anywhere_changes_no_backup(kind: str) -> None:
    assert LinkedTrial(damaged(KINDS[kind], files=SOUND)).crash().states > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS) if STATES == "all" else random.Random(SEED).sample(sorted(KINDS), 8))
def test_names_that_survive_in_any_order_lead_to_the_same_end(kind: str) -> None:
    """A file system that keeps no order among renames: any subset of them may be there after a crash."""
    assert Trial(damaged(KINDS[kind], files=SOUND), strict=True).crash(LIMIT // 6).states > 1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_lies_below_the_log_start_does_not_come_back_with_the_order_of_renames(seed: int) -> None:
    """The damaged log is one of those that go: were it gone before the others, nothing would tell that they have to."""

    def change(files: Files) -> None:
        files |= {POINTS: checkpoint({"orders-0": 10}), STARTS: checkpoint({"orders-0": 17})}
        flip(files, place(10), 200)

    trial = Trial(damaged(change, files=SOUND), strict=True)
    assert not [name for name in trial.end if name.endswith(".log")]
    assert trial.crash(LIMIT * 4, 1, seed).states > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_split_of_which_names_survive_in_any_order_keeps_every_piece(seed: int) -> None:
    assert Trial(overflowing(), unfinished=(), strict=True).crash(LIMIT * 20, 1, seed).states > 1


def _pairs() -> list[tuple[str, str]]:
    pairs = list(itertools.combinations(KINDS, 2))
    return pairs if STATES == "all" else sorted(random.Random(SEED).sample(pairs, 16))


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), spread(_pairs(), 8))
def test_two_kinds_of_damage_at_once_end_as_undisturbed_too(one: str, other: str) -> None:
    try:
        files = damaged(KINDS[one], KINDS[other], files=SOUND)
    except (KeyError, IndexError):
        return  # the one took away what the other damages
    plan = plan_of(on_disk(files))
    if plan.is_empty:
        assert plan.is_held, "two kinds of damage, and nothing to do"
        return
    Trial(files).crash(LIMIT // 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["torn_tail", deep("damage_with_later_segments"), "epochs_wrong", "swap_half_renamed"])
def test_several_damaged_partitions_end_as_undisturbed(kind: str) -> None:
    files = damaged(KINDS[kind], files=TWO)
    points = files.pop(POINTS)
    other = {name.replace("orders-0/", "pay-3/"): data for name, data in files.items() if name.startswith("orders-0/")}
    both = checkpoint({"orders-0": _point(points), "pay-3": _point(points)})
    Trial({**files, **other, POINTS: both}).crash(LIMIT // 2)


def _point(data: bytes) -> int:
    return next(iter(decode_offsets(data).values()))


@pytest.mark.slow
def test_rot_that_somebody_lets_go_of_is_cut_as_undisturbed() -> None:
    files = damaged(KINDS["noise_in_the_middle"], KINDS["garbage_between_segments"], files=SOUND)
    files[POINTS] = checkpoint({"orders-0": 30})
    Trial(files, OPTIONS._replace(accept_loss=True)).crash()


def test_what_is_done_beside_rot_that_is_held_leaves_it_alone() -> None:
    files = damaged(KINDS["indexes_wrong"], files=TWO)
    rotten = "pay-3/00000000000000000010.log"
    files[rotten] = files[rotten][:90] + b"?" + files[rotten][91:]
    files |= {POINTS: checkpoint({"orders-0": 20, "pay-3": 30})}
    files["pay-3/00000000000000000010.index"] += bytes(8)
    trial = Trial(files)
    assert {n: d for n, d in trial.end.items() if n.startswith("pay")} == {
        n: d for n, d in files.items() if n.startswith("pay")
    }
    trial.crash()


def overflowing() -> Files:
    """Return a log whose offsets do not fit one segment, as brokers of old wrote them, with a torn batch behind."""
    far = (1 << 31) + 5
    log = batch_v2(0, 2) + batch_v2(2, 2) + batch_v2(far, 2) + batch_v2(2 * far, 2)
    return {POINTS: checkpoint({"orders-0": 0}), STARTS: checkpoint({}), "meta.properties": META, place(0): log}


@pytest.mark.slow
@pytest.mark.parametrize("tail", [b"", b"torn and no batch at all"], ids=["whole", "torn"])
def test_a_split_that_dies_anywhere_ends_as_one_undisturbed(tail: bytes) -> None:
    files = overflowing()
    files[place(0)] += tail
    # What was set aside twice under one name, `restore` puts back for none: that is asked for after one crash alone.
    for depth, unfinished in ((1, (".tmp", ".cleaned", ".swap")), (2, ())):
        trial = Trial(files, unfinished=unfinished)
        assert sum(name.endswith(".log") for name in trial.end) == 3
        assert trial.crash(depth=depth).states > 1


# ---- restore and expire


KEEP = PurePath("/keep")


class Recovered:
    """A directory that was damaged and recovered, with what was set aside beside it or in a directory of its own."""

    def __init__(self, kind: str, keep: PurePath | None = None) -> None:
        self.files = damaged(KINDS[kind], files=SOUND)
        self.fs = on_disk(self.files)
        self.started = self.fs.clock
        if keep is not None:
            self.fs.plant(keep, FileKind.DIRECTORY)
        self.places = [TOP] if keep is None else [TOP, keep]
        recover(self.fs, quarantine_dir=keep)
        self.end = live(self.fs.contents(str(TOP)))

    def make(self) -> MemoryFs:
        return copy.deepcopy(self.fs)

    def restore(self, fs: Fs) -> None:
        kept, bad = find_kept(fs, self.places)
        assert not bad
        restore(fs, kept)

    def expire(self, fs: Fs) -> None:
        kept, bad = find_kept(fs, self.places)
        assert not bad
        expire(fs, kept)

    def left_of_us(self, fs: MemoryFs) -> list[str]:
        return [name for place in self.places for name in fs.contents(str(place)) if ours(name)]

    def is_as_before(self, fs: MemoryFs) -> None:
        found = fs.contents(str(TOP))
        assert live(found) == self.files, _differences(live(found), self.files)
        changed = [name for name in self.files if fs.stat(TOP / name).mtime_ns != self.started]
        assert not changed, f"times of {changed} are not those of before"
        assert not self.left_of_us(fs)

    def is_let_go(self, fs: MemoryFs) -> None:
        assert live(fs.contents(str(TOP))) == self.end
        assert not self.left_of_us(fs)


RESTORED = [
    "torn_tail",
    "zero_tail",
    "damage_with_later_segments",
    "batch_no_broker_writes",
    "indexes_wrong",
    "flushed_index_wrong",
    "swap_not_yet_in_place",
    "swap_half_renamed",
    "orphans",
    "points_corrupt",
    "marker_beside_bad_derived_files",
]


@pytest.mark.parametrize(("kind", "keep"), spread(itertools.product(RESTORED, [None, KEEP]), 7))
def test_a_restore_that_dies_anywhere_is_finished_by_the_next(kind: str, keep: PurePath | None) -> None:
    trial = Recovered(kind, keep)
    counts = every_crash(
        trial.make, trial.restore, trial.is_as_before, trial.restore, 2, LIMIT, SEED, promised=lambda: ()
    )  # fmt: skip
    assert counts.states > 1


@pytest.mark.parametrize("keep", [None, KEEP], ids=["beside", "elsewhere"])
@pytest.mark.parametrize("kind", ["damage_with_later_segments", "flushed_index_wrong"])
def test_an_expiry_that_dies_anywhere_is_finished_by_the_next(kind: str, keep: PurePath | None) -> None:
    trial = Recovered(kind, keep)
    counts = every_crash(
        trial.make, trial.expire, trial.is_let_go, trial.expire, 2, LIMIT, SEED, promised=lambda: ()
    )  # fmt: skip
    assert counts.states > 1
