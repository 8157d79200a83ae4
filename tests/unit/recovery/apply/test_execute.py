"""The order of effects, and what is refused before the first one."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from support.damages import KINDS
from support.log_dirs import (
    END,
    MARKER,
    OPTIONS,
    POINTS,
    SOUND,
    TOP,
    checkpoint,
    damaged,
    name_of,
    on_disk,
    place,
    plan_of,
    recover,
)
from support.memory_fs import Call, MemoryFs, TracingFs

from recovery.apply.execute import execute
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from recovery.plan.plan import Quarantine, to_plain
from storage.base.errors import NoRoom, PlanStale

PARTITION = TOP / "orders-0"


def traced(*kinds: str) -> TracingFs:
    fs = TracingFs(on_disk(damaged(*(KINDS[kind] for kind in kinds), files=SOUND)))
    recover(fs)
    return fs


def test_copies_manifest_and_new_files_are_durable_before_anything_changes() -> None:
    fs = traced("damage_with_later_segments")
    change = min(
        place
        for place, call in enumerate(fs.calls)
        if call.method == "truncate" or (call.method == "rename" and not call.path.name.endswith(".json.tmp"))
    )
    before = fs.calls[:change]
    created = {call.path for call in before if call.method == "create"}
    assert created == {call.path for call in fs.calls if call.method == "create"}
    assert created == {call.path for call in before if call.method == "sync"}
    copies = [place for place, call in enumerate(before) if call.method == "create" and "kept." in call.path.name]
    assert Call("sync_dir", PARTITION) in before[max(copies) :]


def test_later_segments_step_aside_before_the_cut() -> None:
    fs = traced("damage_with_later_segments")
    cut = fs.place("truncate", name_of(0))
    for base in (10, 20):
        aside = fs.place("rename", name_of(base))
        assert aside < cut
        assert Call("sync_dir", PARTITION) in fs.calls[aside:cut]


def test_the_cut_is_synced_before_anything_that_is_derived_from_it_gets_its_name() -> None:
    fs = traced("damage_with_later_segments")
    cut, synced = fs.place("truncate", name_of(0)), fs.place("sync_file", name_of(0))
    assert cut < synced
    for suffix in ("index", "timeindex", "txnindex"):
        assert fs.place("rename", f"{name_of(0, suffix)}.tmp") > synced


def test_checkpoints_come_last_and_their_directory_is_synced() -> None:
    fs = traced("torn_tail", "points_corrupt")
    replaced = fs.place("rename", f"{POINTS}.tmp")
    assert [call.method for call in fs.calls[replaced:]] == ["rename", "sync_dir"]
    assert not any(call.path.is_relative_to(PARTITION) for call in fs.calls[replaced:])


def test_the_marker_goes_first_and_durably() -> None:
    fs = traced("marker_beside_bad_derived_files")
    gone = fs.place("rename", MARKER)
    assert Call("sync_dir", TOP) in fs.calls[gone:]
    changes = [
        number
        for number, call in enumerate(fs.calls)
        if call.path.is_relative_to(PARTITION)
        and call.method in ("truncate", "rename", "remove")
        and not call.path.name.endswith(".logmend.json.tmp")
        and (call.method != "remove" or call.path.suffix not in (".tmp", ".logmend"))
    ]
    assert gone < fs.calls.index(Call("sync_dir", TOP), gone) < min(changes)


def test_a_cut_log_keeps_the_time_of_its_last_write() -> None:
    fs = on_disk(damaged(KINDS["torn_tail"], files=SOUND))
    time = fs.stat(TOP / place(20)).mtime_ns
    recover(fs)
    assert fs.stat(TOP / place(20)).mtime_ns == time


def test_copies_are_for_the_owner_of_the_log_alone() -> None:
    fs = on_disk(damaged(KINDS["torn_tail"], files=SOUND))
    recover(fs)
    ours = {n: s for n, s in fs.entries(PARTITION).items() if n.endswith(".json") or ".log." in n}
    assert len(ours) == 2
    assert {stat.mode for stat in ours.values()} == {0o600}


def test_zeroes_are_counted_and_not_copied() -> None:
    fs = on_disk(damaged(KINDS["zero_tail"], files=SOUND))
    done = recover(fs)
    assert done.kept_bytes == 0
    assert [name for name in fs.contents(str(PARTITION)) if name.startswith("kept.")] == []


def prepared(kind: str = "torn_tail", room: int | None = None):
    fs = MemoryFs({str(TOP / name): data for name, data in damaged(KINDS[kind], files=SOUND).items()}, room=room)
    planned = plan_log_dir(fs, TOP, OPTIONS)
    return fs, planned, Orders(planned.plan.plan_id, 1, "test")


@pytest.mark.parametrize("name", [place(20), place(20, "index"), place(END, "snapshot")])
def test_a_file_that_has_changed_since_stops_a_plan_before_its_first_effect(name: str) -> None:
    fs, planned, orders = prepared()
    with fs.open_append(TOP / name) as file:
        file.append(b"more")
    effects = fs.effects
    with pytest.raises(PlanStale, match="has changed"):
        execute(fs, planned.plan, planned.content_of, orders, SilentReporter())
    assert fs.effects == effects


def test_a_file_that_has_vanished_since_stops_a_plan_before_its_first_effect() -> None:
    fs, planned, orders = prepared()
    fs.remove(TOP / place(20, "index"))
    effects = fs.effects
    with pytest.raises(PlanStale, match="it has vanished"):
        execute(fs, planned.plan, planned.content_of, orders, SilentReporter())
    assert fs.effects == effects


def test_without_room_for_what_is_cut_nothing_is_done() -> None:
    used = sum(map(len, damaged(KINDS["torn_tail"], files=SOUND).values()))
    fs, planned, orders = prepared(room=used + 100)
    with pytest.raises(NoRoom):
        execute(fs, planned.plan, planned.content_of, orders, SilentReporter())
    assert fs.effects == 0


def test_a_log_with_a_second_name_elsewhere_is_cut_under_its_own_name_only() -> None:
    fs = on_disk(damaged(KINDS["torn_tail"], files=SOUND))
    backup = PurePath("/backup.log")
    fs.link(TOP / place(20), backup)
    before = fs.contents()["backup.log"]
    recover(fs)
    assert fs.contents()["backup.log"] == before
    assert len(fs.contents(str(TOP))[place(20)]) < len(before)
    assert plan_of(fs).is_empty


# ---- plans


def test_equal_bytes_give_an_equal_plan_and_id_and_other_bytes_another() -> None:
    files = damaged(KINDS["torn_tail"], files=SOUND)
    one, same = plan_of(on_disk(files)), plan_of(on_disk(files))
    other = plan_of(on_disk({**files, place(20): files[place(20)][:-1]}))
    assert one == same
    assert one.plan_id == same.plan_id != other.plan_id
    assert len(one.plan_id) == 12


def test_a_plan_is_plain_values_in_which_each_action_says_what_it_is() -> None:
    plain = to_plain(plan_of(on_disk(damaged(KINDS["damage_with_later_segments"], files=SOUND))))
    kinds = {action["kind"] for partition in plain["partitions"] for action in partition["actions"]}
    assert kinds == {"quarantine", "truncate", "set_aside", "replace"}
    assert to_plain(Quarantine(PurePath("/a"), 1, 2, zeroes=True, reason="r")) == {
        "kind": "quarantine",
        "path": "/a",
        "position": 1,
        "size": 2,
        "zeroes": True,
        "reason": "r",
    }


def test_scanning_with_more_threads_gives_the_same_plan() -> None:
    files = damaged(KINDS["damage_with_later_segments"], KINDS["orphans"], files=SOUND)
    files |= {name.replace("orders-0", "pay-1"): data for name, data in files.items()}
    files[POINTS] = checkpoint({"orders-0": 3, "pay-1": 3})
    fs = on_disk(files)
    assert plan_log_dir(fs, TOP, OPTIONS, jobs=4).plan == plan_log_dir(fs, TOP, OPTIONS).plan
