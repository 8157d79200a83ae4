"""One call of a recovery fails, once or from then on: a typed error, nothing lost, and the next run finishes.

`LOGMEND_FAULTS` is the number of calls that are tried for each kind of fault, `all` for every one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random

import pytest
from support.damages import KINDS
from support.log_dirs import SOUND, TOP, Files, damaged, live, on_disk, plan_of, recover
from support.memory_fs import FaultFs
from support.recovered import assert_clean, assert_nothing_is_lost, next_time

from storage.base.errors import EnvironmentFault

FAULTS = os.environ.get("LOGMEND_FAULTS", "12")
DAMAGED = {
    "cut": damaged(KINDS["damage_with_later_segments"], KINDS["orphans"], files=SOUND),
    "derived": damaged(KINDS["indexes_wrong"], KINDS["epochs_wrong"], KINDS["points_corrupt"], files=SOUND),
    "marker": damaged(KINDS["marker_beside_bad_derived_files"], KINDS["orphans"], files=SOUND),
}


def undisturbed(files: Files) -> tuple[Files, int]:
    fs = on_disk(files)
    counting = FaultFs(fs, 0, errno.EIO)
    recover(counting)
    return live(fs.contents(str(TOP))), counting.calls


def without_temporary(files: Files) -> Files:
    return {name: data for name, data in files.items() if not name.endswith(".tmp")}


@pytest.mark.parametrize("forever", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES], ids=lambda n: errno.errorcode[n])
@pytest.mark.parametrize("which", DAMAGED)
def test_a_call_that_fails_loses_nothing_and_the_next_run_finishes(which: str, number: int, forever: bool) -> None:
    files = DAMAGED[which]
    wanted, calls = undisturbed(files)
    every = range(1, calls + 1)
    chosen = every if FAULTS == "all" else random.Random(number).sample(every, int(FAULTS))
    for nth in chosen:
        fs = on_disk(files)
        with contextlib.suppress(EnvironmentFault):  # and no other error
            recover(FaultFs(fs, nth, number, forever, short_write=True))
        assert_nothing_is_lost(files, fs.contents(str(TOP)))
        recover(fs, created_ms=next_time(fs))
        found = without_temporary(live(fs.contents(str(TOP))))
        assert found == wanted, (nth, [n for n in found.keys() | wanted.keys() if found.get(n) != wanted.get(n)])
        assert_nothing_is_lost(files, fs.contents(str(TOP)))
        assert_clean(fs)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("kind", ["damage_with_later_segments", "torn_tail", "marker_beside_bad_derived_files"])
def test_what_cannot_be_read_is_never_cut_nor_called_clean(kind: str, forever: bool) -> None:
    files = damaged(KINDS[kind], files=SOUND)
    reads = FaultFs(on_disk(files), 0, errno.EIO, only=("read_into", "open_read", "entries", "stat"))
    plan_of(reads)
    for nth in range(1, reads.calls + 1):
        fs = on_disk(files)
        try:
            plan = plan_of(FaultFs(fs, nth, errno.EIO, forever, only=("read_into", "open_read", "entries", "stat")))
        except EnvironmentFault:
            continue
        assert plan.stopped, nth
        assert plan.is_empty, nth
        assert plan.status.name == "ENVIRONMENT", nth
