"""A finished compaction, not yet in place, whose offsets do not fit 32 bits above its base: in one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.batches import batch_v2
from support.command import logmend
from support.log_dirs import POINTS, STARTS, checkpoint
from support.recovering import tree

from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import restore
from storage.disk.fs import OsFs

FAR = 2**31
NAME = "00000000000000000000"
SPLIT = {f"{base:020d}.log" for base in (0, FAR + 5, FAR * 2 + 70)}


def log_dir(home: Path, *, old: bool) -> Path:
    partition = home / "far-0"
    partition.mkdir(parents=True)
    for suffix in ("index", "timeindex", "txnindex"):
        (partition / f"{NAME}.{suffix}.swap").write_bytes(b"")
    offsets = (0, 3, FAR + 5, FAR + 9, FAR * 2 + 70)
    log = b"".join(batch_v2(offset, 1, leader_epoch=0) for offset in offsets)
    (partition / f"{NAME}.log.swap").write_bytes(log)
    if old:
        for suffix in ("index", "timeindex"):
            (partition / f"{NAME}.{suffix}").write_bytes(b"")
        (partition / f"{NAME}.log").write_bytes(log[: len(log) // 5 * 2])
    (home / POINTS).write_bytes(checkpoint({"far-0": 0}))
    (home / STARTS).write_bytes(checkpoint({}))
    (home / "meta.properties").write_bytes(b"version=0\nbroker.id=1\n")
    return home


@pytest.mark.parametrize("old", [False, True], ids=["alone", "beside what it replaces"])
def test_one_recover_puts_it_in_place_and_splits_it_and_restore_takes_both_back(tmp_path: Path, old: bool) -> None:
    home = log_dir(tmp_path / "data", old=old)
    before = tree(home)
    done = logmend("recover", home)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (home / "far-0").glob("*.log")} == SPLIT
    assert logmend("verify", home).returncode == 0
    kept, bad = find_kept(OsFs(), [home])
    assert (len(kept), bad) == (3, [])  # the recovery points of before are kept as well
    restore(OsFs(), kept)
    assert tree(home) == before


def test_apply_carries_out_the_same_from_a_plan(tmp_path: Path) -> None:
    home = log_dir(tmp_path / "data", old=True)
    assert logmend("plan", "--out", tmp_path / "plan.json", home).returncode == 1
    assert json.loads((tmp_path / "plan.json").read_text())["document"] == "plan"
    done = logmend("apply", tmp_path / "plan.json")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (home / "far-0").glob("*.log")} == SPLIT
