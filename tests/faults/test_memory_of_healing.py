"""A hole of any size is filled in little memory: batches of a replica go through it one by one."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from faults.test_memory import MOST, peak
from support.batches import batch_v2
from support.faults import write_tree
from support.log_dirs import POINTS, checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.deep]

BATCHES, LOG = 100, "orders-0/00000000000000000000.log"


def test_a_hole_of_nearly_100_mib_comes_back_within_the_bound(tmp_path: Path) -> None:
    rng = random.Random(7)
    batches = [batch_v2(number, 1, payload=rng.randbytes(1 << 20), leader_epoch=3) for number in range(BATCHES)]
    log = b"".join(batches)
    files = {LOG: log, POINTS: checkpoint({"orders-0": BATCHES}), "orders-0/leader-epoch-checkpoint": b"0\n1\n3 0\n"}
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_tree(theirs, files)
    shutil.copytree(theirs, ours)
    with (ours / LOG).open("r+b") as file:
        file.seek(len(batches[0]))
        file.write(bytes(len(log) - len(batches[0]) - len(batches[-1])))
    status, size, printed = peak("recover", "--depth", "full", "--heal-from", theirs, ours)
    assert status == 0, printed
    assert (ours / LOG).read_bytes() == log
    assert size < MOST
