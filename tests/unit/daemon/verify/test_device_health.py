"""A device on which many files cannot be read in a short time is left alone until the operator resumes it."""

from __future__ import annotations

import errno
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.guarding import FakeClock, Guarded, Place

from daemon.ledger.disk import Disk
from daemon.status.model import ScrubState
from daemon.verify.device_health import DeviceHealth
from daemon.verify.options import ScrubOptions
from storage.disk.fs import read_fault


@pytest.fixture
def segments() -> int:
    return 6


class SickDisk(Disk):
    """Gives an error for some logs."""

    sick: frozenset[str] = frozenset()

    def open_read(self, path: PurePath) -> Any:
        if path.name in self.sick:
            raise read_fault("reading", path, OSError(errno.EIO, "Input/output error"))
        return super().open_read(path)

    def open_again(self, path: PurePath) -> Any:
        return self.open_read(path)


def test_many_bad_files_in_a_short_time_stop_the_scrub_of_their_device(place: Place, tmp_path: Path) -> None:
    disk = SickDisk()
    disk.sick = frozenset(f"{base:020}.log" for base in (0, 100, 200))
    options = ScrubOptions(cycle_seconds=3600, sick_errors=3, sick_seconds=600)
    guarded = Guarded(place, tmp_path / "state", scrub=options, disk=disk)
    guarded.scrub_now()
    assert guarded.status.scrub.state is ScrubState.SICK_DEVICE
    assert "scrub-resume" in guarded.status.scrub.reason
    (told,) = guarded.told.named("device_sick")
    assert told["errors"] == 3
    before = len(guarded.verified)
    guarded.run(7200)
    assert len(guarded.verified) == before
    disk.sick = frozenset()
    guarded.worker.command("scrub-resume")
    guarded.run(7200)
    assert len(guarded.verified) > before
    assert guarded.kinds == []
    guarded.close()


def test_errors_that_come_slowly_or_of_one_file_make_no_sick_device() -> None:
    clock = FakeClock()
    health = DeviceHealth(clock, 3, 60)
    for _ in range(10):
        assert not health.note(1, "a")
    for number in range(10):
        clock.pass_(40)
        assert not health.note(1, str(number))
    assert not health.is_sick(1)
    assert [health.note(2, name) for name in "abcd"] == [False, False, True, False]
    assert health.is_sick(2)
    assert not health.is_sick(1)
