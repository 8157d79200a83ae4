"""The harness bites: each wrong procedure here is reported, and the right ones beside them pass."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import PurePath

import pytest
from crash.harness import Counts, CrashFailure, every_crash
from support.memory_fs import MemoryFs

from storage.base.errors import FileVanished
from storage.disk.fs import Fs, read_all, replace_atomically

TOP = PurePath("/log")
LOG, KEPT, POINT = TOP / "0.log", TOP / "0.log.kept", TOP / "checkpoint"
SOUND = bytes(range(256)) * 3
TORN = b"torn" * 300
LIMIT = 1 << 20


# ---- cutting a tail: what is cut is in the copy, whatever happens


def with_a_torn_tail() -> MemoryFs:
    return MemoryFs({str(LOG): SOUND + TORN})


def tail_of(fs: Fs) -> bytes:
    return read_all(fs, LOG, LIMIT)[len(SOUND) :]


def copy_tail(fs: Fs, *, sync: bool) -> None:
    with contextlib.suppress(FileVanished):
        fs.remove(KEPT)
    with fs.create(KEPT) as file:
        file.append(tail_of(fs))
        if sync:
            file.sync()


def cut_rightly(fs: Fs) -> None:
    if tail_of(fs):
        copy_tail(fs, sync=True)
        fs.sync_dir(TOP)
        fs.truncate(LOG, len(SOUND))
    fs.sync_file(LOG)


def cut_before_the_copy_is_synced(fs: Fs) -> None:
    if tail_of(fs):
        copy_tail(fs, sync=False)
        fs.sync_dir(TOP)
        fs.truncate(LOG, len(SOUND))
        fs.sync_file(KEPT)
    fs.sync_file(LOG)


def cut_before_the_name_of_the_copy_is_synced(fs: Fs) -> None:
    if tail_of(fs):
        copy_tail(fs, sync=True)
        fs.truncate(LOG, len(SOUND))
        fs.sync_dir(TOP)
    fs.sync_file(LOG)


def cut_without_a_look_at_what_an_earlier_crash_left(fs: Fs) -> None:
    if tail_of(fs):
        with fs.create(KEPT) as file:
            file.append(tail_of(fs))
            file.sync()
        fs.sync_dir(TOP)
        fs.truncate(LOG, len(SOUND))


def check_cut(fs: MemoryFs) -> None:
    found = fs.contents(str(TOP))
    assert found["0.log"] == SOUND
    assert found["0.log.kept"] == TORN


def test_a_cut_after_the_copy_is_durable_passes(capsys: pytest.CaptureFixture[str]) -> None:
    counts = every_crash(with_a_torn_tail, cut_rightly, check_cut, cut_rightly, strict=True)
    assert counts.everything
    assert (counts.effects, counts.effects_of_recovery) == (6, 7)
    assert counts.states > 15
    assert counts.double_states > 50
    assert capsys.readouterr().out == f"every crash: {counts}\n"


@pytest.mark.parametrize("wrong", [cut_before_the_copy_is_synced, cut_before_the_name_of_the_copy_is_synced])
def test_a_cut_before_the_copy_is_durable_is_reported(wrong: Callable[[Fs], None]) -> None:
    with pytest.raises(CrashFailure, match=r"KeyError: '0\.log\.kept'|AssertionError") as caught:
        every_crash(with_a_torn_tail, wrong, check_cut, cut_rightly, depth=1)
    assert "truncate /log/0.log (768)" in str(caught.value)
    assert "seed 0" in str(caught.value)


def test_a_copy_that_an_earlier_crash_left_is_a_stumbling_block_that_is_reported() -> None:
    wrong = cut_without_a_look_at_what_an_earlier_crash_left
    with pytest.raises(CrashFailure, match=f"WriteFault: .*{os.strerror(errno.EEXIST)}"):
        every_crash(with_a_torn_tail, wrong, check_cut, wrong, depth=1)


def append_a_tail(fs: Fs) -> None:
    with fs.open_append(LOG) as file:
        file.append(TORN)


def check_what_is_there(fs: MemoryFs) -> None:
    found = fs.contents(str(TOP))
    assert found["0.log"] == SOUND
    assert found.get("0.log.kept", b"") in {TORN[:256], TORN[:768], TORN}


def test_a_recovery_that_is_wrong_only_when_it_crashes_needs_the_second_crash_to_be_found() -> None:
    def has_tail() -> MemoryFs:
        return MemoryFs({str(LOG): SOUND + TORN[:256]})

    wrong = cut_before_the_copy_is_synced
    every_crash(has_tail, append_again, check_what_is_there, wrong, depth=1)
    with pytest.raises(CrashFailure, match="and again before effect"):
        every_crash(has_tail, append_again, check_what_is_there, wrong, depth=2)
    every_crash(has_tail, append_again, check_what_is_there, cut_rightly, depth=2)


def cut_and_sync_nothing(fs: Fs) -> None:
    if tail_of(fs):
        copy_tail(fs, sync=False)
        fs.sync_dir(TOP)
        fs.truncate(LOG, len(SOUND))


def test_a_recovery_that_goes_wrong_only_with_its_last_effect_is_reported() -> None:
    def has_tail() -> MemoryFs:
        return MemoryFs({str(LOG): SOUND + TORN[:256]})

    with pytest.raises(CrashFailure, match="and again before effect"):
        every_crash(has_tail, append_again, check_what_is_there, cut_and_sync_nothing)


def append_again(fs: Fs) -> None:
    with fs.open_append(LOG) as file:
        file.append(TORN[256:])


# ---- replacing a file: once it is said to be done, it stays done


class Ledger:
    """What `run` was told is durable; emptied with each new machine."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.promised = files, b""

    def make(self) -> MemoryFs:
        self.promised = b""
        return MemoryFs(self.files)


