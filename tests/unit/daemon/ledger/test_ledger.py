"""The memory of the service: what it survives."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path, PurePath

import pytest
from support.guarding import FakeClock, Told

from daemon.ledger.disk import Listed, LogStat
from daemon.ledger.ledger import FILE_NAME, MOST_FINDINGS, Ledger, StateDirInUse
from daemon.ledger.page import Cursor, Page
from daemon.status.model import OpenFinding
from storage.base.units import TopicPartition

LOG_DIR = PurePath("/data/kafka")
FINDING = OpenFinding(
    "0123456789", LOG_DIR, "orders", 0, LOG_DIR / "orders-0/00000000000000000000.log", "batch_crc", "damage",
    "the checksum does not hold", 17, 100, 10, 19, 20, "on disk", 1, 2, "logmend recover /data/kafka",
)  # fmt: skip


def opened(path: Path, told: Told | None = None, clock: FakeClock | None = None) -> Ledger:
    return Ledger(PurePath(path), clock or FakeClock(), told or Told(), "1.0")


def listed(*bases: int) -> Listed:
    return Listed({base: LogStat(1000, 1, 7 + base) for base in bases}, 0, 0, None)


def filled(ledger: Ledger) -> tuple[Page, int]:
    page = Page(ledger, LOG_DIR)
    row = page.add_partition("orders-0", TopicPartition("orders", 0), 5)
    page.store_listing(row, listed(0, 100, 200), 1, 0, lambda: 50)
    return page, row.id


def test_what_was_verified_is_known_after_a_restart(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    page, number = filled(ledger)
    segment = page.segment(number, 100)
    assert segment is not None
    page.set_verified(segment, LogStat(1000, 1, 107), "sound", "device", 4711, 9999)
    page.set_digest(segment, "00ff", 1000)
    page.set_cursor(number, Cursor(130, 100, 17, 107))
    ledger.put_finding(FINDING)
    ledger.close()

    again = opened(tmp_path)
    page = Page(again, LOG_DIR)
    found = page.segment(number, 100)
    assert found is not None
    assert (found.verified_ms, found.verdict, found.digest, found.digest_size) == (4711, "sound", "00ff", 1000)
    assert page.cursor(number) == Cursor(130, 100, 17, 107)
    assert again.findings(LOG_DIR) == (FINDING,)
    again.close()


def test_a_second_service_on_the_state_directory_is_told_so(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    with pytest.raises(StateDirInUse, match=r"another logmend service.*--state-dir"):
        opened(tmp_path)
    ledger.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("damage", ["rubbish", "torn", "header", "another release", "foreign tables"])
def test_a_corrupt_ledger_is_set_aside_and_begun_anew(tmp_path: Path, damage: str) -> None:
    ledger = opened(tmp_path)
    filled(ledger)
    ledger.close()
    file = tmp_path / FILE_NAME
    data = bytearray(file.read_bytes())
    if damage == "rubbish":
        file.write_bytes(b"not a database at all" * 500)
    elif damage == "torn":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "header":
        data[16:24] = b"\xff" * 8
        file.write_bytes(data)
    else:
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA user_version = 99" if damage == "another release" else "DROP TABLE segments")
            if damage == "foreign tables":
                db.execute("PRAGMA user_version = 0")
    told = Told()
    ledger = opened(tmp_path, told)
    assert ledger.trouble == ""
    assert [fields["path"] for fields in told.named("ledger_rebuilt")] == [tmp_path / FILE_NAME]
    page, number = filled(ledger)
    assert page.segment(number, 0) is not None
    ledger.close()
    assert (tmp_path / f"{FILE_NAME}.unusable").exists()


def test_a_ledger_that_rots_while_it_is_open_is_begun_anew(tmp_path: Path) -> None:
    told = Told()
    ledger = opened(tmp_path, told)
    page, number = filled(ledger)
    ledger.put_finding(FINDING)
    ledger.commit()
    ledger._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    generation = ledger.generation
    size = (tmp_path / FILE_NAME).stat().st_size
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    ledger._db.execute("PRAGMA cache_size = 1")
    ledger._db.execute("PRAGMA shrink_memory")
    page.totals(0)
    page.next_due()
    assert told.named("ledger_rebuilt")
    assert ledger.generation > generation
    assert ledger.findings(LOG_DIR) == (FINDING,)
    again, new = filled(ledger)
    assert new != number
    assert again.segment(number, 0) is None
    ledger.close()


def test_where_nothing_can_be_written_it_goes_on_in_memory_and_says_so(tmp_path: Path) -> None:
    told = Told()
    ledger = opened(tmp_path / "no" / "such" / "directory", told)
    assert "cannot be written" in ledger.trouble
    assert len(told.named("ledger_not_written")) == 1
    page, number = filled(ledger)
    assert page.segment(number, 0) is not None
    ledger.close()


def test_a_full_state_directory_costs_nothing_that_was_known_and_is_tried_again(tmp_path: Path) -> None:
    told, clock = Told(), FakeClock()
    ledger = opened(tmp_path, told, clock)
    page, number = filled(ledger)
    ledger.put_finding(FINDING)
    ledger.commit()
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")  # what a full disk is to SQLite
    many = listed(*range(0, 100 * 5000, 100))
    page.store_listing(page.partitions()[0], many, 2, 0, lambda: 50)
    assert "full" in ledger.trouble
    assert len(told.named("ledger_not_written")) == 1
    page = Page(ledger, LOG_DIR)
    assert page.segment(number, 100) is not None
    page.store_listing(page.partitions()[0], many, 2, 0, lambda: 50)
    assert page.totals(0).segments == 5000

    ledger.commit()
    assert ledger.trouble  # not at every commit
    clock.pass_(3600)
    ledger.commit()
    assert ledger.trouble == ""
    ledger.close()
    again = opened(tmp_path)
    assert Page(again, LOG_DIR).totals(0).segments == 5000
    assert again.findings(LOG_DIR) == (FINDING,)
    again.close()


def test_rows_of_what_is_gone_are_gone(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    page, number = filled(ledger)
    (row,) = page.partitions()
    assert page.store_listing(row, listed(100, 200, 300), 2, 0, lambda: 50) == [0]
    assert page.totals(0).segments == 3
    page.forget_partition(number)
    assert page.totals(0).segments == 0
    assert ledger.read("SELECT COUNT(*) FROM segments") == [(0,)]
    ledger.close()


def test_the_number_of_findings_is_bounded(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    for number in range(MOST_FINDINGS + 10):
        is_new = ledger.put_finding(replace(FINDING, id=f"{number:010}"))
        assert is_new == (number < MOST_FINDINGS)
    assert len(ledger.findings(LOG_DIR)) == MOST_FINDINGS
    assert ledger.put_finding(replace(FINDING, id=f"{3:010}", last_seen_ms=77)) is False
    assert next(f for f in ledger.findings(LOG_DIR) if f.id == f"{3:010}").last_seen_ms == 77
    gone = ledger.drop_findings(LOG_DIR, [f"{3:010}", "unknown"])
    assert [finding.id for finding in gone] == [f"{3:010}"]
    ledger.close()


def test_the_worst_findings_come_first(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    for number, severity in enumerate(("repairable", "blocking", "damage")):
        ledger.put_finding(replace(FINDING, id=str(number), severity=severity))
    assert [finding.severity for finding in ledger.findings(LOG_DIR)] == ["blocking", "damage", "repairable"]
    ledger.close()


def test_suspects_come_before_what_was_asked_for_and_that_before_what_waits_longest(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    page, number = filled(ledger)
    for base, due in ((0, 30), (100, 10), (200, 20)):
        row = page.segment(number, base)
        assert row is not None
        page.postpone(row, due)
    order = []
    page.set_suspect(number, [200], 1)
    page.set_suspect(number, [0])
    while len(order) < 3:
        row = page.next_due()
        assert row is not None
        order.append(row.base)
        page.set_verified(row, LogStat(1, 1, 1), "sound", "device", 1, 10_000)
    assert order == [0, 200, 100]
    ledger.close()


def test_a_path_that_is_no_utf_8_has_a_page(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    odd = PurePath("/data/\udcff")
    page = Page(ledger, odd)
    page.set_paused(paused=True)
    assert Page(ledger, odd).is_paused
    assert ledger.findings(odd) == ()
    ledger.close()
