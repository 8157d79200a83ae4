"""With everything read, the side files of old segments are held against the log as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import golden
from support.recovering import options_of, plan, recover

CONFIG = golden.expected("transactions")["config"]


@pytest.mark.parametrize(
    ("name", "at", "kind"),
    [
        ("00000000000000000000.txnindex", 9, "txn_index_differs"),  # the producer of the first entry
        ("00000000000000000364.snapshot", 30, "snapshot_corrupt"),
    ],
)
def test_a_rotten_file_beside_a_flushed_segment_is_found_and_made_anew(
    tmp_path: Path, name: str, at: int, kind: str
) -> None:
    partition = golden.unpack("transactions", tmp_path)["0/data/payments-0"]
    points = partition.parent / "recovery-point-offset-checkpoint"
    points.write_text("0\n1\npayments 0 746\n")
    recover(partition.parent, options_of(CONFIG))
    sound = (partition / name).read_bytes()
    (partition / name).write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
    full = options_of(CONFIG)._replace(depth="full")
    found = plan(partition.parent, full)
    assert (kind, name) in {(f.kind.value, f.path.name) for f in found.findings}
    recover(partition.parent, full)
    assert (partition / name).read_bytes() == sound or kind == "snapshot_corrupt"
    assert plan(partition.parent, full).is_empty


@pytest.mark.parametrize("name", golden.NAMES)
def test_what_real_brokers_left_raises_no_false_alarm(name: str, tmp_path: Path) -> None:
    golden.extract(name, tmp_path)
    options = options_of(golden.expected(name)["config"])
    for log_dir in golden.log_dirs(tmp_path):
        recover(log_dir, options)
        found = plan(log_dir, options._replace(depth="full")).findings
        assert [f for f in found if f.kind.value.startswith(("txn_", "snapshot_"))] == []
