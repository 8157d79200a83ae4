"""The overlay: changes in memory over files that are only read; the conformance suite has the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.base.errors import FileVanished, ReadFault
from storage.disk.fs import OsFs, ReadOnlyFs, read_all, replace_atomically
from storage.disk.overlay_fs import OverlayFs


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "0.log").write_bytes(b"0123456789" * 1000)
    (tmp_path / "point").write_text("old")
    return tmp_path


def overlay(top: Path) -> OverlayFs:
    return OverlayFs(ReadOnlyFs(OsFs()), [top], now_ns=77)


def contents(top: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(top)): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in sorted(top.rglob("*"))
    }


def test_everything_may_be_changed_and_nothing_is(top: Path) -> None:
    before, fs = contents(top), overlay(top)
    log = top / "orders-0" / "0.log"
    fs.truncate(log, 25)
    with fs.open_append(log) as file:
        file.append(b"new")
        file.sync()
    replace_atomically(fs, top / "point", b"new")
    fs.rename(log, top / "orders-0" / "1.log")
    fs.make_dir(top / "made")
    fs.rename(top / "orders-0", top / "made" / "moved")
    fs.set_mtime(top / "point", 5)
    assert read_all(fs, top / "made" / "moved" / "1.log", 100) == b"0123456789" * 2 + b"01234new"
    assert fs.stat(top / "made" / "moved" / "1.log").size == 28
    assert (read_all(fs, top / "point", 10), fs.stat(top / "point").mtime_ns) == (b"new", 5)
    assert list(fs.entries(top)) == ["made", "point"]
    with pytest.raises(FileVanished):
        fs.stat(log)
    fs.remove(top / "made" / "moved" / "1.log")
    fs.remove_dir(top / "made" / "moved")
    assert contents(top) == before


def test_a_file_that_is_open_reads_on_while_it_is_renamed_and_cut(top: Path) -> None:
    fs, log = overlay(top), top / "orders-0" / "0.log"
    with fs.open_read(log) as file:
        fs.rename(log, log.with_suffix(".deleted"))
        fs.truncate(log.with_suffix(".deleted"), 15)
        buffer = memoryview(bytearray(20))
        assert (file.read_into(5, buffer), bytes(buffer[:10])) == (10, b"5678901234")
        assert file.read_into(15, buffer) == 0


def test_of_what_recovery_sets_aside_only_the_size_is_kept(top: Path) -> None:
    fs = overlay(top)
    with fs.create(top / "0.log.5.0123456789ab.logmend") as file:
        for _ in range(100):
            file.append(bytes(1 << 20))
    assert fs.stat(top / "0.log.5.0123456789ab.logmend").size == 100 << 20
    with fs.create(top / "0123456789ab.logmend.json") as manifest:
        manifest.append(b"{}")
    assert read_all(fs, top / "0123456789ab.logmend.json", 10) == b"{}"


def test_a_second_descriptor_of_the_file_below_reads_what_is_kept_of_it(top: Path) -> None:
    fs = overlay(top)
    with fs.open_read(top / "orders-0" / "0.log") as file:
        descriptor = file.duplicate()  # type: ignore[attr-defined]
        try:
            assert os.pread(descriptor, 10, 3) == b"3456789012"
        finally:
            os.close(descriptor)
    with pytest.raises(ValueError, match="closed"):
        file.duplicate()  # type: ignore[attr-defined]


def test_what_lies_outside_is_not_there(top: Path) -> None:
    fs = overlay(top)
    for path in (top.parent, top.parent / "other", Path("/etc/passwd")):
        with pytest.raises(FileVanished):
            fs.stat(path)
    with pytest.raises(FileVanished):
        fs.rename(top / "point", top.parent / "point")


def test_a_directory_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileVanished):
        overlay(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(ReadFault):
        overlay(tmp_path / "file")
