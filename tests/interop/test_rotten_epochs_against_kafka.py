"""A wrong leader epoch in a batch header, which no checksum covers: Kafka's loader cuts nothing, and neither do we."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from golden import golden
from interop.kafka_lab import Oracle
from support.recovering import options_of, plan, recover

from checkpoint.leader_epoch import FILE_NAME, decode_epochs
from recovery.plan.findings import Severity

NAME, KEY = "two-disks", "0/data/events-5"
EPOCH_AT = 12
"""Of the leader epoch in a batch."""
ABOVE, NONE = 7, -5


def batches(data: bytes) -> list[tuple[int, int]]:
    """Return position and base offset of each batch of a log; zero bytes may follow."""
    starts, position = [], 0
    while position + EPOCH_AT <= len(data):
        base, size = struct.unpack_from(">qi", data, position)
        if size == 0:
            break
        starts.append((position, base))
        position += EPOCH_AT + size
    return starts


def with_epoch(home: Path, segment: int, batch: int, epoch: int) -> tuple[Path, int]:
    """Return a partition, all of epoch 0 but for one batch, and the base offset of that."""
    golden.extract(NAME, home)
    log = sorted((home / KEY).glob("*.log"))[segment]
    data = bytearray(log.read_bytes())
    position, base = batches(bytes(data))[batch]
    struct.pack_into(">i", data, position + EPOCH_AT, epoch)
    log.write_bytes(data)
    return home / KEY, base


def epochs(directory: Path) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in decode_epochs((directory / FILE_NAME).read_bytes())]


def logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


@pytest.mark.parametrize("epoch", [ABOVE, NONE])
@pytest.mark.parametrize(("segment", "batch"), [(0, 0), (0, 1), (-1, 0), (-1, 1), (-1, -1)])
def test_every_batch_stays_and_the_epochs_are_those_of_kafka(
    tmp_path: Path, oracle: Oracle, segment: int, batch: int, epoch: int
) -> None:
    theirs, base = with_epoch(tmp_path / "theirs", segment, batch, epoch)
    ours, _ = with_epoch(tmp_path / "ours", segment, batch, epoch)
    before, expected = logs(ours), golden.expected(NAME)["partitions"][KEY]
    loaded = oracle.load(theirs, **expected["asked"])
    assert loaded["log_end"] == expected["loaded"]["log_end"]
    recover(ours.parent, options_of(golden.expected(NAME)["config"]))
    assert logs(ours) == before == logs(theirs)
    rise = [(ABOVE, base)] if segment == -1 and epoch == ABOVE else []  # only the last segment is scanned
    assert epochs(ours) == epochs(theirs) == [(0, 0), *rise]


def test_a_fall_is_a_note(tmp_path: Path) -> None:
    directory, _ = with_epoch(tmp_path, 0, 1, ABOVE)
    options = options_of(golden.expected(NAME)["config"], depth="full")
    (fall,) = (f for f in plan(directory.parent, options).findings if f.kind.value == "epoch_fall")
    assert fall.kind.severity is Severity.NOTE
    assert fall.evidence == f"leader epoch 0 behind epoch {ABOVE}"
