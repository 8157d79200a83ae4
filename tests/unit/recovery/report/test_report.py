"""The report of findings, plans and results."""

from __future__ import annotations

import errno
import json
import os
from pathlib import PurePath

import pytest

from recovery.heal.healing import HealNote
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import (
    Cut,
    LoadedOffsets,
    LogDirPlan,
    PlanOptions,
    Quarantine,
    RecoveryPlan,
    Rename,
    ReplaceFile,
    SetAside,
    TruncateTo,
    Verdict,
)
from recovery.plan.words import count, full_size, short_size
from recovery.report.documents import combined_id, document, outcome_document, plan_document
from recovery.report.outcome import Outcome, next_steps
from recovery.report.rows import loss_lines
from recovery.report.text import plan_text, recover_text, verify_text
from storage.base.errors import DiskFull, ExitStatus, LogDirInUse, ReadFault, worst

DATA = PurePath("/data")
LOG = DATA / "orders-0/00000000000000000000.log"
INDEX = LOG.with_suffix(".index")


def torn(path: PurePath = LOG) -> Verdict:
    finding = Finding(Damage.TORN_TAIL, path, "the last batch is incomplete", position=812, size=50, first_offset=6)
    return Verdict(finding, "c", "cut")


def partition(**changes: object) -> RecoveryPlan:
    plan = RecoveryPlan(
        partition="orders-0",
        directory=LOG.parent,
        verdicts=(torn(),),
        held=False,
        preconditions=(),
        actions=(
            Quarantine(LOG, 812, 50, zeroes=False, reason="torn_tail"),
            TruncateTo(LOG, 812, 862),
            ReplaceFile(INDEX, 16, "00", replaces=True, reason="follows the log"),
        ),
        cuts=(Cut(LOG, 812, 50, 6, 7, 2, "torn_tail"),),
        loaded=LoadedOffsets(0, 6, 6),
        scanned_bytes=862,
    )
    return plan._replace(**changes)  # type: ignore[arg-type]


def log_dir(*partitions: RecoveryPlan, **changes: object) -> LogDirPlan:
    plan = LogDirPlan(
        DATA, PlanOptions(), verdicts=(), stopped=False, before=(), partitions=partitions, after=(), preconditions=()
    )
    return plan._replace(**changes)  # type: ignore[arg-type]


CLEAN = log_dir(partition(verdicts=(), actions=(), cuts=()))
HELD_FINDING = Finding(Damage.BATCH_CRC, LOG, "the checksum does not hold", position=99, size=10, first_offset=2)
HELD = log_dir(partition(verdicts=(Verdict(HELD_FINDING, "f", "hold"),), held=True, actions=(), cuts=()))


@pytest.mark.parametrize(
    ("size", "short", "full"),
    [
        (0, "0 B", "0 B"),
        (1023, "1023 B", "1023 B"),
        (1024, "1.0 KiB", "1.0 KiB (1 024 B)"),
        (12_903_411, "12.3 MiB", "12.3 MiB (12 903 411 B)"),
        (1024**2 - 1, "1.0 MiB", "1.0 MiB (1 048 575 B)"),
        (2**63 - 1, "8.0 EiB", "8.0 EiB (9 223 372 036 854 775 807 B)"),
    ],
)
def test_sizes_are_told_roughly_and_exactly(size: int, short: str, full: str) -> None:
    assert (short_size(size), full_size(size)) == (short, full)


def test_things_are_counted_in_words() -> None:
    assert [count(n, "batch", "batches") for n in (0, 1, 2000)] == ["0 batches", "1 batch", "2 000 batches"]


def test_the_worst_status_wins_in_the_documented_order() -> None:
    order = [ExitStatus.BUG, ExitStatus.ENVIRONMENT, ExitStatus.UNSUPPORTED, ExitStatus.STALE, ExitStatus.IN_USE,
             ExitStatus.HELD, ExitStatus.FINDINGS, ExitStatus.CLEAN]  # fmt: skip
    for place, status in enumerate(order):
        assert worst(order[place:]) is status
    assert worst([]) is ExitStatus.CLEAN


