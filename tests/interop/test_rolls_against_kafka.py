"""Active segments that a hand-over has rolled, opened by Kafka's own loader: the same log, with nothing to be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden import golden
from golden.golden import checkpoint
from interop.kafka_lab import Oracle
from support.recovering import kept_by_us, options_of, recover_and_hand_over

from checkpoint.leader_epoch import FILE_NAME as EPOCHS
from recovery.logdir.log_dir import LOG_STARTS, MARKER, RECOVERY_POINTS
from recovery.plan.results import Rolled

pytestmark = pytest.mark.slow

THE_SAME = ("log_start", "log_end", "producers", "epochs")
ROLLED = {name: golden.expected(name) for name in golden.NAMES}


def rolled(name: str, root: Path) -> dict[str, tuple[Path, Rolled]]:
    """Unpack a golden as an unclean one, recover it, roll all its active segments; return what was rolled, by keys."""
    golden.extract(name, root)
    expected = ROLLED[name]
    rolls = {}
    for log_dir in golden.log_dirs(root):
        (log_dir / MARKER).unlink(missing_ok=True)
        done = recover_and_hand_over(log_dir, options_of(expected["config"], roll_from=1))
        for each in done.rolls:
            key = str((log_dir / each.partition).relative_to(root))
            rolls[key] = (log_dir / each.partition, each)
    return rolls


def asked(directory: Path, expected: dict[str, Any]) -> dict[str, Any]:
    points, starts = (checkpoint(directory.parent / name) for name in (RECOVERY_POINTS, LOG_STARTS))
    config = expected["asked"]["config"]
    return {
        "recovery_point": points.get(directory.name, 0),
        "log_start": starts.get(directory.name, 0),
        "config": config,
    }


def without_ours(files: dict[str, Any]) -> dict[str, Any]:
    return {name: file for name, file in files.items() if not kept_by_us(name)}


def stays(name: str) -> bool:
    """Tell whether a loader leaves a file: what was marked for deletion it removes."""
    return not name.endswith(".deleted")


@pytest.mark.parametrize("name", golden.NAMES)
def test_kafka_loads_the_same_log_and_changes_nothing_but_the_empty_segment(
    name: str, tmp_path: Path, oracle: Oracle
) -> None:
    rolls = rolled(name, tmp_path)
    assert rolls
    for key, (directory, roll) in rolls.items():
        expected = ROLLED[name]["partitions"][key]
        there = without_ours(oracle(op="files", dir=directory)["files"])
        before = {name: file for name, file in there.items() if stays(name)}
        state = oracle.load(directory, **asked(directory, expected))
        assert "error" not in state, state
        assert {what: state[what] for what in THE_SAME} == {what: expected["loaded"][what] for what in THE_SAME}, key
        assert state["recovery_point"] == roll.base_offset
        after = without_ours(state["files"])
        new = {f"{roll.base_offset:020d}.{suffix}" for suffix in ("log", "index", "timeindex")}
        assert [name for name in after if not stays(name)] == []
        assert after.keys() - before.keys() <= {EPOCHS}  # which the brokers of 0.10 did not have
        assert {n: f for n, f in before.items() if n not in new} == {n: after[n] for n in before if n not in new}
        assert after[f"{roll.base_offset:020d}.log"]["size"] == 0


@pytest.mark.parametrize("name", ["codecs", "transactions", "two-disks"])
def test_kafka_appends_behind_a_roll_and_truncates_to_below_it(name: str, tmp_path: Path, oracle: Oracle) -> None:
    rolls = rolled(name, tmp_path)
    assert rolls
    for key, (directory, roll) in rolls.items():
        expected = ROLLED[name]["partitions"][key]
        epoch = expected["loaded"]["epochs"][-1][0] if expected["loaded"]["epochs"] else 0
        opened = oracle(op="open", log=key, dir=directory, clean=False, **asked(directory, expected))
        batch = {"records": [{"timestamp": 1_700_000_000_000, "value": "aGVsbG8="}]}
        assert oracle(op="append", log=key, epoch=epoch, batch=batch)["first"] == opened["log_end"]
        assert (directory / f"{roll.base_offset:020d}.log").stat().st_size > 0
        oracle(op="truncate", log=key, offset=roll.base_offset - 1)
        state = oracle(op="state", log=key)
        assert state["log_end"] < roll.base_offset
        oracle(op="close", log=key)
        assert not (directory / f"{roll.base_offset:020d}.log").exists()
