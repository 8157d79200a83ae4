"""Every batch header of every golden, as Kafka's own classes read it and as the scanner does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden.golden import NAMES, extract
from interop.kafka_lab import Oracle

from storage.base.rows import CONTROL_NONE, BatchRows, Stop
from storage.kernel import scan

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
TRANSACTIONAL, CONTROL = 1 << 4, 1 << 5
ROWS = 500
"""Fewer than most files have batches, so that the scan is taken up again in the middle."""


def as_kafka_says_it(rows: BatchRows, row: int) -> dict[str, Any]:
    """Return a row by the names and in the values of the oracle's `dump`."""
    attributes, magic = rows.attributes[row], rows.magic[row]
    said: dict[str, Any] = {
        "position": rows.position[row],
        "size": rows.size[row],
        "magic": magic,
        "last": rows.last_offset[row],
        "valid": True,  # a row is filled only for a batch whose checksum holds
        "crc": rows.crc[row],
        "codec": CODECS[attributes & 7],
        "timestamp_type": "NoTimestampType" if magic == 0 else TIMESTAMP_TYPES[attributes >> 3 & 1],
        "max_timestamp": rows.max_timestamp[row],
        "producer_id": rows.producer_id[row],
        "producer_epoch": rows.producer_epoch[row],
        "base_sequence": rows.base_sequence[row],
        "leader_epoch": rows.leader_epoch[row],
        "transactional": magic == 2 and bool(attributes & TRANSACTIONAL),
        "control": magic == 2 and bool(attributes & CONTROL),
    }
    if magic == 2:
        said |= {"base": rows.base_offset[row], "count": rows.record_count[row]}
    return said


def comparable(batch: dict[str, Any]) -> dict[str, Any]:
    """Return Kafka's batch without what is not in the header.

    The base offset of a magic 0 or 1 wrapper is that of its first inner message; a delete horizon stands where the base
    timestamp would.
    """
    unread = {"delete_horizon_ms"} if batch["magic"] == 2 else {"base", "count"}
    return {name: value for name, value in batch.items() if name not in unread}


def scanned(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return what the scanner says of each batch, and the size it found sound."""
    window, rows, found = memoryview(path.read_bytes()), BatchRows(ROWS), []
    position = next_offset = 0
    while True:
        done = scan.scan_batches(window[position:], rows, position=position, next_offset=next_offset)
        found += [as_kafka_says_it(rows, row) for row in range(done.count)]
        controls = [rows.control[row] != CONTROL_NONE for row in range(done.count)]
        assert controls == [
            batch["control"] and batch["producer_id"] >= 0 for batch in found[len(found) - done.count :]
        ]
        position += done.size
        if done.stop is not Stop.ROWS_FULL:
            assert done.stop is Stop.END, path
            return found, position
        next_offset = rows.last_offset[done.count - 1] + 1


@pytest.mark.parametrize("name", NAMES)
def test_scanner_reads_every_batch_header_as_kafka_does(name: str, oracle: Oracle, tmp_path: Path) -> None:
    logs = sorted(path for path in extract(name, tmp_path).rglob("*.log*") if path.suffix in (".log", ".deleted"))
    batches = 0
    for log in logs:
        dump = oracle(op="dump", file=log)
        found, size = scanned(log)
        assert found == [comparable(batch) for batch in dump["batches"]], log
        assert size == dump["read_bytes"] == dump["file_bytes"], log
        batches += len(found)
    assert batches > 0


def test_scanner_stops_where_kafka_sees_the_sample_end(oracle: Oracle, tmp_path: Path) -> None:
    sample = extract("crashed-sample", tmp_path)
    for partition, stop in {"orders-0": Stop.NEED_MORE, "clicks-0": Stop.BAD_CRC}.items():
        log = sorted((sample / partition).glob("*.log"))[-1]
        sound = [batch for batch in oracle(op="dump", file=log)["batches"] if batch["valid"]]
        done = scan.scan_batches(memoryview(log.read_bytes()), BatchRows(10_000))
        assert (done.count, done.stop) == (len(sound), stop)
        assert done.size == sound[-1]["position"] + sound[-1]["size"]
