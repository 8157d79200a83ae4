"""What a broker leaves when it shuts down: leftovers that it removes itself at its next start."""

from __future__ import annotations

import pytest
from support.damages import KINDS, leftover_cleaned
from support.log_dirs import MARKER, OPTIONS, TOP, Change, damaged, live, on_disk, plan_of, recover, sound

from storage.base.errors import ExitStatus


@pytest.mark.parametrize("change", [leftover_cleaned, KINDS["leftover_deleted"]])
def test_they_are_notes_and_stay(change: Change) -> None:
    plan = plan_of(on_disk(damaged(change, files=sound(point=30) | {MARKER: b""})))
    assert plan.is_empty
    assert plan.status is ExitStatus.CLEAN
    assert {finding.kind.value for finding in plan.findings} == {change.__name__}


def test_to_free_the_room_of_deleted_files_does_not_take_the_marker_away() -> None:
    fs = on_disk(damaged(KINDS["leftover_deleted"], files=sound(point=30) | {MARKER: b""}))
    frees = OPTIONS._replace(frees_deleted=True)
    assert plan_of(fs, frees).before == ()
    recover(fs, frees)
    left = live(fs.contents(str(TOP)))
    assert left[MARKER] == b""
    assert not [name for name in left if name.endswith(".deleted")]
