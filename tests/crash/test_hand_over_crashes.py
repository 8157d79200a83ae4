"""A hand-over or a splice that dies at any effect: what checkpoint and marker say is there, and no old byte is gone.

The log of the hand-over is one that a killed writer left: all of it can be read, little of it is durable. The log of
the splice has a hole below its recovery point. Planted bugs in the order of both are reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import pytest
from crash.harness import Counts, CrashFailure, every_crash
from crash.test_recovery_crashes import LIMIT, SEED
from support.damages import flip
from support.log_dirs import (
    BASES,
    END,
    EPOCHS,
    MARKER,
    OPTIONS,
    POINTS,
    SOUND,
    TOP,
    Files,
    checkpoint,
    live,
    name_of,
    on_disk,
    place,
    plan_of,
    recover,
    segment,
)
from support.memory_fs import MemoryFs
from support.recovered import assert_clean, kept_of, next_time
from support.wrapped_fs import Skipping, Unsynced

from checkpoint.markers import encode_clean_shutdown
from checkpoint.offsets import decode_offsets
from recovery.apply import hand_over as handing
from recovery.apply.changing import Changer
from recovery.apply.execute import execute
from recovery.apply.hand_over import hand_over
from recovery.apply.keeping import Keeper, spliced
from recovery.apply.staging import Stager
from recovery.logdir.survey import SilentReporter
from recovery.plan.orders import Orders
from recovery.plan.plan import (
    LogDirPlan,
    Precondition,
    SplicePiece,
    SpliceSegment,
)
from recovery.plan.results import HandedOver
from storage.disk.fs import FileKind, Fs, replace_atomically

Patch = pytest.MonkeyPatch
PARTITION = TOP / "orders-0"
MARKED = OPTIONS._replace(clean_marker=True)
ROLLED = OPTIONS._replace(roll_from=1)
FEW = 200


def below(base: int, offset: int, log: bytes) -> bytes:
    """Return the part of the log of a segment whose batches begin below an offset."""
    firsts = (base, base + 2, base + 4, base + 6, base + 7)
    return log[: sum(len(batch) for batch, first in zip(segment(base), firsts, strict=True) if first < offset)]


def point_of(files: Files) -> int:
    return next(iter(decode_offsets(files[POINTS]).values()), 0)


# ---- a hand-over


class Handing:
    """A sound log of which everything from the segment `unsynced` on is in the page cache alone."""

    def __init__(self, unsynced: int, *, marker: bool = False, rolled: bool = False) -> None:
        self.unsynced, self.marker, self.rolled = unsynced, marker, rolled
        self.options = MARKED if marker else ROLLED if rolled else OPTIONS
        self.files = SOUND | {POINTS: checkpoint({"orders-0": unsynced})}
        if rolled:  # as a broker that is killed leaves the active segment
            self.files |= {
                place(20, suffix): SOUND[place(20, suffix)] + bytes(240) for suffix in ("index", "timeindex")
            }
        self.looked_at: Files = self.files
        """What the hand-over that died has looked at: the first one, or the one after a first crash."""

    def make(self) -> MemoryFs:
        volatile = [name for name in self.files if self.is_volatile(name)]
        fs = on_disk({name: data for name, data in self.files.items() if name not in volatile})
        if not self.unsynced:
            fs.plant(PARTITION, FileKind.DIRECTORY)
        for name in volatile:
            with fs.create(TOP / name) as file:
                file.append(self.files[name])
        return fs

    def is_volatile(self, name: str) -> bool:
        file = PurePath(name).name
        base = file.partition(".")[0]
        return name.startswith("orders-0/") and (not base.isdecimal() or int(base) >= self.unsynced)

    def run(self, fs: Fs) -> None:
        self.hand_over(fs, 1)

    def hand_over(self, fs: Fs, created_ms: int) -> HandedOver:
        plan = plan_of(fs, self.options)
        orders = Orders(plan.plan_id, created_ms, "test")
        return hand_over(fs, plan, orders, SilentReporter(), marker=self.marker)

    def again(self, fs: Fs) -> None:
        """Judge what the crash left, then do what the command does: recover, and hand over."""
        assert isinstance(fs, MemoryFs)
        is_first = fs.before_effect is not None  # the harness looks on where it is going to crash this one as well
        self.judge_remains(fs.contents(str(TOP)), self.files if is_first else self.looked_at)
        recover(fs, self.options, created_ms=next_time(fs))
        if is_first:
            self.looked_at = live(fs.contents(str(TOP)))
        self.hand_over(fs, next_time(fs))

    def judge_remains(self, found: Files, looked_at: Files) -> None:
        point = point_of(found)
        assert point >= self.unsynced, "a recovery point that has fallen"
        for base in BASES:
            wanted = below(base, point, looked_at.get(place(base), b""))
            assert found.get(place(base), b"").startswith(wanted), "a recovery point beyond what is durable"
        if point == END and self.rolled:
            self.judge_roll(found)
        if point != self.unsynced:
            assert self.files[POINTS] in kept_of(found)[0], "the old recovery points are not kept"
        if MARKER in found:
            assert self.marker, "a marker that nobody asked for"
            assert point > self.unsynced or not found.get(place(20)), "a marker beside old recovery points"
            lasting = (name for name in looked_at if name != POINTS and not name.endswith(".tmp"))
            gone = {name for name in lasting if found.get(name) != looked_at[name]}
            assert not gone, f"the marker says of {gone} what is not so"

    def judge_roll(self, found: Files) -> None:
        """Judge what a broker that scans from the log end on takes for true without reading it."""
        assert found.get(place(END)) == b"", "a recovery point at a segment that is not there"
        for name in (place(END, "snapshot"), place(20, "index"), place(20, "timeindex"), EPOCHS):
            assert found.get(name) == SOUND[name], f"a recovery point above {name}, which is not as a roll leaves it"

    def judge(self, fs: MemoryFs) -> None:
        found = fs.contents(str(TOP))
        if self.rolled:
            last = max((name for name in live(found) if name.endswith(".log")), default="")
            assert not found.get(last), "the active segment is not rolled"
        for base in BASES:
            log = found.get(place(base), b"")
            assert SOUND[place(base)].startswith(log), "the log is another one"
            assert base >= self.unsynced or log == SOUND[place(base)], "flushed records are gone"
        loaded = plan_of(fs).partitions[0].loaded
        assert loaded is not None
        assert point_of(found) == loaded.log_end, "a recovery point that has not risen to the log end"
        assert (MARKER in found) is self.marker
        assert_clean(fs, self.options)

    def crash(self, limit: int = LIMIT, depth: int = 2) -> Counts:
        return every_crash(self.make, self.run, self.judge, self.again, depth, limit, SEED, promised=lambda: ())


NEW_FILES = {
    "points": set[str](),
    "marker": {MARKER},
    "rolled": {place(END, suffix) for suffix in ("log", "index", "timeindex")},
}


@pytest.mark.parametrize("way", NEW_FILES)
@pytest.mark.parametrize("unsynced", BASES)
def test_a_hand_over_that_dies_anywhere_says_nothing_that_is_not_so(unsynced: int, way: str) -> None:
    trial = Handing(unsynced, marker=way == "marker", rolled=way == "rolled")
    fs = trial.make()
    trial.run(fs)
    assert live(fs.contents(str(TOP))).keys() == trial.files.keys() | NEW_FILES[way]
    for left in fs.crash_states():
        assert live(left.to_fs(fs).contents(str(TOP))) == live(fs.contents(str(TOP))), "not all of it is durable"
    assert trial.crash().states > 1


def points_rise_before_the_sync(patch: Patch) -> None:
    sync, raise_points = handing._make_durable, handing._carry_out
    late: list[tuple[Any, ...]] = []

    def later(*arguments: Any) -> int:
        late.append(arguments)
        return 0

    def first(*arguments: Any) -> None:
        raise_points(*arguments)
        sync(*late.pop())

    patch.setattr(handing, "_make_durable", later)
    patch.setattr(handing, "_carry_out", first)


def nothing_is_synced(patch: Patch) -> None:
    patch.setattr(handing, "_make_durable", lambda *_: 0)


def syncing(patch: Patch, change: Callable[[Any], Any]) -> None:
    real = handing._make_durable
    patch.setattr(handing, "_make_durable", lambda fs, *more: real(change(fs), *more))


def logs_are_not_synced(patch: Patch) -> None:
    syncing(patch, lambda fs: Skipping(fs, "sync_file", lambda path: path.suffix == ".log"))


def only_the_active_segment_is_synced(patch: Patch) -> None:
    syncing(patch, lambda fs: Skipping(fs, "sync_file", lambda path: not path.name.startswith(name_of(20)[:20])))


def names_of_segments_are_not_synced(patch: Patch) -> None:
    syncing(patch, lambda fs: Skipping(fs, "sync_dir"))


def the_marker_comes_before_the_points(patch: Patch) -> None:
    real = handing._carry_out

    def marker_first(fs: Fs, last: LogDirPlan, *more: Any) -> None:
        replace_atomically(fs, TOP / MARKER, encode_clean_shutdown(-1))
        real(fs, last, *more)

    patch.setattr(handing, "_carry_out", marker_first)


def the_marker_comes_before_the_sync(patch: Patch) -> None:
    real = handing._make_durable

    def marker_first(fs: Fs, *more: Any) -> int:
        replace_atomically(fs, TOP / MARKER, encode_clean_shutdown(-1))
        return real(fs, *more)

    patch.setattr(handing, "_make_durable", marker_first)


def old_points_are_not_kept(patch: Patch) -> None:
    patch.setattr(handing, "_carry_out", lambda fs, last, data, *_: replace_atomically(fs, TOP / POINTS, data))


HAND_OVER_MUTANTS = [
    points_rise_before_the_sync,
    nothing_is_synced,
    logs_are_not_synced,
    only_the_active_segment_is_synced,
    names_of_segments_are_not_synced,
    the_marker_comes_before_the_points,
    the_marker_comes_before_the_sync,
    old_points_are_not_kept,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", HAND_OVER_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_of_handing_over_is_reported(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    with pytest.raises(CrashFailure):
        Handing(10, marker="marker" in mutant.__name__).crash(FEW, depth=1)


# ---- a splice


HOLED, HOLE_AT = place(10), len(segment(10)[0])
HOLE = len(segment(10)[1])


class Splicing:
    """A flushed segment with a rotten batch in its middle, which a replica has."""

    def __init__(self, keep: PurePath | None = None) -> None:
        self.files = dict(SOUND)
        flip(self.files, HOLED, HOLE_AT + 70)
        self.keep = keep

    def make(self) -> MemoryFs:
        fs = on_disk(self.files)
        if self.keep is not None:
            fs.make_dir(self.keep)
            fs.sync_dir(self.keep.parent)
        return fs

    def run(self, fs: Fs) -> None:
        self.splice(fs, 1)

    def splice(self, fs: Fs, created_ms: int) -> None:
        plan = self.plan(fs)
        if plan is not None:
            orders = Orders(plan.plan_id, created_ms, "test", quarantine_dir=self.keep)
            execute(fs, plan, lambda _: b"", orders, SilentReporter(), healed=lambda *_: [segment(10)[1]])

    def plan(self, fs: Fs) -> LogDirPlan | None:
        """Return the splice, as healing plans it; None where there is no hole any more."""
        found = plan_of(fs, OPTIONS._replace(depth="full"))
        if not found.is_held:
            return None
        path, after = TOP / HOLED, HOLE_AT + HOLE
        size = len(self.files[HOLED])
        pieces = (
            SplicePiece(0, HOLE_AT),
            SplicePiece(None, HOLE, "a replica", 12, 13, hashlib.sha256(segment(10)[1]).hexdigest()),
            SplicePiece(after, size - after),
        )
        partition = found.partitions[0]._replace(
            preconditions=(Precondition.of(path, fs.stat(path)),),
            actions=(SpliceSegment(path, pieces, size, "holes filled from a replica"),),
        )
        return found._replace(verdicts=(), before=(), partitions=(partition,), after=(), preconditions=())

    def again(self, fs: Fs) -> None:
        assert isinstance(fs, MemoryFs)
        found = fs.contents(str(TOP))
        assert found[HOLED] in (self.files[HOLED], SOUND[HOLED]), "neither the old log nor the healed one"
        self.judge_kept(fs)
        self.splice(fs, next_time(fs))

    def judge_kept(self, fs: MemoryFs) -> None:
        kept, items = kept_of({**fs.contents(str(TOP)), **({} if self.keep is None else fs.contents(str(self.keep)))})
        if fs.contents(str(TOP))[HOLED] != self.files[HOLED]:
            assert self.files[HOLED] in kept, "the old log is not kept"
            assert any(item["name"] == name_of(10) for item in items), "no manifest tells of the old log"

    def judge(self, fs: MemoryFs) -> None:
        found = fs.contents(str(TOP))
        others = {name: data for name, data in live(found).items() if not name.endswith(".tmp")}
        assert others == dict(SOUND)
        self.judge_kept(fs)
        assert self.plan(fs) is None
        for left in fs.crash_states():
            assert live(left.to_fs(fs).contents(str(TOP))) == live(found), "not all that was done is durable"

    def crash(self, limit: int = LIMIT) -> Counts:
        return every_crash(
            self.make, self.run, self.judge, self.again, 2, limit, SEED, promised=lambda: (), strict=True
        )  # fmt: skip


@pytest.mark.parametrize("keep", [None, PurePath("/keep")], ids=["beside", "elsewhere"])
def test_a_splice_that_dies_anywhere_leaves_the_old_log_or_the_healed_one(keep: PurePath | None) -> None:
    trial = Splicing(keep)
    assert trial.plan(trial.make()) is not None, "see it fail first"
    assert trial.crash().states > 1


class _Careless(Skipping):
    """Syncs neither the healed log when it is written nor afterwards."""

    def __init__(self, fs: Any) -> None:
        super().__init__(fs, "sync_file")

    def create(self, path: PurePath, like: Any = None) -> Any:
        file = self._fs.create(path, like)
        return Unsynced(file) if path.suffix == ".tmp" and ".log" in path.suffixes else file


def in_method(patch: Patch, step: type, method: str, change: Callable[[Any], Any]) -> None:
    """Let one method of a step of the executor work on another file system."""
    real = getattr(step, method)

    def other(self: Any, *arguments: Any, **named: Any) -> Any:
        fs, self._fs = self._fs, change(self._fs)
        try:
            return real(self, *arguments, **named)
        finally:
            self._fs = fs

    patch.setattr(step, method, other)


def the_healed_log_is_not_synced(patch: Patch) -> None:
    in_method(patch, Stager, "_write", _Careless)


def the_old_log_is_linked_after_the_rename(patch: Patch) -> None:
    late: list[tuple[Any, PurePath, PurePath]] = []
    first, real = Keeper.keep, Changer.change

    class Late(Skipping):
        def link(self, source: PurePath, target: PurePath) -> None:
            late.append((self._fs, source, target))

    def change(self: Any, actions: Any) -> None:
        real(self, actions)
        for fs, source, target in late:
            fs.link(source, target)
        late.clear()

    def keep(self: Any) -> bool:
        late.clear()
        return first(self)

    patch.setattr(Keeper, "keep", keep)
    in_method(patch, Keeper, "_old", lambda fs: Late(fs, "none"))
    patch.setattr(Changer, "change", change)


def the_name_of_the_old_log_is_not_synced(patch: Patch) -> None:
    in_method(patch, Keeper, "keep", lambda fs: Skipping(fs, "sync_dir"))


def the_rename_is_not_synced(patch: Patch) -> None:
    in_method(patch, Changer, "change", lambda fs: Skipping(fs, "sync_dir"))


def the_healed_log_is_written_in_place(patch: Patch) -> None:
    def change(self: Any, actions: Any) -> None:
        for action in actions:
            data = b"".join(spliced(self._fs, action, lambda *_: [segment(10)[1]], hashlib.sha256()))
            self._fs.truncate(action.path, 0)
            with self._fs.open_append(action.path) as file:
                file.append(data)
                file.sync()

    in_method(patch, Keeper, "_old", lambda fs: Skipping(fs, "link"))
    patch.setattr(Changer, "change", change)


SPLICE_MUTANTS = [
    the_healed_log_is_not_synced,
    the_old_log_is_linked_after_the_rename,
    the_name_of_the_old_log_is_not_synced,
    the_rename_is_not_synced,
    the_healed_log_is_written_in_place,
]


@pytest.mark.parametrize("mutant", SPLICE_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_of_splicing_is_reported(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    with pytest.raises(CrashFailure):
        Splicing().crash(FEW)