OLD, NEW = b"old" * 300, b"new" * 400
Replacing = Callable[[Fs, bytes], None]


def replace_rightly(fs: Fs, data: bytes) -> None:
    replace_atomically(fs, POINT, data)


def replace_without_directory_sync(fs: Fs, data: bytes) -> None:
    with contextlib.suppress(FileVanished):
        fs.remove(TOP / "checkpoint.tmp")
    with fs.create(TOP / "checkpoint.tmp") as file:
        file.append(data)
        file.sync()
    fs.rename(TOP / "checkpoint.tmp", POINT)


def replace_without_data_sync(fs: Fs, data: bytes) -> None:
    with fs.create(TOP / "checkpoint.tmp") as file:
        file.append(data)
    fs.rename(TOP / "checkpoint.tmp", POINT)
    fs.sync_dir(TOP)


def replace_in_place(fs: Fs, data: bytes) -> None:
    fs.truncate(POINT, 0)
    with fs.open_append(POINT) as file:
        file.append(data)
        file.sync()


def replace_everywhere(how: Replacing, recover: bool, depth: int = 2) -> Counts:
    ledger = Ledger({str(POINT): OLD})

    def run(fs: Fs) -> None:
        how(fs, NEW)
        ledger.promised = NEW

    def check(fs: MemoryFs) -> None:
        assert read_all(fs, POINT, LIMIT) in {NEW, ledger.promised or OLD}

    def again(fs: Fs) -> None:
        how(fs, NEW)

    return every_crash(ledger.make, run, check, again if recover else None, depth, promised=lambda: ledger.promised)


@pytest.mark.parametrize("recover", [False, True])
def test_a_replacement_in_four_steps_passes(recover: bool) -> None:
    counts = replace_everywhere(replace_rightly, recover)
    assert counts.everything
    assert counts.states >= 6
    assert (counts.double_states > 0) == recover


@pytest.mark.parametrize("wrong", [replace_without_directory_sync, replace_without_data_sync, replace_in_place])
def test_a_replacement_with_a_step_left_out_is_reported(wrong: Replacing) -> None:
    with pytest.raises(CrashFailure, match="AssertionError"):
        replace_everywhere(wrong, recover=False)


