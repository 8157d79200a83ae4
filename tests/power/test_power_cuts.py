"""Real power cuts in the middle of `logmend recover` and `logmend quarantine restore`: nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from power.powercut import COMMANDS, KINDS, cut, missing
from support.faults import EVERYTHING, need_mounts

CUTS = 100 if EVERYTHING else 5


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 300)
@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_power_cut_loses_nothing_and_the_next_run_ends_as_an_undisturbed_one(
    tmp_path: Path, kind: str, command: str
) -> None:
    if reason := missing(kind):
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(f"CI is set and {reason}", pytrace=False)
        pytest.skip(reason)
    need_mounts(tmp_path / "probe")
    if not Path("/dev/loop-control").exists():
        pytest.skip("there are no loop devices here")
    bench = cut(kind, command, CUTS, 0, tmp_path)
    assert bench.cuts == CUTS
