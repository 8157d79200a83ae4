"""What is found of what recoveries set aside."""

from __future__ import annotations

from pathlib import Path

from golden import golden
from support.recovering import options_of, recover

from recovery.evidence.kept import find_kept, find_orphans
from recovery.evidence.quarantine import expire
from storage.disk.fs import OsFs


def damaged(tmp_path: Path) -> Path:
    partition = golden.unpack("two-disks", tmp_path)["0/data/events-5"]
    with (partition / "00000000000000002653.log").open("ab") as file:
        file.write(b"torn" * 10)
    recover(partition.parent, options_of(golden.expected("two-disks")["config"]))
    return partition


def test_what_was_cut_is_listed_and_none_of_it_is_an_orphan(tmp_path: Path) -> None:
    partition = damaged(tmp_path)
    kept, unreadable = find_kept(OsFs(), [partition.parent])
    assert not unreadable
    cuts = [item for one in kept for item in one.manifest.items if item.step == "cut" and not item.zeroes]
    assert [(cut.name, cut.size) for cut in cuts] == [("00000000000000002653.log", 40)]
    assert (partition / cuts[0].kept).read_bytes() == b"torn" * 10
    assert find_orphans(OsFs(), [partition.parent], kept) == []


def test_a_copy_without_a_manifest_is_an_orphan(tmp_path: Path) -> None:
    partition = damaged(tmp_path)
    stray = partition / "kept.00000000000000002653.log.9.0123456789ab.logmend"
    stray.write_bytes(b"x")
    kept, _ = find_kept(OsFs(), [partition.parent])
    assert [orphan.path for orphan in find_orphans(OsFs(), [partition.parent], kept)] == [stray]


def test_expiry_frees_the_bytes_and_leaves_nothing_of_ours(tmp_path: Path) -> None:
    partition = damaged(tmp_path)
    kept, _ = find_kept(OsFs(), [partition.parent])
    held = sum(path.stat().st_size for path in partition.parent.rglob("kept.*"))
    assert expire(OsFs(), kept) == held > 0
    assert [path for path in partition.parent.rglob("*") if "logmend" in path.name] == []


def test_copies_that_are_kept_elsewhere_are_for_their_owner_alone(tmp_path: Path) -> None:
    partition = golden.unpack("two-disks", tmp_path)["0/data/events-5"]
    with (partition / "00000000000000002653.log").open("ab") as file:
        file.write(b"torn" * 10)
    place = tmp_path / "elsewhere"
    place.mkdir()
    recover(partition.parent, options_of(golden.expected("two-disks")["config"]), quarantine_dir=place)
    made = list(place.rglob("*"))
    assert len(made) > 2
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o600}
