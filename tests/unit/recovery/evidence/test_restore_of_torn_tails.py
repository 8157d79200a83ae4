"""Putting a cut tail back, over what a power cut in the middle of putting it back has left: lengths without bytes."""

from __future__ import annotations

import pytest
from support.log_dirs import OPTIONS, SOUND, TOP, Files, live, on_disk, place, recover

from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import restore
from storage.base.errors import PlanStale

LOG = place(20)
CUT = len(SOUND[LOG])
BEFORE = {**SOUND, LOG: SOUND[LOG] + bytes(range(1, 200)) * 3}


def after_recovery() -> Files:
    fs = on_disk(BEFORE)
    recover(fs, OPTIONS)
    files = fs.contents(str(TOP))
    assert len(files[LOG]) == CUT
    return files


def restored(tail: bytes) -> Files:
    files = after_recovery()
    fs = on_disk({**files, LOG: files[LOG] + tail})
    restore(fs, find_kept(fs, [TOP])[0])
    return live(fs.contents(str(TOP)))


@pytest.mark.parametrize(
    "tail",
    [
        bytes(50),
        bytes(len(BEFORE[LOG]) - CUT),
        BEFORE[LOG][CUT : CUT + 20] + bytes(80),
        bytes(100) + BEFORE[LOG][CUT + 100 :],
        BEFORE[LOG][CUT : CUT + 33],
    ],
    ids=["zeroes", "all zeroes", "part and zeroes", "a hole", "part"],
)
def test_what_an_interrupted_append_leaves_is_no_reason_to_refuse(tail: bytes) -> None:
    assert restored(tail) == BEFORE


@pytest.mark.parametrize("tail", [b"new", bytes(10) + b"new", bytes(len(BEFORE[LOG]) - CUT + 1)])
def test_what_somebody_else_appended_is_left_alone(tail: bytes) -> None:
    with pytest.raises(PlanStale, match="something was appended"):
        restored(tail)