def test_every_status_has_a_rank() -> None:
    assert all(worst([status]) is status for status in ExitStatus)


def test_a_finding_is_one_line_with_partition_file_position_kind_offsets_and_what_is_done() -> None:
    plan = log_dir(partition())
    lines = verify_text(Outcome(DATA, plan.status, plan)).splitlines()
    assert lines == [
        "/data: not clean: 1 damaged log in 1 of 1 partition, 862 B read",
        "  damage  orders-0  00000000000000000000.log at 812  torn_tail  the last batch is incomplete, offsets from 6, "
        "50 B -> cut, a copy kept",
        "next: logmend plan /data",
    ]


def test_a_clean_log_directory_is_one_line() -> None:
    assert verify_text(Outcome(DATA, ExitStatus.CLEAN, CLEAN)) == "/data: clean: nothing found, 1 partition, 862 B read"


def test_a_lock_that_is_held_is_said() -> None:
    plan = log_dir(partition())
    text = verify_text(Outcome(DATA, plan.status, plan, in_use=True))
    assert ".lock is held" in text
    assert "next: stop the broker, then logmend recover /data" in text


def test_a_plan_says_what_is_cut_rebuilt_and_set_aside() -> None:
    aside = SetAside(LOG.with_name("5.log"), "behind the cut")
    renamed = Rename(LOG.with_name("1.log.swap"), LOG.with_name("1.log"))
    one = partition()
    plan = log_dir(one._replace(actions=(*one.actions, aside, renamed)))
    lines = plan_text(Outcome(DATA, plan.status, plan)).splitlines()
    assert lines[0] == (
        f"/data: plan {plan.plan_id}: 1 cut of 50 B, 1 file rewritten, 1 file set aside, 1 file renamed"
    )
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "orders-0 offsets 0 to 6",
        "loses 2 records, offsets 6 to 7 of orders-0",
        "cut 00000000000000000000.log at 812 50 B, offsets from 6 to 7, 2 records: torn_tail",
        "rebuild 00000000000000000000.index 16 B: follows the log",
        "set aside 5.log behind the cut",
        "rename 1.log.swap to 1.log",
        "next: logmend recover /data",
    ]


def test_a_plan_for_one_partition_leads_to_its_log_directory() -> None:
    plan = log_dir(partition(), log_dir=LOG.parent)
    outcome = Outcome(LOG.parent, plan.status, plan)
    assert next_steps(outcome, "recover") == ["logmend recover /data"]
    assert "  damage  orders-0  " in verify_text(outcome)


def test_what_is_held_is_listed_with_the_way_out() -> None:
    text = recover_text(Outcome(DATA, ExitStatus.HELD, HELD, done=0))
    assert text.splitlines()[0].startswith("/data: held: nothing to do")
    assert "held for a replica or a person" in text
    assert text.splitlines()[-2:] == [
        "next: to fill it from a replica, a directory or HOST:PORT: "
        "logmend recover --depth quick --heal-from REPLICA /data",
        "  or: to cut what is held in a log, keeping a copy: logmend recover --depth quick --accept-loss /data",
    ]


def test_lost_epochs_of_a_tiered_log_are_asked_of_a_replica_and_a_blocker_is_for_the_operator() -> None:
    path = LOG.parent / "leader-epoch-checkpoint"
    for kind, said in (
        (Damage.EPOCHS_LOST, "logmend recover --depth quick --heal-from REPLICA /data"),
        (Damage.METADATA_LOST, "see to what is blocking, then logmend verify /data"),
    ):
        verdict = Verdict(Finding(kind, path, "gone"), "m", "hold")
        plan = log_dir(partition(verdicts=(verdict,), held=True, actions=(), cuts=()))
        (step,) = next_steps(Outcome(DATA, plan.status, plan))
        assert step.endswith(said)


