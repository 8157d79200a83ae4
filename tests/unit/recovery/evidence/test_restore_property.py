"""On a real disk, whatever the damage: a second recovery touches nothing, and restoring gives the directory of before.

`LOGMEND_RESTORES` is the number of damaged directories, `LOGMEND_RESTORES_FROM` the first seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import recovering
from support.log_dirs import OPTIONS, SOUND
from support.mutate import mutate

from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import restore
from recovery.logdir.survey import plan_log_dir
from recovery.plan.plan import LogDirPlan
from storage.disk.fs import OsFs

pytestmark = pytest.mark.slow

COUNT, FROM = int(os.environ.get("LOGMEND_RESTORES", "40")), int(os.environ.get("LOGMEND_RESTORES_FROM", "0"))


def build(directory: Path, seed: int) -> list[dict[str, object]]:
    for name, data in SOUND.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    done = mutate(directory, seed, 1 + seed % 4)
    for number, path in enumerate(sorted(p for p in directory.rglob("*") if p.is_file())):
        path.chmod(0o600 if number % 3 else 0o640)
        os.utime(path, ns=(1_600_000_000_000_000_000 + number, 1_600_000_000_000_000_000 + number * 1_000_000_007))
    return done


def live(directory: Path) -> dict[str, tuple[int, int, int, str]]:
    return {name: facts for name, facts in recovering.tree(directory).items() if not recovering.kept_by_us(name)}


def plan(directory: Path, accept_loss: bool) -> LogDirPlan:
    return plan_log_dir(OsFs(), directory, OPTIONS._replace(accept_loss=accept_loss)).plan


@pytest.mark.parametrize("accept_loss", [False, True], ids=["", "accepting loss"])
@pytest.mark.parametrize("keep", [False, True], ids=["beside", "elsewhere"])
def test_a_second_recovery_changes_nothing_and_a_restore_undoes_the_first(
    tmp_path: Path, keep: bool, accept_loss: bool
) -> None:
    repaired = 0
    for seed in range(FROM, FROM + COUNT):
        directory, aside = tmp_path / str(seed) / "data", tmp_path / str(seed) / "kept"
        damages = build(directory, seed)
        aside.mkdir()
        before = live(directory)
        options = OPTIONS._replace(accept_loss=accept_loss)
        done = recovering.recover(directory, options, quarantine_dir=aside if keep else None)
        repaired += done.actions > 0
        story = f"seed {seed}: {damages}"
        after = recovering.tree(directory)
        again = plan(directory, accept_loss)
        assert again.is_empty or again.stopped, (story, [str(finding) for finding in again.findings])
        recovering.recover(directory, options)
        assert recovering.tree(directory) == after, story
        kept, bad = find_kept(OsFs(), [directory, aside])
        assert not bad, story
        restore(OsFs(), kept)
        found = live(directory)
        differs = {
            n: (before.get(n), found.get(n)) for n in before.keys() | found.keys() if before.get(n) != found.get(n)
        }
        assert not differs, (story, differs)
        assert [name for name in recovering.tree(directory) if recovering.kept_by_us(name)] == [], story
    assert repaired > COUNT // 2
