"""Real power cuts under `logmend recover`, `logmend quarantine restore` and the log engine: nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from power.disk import KINDS, need_disk
from power.forked import CUTTERS, cut_forked
from power.powercut import COMMANDS, cut
from support.faults import EVERYTHING
from support.tiers import spread

from storage.disk.fs import OsWriteFile
from storage.disk.volume import OsVolume

CUTS = 100 if EVERYTHING else 5
FORKED = 1000 if EVERYTHING else 20


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.timeout(3600 if EVERYTHING else 300)
@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_power_cut_loses_nothing_and_the_next_run_ends_as_an_undisturbed_one(
    tmp_path: Path, kind: str, command: str
) -> None:
    need_disk(kind, tmp_path)
    bench = cut(kind, command, CUTS, 0, tmp_path)
    assert bench.cuts == CUTS


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 300)
@pytest.mark.parametrize("work", sorted(CUTTERS))
@pytest.mark.parametrize("kind", spread(sorted(KINDS), 1))
def test_a_power_cut_under_code_of_ours_takes_nothing_that_was_flushed(tmp_path: Path, kind: str, work: str) -> None:
    need_disk(kind, tmp_path)
    cutter = cut_forked(kind, work, FORKED, 0, tmp_path)
    assert (cutter.cuts, cutter.left_to_do > 0) == (FORKED, True)


@pytest.mark.slow
@pytest.mark.parametrize(("work", "owner"), [("engine", OsWriteFile), ("recover", OsWriteFile), ("together", OsVolume)])
def test_cuts_find_code_that_does_not_sync_what_it_writes(
    tmp_path: Path, work: str, owner: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof that they bite: a planted bug is found."""
    need_disk("ext4", tmp_path)
    monkeypatch.setattr(owner, "sync", lambda *_: None)
    with pytest.raises(AssertionError, match="cut"):
        cut_forked("ext4", work, 150, 0, tmp_path)
