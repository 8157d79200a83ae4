"""A segment whose offsets do not fit 32 bits above its base, as brokers before 2.0 could write it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from interop.kafka_lab import Oracle
from support.batches import batch_v2, legacy
from support.recovering import kept_by_us, plan, recover, tree

from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import restore
from storage.disk.fs import OsFs

FAR = 2**31
OFFSETS = {
    "two": [0, 3, FAR + 5, FAR + 9],
    "three": [10, FAR + 50, FAR + 60, 2 * FAR + 70],
    "at the border": [0, FAR - 1, FAR, FAR + 1],
    "first batch far": [FAR + 1, FAR + 2],
}


def log_dir(tmp_path: Path, offsets: list[int], tail: bytes = b"") -> Path:
    partition = tmp_path / "data" / "far-0"
    partition.mkdir(parents=True)
    log = b"".join(batch_v2(offset, 1, leader_epoch=0, payload=bytes(3000), count=1) for offset in offsets)
    (partition / "00000000000000000000.log").write_bytes(log + tail)
    (partition / "00000000000000000000.index").write_bytes(b"")
    (partition / "00000000000000000000.timeindex").write_bytes(b"")
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (tmp_path / "data" / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return tmp_path / "data"


def contents(partition: Path) -> dict[str, bytes]:
    return {
        p.name: p.read_bytes().rstrip(b"\0") if p.suffix != ".log" else p.read_bytes()
        for p in sorted(partition.iterdir())
        if not kept_by_us(p.name) and p.suffix in (".log", ".index", ".timeindex", ".snapshot")
    }


@pytest.mark.parametrize("name", OFFSETS)
def test_it_is_split_where_kafka_splits_it(name: str, tmp_path: Path, oracle: Oracle) -> None:
    ours = log_dir(tmp_path, OFFSETS[name])
    theirs = tmp_path / "theirs" / "far-0"
    shutil.copytree(ours / "far-0", theirs)
    before = tree(ours)
    recover(ours)
    assert plan(ours).is_empty
    loaded = oracle(op="open", log=f"split-{name}", dir=str(theirs), clean=False)
    oracle(op="close", log=f"split-{name}", abruptly=True)
    assert contents(ours / "far-0") == contents(theirs)
    again = oracle(op="open", log=f"again-{name}", dir=str(ours / "far-0"), clean=False)
    oracle(op="close", log=f"again-{name}", abruptly=True)
    assert (again["log_end"], len(again["segments"])) == (loaded["log_end"], len(loaded["segments"]))
    for path in [p for p in (ours / "far-0").iterdir() if p.name not in before and not kept_by_us(p.name)]:
        assert path.suffix != ".cleaned"


def test_the_whole_old_segment_comes_back_with_its_torn_tail(tmp_path: Path) -> None:
    ours = log_dir(tmp_path, OFFSETS["three"], tail=batch_v2(3 * FAR, 5)[:-10])
    before = tree(ours)
    recover(ours)
    assert plan(ours).is_empty
    assert len(list((ours / "far-0").glob("*.log"))) == 3
    kept, unreadable = find_kept(OsFs(), [ours])
    assert not unreadable
    restore(OsFs(), kept)
    assert tree(ours) == before


def test_old_formats_are_split_as_well(tmp_path: Path) -> None:
    ours = log_dir(tmp_path, [])
    log = legacy(0, value=bytes(100)) + legacy(FAR + 7, value=b"x") + legacy(FAR + 8, value=b"y")
    (ours / "far-0" / "00000000000000000000.log").write_bytes(log)
    recover(ours)
    assert plan(ours).is_empty
    logs = sorted((ours / "far-0").glob("*.log"))
    assert b"".join(path.read_bytes() for path in logs) == log
    assert len(logs) == 2
