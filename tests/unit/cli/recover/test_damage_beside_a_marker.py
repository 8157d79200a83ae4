"""A clean marker, and damage beside it: plan, recover, verify and recover again see the same.

LOGMEND_MARKER_CASES says how many random cases are tried, 300 by default.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.calling import call
from support.command import ROOT
from support.mutate import mutate
from support.tiers import spread

MARKER = ".kafka_cleanshutdown"
SEEDS = range(int(os.environ.get("LOGMEND_MARKER_CASES", "300")))


@pytest.fixture(scope="module")
def shut_down(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a broker's log directory, recovered and marked as cleanly shut down."""
    directory = tmp_path_factory.mktemp("clean") / "data"
    with tarfile.open(ROOT / "tests" / "golden" / "crashed-sample.tar.gz") as archive:
        archive.extractall(directory, filter="fully_trusted")
    done = call("recover", "--depth", "full", "--discard", "--clean-marker", "4.3", directory)
    assert done.returncode == 0, done.stderr
    for kept in directory.rglob("*.logmend*"):
        kept.unlink()
    assert (directory / MARKER).exists()
    return directory


@pytest.fixture
def data(shut_down: Path, tmp_path: Path) -> Iterator[Path]:
    """Return a copy to damage, which is removed afterwards."""
    yield Path(shutil.copytree(shut_down, tmp_path / "data"))
    shutil.rmtree(tmp_path / "data")


def planned(data: Path) -> set[str]:
    (plan,) = json.loads(call("plan", "--json", data).stdout)["plans"]
    return {Path(partition["directory"]).name for partition in plan["partitions"] if partition["held"]}


def recovered(data: Path) -> tuple[int, dict[str, Any]]:
    done = call("recover", "--json", data)
    (result,) = json.loads(done.stdout)["results"]
    return done.returncode, result


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def test_rot_that_was_read_because_of_another_partition_s_index_is_still_held_at_the_end(data: Path) -> None:
    flip(data / "clicks-0" / "00000000000000000956.log", 5000)
    flip(data / "profiles-0" / "00000000000000000493.timeindex", 3)
    status, result = recovered(data)
    assert (status, result["held"], result["error"]) == (3, ["clicks-0"], None)
    assert "recover" in result["next"]
    assert (data / MARKER).exists()


def test_the_next_run_reads_what_this_one_held_and_a_hand_over_lets_the_marker_vouch_for_it_again(data: Path) -> None:
    log, points = data / "clicks-0" / "00000000000000000956.log", data / "recovery-point-offset-checkpoint"
    sound, vouched = log.read_bytes(), points.read_text()
    flip(log, 5000)
    flip(data / "profiles-0" / "00000000000000000493.timeindex", 3)
    assert recovered(data)[1]["held"] == ["clicks-0"]
    assert points.read_text() == vouched.replace("clicks 0 1202", "clicks 0 956")
    assert call("verify", data).returncode == 1
    assert recovered(data)[1]["held"] == ["clicks-0"]
    log.write_bytes(sound)
    assert recovered(data)[0] == 0
    assert points.read_text() == vouched
    assert (data / MARKER).exists()


def test_a_run_that_only_holds_changes_no_file(data: Path) -> None:
    flip(data / "clicks-0" / "00000000000000000956.log", 5000)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert call("recover", "--depth", "full", data).returncode == 3
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_snapshot_that_risen_points_leave_without_a_segment_goes_in_the_same_run(data: Path) -> None:
    (data / MARKER).unlink()
    points = data / "recovery-point-offset-checkpoint"
    points.write_text(points.read_text().replace("profiles 0 700", "profiles 0 15"))
    newest = max((data / "profiles-0").glob("*.snapshot"))
    (data / "profiles-0" / "00000000000000000015.snapshot").write_bytes(newest.read_bytes())
    assert recovered(data)[0] == 0
    assert call("verify", data).returncode == 0


def test_a_corrupt_snapshot_that_belongs_to_no_segment_is_set_aside_as_a_broker_deletes_it(data: Path) -> None:
    stray = data / "payments-0" / "00000000000000000534.snapshot"
    stray.write_bytes(b"no snapshot at all")
    assert call("verify", data).returncode == 1
    assert call("recover", data).returncode == 0
    assert not stray.exists()
    assert call("verify", data).returncode == 0


@pytest.mark.parametrize("seed", [24, 54, *spread(SEEDS, 12)])
def test_recover_holds_what_plan_holds_and_says_so(data: Path, seed: int) -> None:
    damages = mutate(data, seed, random.Random(seed).choice((1, 2, 2, 3, 4)))
    if not (data / MARKER).exists():
        (data / MARKER).write_text('{"version":0,"brokerEpoch":-1}')
    held = planned(data)
    status, result = recovered(data)
    if status in (0, 3):
        assert set(result["held"]) == held, damages
        assert (status == 3) == bool(held or any(f["decision"] == "hold" for f in result["findings"])), damages
        assert result["next"] or not held, damages
    else:
        assert result["error"] is not None or any(f["decision"] == "stop" for f in result["findings"]), damages
    if status in (0, 3):
        assert (call("verify", data).returncode == 0) == (status == 0), damages
        again, second = recovered(data)
        assert (again, second["held"]) == (status, result["held"]), damages
