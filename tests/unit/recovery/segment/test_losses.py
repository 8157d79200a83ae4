"""A log that has lost its end at the border of a batch has no bad byte; its index gives the loss away."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import golden
from support.recovering import options_of, plan

from recovery.plan.findings import Damage, Finding, Severity

OPTIONS = options_of(golden.expected("two-disks")["config"])


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    golden.extract("two-disks", tmp_path)
    return tmp_path / "0" / "data" / "events-5"


def losses(partition: Path) -> list[Finding]:
    return [found for found in plan(partition.parent, OPTIONS).findings if found.kind is Damage.LOG_MISSING]


def test_an_emptied_segment_that_was_flushed_is_reported_as_lost_records(partition: Path) -> None:
    second, third = sorted(partition.glob("*.log"))[1:3]
    second.write_bytes(b"")
    (found,) = losses(partition)
    assert found.path == second
    assert found.kind.severity is Severity.DAMAGE
    assert (found.first_offset, found.last_offset) == (int(second.stem), int(third.stem) - 1)


def test_a_gap_that_the_index_knows_nothing_of_is_none(partition: Path) -> None:
    second = sorted(partition.glob("*.log"))[1]
    second.write_bytes(b"")
    second.with_suffix(".index").write_bytes(b"")
    assert losses(partition) == []


def test_a_sound_log_has_lost_nothing(partition: Path) -> None:
    assert losses(partition) == []


def test_a_compacted_log_with_gaps_has_lost_nothing(tmp_path: Path) -> None:
    golden.extract("compacted", tmp_path)
    for log_dir in golden.log_dirs(tmp_path):
        assert all(found.kind is not Damage.LOG_MISSING for found in plan(log_dir).findings)
