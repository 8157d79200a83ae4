"""Why later segments step aside before a log is cut: what a crash between the two would leave, in either order."""

from __future__ import annotations

import shutil
from pathlib import Path

from golden import golden
from interop.kafka_lab import Oracle
from support.recovering import plan, recover

KEY = "0/data/orders-0"  # of kafka-2.8, where no recovery point was ever written


def rotten(tmp_path: Path) -> Path:
    """Return a partition whose second segment of seven has a bad batch in its middle; nothing of it was flushed."""
    golden.extract("kafka-2.8", tmp_path)
    directory = tmp_path / KEY
    segment = sorted(directory.glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    return directory


def test_cut_first_a_crash_would_leave_a_gap_that_neither_kafka_nor_we_object_to(
    tmp_path: Path, oracle: Oracle
) -> None:
    directory = rotten(tmp_path)
    (cut, *later) = plan(directory.parent).partitions[0].cuts
    assert later
    with (directory / cut.path.name).open("r+b") as file:
        file.truncate(cut.position)
    assert plan(directory.parent).partitions[0].cuts == ()
    shutil.copytree(directory, tmp_path / "kafka" / directory.name)
    state = oracle(op="open", log="gap", dir=tmp_path / "kafka" / directory.name, clean=False)
    oracle(op="close", log="gap", abruptly=True)
    assert [segment["base"] for segment in state["segments"]] == [int(p.stem) for p in sorted(directory.glob("*.log"))]


def test_set_aside_first_a_crash_leaves_what_asks_for_the_same_cut(tmp_path: Path) -> None:
    directory = rotten(tmp_path)
    (cut, *later) = plan(directory.parent).partitions[0].cuts
    for segment in later:
        for path in directory.glob(f"{segment.path.stem}.*"):
            path.unlink()
    (again,) = plan(directory.parent).partitions[0].cuts
    assert (again.path.name, again.position) == (cut.path.name, cut.position)
    recover(directory.parent)
    assert (directory / cut.path.name).stat().st_size == cut.position
