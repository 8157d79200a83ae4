"""The report page: what it says, that nothing of a name gets to act, and that its size is bounded."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.audit_tables import (
    NOW,
    MemoryTables,
    broken_fleet,
    finding_row,
    healthy_fleet,
    run_row,
    segment_row,
    verdict_row,
)

from audit.report import report as pages
from audit.report.charts import Part, round_ticks, squares
from audit.report.facts import QUICK_AGE, gather
from audit.report.html import ENVIRONMENT
from audit.report.report import report


class Reader(HTMLParser):
    """Takes a page apart: tags that stand open, texts of headings and cells, scripts, attributes."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.cells: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.scripts += tag == "script"
        if tag == "td":
            self.cells.append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def shown(template: str, **values: object) -> str:
    return ENVIRONMENT.from_string(f'{{% import "charts.html" as charts %}}{template}').render(values)


def one_audit(verdicts: list[dict[str, Any]], **more: Any) -> MemoryTables:
    tables = MemoryTables()
    tables.add("a", runs=[run_row("a", NOW - timedelta(hours=1))], verdicts=verdicts, **more)
    return tables


def sentence(*verdicts: str) -> str:
    return report(one_audit([verdict_row("orders", n, name) for n, name in enumerate(verdicts)]), "a")[1]


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ((), "No partition was found, so nothing was verified."),
        (("healthy",) * 3, "All 3 partitions are healthy: every replica could be read and agrees with every other."),
        (("healthy",) * 2 + ("degraded",), "Of 3 partitions, 1 lacks a sound replica; 2 are healthy."),
        (("divergent", "one_good_copy", "one_good_copy", "healthy"),
         "Of 4 partitions, 2 have one good copy left and 1 holds different data on its replicas; 1 is healthy."),
        (("unreadable", "degraded", "divergent"),
         "Of 3 partitions, 1 could not be read in full, 1 holds different data on its replicas "
         "and 1 lacks a sound replica."),
    ],
)  # fmt: skip
def test_the_verdict_of_the_fleet_is_one_sentence(verdicts: tuple[str, ...], said: str) -> None:
    assert sentence(*verdicts) == said


def test_what_is_wrong_is_listed_with_brokers_and_offsets() -> None:
    rows = [
        verdict_row("orders", 1, "one_good_copy", disagree_first_offset=77_000, disagree_last_offset=81_095),
        verdict_row("orders", 2, "divergent", disagree_first_offset=5, disagree_last_offset=5),
        verdict_row("orders", 3, "unreadable"), verdict_row("orders", 4),
    ]  # fmt: skip
    page, _ = report(one_audit(rows, findings=[finding_row("batch_crc", "damage", path="/d/orders-1/x.log")]), "a")
    cells = read(page).cells
    assert cells[:7] == ["west", "orders-1", "1", "3 of 3", "2, 3", "77 000 – 81 095", "8.4 GiB"]
    assert cells[7:12] == ["divergent", "west", "orders-2", "3 of 3", "2"]
    assert "orders-3" in cells
    assert "orders-4" not in cells
    assert "/d/orders-1/x.log" in cells
    assert "west 3" in cells


def test_disks_are_added_up_and_one_with_findings_alone_is_there() -> None:
    segments = [
        segment_row("orders", n, log_dir="/d1", verified_at=NOW - timedelta(days=n), size_bytes=1 << 30)
        for n in (1, 40)
    ]
    findings = [finding_row("unreadable", "blocking", log_dir="/d2")]
    fleet = gather(one_audit([verdict_row("orders", 1)], segments=segments, findings=findings), "a", 10)
    gone, there = fleet.disks.rows
    assert (gone["log_dir"], gone["bytes"], gone["findings"]["blocking"], gone["oldest"]) == ("/d2", 0, 1, None)
    assert (there["bytes"], there["segments"], there["oldest"]) == (2 << 30, 2, NOW - timedelta(days=40))
    assert fleet.oldest == NOW - timedelta(days=40)


def test_bytes_are_told_apart_by_how_long_ago_they_were_read_in_full() -> None:
    ages = [0, 3, 20, 60, 200]
    segments = [
        segment_row("t", n, verified_at=NOW - timedelta(days=days), size_bytes=10**n) for n, days in enumerate(ages)
    ]
    segments.append(segment_row("t", 9, depth="quick", size_bytes=7))
    fleet = gather(one_audit([verdict_row("t", 0)], segments=segments), "a", 10)
    assert list(fleet.ages.values()) == [1, 10, 100, 1000, 10_000, 7]
    assert fleet.ages[QUICK_AGE] == 7


def test_the_trend_ends_with_the_audit_that_is_shown() -> None:
    tables = broken_fleet(200, 5)
    ids = tables.audit_ids()
    assert [one.audit_id for one in gather(tables, ids[2], 10).past] == ids[:3]
    page, _ = report(tables, ids[-1])
    assert page.count("<figure>") == 3
    assert "This is the first audit" not in page
    assert "This is the first audit" in report(tables, ids[0])[0]


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;\u202e\x00"


