"""The batches of logs as columns, held against what `dump` walks over."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, batch_v2, legacy, marker

from audit.scan import batches
from audit.scan.batches import SCHEMA, Range, cut, list_logs, read_logs, within
from cli.console import Console
from cli.inspect.dump import run as dump
from storage.disk.fs import OsFs

FS = OsFs()
SAME = {
    "position": "position", "size": "size_bytes", "baseOffset": "base_offset", "lastOffset": "last_offset",
    "offset": "base_offset", "count": "record_count", "baseSequence": "base_sequence", "producerId": "producer_id",
    "producerEpoch": "producer_epoch", "partitionLeaderEpoch": "leader_epoch", "isTransactional": "transactional",
    "isControl": "control", "magic": "magic", "compresscodec": "codec", "crc": "crc", "isvalid": "crc_valid",
    "CreateTime": "max_timestamp_ms", "LogAppendTime": "max_timestamp_ms",
}  # fmt: skip
"""Names of a dump, and those of the columns."""


def some_batches() -> list[bytes]:
    found = [legacy(0, 0), legacy(1, 1), legacy(2, 1, attributes=LOG_APPEND_TIME)]
    found += [batch_v2(offset, 3, leader_epoch=offset // 30) for offset in range(3, 90, 3)]
    found += [batch_v2(90, 2, producer_id=7, producer_epoch=1, base_sequence=5, attributes=TRANSACTIONAL | 4)]
    found += [batch_v2(92, 1, attributes=2 | LOG_APPEND_TIME), batch_v2(93, 1, attributes=7, payload=b"x" * 9)]
    found += [marker(94, 7, 1, commit=True), marker(95, 8, commit=False), batch_v2(96, 1, attributes=CONTROL)]
    return [*found, batch_v2(100, 2, base_timestamp=-1, max_timestamp=-1)]


def write(directory: Path, data: bytes, base: int = 0, partition: str = "orders-0") -> Path:
    path = directory / partition / f"{base:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def rows_of(path: Path, wanted: Range = batches.EVERYTHING, **how: Any) -> list[dict[str, Any]]:
    logs = list(list_logs(FS, PurePath(path)))
    return [row for piece in read_logs(FS, logs, wanted, **how) for row in piece.to_pylist()]


def dumped(path: Path) -> list[dict[str, Any]]:
    """Return the batches and faults that `logmend dump --json` prints of a file."""
    out = io.StringIO()
    arguments = type("Arguments", (), {"files": [str(path)], "listed": [], "records": False, "data": False})()
    dump(arguments, Console(out, io.StringIO(), json=True), {})
    return [told for told in map(json.loads, out.getvalue().splitlines()) if told["item"] in ("batch", "damage")]


def expect_as_dumped(path: Path) -> None:
    told, rows = dumped(path), rows_of(path)
    order = [each for each in told if each["item"] == "damage" and "offsets do not follow" in each["reason"]]
    told = [each for each in told if each not in order]
    assert [row["position"] for row in rows] == [each["position"] for each in told]
    for row, each in zip(rows, told, strict=True):
        if each["item"] == "damage":
            assert (row["size_bytes"], row["crc_valid"], row["fault"]) == (each["size"], False, each["reason"])
            assert row["base_offset"] is row["crc"] is None
            continue
        for name, column in SAME.items():
            if name in each and not (name == "isvalid" and each["magic"] > 2):
                assert row[column] == (None if each[name] == -1 and column != "base_offset" else each[name]), (
                    name,
                    row,
                )
    assert [row["position"] for row in rows if "follow" in (row["fault"] or "")] == [each["position"] for each in order]


def test_every_column_of_a_sound_log_says_what_dump_says(tmp_path: Path) -> None:
    path = write(tmp_path, b"".join(some_batches()))
    expect_as_dumped(path)
    rows = rows_of(path)
    assert all(row["crc_valid"] and row["fault"] is None for row in rows)
    assert {row["codec"] for row in rows} == {"none", "zstd", "snappy", "unknown(7)"}
    assert [row["marker"] for row in rows if row["marker"]] == ["commit", "abort"]
    assert {row["timestamp_type"] for row in rows} == {None, "create", "log_append"}
    assert [row["base_timestamp_ms"] for row in rows][1:4] == [1_700_000_000_000] * 3
    assert rows[0]["base_timestamp_ms"] is rows[-1]["base_timestamp_ms"] is None
    assert {(row["log_dir"], row["topic"], row["partition"], row["segment"]) for row in rows} == {
        (str(tmp_path), "orders", 0, 0)
    }


@pytest.mark.parametrize("seed", range(60))
def test_a_log_that_is_damaged_anywhere_says_what_dump_says(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(batches, "CAREFUL_BYTES", chance.choice([1, 300, 1 << 20]))
    monkeypatch.setattr(batches, "CHUNK_BYTES", chance.choice([100, 1000, 1 << 20]))
    monkeypatch.setattr(batches, "_ROWS_AT_ONCE", chance.choice([1, 7, 8192]))
    data = bytearray(b"".join(some_batches()))
    for _ in range(chance.randrange(1, 6)):
        match chance.randrange(5):
            case 0:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case 1:
                at = chance.randrange(len(data))
                data[at:at] = chance.randbytes(chance.randrange(200))
            case 2:
                del data[chance.randrange(len(data)) :]
                data += bytes(chance.randrange(100))
            case 3:
                data += batch_v2(chance.randrange(200), 2) + batch_v2(300, 1, magic=3)
            case _:
                at = chance.randrange(len(data))
                del data[at : at + chance.randrange(100)]
        data = data or bytearray(b"\0")
    expect_as_dumped(write(tmp_path, bytes(data)))


def test_a_batch_larger_than_the_chunk_and_the_window_has_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "CHUNK_BYTES", 1000)
    large = batch_v2(1, 1, payload=b"x" * (3 << 20), base_timestamp=1234, max_timestamp=5678)
    path = write(tmp_path, batch_v2(0) + large + batch_v2(2))
    rows = rows_of(path)
    assert [row["base_offset"] for row in rows] == [0, 1, 2]
    assert (rows[1]["base_timestamp_ms"], rows[1]["max_timestamp_ms"]) == (1234, 5678)
    expect_as_dumped(path)


def test_without_checksums_no_row_claims_that_one_holds(tmp_path: Path) -> None:
    data = bytearray(b"".join(some_batches()))
    data[-1] ^= 1
    rows = rows_of(write(tmp_path, bytes(data)), checksums=False)
    assert len(rows) == len(some_batches())
    assert {row["crc_valid"] for row in rows} == {None}


def test_only_live_logs_of_wanted_partitions_are_listed(tmp_path: Path) -> None:
    for partition in ("orders-0", "orders-1", "billing-0", "gone-0.0123456789abcdef0123456789abcdef-delete"):
        write(tmp_path, b"", 0, partition)
        write(tmp_path, b"", 50, partition)
    for name in ("00000000000000000007.log.deleted", "00000000000000000007.index", "notes.log"):
        (tmp_path / "orders-0" / name).write_bytes(b"")
    (tmp_path / "plain-file").write_bytes(b"")
    logs = list(list_logs(FS, PurePath(tmp_path), lambda topic, partition: (topic, partition) != ("orders", 1)))
    assert [(log.topic, log.partition, log.segment) for log in logs] == [
        ("billing", 0, 0), ("billing", 0, 50), ("orders", 0, 0), ("orders", 0, 50),
    ]  # fmt: skip
    one = list(list_logs(FS, PurePath(tmp_path / "orders-1")))
    assert [log.segment for log in one] == [0, 50]
    assert list(list_logs(FS, one[1].path)) == [one[1]]


def test_segments_that_cannot_hold_a_wanted_offset_are_left_out(tmp_path: Path) -> None:
    for partition in ("a-0", "b-0"):
        for base in (0, 10, 20):
            write(tmp_path, b"", base, partition)
    logs = list(list_logs(FS, PurePath(tmp_path)))

    def left(wanted: Range) -> list[tuple[str, int]]:
        return [(log.topic, log.segment) for log in within(logs, wanted)]

    assert left(Range(first=10, last=19)) == [("a", 10), ("b", 10)]
    assert left(Range(first=20)) == [("a", 20), ("b", 20)]
    assert left(Range(last=9)) == [("a", 0), ("b", 0)]
    assert len(left(batches.EVERYTHING)) == 6


def test_tasks_are_cut_by_bytes_and_in_order(tmp_path: Path) -> None:
    for number, size in enumerate([5, 5, 90, 200, 1, 1]):
        write(tmp_path, b"x" * size, number)
    groups = cut(list_logs(FS, PurePath(tmp_path)), 100)
    assert [[log.size for log in group] for group in groups] == [[5, 5, 90], [200], [1, 1]]
    assert cut([], 100) == []


@pytest.mark.parametrize("lie", [0, 40])
def test_reading_begins_at_the_index_only_where_that_is_right(tmp_path: Path, lie: int) -> None:
    made = [batch_v2(offset, 2) for offset in range(0, 40, 2)]
    path = write(tmp_path, b"".join(made))
    at = sum(map(len, made[:10]))
    path.with_suffix(".index").write_bytes((21).to_bytes(4, "big") + (at + lie).to_bytes(4, "big"))
    rows = rows_of(path, Range(first=30, last=33))
    assert rows[0]["base_offset"] == (0 if lie else 20)
    assert {30, 32} <= {row["base_offset"] for row in rows}


def test_a_file_that_goes_or_shrinks_under_us_is_a_row_and_the_others_are_read(tmp_path: Path) -> None:
    data = b"".join(some_batches())
    for partition in ("a-0", "b-0", "c-0"):
        write(tmp_path, data, 0, partition)
    logs = list(list_logs(FS, PurePath(tmp_path)))
    Path(logs[0].path).unlink()
    logs[1] = logs[1]._replace(size=len(data) + 100)
    rows = [row for piece in read_logs(FS, logs) for row in piece.to_pylist()]
    by_topic = {topic: [row for row in rows if row["topic"] == topic] for topic in "abc"}
    assert [row["crc_valid"] for row in by_topic["a"]] == [None]
    assert "No such file" in by_topic["a"][0]["fault"]
    assert "ESTALE" in by_topic["b"][-1]["fault"]
    assert len(by_topic["c"]) == len(some_batches())


def test_the_columns_are_those_of_the_schema(tmp_path: Path) -> None:
    pieces = list(read_logs(FS, list(list_logs(FS, PurePath(write(tmp_path, b"".join(some_batches()) + b"rest"))))))
    assert len(pieces) == 2
    assert all(piece.schema == SCHEMA for piece in pieces)
