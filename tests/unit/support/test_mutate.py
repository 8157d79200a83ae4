"""The damage on purpose is damage, and the same for the same seed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from golden.golden import unpack
from support.mutate import KINDS, mutate

SEEDS = range(12)


def payments(target: Path) -> Path:
    return unpack("transactions", target)["0/data/payments-0"]


def digests(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def damaged(target: Path, seed: int, **choice: list[str]) -> dict[str, str]:
    mutate(payments(target), seed, **choice)
    return digests(target)


def test_the_same_seed_does_the_same_damage(tmp_path: Path) -> None:
    assert damaged(tmp_path / "a", 7) == damaged(tmp_path / "b", 7)


def test_several_damages_are_done_and_told(tmp_path: Path) -> None:
    told = mutate(payments(tmp_path), 3, count=4)
    assert len(told) == 4
    assert {damage["kind"] for damage in told} <= set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_changes_a_log_directory_for_some_seed(kind: str, tmp_path: Path) -> None:
    log_dir = payments(tmp_path).parent
    before = digests(log_dir)
    told = [mutate(log_dir, seed, kinds=[kind]) for seed in SEEDS]
    assert any(told)
    assert digests(log_dir) != before


def test_a_directory_with_nothing_to_damage_is_left_alone(tmp_path: Path) -> None:
    assert mutate(tmp_path, 1, count=3) == []
    assert digests(tmp_path) == {}
