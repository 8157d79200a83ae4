"""What a name on the command line stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import make_log_dir, sound_log

from cli.recover.work import find_targets
from cli.settings.targets import Target, TargetKind, absolute, ensure_log_dir, find_target, with_metadata_dir
from recovery.plan.plan import PlanOptions
from storage.base.errors import ConfigInvalid
from storage.disk.fs import OsFs

FS = OsFs()


def kind_of(path: Path) -> TargetKind:
    return find_target(FS, str(path)).kind


def test_a_log_directory_a_partition_and_a_file_are_told_apart(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path, sound_log())
    assert [kind_of(path) for path in (tmp_path, log.parent, log)] == list(TargetKind)


def test_a_log_directory_may_be_called_like_a_partition(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "data-0", sound_log())
    (tmp_path / "data-1").mkdir()
    (tmp_path / "data-1" / "meta.properties").touch()
    assert kind_of(tmp_path / "data-0") is TargetKind.LOG_DIR
    assert kind_of(tmp_path / "data-1") is TargetKind.LOG_DIR


def test_a_partition_is_one_by_any_of_its_files(tmp_path: Path) -> None:
    for name in ("00000000000000000005.index", "00000000000000000005.log.swap", "partition.metadata"):
        directory = tmp_path / name / "orders-0"
        directory.mkdir(parents=True)
        (directory / name).touch()
        assert kind_of(directory) is TargetKind.PARTITION


@pytest.mark.parametrize("beside", ["meta.properties", "recovery-point-offset-checkpoint", ".lock", "orders-0/"])
def test_a_stray_file_with_the_name_of_a_segment_makes_no_partition_of_a_log_directory(
    tmp_path: Path, beside: str
) -> None:
    (tmp_path / "00000000000000000005.log").touch()
    if beside.endswith("/"):
        (tmp_path / beside).mkdir()
    else:
        (tmp_path / beside).touch()
    assert kind_of(tmp_path) is TargetKind.LOG_DIR


def test_what_a_recovery_has_kept_makes_no_log_directory_of_a_partition(tmp_path: Path) -> None:
    for name in ("00000000000000000005.log", "0123456789ab.logmend.json", "kept.00000000000000000005.log.x.logmend"):
        (tmp_path / name).touch()
    assert kind_of(tmp_path) is TargetKind.PARTITION


def test_a_link_and_a_relative_name_lead_to_the_same_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    assert {absolute(name) for name in ("real", "link", "./real/", str(tmp_path / "x/../real"))} == {tmp_path / "real"}


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigInvalid):
        absolute(name)


def test_a_partition_of_a_named_log_directory_is_part_of_it(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path, sound_log())
    found, failed = find_targets(FS, [str(log.parent), str(tmp_path), str(tmp_path)])
    assert (found, failed) == ([Target(TargetKind.LOG_DIR, tmp_path)], [])


def test_a_name_that_leads_nowhere_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    found, failed = find_targets(FS, [str(tmp_path / "gone"), str(tmp_path)])
    assert [target.path for target in found] == [tmp_path]
    assert [outcome.path for outcome in failed] == [tmp_path / "gone"]


def test_a_directory_of_other_things_is_no_log_directory(tmp_path: Path) -> None:
    ensure_log_dir(FS, tmp_path)
    (tmp_path / "letters").mkdir()
    with pytest.raises(ConfigInvalid, match="is it a log directory"):
        ensure_log_dir(FS, tmp_path)
    (tmp_path / "meta.properties").touch()
    ensure_log_dir(FS, tmp_path)


def test_the_metadata_log_is_found_among_the_log_directories(tmp_path: Path) -> None:
    (tmp_path / "b/__cluster_metadata-0").mkdir(parents=True)
    targets = [Target(TargetKind.LOG_DIR, tmp_path / name) for name in "ab"]
    assert with_metadata_dir(FS, targets, PlanOptions()).metadata_dir == str(tmp_path / "b")
    assert with_metadata_dir(FS, targets, PlanOptions(metadata_dir="/m")).metadata_dir == "/m"
    assert with_metadata_dir(FS, targets[:1], PlanOptions()).metadata_dir is None