def test_nothing_that_a_disk_says_gets_to_act_in_the_page() -> None:
    verdicts = [
        verdict_row(
            HOSTILE, n, name, cluster=HOSTILE, good_brokers=[HOSTILE], bad_brokers=[HOSTILE], lone_broker=HOSTILE
        )
        for n, name in enumerate(("healthy", "degraded", "divergent", "one_good_copy", "unreadable"))
    ]
    known = {"cluster": HOSTILE, "broker": HOSTILE, "log_dir": HOSTILE, "topic": HOSTILE}
    findings = [finding_row(HOSTILE, "damage", **known, path=HOSTILE, evidence=HOSTILE)]
    tables = one_audit(verdicts, findings=findings, segments=[segment_row(**known, partition=0)])
    for row in tables.found["a"]["runs"]:
        row |= {"logmend_version": HOSTILE, "kernel": HOSTILE, "manifest_digest": HOSTILE, "previous_audit_id": HOSTILE}
    page, _ = report(tables, "a")
    found = read(page)
    assert found.scripts == 1
    assert not [one for one in found.attributes if one[1].startswith("on") or one[1] in ("src", "style")]
    assert {value for tag_name, name, value in found.attributes if tag_name == "a" and name == "href"} <= {
        f"#{name}" for name in re.findall(r' id="([a-z-]+)"', page)
    }
    assert "\u202e" not in page
    assert "\x00" not in page


def test_the_page_allows_itself_nothing_but_its_own_style_and_script() -> None:
    page, _ = report(healthy_fleet(), "2026-11-20")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.findall(r"(?:https?:)?//[a-z]", page)


def test_long_texts_are_cut() -> None:
    assert len(shown("{{ text }}", text="x" * 100_000)) < 500
    assert shown("{{ text }}", text="a<b") == "a&lt;b"
    assert shown("{{ text }}<i>{{ more }}</i>", text="<b>", more="<") == "&lt;b&gt;<i>&lt;</i>"


def test_no_template_takes_a_text_for_markup() -> None:
    for template in (Path(pages.__file__).parent / "templates").iterdir():
        assert not re.search(r"\bsafe\b|autoescape", template.read_text())


def test_lists_end_where_there_is_no_room_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [verdict_row("orders", n, "degraded") for n in range(3000)]
    page, _ = report(one_audit(rows), "a")
    assert "1 000 more are in the tables" in page
    monkeypatch.setattr(pages, "LARGEST", 500_000)
    small, _ = report(one_audit(rows), "a")
    assert len(small.encode()) < 500_000 < len(page.encode())
    assert "more are in the tables" in small


def test_a_fleet_of_100000_partitions_fits_a_page() -> None:
    tables = MemoryTables()
    names = ("healthy",) * 90 + ("degraded",) * 7 + ("divergent", "one_good_copy", "unreadable")
    verdicts = [verdict_row(f"topic-{n // 50}", n % 50, names[n * 37 % 100]) for n in range(100_000)]
    findings = [
        finding_row("batch_crc", "damage", topic=f"topic-{n}", evidence="e" * 390, path="/p" * 190) for n in range(5000)
    ]
    tables.add("a", runs=[run_row("a", NOW)], verdicts=verdicts, findings=findings)
    page, said = report(tables, "a")
    assert len(page.encode()) < 10_000_000
    assert said.startswith("Of 100 000 partitions, 1 000 could not be read in full, 1 000 have one good copy left, ")
    assert said.endswith(
        "1 000 hold different data on their replicas and 7 000 lack a sound replica; 90 000 are healthy."
    )
    read(page)


def test_a_square_of_the_map_has_the_worst_of_what_it_stands_for() -> None:
    verdicts = [0] * 20_000
    verdicts[12_345] = 3
    fleet = squares(verdicts, {12_345: "west: orders-9"})
    drawn = shown("{{ charts.fleet_map(fleet) }}", fleet=fleet)
    assert fleet.per_square == 3
    assert "west: orders-9: one good copy" in drawn
    assert drawn.count("<rect") == 1


def test_a_share_that_is_not_nothing_can_be_seen() -> None:
    parts = [Part(10**9, "healthy", "many"), Part(1, "divergent", "one"), Part(0, "unreadable", "none")]
    drawn = shown("{{ charts.share_bar(parts) }}", parts=parts)
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height', drawn)]
    assert widths == [996.0, 4.0]


@pytest.mark.parametrize(
    ("top", "ticks"), [(0, [0, 1]), (3, [0, 1, 2, 3]), (612, [0, 200, 400, 600, 800]), (0.4, [0, 0.1, 0.2, 0.3, 0.4])]
)
def test_axes_have_round_numbers(top: float, ticks: list[float]) -> None:
    assert round_ticks(top) == pytest.approx(ticks)


def test_style_script_and_templates_are_part_of_the_package() -> None:
    folder = Path(pages.__file__).parent
    assert {file.name for file in (folder / "assets").iterdir()} == {"report.css", "report.js"}
    assert {file.name for file in (folder / "templates").iterdir()} == {"charts.html", "report.html", "tables.html"}
