"""Plans and findings are named tuples: they stay values of their own kind, and what JSON makes of them has names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

import pytest

from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import LogDirPlan, PlanOptions, RecoveryPlan, Seen, to_plain
from recovery.segment.segment_report import Depth, SegmentReport

PLAN = RecoveryPlan("p-0", PurePath("/d/p-0"), (), held=False, preconditions=(), actions=(), cuts=(), loaded=None,
                    scanned_bytes=7)  # fmt: skip
SEEN = PLAN._replace(seen=Seen(1, has_end_snapshot=True, unflushed=("a",)))


def log_dir(partition: RecoveryPlan) -> LogDirPlan:
    return LogDirPlan(PurePath("/d"), PlanOptions(), (), stopped=False, before=(), partitions=(partition,), after=(),
                      preconditions=())  # fmt: skip


def test_what_a_look_has_seen_is_no_part_of_a_plan() -> None:
    assert PLAN == SEEN
    assert not PLAN != SEEN  # noqa: SIM202 (tuples have an operator of its own for it)
    assert hash(PLAN) == hash(SEEN)
    assert log_dir(PLAN) == log_dir(SEEN)
    assert log_dir(PLAN).plan_id == log_dir(SEEN).plan_id


@pytest.mark.parametrize("change", [{"held": True}, {"scanned_bytes": 8}, {"directory": PurePath("/e/p-0")}])
def test_plans_that_differ_in_anything_else_differ(change: dict[str, object]) -> None:
    other = PLAN._replace(**change)  # type: ignore[arg-type]
    assert other != PLAN
    assert log_dir(PLAN) != log_dir(other)
    assert log_dir(PLAN).plan_id != log_dir(other).plan_id


def test_a_plan_is_no_bare_tuple() -> None:
    assert tuple(PLAN) != PLAN


def test_a_finding_becomes_an_object_with_the_names_of_its_fields_and_a_text_of_its_own() -> None:
    finding = Finding(Damage.TORN_TAIL, PurePath("/d/p-0/0.log"), "cut short", position=3)
    plain = to_plain([finding])
    assert plain == [
        {"kind": "torn_tail", "path": "/d/p-0/0.log", "evidence": "cut short", "position": 3, "size": None,
         "first_offset": None, "last_offset": None, "next_good_offset": None}
    ]  # fmt: skip
    assert str(finding) == f"{finding}" == "/d/p-0/0.log at 3: torn_tail: cut short"


def test_a_dataclass_becomes_an_object_too() -> None:
    @dataclass(frozen=True, slots=True)
    class Told:
        path: PurePath
        numbers: tuple[int, ...]

    assert to_plain(Told(PurePath("/a"), (1, 2))) == {"path": "/a", "numbers": [1, 2]}


def test_a_report_that_is_altered_says_the_same_but_for_what_is_named() -> None:
    report = SegmentReport.__new__(SegmentReport)
    for number, name in enumerate(SegmentReport.__slots__):
        setattr(report, name, number)
    made = report.altered(depth=Depth.FULL, trims={})
    assert (made.depth, made.trims) == (Depth.FULL, {})
    rest = [name for name in SegmentReport.__slots__ if name not in ("depth", "trims")]
    assert [getattr(made, name) for name in rest] == [getattr(report, name) for name in rest]
    assert report.trims != {}
