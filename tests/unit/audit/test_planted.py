"""Whole directories of three real brokers: what is planted is found, all of it, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.auditing import audit
from support.fleets import DAMAGED, HEALTHY, copy_fleet, sources

from storage.base.errors import ExitStatus


@pytest.mark.parametrize("name", DAMAGED)
def test_planted_damage_is_found_whole_and_nothing_else(name: str, tmp_path: Path) -> None:
    expected = DAMAGED[name](copy_fleet(tmp_path))
    audited = audit(sources(tmp_path, "c"))
    assert audited.serious == set(expected.findings)
    assert audited.unhealthy == set(expected.verdicts)
    assert audited.status is not ExitStatus.CLEAN


@pytest.mark.parametrize("name", HEALTHY)
def test_what_a_running_broker_leaves_is_no_finding(name: str, tmp_path: Path) -> None:
    HEALTHY[name](copy_fleet(tmp_path))
    audited = audit(sources(tmp_path, "c"))
    assert audited.serious == set()
    assert audited.unhealthy == set()
    assert audited.status is ExitStatus.CLEAN
