"""A log directory with tiered partitions is a broker's: opened here, it would lose what leads to the remote tier."""

from __future__ import annotations

import contextlib

import pytest
from support.log_dirs import KRAFT
from support.managers import NOW, A, append, open_manager
from support.memory_fs import MemoryFs

from checkpoint.offsets import LOG_START_OFFSETS, write_offsets
from engine.logdir.recovering import refuse_tiered
from engine.settings.refusals import LogDirTiered
from storage.base.names import parse_directory_name
from storage.base.units import Offset, TopicPartition


def test_a_tiered_log_directory_is_refused_and_stays_as_it_is() -> None:
    fs = MemoryFs({"/a/": b"", "/b/": b""})
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {}, NOW)
        append(manager, "a")
    write_offsets(fs, A / LOG_START_OFFSETS, {TopicPartition("orders", 0): Offset(0)})
    before = fs.contents("/a")
    with pytest.raises(LogDirTiered, match="orders-0 has segments in a remote tier"):
        open_manager(fs)
    assert fs.contents("/a") == before


def test_the_metadata_log_tells_of_a_tiered_topic_before_the_broker_has_noted_a_log_start() -> None:
    files = {f"/a/{name}": data for name, data in KRAFT.items()}
    names = [parse_directory_name("payments-0")]
    refuse_tiered(MemoryFs(files), A, names)
    with pytest.raises(LogDirTiered, match="orders-0"):
        refuse_tiered(MemoryFs(files), A, [*names, parse_directory_name("orders-0")])


@pytest.mark.parametrize(
    ("log_start", "epochs", "is_tiered"),
    [
        (b"", b"0\n1\n1 5\n", False),
        (b"orders 0 0\n", b"", True),
        (b"orders 0 5\n", b"0\n2\n1 5\n2 9\n", True),
        (b"orders 0 5\n", b"0\n1\n1 20\n", False),  # retention went on after the checkpoint was written
        (b"orders 0 25\n", b"0\n1\n1 5\n", False),
    ],
)
def test_a_broker_notes_which_logs_begin_in_a_remote_tier(log_start: bytes, epochs: bytes, is_tiered: bool) -> None:
    fs = MemoryFs(
        {
            "/a/orders-0/00000000000000000020.log": b"",
            "/a/orders-0/leader-epoch-checkpoint": epochs,
            "/a/log-start-offset-checkpoint": b"0\n%d\n" % bool(log_start) + log_start,
        }
    )
    with pytest.raises(LogDirTiered) if is_tiered else contextlib.nullcontext():
        refuse_tiered(fs, A, [parse_directory_name("orders-0")])
