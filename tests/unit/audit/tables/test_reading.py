"""Directories through `pyarrow.fs`, faults of disks, segments cut in parts, manifests."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs as arrow_fs
from support.auditing import NOW_MS, audit
from support.fleets import copy_fleet, log_of, sources

from audit.scan import listing, tasks
from audit.scan.listing import ListedSegment, list_log_dir
from audit.scan.metadata import read_metadata
from audit.scan.pieces import PieceRow, SegmentTask, cut, joined
from audit.scan.tasks import Verifier, utc_now
from audit.spark.host_scan import COLUMNS, check_report, scan_host
from audit.tables.options import AuditOptions, Source, read_manifest, sources_from_flags
from audit.tables.reading import ArrowFs, open_place
from audit.tables.schema import FindingRow, SegmentRow
from storage.base.errors import ConfigInvalid, FileVanished, ReadFault
from storage.disk.fs import OsFs, ReadFile
from storage.reading.log_reader import LogReader

OPTIONS = AuditOptions(now_ms=NOW_MS)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return copy_fleet(tmp_path)


def segments(source: Source) -> list[ListedSegment]:
    return [row for row in list_log_dir(source, OPTIONS) if isinstance(row, ListedSegment)]


def through_arrow(name: str) -> tuple[ArrowFs, PurePath]:
    return ArrowFs(arrow_fs.LocalFileSystem()), PurePath(name)


def test_an_object_store_gives_the_rows_that_the_directory_gives(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source, *_) = sources(fleet, "c")
    verifier = Verifier(OPTIONS, utc_now(NOW_MS))
    (first, *_) = segments(source)
    local = [*list_log_dir(source, OPTIONS), next(verifier.verify(SegmentTask(first)))]
    monkeypatch.setattr(listing, "open_place", through_arrow)
    monkeypatch.setattr(tasks, "open_place", through_arrow)
    assert [*list_log_dir(source, OPTIONS), next(verifier.verify(SegmentTask(first)))] == local


def test_what_a_store_lacks_has_vanished_and_what_it_refuses_is_a_fault(tmp_path: Path) -> None:
    store, root = through_arrow(str(tmp_path))
    (tmp_path / "d").mkdir()
    with pytest.raises(FileVanished):
        store.stat(root / "nowhere")
    with pytest.raises(FileVanished):
        store.open_read(root / "nowhere")
    with pytest.raises(FileVanished):
        store.entries(root / "nowhere")
    with pytest.raises(ReadFault):
        store.open_read(root / "d")


class Refusing:
    """A store that has words for why it refuses, and no number."""

    def get_file_info(self, _: object) -> Any:
        raise OSError("When listing objects: AWS Error NO_SUCH_BUCKET:\nThe bucket\x1b does not exist" + "." * 1000)


def test_a_store_that_refuses_is_quoted() -> None:
    with pytest.raises(ReadFault, match="NO_SUCH_BUCKET") as caught:
        ArrowFs(Refusing()).entries(PurePath("logs/1"))
    told = str(caught.value)
    assert told.startswith("logs/1: listing failed: When listing objects: AWS Error NO_SUCH_BUCKET:\\nThe bucket\\x1b")
    assert len(told) < 400
    assert caught.value.errno == errno.EIO


def test_a_uri_of_an_unknown_scheme_is_refused_and_a_file_uri_is_a_path() -> None:
    with pytest.raises(ConfigInvalid):
        open_place("gopher://host/logs")
    assert open_place("file:///a%20b/c")[1] == PurePath("/a b/c")


class BadDisk(OsFs):
    """Reads of some files end in an input/output error."""

    def __init__(self, bad: Path) -> None:
        self._bad = bad

    def open_read(self, path: PurePath) -> ReadFile:
        file = super().open_read(path)
        if Path(path) == self._bad:

            def fail(position: int, target: memoryview) -> int:
                raise ReadFault("reading", path, OSError(errno.EIO, os.strerror(errno.EIO)))

            file.read_into = fail  # type: ignore[method-assign]
        return file


def test_a_disk_that_returns_errors_is_a_row_with_the_error_and_no_hole(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = log_of(fleet, "0", "ledger-0", 1)
    monkeypatch.setattr(tasks, "open_place", lambda name: (BadDisk(bad), PurePath(name)))
    audited = audit(sources(fleet, "c"))
    assert audited.serious == {("0", "ledger-0", "unreadable")}
    assert audited.unhealthy == {("ledger-0", "unreadable")}
    (row,) = (row for row in audited.findings if row.kind == "unreadable")
    assert "EIO" in row.evidence
    assert row.path == str(bad)


def test_a_segment_that_retention_took_meanwhile_is_a_note(fleet: Path) -> None:
    source = sources(fleet, "c")[0]
    first = next(s for s in segments(source) if s.directory == "ledger-0")
    for file in (Path(source.log_dir) / "ledger-0").glob("0000*0000.*"):
        file.unlink()
    (row,) = Verifier(OPTIONS, utc_now(NOW_MS)).verify(SegmentTask(first))
    assert isinstance(row, FindingRow)
    assert (row.kind, row.severity) == ("vanished", "note")


def test_a_segment_that_was_compacted_meanwhile_is_read_as_it_is_now(fleet: Path) -> None:
    source = sources(fleet, "c")[0]
    first = next(s for s in segments(source) if s.directory == "ledger-0")
    path = log_of(fleet, "0", "ledger-0", 0)
    path.write_bytes(path.read_bytes()[: first.size_bytes // 2])
    rows = list(Verifier(OPTIONS, utc_now(NOW_MS)).verify(SegmentTask(first)))
    assert isinstance(rows[0], SegmentRow)
    assert rows[0].size_bytes == first.size_bytes // 2


# ---- parts


def parts_of(source: Source, split: int = 20_000) -> tuple[ListedSegment, list[SegmentTask]]:
    segment = next(s for s in segments(source) if s.directory == "ledger-0")
    return segment, cut(segment, split)


def pieces(parts: list[SegmentTask]) -> list[PieceRow]:
    verifier = Verifier(OPTIONS, utc_now(NOW_MS))
    return [row for part in parts for row in verifier.verify(part) if isinstance(row, PieceRow)]


def test_parts_of_a_segment_join_to_what_reading_it_whole_gives(fleet: Path) -> None:
    segment, parts = parts_of(sources(fleet, "c")[0])
    assert len(parts) > 2
    whole = next(Verifier(OPTIONS, utc_now(NOW_MS)).verify(SegmentTask(segment)))
    rows = joined(segment, pieces(parts), utc_now(NOW_MS))
    assert rows is not None
    assert rows[0] == whole


def test_parts_do_not_join_where_the_index_lies(fleet: Path) -> None:
    source = sources(fleet, "c")[0]
    path = log_of(fleet, "0", "ledger-0", 0).with_suffix(".index")
    data = bytearray(path.read_bytes())
    for at in range(7, len(data), 8):
        data[at] ^= 1
    path.write_bytes(data)
    segment, parts = parts_of(source)
    assert len(parts) > 2
    assert joined(segment, pieces(parts), utc_now(NOW_MS)) is None


def test_parts_do_not_join_where_one_is_missing_or_rotten(fleet: Path) -> None:
    source = sources(fleet, "c")[0]
    segment, parts = parts_of(source)
    read = pieces(parts)
    assert joined(segment, read[:-1], utc_now(NOW_MS)) is None
    path = log_of(fleet, "0", "ledger-0", 0)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    assert joined(segment, pieces(parts), utc_now(NOW_MS)) is None


def test_a_segment_is_whole_where_it_is_small_or_has_no_index(fleet: Path) -> None:
    source = sources(fleet, "c")[0]
    segment, _ = parts_of(source)
    assert cut(segment, segment.size_bytes) == [SegmentTask(segment)]
    log_of(fleet, "0", "ledger-0", 0).with_suffix(".index").unlink()
    assert cut(segment, 20_000) == [SegmentTask(segment)]


def test_memory_of_a_verifier_does_not_grow_with_what_it_reads() -> None:
    reader = LogReader()
    assert len(reader._buffer.view) <= 8 << 20


# ---- metadata, reports, manifests


def test_the_metadata_of_each_broker_assigns_the_partitions_as_the_controller_did(fleet: Path) -> None:
    for source in sources(fleet, "c"):
        rows = {row.partition: row for row in read_metadata(source).rows(source)}
        assert {number: row.replicas for number, row in rows.items()} == {0: [2, 0, 1], 1: [0, 1, 2], 2: [1, 2, 0]}
        assert {row.topic_id for row in rows.values()} == {"gaG54kYsR8uf1C9eUnbv8g"}


def test_a_report_of_a_host_has_all_rows_and_is_whole_or_not_there(fleet: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.parquet"
    size, found = scan_host(sources(fleet, "c"), OPTIONS, target)
    table = pq.read_table(target)
    counts = {name: table.num_rows - table.column(name).null_count for name in COLUMNS}
    assert counts["listed_segment"] == counts["segment"] == 39
    assert (counts["listed_replica"], counts["listed_log_dir"], counts["assigned"]) == (12, 3, 9)
    assert (size, found) == (sum(row["size_bytes"] for row in table.column("segment").to_pylist() if row), 0)
    assert not list(tmp_path.glob("*.tmp"))
    check_report(str(target))
    pq.write_table(pa.table({"a": [1]}), target)
    with pytest.raises(ConfigInvalid, match="not one of this version"):
        check_report(str(target))


ROWS: list[dict[str, Any]] = [
    {"cluster": "east", "broker": "1", "log_dir": "/d1"},
    {"cluster": "", "broker": "2", "log_dir": "s3://b/d2"},
]
WANTED = [Source("east", "1", "/d1"), Source("cluster", "2", "s3://b/d2")]


def test_a_manifest_is_csv_json_lines_or_parquet(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("cluster,broker,log_dir\neast,1,/d1\n,2,s3://b/d2\n")
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "m.parquet")
    for name in ("m.csv", "m.jsonl", "m.parquet"):
        assert read_manifest(str(tmp_path / name)) == WANTED


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.txt", "x"),
        ("m.csv", "broker,log_dir\n1,\n"),
        ("m.csv", "broker,log_dir\n"),
        ("m.jsonl", "[1]\n"),
        ("m.jsonl", "{"),
        ("m.parquet", "no parquet"),
        ("m.csv", "broker,log_dir\n1,/d\n1,/d\n"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigInvalid):
        read_manifest(str(tmp_path / name))


def test_flags_name_broker_and_path() -> None:
    assert sources_from_flags(["1=/a=b"], "c") == [Source("c", "1", "/a=b")]
    for wrong in ("/a", "=/a", "1="):
        with pytest.raises(ConfigInvalid):
            sources_from_flags([wrong])
