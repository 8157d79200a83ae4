"""A fault before the first change leaves the directory as it was; the caller can tell how far the work had come."""

from __future__ import annotations

import errno
from pathlib import PurePath

import pytest
from support.damages import KINDS
from support.log_dirs import OPTIONS, SOUND, TOP, damaged, on_disk
from support.memory_fs import Call, MemoryFs
from support.wrapped_fs import FaultFs

from recovery.apply.execute import Executed, execute
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from storage.base.errors import DiskFull, EnvironmentFault, NoRoom

KEPT = PurePath("/kept")
DELETED = "orders-0/00000000000000000000.log.deleted"
FILES = damaged(KINDS["damage_with_later_segments"], files=SOUND) | {DELETED: b"left by retention" * 99}
FREES = {"beside": False, "elsewhere": True, "discard": True}
WAYS = {"beside": {}, "elsewhere": {"quarantine_dir": KEPT}, "discard": {"discard": True}}


def disk() -> MemoryFs:
    fs = on_disk(FILES)
    fs.make_dir(KEPT)
    return fs


def carry_out(fs: MemoryFs, way: str, nth: int, methods: set[str]) -> tuple[Executed, Exception | None]:
    planned = plan_log_dir(fs, TOP, OPTIONS._replace(frees_deleted=FREES[way]))
    done = Executed(planned.plan.plan_id)
    orders = Orders(done.plan_id, 1, "test", **WAYS[way])
    try:
        faulty = FaultFs(fs, nth, errno.ENOSPC, only=methods)
        execute(faulty, planned.plan, planned.content_of, orders, SilentReporter(), effects=done)
    except EnvironmentFault as error:
        return done, error
    return done, None


@pytest.mark.parametrize("method", ["create", "append", "sync", "link", "make_dir"])
@pytest.mark.parametrize("way", WAYS)
def test_a_disk_that_is_full_before_the_first_change_gets_back_what_was_written(way: str, method: str) -> None:
    tried = 0
    for nth in range(1, 200):
        fs = disk()
        done, error = carry_out(fs, way, nth, {method})
        if error is None:
            break
        assert isinstance(error, DiskFull)
        assert not done.changing
        tried += 1
        now = fs.contents(str(TOP))
        gone = {DELETED} if done.freed else set()
        record = {name for name in now if name.endswith(".logmend.json") and done.freed}
        assert {name: data for name, data in now.items() if name not in record} == {
            name: data for name, data in FILES.items() if name not in gone
        }
        if way == "elsewhere":
            copies = fs.contents(str(KEPT))
            assert not done.freed or FILES[DELETED] in copies.values()
            assert done.freed or not copies
    assert tried > 0 or method in ("link", "make_dir")


@pytest.mark.parametrize("way", WAYS)
def test_new_files_wait_beside_their_places_when_the_first_cut_fails(way: str) -> None:
    fs = disk()
    done, error = carry_out(fs, way, 1, {"truncate"})
    assert error is not None
    assert done.changing
    assert [name for name in fs.contents(str(TOP)) if name.endswith("index.tmp")]


def test_leftovers_go_elsewhere_before_any_new_file_is_written() -> None:
    fs = disk()
    done, error = carry_out(fs, "elsewhere", 0, set())
    assert error is None
    assert done.freed == 1
    assert not [name for name in fs.contents(str(TOP)) if "kept." in name]
    assert FILES[DELETED] in fs.contents(str(KEPT)).values()


class _Killed(FaultFs):
    """The process is killed: nothing is tidied up."""

    def _fault(self, call: Call) -> Exception:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("way", "method", "nth"), [("beside", "truncate", 1), ("elsewhere", "rename", 1), ("discard", "truncate", 1)]
)
def test_what_a_killed_attempt_has_left_is_no_want_of_room_for_the_next_one(way: str, method: str, nth: int) -> None:
    def run(fs: MemoryFs, nth: int = 0) -> None:
        planned = plan_log_dir(fs, TOP, OPTIONS._replace(frees_deleted=FREES[way]))
        orders = Orders(planned.plan.plan_id, 1, "test", **WAYS[way])
        faulty = _Killed(fs, nth, errno.EIO, only={method})
        execute(faulty, planned.plan, planned.content_of, orders, SilentReporter())

    fs = disk()
    fs._room = fs._used()
    with pytest.raises(NoRoom) as refused:
        run(fs)
    fs._room += refused.value.needed - refused.value.free
    with pytest.raises(KeyboardInterrupt):
        run(fs, nth)
    run(fs)
    assert plan_log_dir(fs, TOP, OPTIONS).plan.is_empty
