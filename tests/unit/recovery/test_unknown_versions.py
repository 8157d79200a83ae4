"""What a newer broker may have written is never taken for damage."""

from __future__ import annotations

import struct
from pathlib import Path

from golden import golden
from support.recovering import options_of, plan, tree

from storage.base.errors import ExitStatus
from storage.kernel.scan import crc32c


def test_a_snapshot_of_an_unknown_version_stops_the_whole_log_directory(tmp_path: Path) -> None:
    partitions = golden.unpack("two-disks", tmp_path)
    partition = partitions["0/data/events-5"]
    end = partition / "00000000000000002951.snapshot"
    body = struct.pack(">i", 0)
    end.write_bytes(struct.pack(">hI", 2, crc32c(memoryview(body))) + body)
    before = tree(tmp_path)
    found = plan(partition.parent, options_of(golden.expected("two-disks")["config"]))
    assert (found.stopped, found.is_empty, found.status) == (True, True, ExitStatus.UNSUPPORTED)
    assert [f.path for f in found.findings if f.kind.value == "unsupported"] == [end]
    assert tree(tmp_path) == before


def test_a_transaction_index_of_an_unknown_version_stops_it_as_well(tmp_path: Path) -> None:
    partitions = golden.unpack("transactions", tmp_path)
    partition = partitions["0/data/payments-0"]
    index = partition / "00000000000000000746.txnindex"
    index.write_bytes(b"".join(struct.pack(">hqqqq", 1, 5, at, at + 1, at + 2) for at in (750, 760)))
    found = plan(partition.parent, options_of(golden.expected("transactions")["config"]))
    assert (found.stopped, found.is_empty, found.status) == (True, True, ExitStatus.UNSUPPORTED)
    assert [f.path for f in found.findings if f.kind.value == "unsupported"] == [index]
