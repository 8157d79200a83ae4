"""The whole command, by its real paths, on a faked file system: stopped at any effect, it is finished by the next.

pyfakefs knows nothing of what is durable, so this is what a kill leaves; what a power cut leaves, the others try.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem
from support.faults import DAMAGES, check_nothing_is_lost, read_tree, write_tree
from support.log_dirs import Files, live
from support.memory_fs import Crashed

from cli.main import main
from storage.fs import OsFs, OsWriteFile

CHANGES = ("create", "truncate", "rename", "link", "remove", "make_dir", "set_mtime", "sync_file", "sync_dir")
EFFECTS = [*((OsFs, name) for name in CHANGES), (OsWriteFile, "append"), (OsWriteFile, "sync")]
HOME = Path("/data")
EVERYTHING = os.environ.get("LOGMEND_CRASH_STATES") == "all"
STEP = 1 if EVERYTHING else 9
"""Of so many effects one is tried."""


class Machine:
    """Dies before the effect of a number, and stays dead."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, self.stop = 0, 0
        for owner, name in EFFECTS:
            patch.setattr(owner, name, self.counted(getattr(owner, name)))

    def counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if 0 < self.stop <= self.count:
                raise Crashed
            return real(*arguments, **named)

        return call

    def run(self, *words: str, stop: int = 0) -> int | None:
        """Run a command; return its status, None if it died."""
        self.count, self.stop = 0, stop
        status = None
        with contextlib.suppress(Crashed):
            status = main([*words, str(HOME)])
        is_dead = 0 < stop <= self.count  # whatever it says of it then: it changed nothing more
        self.stop = 0
        return None if is_dead else status


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def made(fs: FakeFilesystem, before: Files) -> None:
    if HOME.exists():
        fs.remove_object(str(HOME))
    write_tree(HOME, before)


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 300)
@pytest.mark.parametrize("name", sorted(DAMAGES) if EVERYTHING else ["broken_in_the_middle", "torn"])
def test_a_recover_that_dies_before_any_effect_is_finished_by_the_next(
    fs: FakeFilesystem, machine: Machine, name: str
) -> None:
    before = DAMAGES[name]
    made(fs, before)
    assert machine.run("recover", "-j", "1") == 0
    effects, wanted = machine.count, live(read_tree(HOME))
    assert effects > 5
    for stop in range(1, effects + 1, STEP):
        made(fs, before)
        assert machine.run("recover", "-j", "1", stop=stop) is None
        check_nothing_is_lost(HOME, before)
        assert machine.run("recover", "-j", "1") == 0, f"after it died before effect {stop}"
        assert live(read_tree(HOME)) == wanted, f"after it died before effect {stop}"
        check_nothing_is_lost(HOME, before)


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 300)
@pytest.mark.parametrize("name", sorted(DAMAGES) if EVERYTHING else ["broken_in_the_middle", "torn"])
def test_a_restore_that_dies_before_any_effect_is_finished_by_the_next(
    fs: FakeFilesystem, machine: Machine, name: str
) -> None:
    before = DAMAGES[name]
    effects, stop = 1, 0
    while stop < effects:
        made(fs, before)
        assert machine.run("recover", "-j", "1") == 0
        died = machine.run("quarantine", "restore", "--all", stop=stop)
        effects = machine.count if stop == 0 else effects
        assert (died is None) == (stop > 0)
        if died is None and list(HOME.rglob("*.logmend.json")):
            assert machine.run("quarantine", "restore", "--all") == 0
        assert read_tree(HOME) == before, f"after it died before effect {stop}"
        stop += 1 if stop == 0 else STEP
    assert effects > 3
