"""The verdict on a single file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.batches import batch_v2, record, reseal
from support.command import make_log_dir, sound_log

from cli.inspect.verify_file import verify_file
from recovery.plan.findings import Damage
from recovery.plan.plan import PlanOptions
from storage.base.errors import ExitStatus
from storage.disk.fs import OsFs, ReadOnlyFs


def verdict(path: Path, depth: str = "full") -> tuple[ExitStatus, list[Damage]]:
    outcome = verify_file(ReadOnlyFs(OsFs()), path, PlanOptions(depth=depth))
    return outcome.status, [finding.kind for finding in outcome.findings or ()]


def test_a_sound_log_is_clean_though_nothing_lies_beside_it(tmp_path: Path) -> None:
    assert verdict(make_log_dir(tmp_path, sound_log())) == (ExitStatus.CLEAN, [])


def test_a_torn_log_is_not(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path, sound_log() + batch_v2(6)[:40])
    assert verdict(log) == (ExitStatus.FINDINGS, [Damage.TORN_TAIL])


def test_records_are_looked_into_when_asked(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path, batch_v2(0, [record()], payload=b"no record", count=1))
    assert verdict(log) == (ExitStatus.CLEAN, [])
    assert verdict(log, "records") == (ExitStatus.FINDINGS, [Damage.RECORD_UNDECODABLE])


def test_an_index_is_held_against_its_log(tmp_path: Path) -> None:
    index = make_log_dir(tmp_path, sound_log()).with_suffix(".index")
    index.write_bytes(struct.pack(">ii", 3, 7))
    assert verdict(index) == (ExitStatus.FINDINGS, [Damage.INDEX_OFF_BATCH])
    index.write_bytes(struct.pack(">ii", 3, len(batch_v2(0, 2))))
    assert verdict(index) == (ExitStatus.CLEAN, [])


def test_an_index_without_its_log_is_judged_by_its_shape(tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(struct.pack(">iiii", 3, 7, 2, 9))
    assert verdict(index) == (ExitStatus.FINDINGS, [Damage.INDEX_MISORDERED])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00000000000000000005.snapshot", Damage.SNAPSHOT_CORRUPT),
        ("leader-epoch-checkpoint", Damage.EPOCHS_CORRUPT),
        ("recovery-point-offset-checkpoint", Damage.CHECKPOINT_CORRUPT),
        ("partition.metadata", Damage.METADATA_CORRUPT),
        ("00000000000000000005-0000000001.checkpoint", Damage.METADATA_SNAPSHOT_CORRUPT),
    ],
)
def test_a_small_file_of_rubbish_is_damaged(tmp_path: Path, name: str, kind: Damage) -> None:
    (tmp_path / name).write_bytes(b"rubbish")
    status, kinds = verdict(tmp_path / name)
    assert (status, set(kinds)) == (ExitStatus.FINDINGS, {kind})


def test_a_format_of_a_newer_broker_has_a_status_of_its_own(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path, sound_log() + reseal(batch_v2(6, magic=3)))
    assert verdict(log) == (ExitStatus.UNSUPPORTED, [Damage.UNSUPPORTED])


def test_a_tail_that_was_set_aside_is_read_for_what_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "kept.00000000000000000000.log.812.0123456789ab.logmend"
    kept.write_bytes(batch_v2(6)[:40])
    assert verdict(kept) == (ExitStatus.FINDINGS, [Damage.GARBAGE_TAIL])


def test_a_file_that_no_broker_writes_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    assert verdict(tmp_path / "letter.txt")[0] is ExitStatus.USAGE