def create_and_promise(sync_dir: bool) -> None:
    ledger = Ledger({"/log/": b""})

    def run(fs: Fs) -> None:
        with fs.create(LOG) as file:
            file.append(NEW)
            file.sync()
        if sync_dir:
            fs.sync_dir(TOP)
        ledger.promised = NEW

    def check(fs: MemoryFs) -> None:
        assert not ledger.promised or read_all(fs, LOG, LIMIT) == NEW

    every_crash(ledger.make, run, check)


def test_a_new_file_whose_name_is_not_synced_is_reported_although_real_file_systems_keep_it() -> None:
    create_and_promise(sync_dir=True)
    with pytest.raises(CrashFailure, match="FileVanished"):
        create_and_promise(sync_dir=False)


# ---- a checkpoint never leads the log


def flush(fs: Fs, *, checkpoint_first: bool) -> None:
    with fs.open_append(LOG) as file:
        file.append(TORN)
        if checkpoint_first:
            replace_atomically(fs, POINT, b"%d" % len(SOUND + TORN))
        file.sync()
    replace_atomically(fs, POINT, b"%d" % len(SOUND + TORN))


def check_checkpoint(fs: MemoryFs) -> None:
    point, content = int(read_all(fs, POINT, 99)), read_all(fs, LOG, LIMIT)
    assert point <= len(content)
    assert content[:point] == (SOUND + TORN)[:point]


def with_a_checkpoint() -> MemoryFs:
    return MemoryFs({str(LOG): SOUND, str(POINT): b"%d" % len(SOUND)})


@pytest.mark.parametrize("strict", [False, True])
def test_a_checkpoint_after_the_sync_of_the_data_passes(strict: bool) -> None:
    counts = every_crash(
        with_a_checkpoint, lambda fs: flush(fs, checkpoint_first=False), check_checkpoint, strict=strict
    )
    assert counts.effects == 7


def test_a_checkpoint_before_the_sync_of_the_data_is_reported() -> None:
    with pytest.raises(CrashFailure, match="assert 1968 <= 768"):
        every_crash(with_a_checkpoint, lambda fs: flush(fs, checkpoint_first=True), check_checkpoint)


# ---- how far the model goes


def make_two_names(fs: Fs) -> None:
    fs.create(TOP / "first").close()
    fs.create(TOP / "second").close()


def check_their_order(fs: MemoryFs) -> None:
    names = fs.contents(str(TOP))
    assert "second" not in names or "first" in names


def test_who_relies_on_the_order_of_names_is_reported_in_strict_mode_only() -> None:
    every_crash(lambda: MemoryFs({"/log/": b""}), make_two_names, check_their_order)
    with pytest.raises(CrashFailure):
        every_crash(lambda: MemoryFs({"/log/": b""}), make_two_names, check_their_order, strict=True)


def test_beyond_the_limit_a_sample_is_drawn_that_the_seed_repeats() -> None:
    seen: list[list[int]] = []

    def sample(seed: int, limit: int) -> Counts:
        seen.append([])
        return every_crash(
            with_a_torn_tail, append_a_tail, lambda fs: seen[-1].append(len(tail_of(fs))), seed=seed, limit=limit,
            sector=16,
        )  # fmt: skip

    few, same, other, all_of_them = sample(7, 20), sample(7, 20), sample(8, 20), sample(7, 1000)
    assert (few.everything, all_of_them.everything) == (False, True)
    assert few.states <= 20 < all_of_them.states
    assert few == same
    assert seen[0] == seen[1] != seen[2]
    assert max(seen[0]) == max(seen[3]) == len(TORN) * 2
    assert set(seen[0]) <= set(seen[3])
    assert other.seed == 8


def test_a_run_that_changes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to crash"):
        every_crash(with_a_torn_tail, lambda fs: None, check_cut)


def test_four_hundred_states_a_second_are_no_effort() -> None:
    start = time.process_time()
    counts = every_crash(with_a_torn_tail, cut_rightly, check_cut, cut_rightly, strict=True, sector=64)
    assert (counts.states + counts.double_states) / (time.process_time() - start) > 400