def test_a_recovery_says_what_it_cut_and_kept() -> None:
    plan = log_dir(partition())
    text = recover_text(Outcome(DATA, ExitStatus.CLEAN, plan, done=2, bytes_quarantined=50, after=CLEAN))
    lines = text.splitlines()
    assert lines[0].endswith(f"by plan {plan.plan_id}, 50 B kept in quarantine")
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "orders-0",
        "loses 2 records, offsets 6 to 7 of orders-0",
        "cut 00000000000000000000.log at 812 50 B, offsets from 6 to 7, 2 records: torn_tail",
    ]


def test_all_cuts_of_a_partition_are_counted_in_one_line() -> None:
    torn_cut = Cut(LOG, 812, 50, 6, 7, 2, "batch_crc")
    behind = Cut(LOG.with_name("8.log"), 0, 900, 8, 20, 13, "behind the cut")
    aside = (SetAside(behind.path, "behind the cut"), SetAside(behind.path.with_suffix(".index"), "behind the cut"))
    one = partition(cuts=(torn_cut, behind))
    plan = log_dir(one._replace(actions=(*one.actions, *aside, SetAside(LOG.with_name("7.snapshot"), "stray"))))
    lines = plan_text(Outcome(DATA, plan.status, plan)).splitlines()
    assert lines[0].endswith(
        ": 1 cut of 50 B, 1 segment of 900 B set aside whole, 1 file rewritten, 1 file set aside"
    )  # fmt: skip
    assert lines[2].strip() == "loses 15 records, offsets 6 to 20 of orders-0"


@pytest.mark.parametrize(
    ("last", "records", "reason", "row", "said"),
    [
        (
            None,
            None,
            "torn_tail",
            "f accepted",
            ["loses records that cannot be counted, offsets from 6 on, of orders-0"],
        ),
        (None, None, "torn_tail", "c", []),
        (None, None, "zero_tail", "f accepted", []),
        (7, 0, "garbage_tail", "f accepted", []),
    ],
)
def test_what_cannot_be_counted_is_not_guessed(
    last: int | None, records: int | None, reason: str, row: str, said: list[str]
) -> None:
    verdict = torn()._replace(row=row)
    assert loss_lines(partition(cuts=(Cut(LOG, 812, 50, 6, last, records, reason),), verdicts=(verdict,))) == said


def test_what_was_healed_is_not_called_nothing_to_do() -> None:
    note = HealNote("orders-0", LOG, 99, 2, 4, healed=True, source="/replica", batches=1, size=50)
    text = recover_text(Outcome(DATA, ExitStatus.CLEAN, CLEAN, done=0, after=CLEAN, healing=(note,)))
    assert text.splitlines()[0] == "/data: clean: 1 hole healed from a replica"


def test_text_stays_one_line_whatever_the_disk_calls_its_files() -> None:
    nasty = DATA / "or\nders\x1b[2J-0" / "0\u202e.log"
    plan = log_dir(partition(directory=nasty.parent, verdicts=(torn(nasty),), actions=(), cuts=()))
    for text in (verify_text(Outcome(DATA, plan.status, plan)), plan_text(Outcome(DATA, plan.status, plan))):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert len(verify_text(Outcome(DATA, plan.status, plan)).splitlines()) == 2


def test_a_path_in_a_command_can_be_pasted() -> None:
    plan = log_dir(partition(), log_dir=PurePath("/my data"))
    assert next_steps(Outcome(plan.log_dir, plan.status, plan)) == ["logmend plan '/my data'"]


def test_colours_go_around_text_and_do_not_move_columns() -> None:
    plan = log_dir(partition())
    outcome = Outcome(DATA, plan.status, plan)
    marked = verify_text(outcome, lambda text, role: f"<{role}>{text}</>" if role else text)
    assert "<damage>damage</>  orders-0" in marked


def test_documents_carry_schema_version_and_status() -> None:
    told = document("verify", "1.2", ExitStatus.HELD, results=[1])
    assert told == {"schema_version": 1, "document": "verify", "logmend": "1.2", "status": 3, "results": [1]}


