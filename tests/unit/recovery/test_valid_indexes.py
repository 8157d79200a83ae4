"""An index that is valid stays as it is, whatever is rebuilt beside it."""

from __future__ import annotations

from pathlib import Path

from golden import golden
from support.recovering import options_of, plan, recover, tree


def test_a_padded_time_index_is_mended_and_the_valid_index_beside_it_is_not_touched(tmp_path: Path) -> None:
    partitions = golden.unpack("two-disks", tmp_path)
    partition = partitions["0/data/events-5"]
    options = options_of(golden.expected("two-disks")["config"])
    recover(partition.parent, options)
    closed = partition / "00000000000000000371.timeindex"
    index = closed.with_suffix(".index")
    # As a follower writes it: one entry for what it fetched at once, so not what a rebuild would give.
    index.write_bytes(index.read_bytes()[:8] + index.read_bytes()[16:])
    closed.write_bytes(closed.read_bytes() + bytes(1200))
    before = tree(partition)
    found = {(v.finding.kind.value, v.finding.path.name) for v in plan(partition.parent, options).all_verdicts()}
    assert ("time_index_padded", closed.name) in found
    recover(partition.parent, options)
    after = tree(partition)
    assert after[index.name] == before[index.name]
    assert after[closed.name][0] == before[closed.name][0] - 1200
    assert plan(partition.parent, options).is_empty
