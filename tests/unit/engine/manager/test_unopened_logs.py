"""Logs that a broker opens and the engine does not: opening a manager leaves them as a clean shutdown would."""

from __future__ import annotations

import pytest
from support.batches import batch_v2
from support.managers import A, open_manager
from support.memory_fs import MemoryFs

from checkpoint.offsets import RECOVERY_POINTS, encode_offsets
from recovery.plan.plan import PlanOptions
from storage.base.names import parse_directory_name
from storage.base.units import Offset


@pytest.mark.parametrize(
    "name", ["orders-0.x-stray", "orders-0.0123456789abcdef0123456789abcdef-future", "__cluster_metadata-0"]
)
@pytest.mark.parametrize(("flushed", "topics"), [(0, ()), (4, ()), (5, ()), (5, ("others",))])
def test_zeros_behind_the_entries_of_an_index_are_taken_off(name: str, flushed: int, topics: tuple[str, ...]) -> None:
    """A broker that was killed leaves them in logs that the engine does not open: a marker would vouch for them.

    A setting that selects topics leaves out none: one marker stands for the whole directory.
    """
    entry = (4).to_bytes(4, "big") + len(batch_v2(0, 4)).to_bytes(4, "big")
    home = f"/a/{name}"
    points = encode_offsets({parse_directory_name(name).partition: Offset(flushed)})
    fs = MemoryFs({
        f"/a/{RECOVERY_POINTS}": points,
        f"{home}/partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
        f"{home}/{0:020d}.log": batch_v2(0, 4) + batch_v2(4, 1),
        f"{home}/{0:020d}.index": entry + bytes(80),
        f"{home}/{0:020d}.timeindex": bytes(96),
        f"{home}/{9:020d}.index.deleted": bytes(8),
    })  # fmt: skip
    with open_manager(fs, [A], recovery=PlanOptions(topics=topics)):
        left = fs.contents(home)
    assert left[f"{0:020d}.index"] == entry
    assert not left[f"{0:020d}.timeindex"].endswith(bytes(12))
    assert left[f"{9:020d}.index.deleted"] == bytes(8)
    before = left
    with open_manager(fs, [A]):
        assert fs.contents(home) == before