def test_an_outcome_is_json_with_every_finding() -> None:
    plan = log_dir(partition())
    told = json.loads(json.dumps(outcome_document(Outcome(DATA, plan.status, plan), with_plan=True)))
    (finding,) = told["findings"]
    assert (finding["partition"], finding["kind"], finding["severity"]) == ("orders-0", "torn_tail", "damage")
    assert (finding["decision"], finding["row"], finding["first_offset"]) == ("cut", "c", 6)
    assert told["plan_id"] == plan.plan_id
    assert told["plan"]["partitions"][0]["actions"][0]["kind"] == "quarantine"


def test_names_that_are_not_utf_8_survive_json() -> None:
    plan = log_dir(partition(verdicts=(torn(LOG.with_name("\udcff.log")),)))
    told = json.loads(json.dumps(outcome_document(Outcome(DATA, plan.status, plan))))
    assert told["findings"][0]["path"].endswith("\udcff.log")


def test_an_error_tells_type_path_and_number() -> None:
    fault = DiskFull("writing", LOG, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    told = outcome_document(Outcome(DATA, fault.status, error=fault, hint="make room"))
    assert told["error"]["type"] == "DiskFull"
    assert (told["error"]["errno"], told["error"]["path"], told["next"]) == (errno.ENOSPC, str(LOG), "make room")
    assert outcome_document(Outcome(DATA, ExitStatus.IN_USE, error=LogDirInUse(DATA)))["error"]["type"] == "LogDirInUse"


def test_an_error_is_told_elsewhere_and_not_in_the_text() -> None:
    fault = ReadFault("listing", DATA, OSError(errno.EIO, "x"))
    for text in (verify_text, plan_text, recover_text):
        assert text(Outcome(DATA, fault.status, error=fault)) == ""


def test_a_plan_document_is_the_same_for_the_same_bytes() -> None:
    plan = log_dir(partition())
    assert plan_document([plan], "1") == plan_document([log_dir(partition())], "1")
    assert plan_document([plan], "1")["id"] == plan.plan_id


def test_several_plans_have_an_id_together() -> None:
    assert combined_id(["a"]) == "a"
    assert combined_id(["a", "b"]) != combined_id(["b", "a"])


def test_a_format_of_a_newer_broker_is_never_called_damage_to_mend() -> None:
    finding = Finding(Damage.UNSUPPORTED, LOG, "magic 3")
    plan = log_dir(partition(verdicts=(Verdict(finding, "b", "stop"),), actions=(), cuts=()), stopped=True)
    assert "newer logmend" in next_steps(Outcome(DATA, plan.status, plan))[0]


def leftovers(number: int) -> LogDirPlan:
    found = [
        Finding(Damage.LEFTOVER_DELETED, DATA / f"orders-{n}" / "00.log.deleted", "deleted") for n in range(number)
    ]
    return log_dir(partition(verdicts=tuple(Verdict(each, "", "nothing") for each in found), actions=(), cuts=()))


def test_many_findings_that_are_alike_share_a_line() -> None:
    plan = leftovers(36)
    lines = verify_text(Outcome(DATA, plan.status, plan)).splitlines()
    assert [line for line in lines if "leftover_deleted" in line] == [
        "  note  36 partitions  36 ×  leftover_deleted  00.log.deleted and others (--json lists all)"
    ]
    few = leftovers(4)
    assert verify_text(Outcome(DATA, few.status, few)).count("leftover_deleted") == 4


def test_each_damaged_log_has_a_line_of_its_own() -> None:
    plan = log_dir(partition(verdicts=tuple(torn(DATA / f"orders-{n}" / "0.log") for n in range(9))))
    assert verify_text(Outcome(DATA, plan.status, plan)).count("torn_tail") == 9


def test_one_long_name_does_not_widen_the_other_lines() -> None:
    names = ["orders-0", "a" * 200 + "-0"]
    plan = log_dir(partition(verdicts=tuple(torn(DATA / name / "0.log") for name in names)))
    short, long = (line for line in verify_text(Outcome(DATA, plan.status, plan)).splitlines() if "torn_tail" in line)
    assert len(short) + 150 < len(long)
