"""What cannot be read, and what is found, as long as it is so."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.calling import call
from support.guarding import ORDERS as NAME
from support.guarding import Guarded, Place, batches, grow, points, ranges

from daemon.ledger.disk import DeviceFile, Disk
from daemon.status.model import CellVerdict
from storage.disk.fs import read_fault


class FlakyFile(DeviceFile):
    """Shows one byte wrong."""

    def read_into(self, position: int, target: memoryview) -> int:
        count = super().read_into(position, target)
        place = 1510 + 50
        if position <= place < position + count:
            target[place - position] ^= 1
        return count


class FlakyDisk(Disk):
    """Reads one log wrong at the first look; with `fails` not at all, at every look."""

    bad = ""
    fails: int | None = None

    def open_read(self, path: PurePath) -> Any:
        if path.name == self.bad:
            if self.fails is not None:
                raise read_fault("reading", path, OSError(self.fails, os.strerror(self.fails)))
            return FlakyFile(path, lambda _: None)
        return super().open_read(path)

    def open_again(self, path: PurePath) -> DeviceFile:
        if path.name == self.bad and self.fails is not None:
            raise read_fault("reading", path, OSError(self.fails, os.strerror(self.fails)))
        return super().open_again(path)


def test_a_bad_read_that_is_good_past_the_page_cache_is_transient(place: Place, tmp_path: Path) -> None:
    disk = FlakyDisk()
    guarded = Guarded(place, tmp_path / "state", disk=disk)
    guarded.run(5)
    disk.bad = f"{300:020}.log"
    grow(place, 400)
    guarded.run(3)
    disk.bad = ""
    guarded.run(60)
    assert guarded.kinds == []
    (told,) = guarded.told.named("read_transient")
    assert (told["topic"], told["position"]) == ("orders", 1510)
    assert ranges(guarded)[-1][1] == 450
    guarded.close()


class MovingDisk(FlakyDisk):
    """Reads wrong at the second look as well, while another process replaces the file that is read."""

    moves = 0

    def open_again(self, path: PurePath) -> DeviceFile:
        if path.name != self.bad or not self.moves:
            return super().open_again(path)
        self.moves -= 1
        file = FlakyFile(path, lambda _: None)
        copy = Path(path).with_suffix(".copy")
        copy.write_bytes(Path(path).read_bytes())
        copy.replace(path)
        if not self.moves:
            self.bad = ""
        return file


@pytest.mark.parametrize("how", ["flushed", "scrubbed"])
def test_a_second_look_at_a_file_that_is_replaced_meanwhile_counts_for_nothing(
    place: Place, tmp_path: Path, how: str
) -> None:
    disk = MovingDisk()
    place.append(NAME, 200, batches(300, 5))
    guarded = Guarded(place, tmp_path / "state", disk=disk)
    guarded.run(5)
    if how == "flushed":
        disk.bad, disk.moves = f"{300:020}.log", 2
        grow(place, 400)
    else:
        disk.bad, disk.moves = f"{200:020}.log", 2
        guarded.worker.command("scrub-now")
    guarded.run(90)
    assert disk.moves == 0
    assert guarded.told.named("finding_opened") == []
    guarded.close()


def test_a_file_that_cannot_be_read_is_a_finding_and_the_others_go_on(place: Place, tmp_path: Path) -> None:
    disk = FlakyDisk()
    place.make("pay-0", 2)
    guarded = Guarded(place, tmp_path / "state", disk=disk)
    guarded.run(5)
    disk.bad, disk.fails = f"{300:020}.log", errno.EIO
    grow(place, 400)
    place.append("pay-0", 100, batches(200, 5))
    place.flush("pay-0", 250)
    guarded.run(60)
    assert guarded.kinds == ["read_error"]
    assert guarded.status.findings[0].command.startswith("logmend verify")
    assert any(f["topic"] == "pay" for f in guarded.told.named("range_verified"))
    cells = {cell.topic: cell.verdict for cell in guarded.status.partitions}
    assert cells["orders"] is CellVerdict.UNREADABLE
    guarded.close()


# ---- findings


def test_a_finding_has_the_same_id_after_a_restart_and_goes_with_its_file(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 5))
    place.flip(NAME, 300, 1510 + 100)
    place.flush(NAME, 450)
    guarded.run(30)
    (before,) = guarded.status.findings
    guarded.close()
    guarded.open()
    guarded.scrub_now()
    (after,) = guarded.status.findings
    assert (after.id, after.first_seen_ms) == (before.id, before.first_seen_ms)
    assert after.last_seen_ms > before.last_seen_ms
    assert len(guarded.told.named("finding_opened")) == 1
    shutil.rmtree(place.directory(NAME))
    guarded.run(120)
    assert guarded.kinds == []
    assert [f["id"] for f in guarded.told.named("finding_closed")] == [before.id]


def test_a_finding_goes_once_the_bytes_are_sound_again(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 5))
    place.flip(NAME, 300, 1510 + 100)
    place.flush(NAME, 450)
    guarded.run(30)
    assert guarded.kinds == ["batch_crc"]
    place.flip(NAME, 300, 1510 + 100)
    guarded.scrub_now()
    assert guarded.kinds == []
    assert guarded.status.partitions[0].verdict is CellVerdict.SOUND


def test_a_finding_leads_to_a_stored_plan_with_the_command_that_runs_it(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 5))
    place.flip(NAME, 300, 1510 + 100)
    place.flush(NAME, 450)
    guarded.run(30)
    (told,) = guarded.told.named("plan_stored")
    plan = json.loads(Path(str(told["path"])).read_text())
    assert plan["command"] == told["command"] == guarded.status.findings[0].command
    (partition,) = plan["plans"][0]["partitions"]
    assert partition["held"]
    assert [v["finding"]["kind"] for v in partition["verdicts"] if v["decision"] == "hold"] == ["batch_crc"]
    place.flip(NAME, 300, 1510 + 100)
    guarded.scrub_now()
    assert not Path(str(told["path"])).exists()


def test_the_command_of_a_finding_ends_it_once_the_replica_is_named(
    guarded: Guarded, place: Place, tmp_path: Path
) -> None:
    assert call("recover", "--depth", "full", "--discard", place.path).returncode == 0  # it gets its epochs
    replica = Path(shutil.copytree(place.path, tmp_path / "replica"))
    (replica / "replication-offset-checkpoint").write_text(points({NAME: 400}))
    place.flip(NAME, 100, 500)
    (place.path / NAME / f"{200:020d}.index").write_bytes(bytes(range(16)))
    guarded.run(3600)
    commands = [finding.command for finding in guarded.status.findings]
    assert len(commands) >= 2
    for line in sorted(set(commands)):
        words = [str(replica) if word == "REPLICA" else word for word in shlex.split(line)]
        assert call(*words[1:]).returncode in (0, 3)
    assert call("verify", "--depth", "full", place.path).returncode == 0
    guarded.run(3 * 3600)
    assert guarded.status.findings == ()
