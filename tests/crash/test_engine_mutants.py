"""Planted bugs in the order of effects of the log engine: the crash tests report every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json import JSONDecodeError
from pathlib import PurePath
from typing import Any

import pytest
from crash.engine_steps import begun, run
from crash.test_sequences import Judge
from support.wrapped_fs import Unsynced

from engine.logdir.log_dir import LogDir
from storage.base.errors import LogmendError
from storage.base.names import FileState
from storage.disk.fs import Fs
from storage.log.durability import Durability
from storage.segment.segment import LogSegment

Patch = pytest.MonkeyPatch
TOP = PurePath("/data")
PARTITION = TOP / "orders-0"


class Careless:
    """Passes everything on to a file system but some syncs: of files, or of directories, that `which` picks."""

    def __init__(self, fs: Fs, which: Callable[[PurePath], bool], *, directories: bool) -> None:
        self._fs, self._which, self._directories = fs, which, directories

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def sync_dir(self, directory: PurePath) -> None:
        if not (self._directories and self._which(directory)):
            self._fs.sync_dir(directory)

    def sync_file(self, path: PurePath) -> None:
        if self._directories or not self._which(path):
            self._fs.sync_file(path)

    def create(self, path: PurePath, like: Any = None) -> Any:
        file = self._fs.create(path, like)
        return file if self._directories or not self._which(path) else Unsynced(file)

    def open_append(self, path: PurePath) -> Any:
        file = self._fs.open_append(path)
        return file if self._directories or not self._which(path) else Unsynced(file)


def without_sync_of(suffix: str) -> Callable[[Fs], Any]:
    return lambda fs: Careless(fs, lambda path: path.name.endswith(suffix), directories=False)


def without_sync_of_names_in(directory: PurePath) -> Callable[[Fs], Any]:
    return lambda fs: Careless(fs, lambda path: path == directory, directories=True)


def logs_are_not_synced(patch: Patch) -> Callable[[Fs], Any]:
    return without_sync_of(".log")


def names_of_segments_are_not_synced(patch: Patch) -> Callable[[Fs], Any]:
    return without_sync_of_names_in(PARTITION)


def replacements_are_renamed_before_they_are_synced(patch: Patch) -> Callable[[Fs], Any]:
    return without_sync_of(".tmp")


def names_at_the_top_are_not_synced(patch: Patch) -> Callable[[Fs], Any]:
    return without_sync_of_names_in(TOP)


def the_checkpoint_comes_before_the_sync(patch: Patch) -> None:
    real = Durability.flush_segments

    def flush_segments(self: Durability, below: int, target: Any) -> None:
        self._state.recovery_point = max(self._state.recovery_point, target)
        TOP_DIR[0].write_recovery_points()
        real(self, below, target)

    opened = LogDir.claim

    def claim(self: LogDir, now_ms: int) -> None:
        TOP_DIR[:] = [self]
        opened(self, now_ms)

    patch.setattr(LogDir, "claim", claim)
    patch.setattr(Durability, "flush_segments", flush_segments)


TOP_DIR: list[LogDir] = []


def the_checkpoint_is_lowered_after_the_cut(patch: Patch) -> None:
    patch.setattr(LogDir, "lower_recovery_point", lambda self, name, offset: None)


def old_segments_go_before_the_new_one_is_ready(patch: Patch) -> None:
    def swap_in(fs: Fs, directory: PurePath, cleaned: Sequence[LogSegment], sources: Sequence[LogSegment]) -> Any:
        for segment in sources:
            segment.rename(FileState.DELETED)
        fs.sync_dir(directory)
        for segment in cleaned:
            segment.rename(FileState.SWAP)
            segment.rename(FileState.LIVE)
        fs.sync_dir(directory)
        return ()

    patch.setattr("storage.log.segment_changes.swap_in", swap_in)


def what_is_compacted_is_not_synced(patch: Patch) -> Callable[[Fs], Any]:
    return without_sync_of(".log.cleaned")


def the_marker_stands_before_the_logs_are_closed(patch: Patch) -> None:
    from checkpoint.markers import CLEAN_SHUTDOWN, write_clean_shutdown  # noqa: PLC0415

    real = LogDir.close

    def close(self: LogDir) -> None:
        write_clean_shutdown(self._fs, self.path / CLEAN_SHUTDOWN, -1)
        real(self)

    patch.setattr(LogDir, "close", close)


def the_marker_stays_while_the_log_is_open(patch: Patch) -> None:
    from checkpoint.markers import CLEAN_SHUTDOWN, write_clean_shutdown  # noqa: PLC0415

    real = LogDir.claim

    def claim(self: LogDir, now_ms: int) -> None:
        real(self, now_ms)
        write_clean_shutdown(self._fs, self.path / CLEAN_SHUTDOWN, -1)

    patch.setattr(LogDir, "claim", claim)


def a_topic_is_made_without_a_word_in_the_list(patch: Patch) -> None:
    patch.setattr("engine.manager.topics.write_catalog", lambda *arguments: None)


MUTANTS: dict[Callable[[Patch], Any], list[tuple[str, ...]]] = {
    logs_are_not_synced: [("append", "flush", "append")],
    names_of_segments_are_not_synced: [("append", "roll", "append", "flush", "checkpoint")],
    replacements_are_renamed_before_they_are_synced: [("append", "flush", "checkpoint")],
    names_at_the_top_are_not_synced: [("create",), ("create", "append")],
    the_checkpoint_comes_before_the_sync: [("append", "flush")],
    the_checkpoint_is_lowered_after_the_cut: [("restart", "truncate")],
    old_segments_go_before_the_new_one_is_ready: [("append", "append", "roll", "append", "compact")],
    what_is_compacted_is_not_synced: [("append", "append", "flush", "roll", "append", "compact", "remove")],
    the_marker_stands_before_the_logs_are_closed: [("append", "restart")],
    the_marker_stays_while_the_log_is_open: [("append", "append")],
    a_topic_is_made_without_a_word_in_the_list: [("create",), ("create", "append")],
}


def told(tried: Sequence[tuple[str, ...]], wrap: Callable[[Fs], Any] | None) -> Judge:
    judge = Judge(strict=False)
    judge.limit = 400
    for names in tried:
        run(names, judge.look, begun(), wrap)
    return judge


def test_without_a_planted_bug_nothing_is_reported() -> None:
    assert told(sorted({names for tried in MUTANTS.values() for names in tried}), None).counts["states"] > 50


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_reported(mutant: Callable[[Patch], Any], monkeypatch: Patch) -> None:
    wrap = mutant(monkeypatch)
    with pytest.raises((AssertionError, LogmendError, JSONDecodeError)) as found:
        told(MUTANTS[mutant], wrap)
    print(f"{mutant.__name__}: {type(found.value).__name__}: {found.value}"[:200])
