"""A replay that begins with a snapshot in the middle of a segment, as a clean stop leaves one, begins there."""

from __future__ import annotations

from pathlib import Path

from golden import golden
from support.recovering import plan, recover

from storage.base.rows import BatchRows, ProducerEvent
from storage.base.units import Offset
from storage.disk.fs import OsFs
from storage.producers.producer_state import ProducerState, decode_snapshot
from storage.reading.log_reader import LogReader


def state_at(directory: Path, end: int) -> ProducerState:
    """Fold every batch below an offset."""
    state = ProducerState(map_end_offset=Offset(0))

    def on_rows(rows: BatchRows, count: int, _: memoryview, __: int) -> None:
        for i in range(count):
            if rows.producer_id[i] >= 0 and rows.base_offset[i] < end:
                state.add_batch(ProducerEvent(*(getattr(rows, name)[i] for name in ProducerEvent._fields)))

    for path in sorted(directory.glob("*.log")):
        with OsFs().open_read(path) as file:
            LogReader().walk(file, path, path.stat().st_size, int(path.stem), on_rows)
    state.advance(Offset(end))
    return state


def test_a_snapshot_at_the_base_below_it_is_left_alone(tmp_path: Path) -> None:
    golden.extract("three-brokers", tmp_path)
    partition = tmp_path / "0" / "data" / "ledger-1"
    below, within, lost = (partition / f"{offset:020d}.snapshot" for offset in (369, 566, 737))
    assert within.exists()
    lost.unlink()
    before = below.read_bytes()
    recover(tmp_path / "0" / "data")
    assert below.read_bytes() == before
    assert decode_snapshot(lost.read_bytes(), Offset(737)).entries == state_at(partition, 737).entries


def test_aborted_transactions_that_ended_before_it_stay_in_the_transaction_index(tmp_path: Path) -> None:
    golden.extract("transactions", tmp_path)
    log_dir = tmp_path / "0" / "data"
    recover(log_dir)
    partition = log_dir / "payments-1"
    _, second, last = sorted(partition.glob("*.log"))
    within = (int(second.stem) + 3 * int(last.stem)) // 4
    state = state_at(partition, within)
    (partition / f"{within:020d}.snapshot").write_bytes(state.encode_snapshot())
    for path in partition.glob("*.snapshot"):
        if int(path.stem) > within:
            path.unlink()
    index = second.with_suffix(".txnindex")
    before = index.read_bytes()
    assert len(before) > 34
    assert plan(log_dir).partitions
    recover(log_dir)
    assert index.read_bytes() == before
    wanted = state_at(partition, int(last.stem)).entries
    assert decode_snapshot(last.with_suffix(".snapshot").read_bytes(), Offset(int(last.stem))).entries == wanted
