"""The report in a real browser: it loads without complaint, filters, sorts, unfolds, turns dark, prints, fits a phone.

With LOGMEND_ARTEFACTS set to a directory, pictures of it are left there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.audit_tables import broken_fleet
from support.browsing import chromium

from audit.report.report import report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = broken_fleet(20_000, 6)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report(tables, tables.audit_ids()[-1])[0])
    return path


def opened(browser: Browser, place: Path, **how: Any) -> tuple[Page, list[str]]:
    """Return the page, and what it complains of."""
    page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | how))
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(place.as_uri())
    return page, complaints


def keep(page: Page, name: str) -> None:
    if folder := os.environ.get("LOGMEND_ARTEFACTS"):
        page.screenshot(path=Path(folder) / f"audit-{name}.png", full_page=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_loads_without_a_complaint_in_light_and_dark(browser: Browser, place: Path, theme: str) -> None:
    page, complaints = opened(browser, place, color_scheme=theme)
    keep(page, f"report-{theme}")
    assert complaints == []
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colour == {"light": "rgb(246, 245, 241)", "dark": "rgb(20, 23, 26)"}[theme]
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != colour


def test_rows_are_filtered_by_words_from_the_keyboard(browser: Browser, place: Path) -> None:
    page, _ = opened(browser, place)
    page.keyboard.press("/")
    table = page.locator(".table").first
    before = table.locator("tbody tr:visible").count()
    page.keyboard.type("WEST mail")
    rows = table.locator("tbody tr:visible")
    assert 0 < rows.count() < before
    assert all("mail" in text and "west" in text for text in rows.all_inner_texts())
    page.keyboard.press("Escape")
    assert table.locator("tbody tr:visible").count() == before


def test_a_long_table_unfolds_and_sorts_by_numbers(browser: Browser, place: Path) -> None:
    page, _ = opened(browser, place)
    table = page.locator("#topics .table")
    assert table.locator("tbody tr:visible").count() == 25
    table.get_by_role("button", name="Show all").click()
    assert table.locator("tbody tr:visible").count() > 100
    table.get_by_role("button", name="Size").click()
    assert table.locator("th[aria-sort=descending]").inner_text().strip() == "Size"
    keys = table.locator("tbody tr td:nth-child(6)").evaluate_all(
        "cells => cells.map(cell => Number(cell.dataset.key))"
    )
    assert keys == sorted(keys, reverse=True)


def test_everything_that_acts_is_reached_by_the_keyboard(browser: Browser, place: Path) -> None:
    page, _ = opened(browser, place)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "verdict"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "INPUT"


def test_without_scripts_every_row_is_there(browser: Browser, place: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(place.as_uri())
    assert page.locator("#topics tbody tr:visible").count() > 100
    assert page.locator("input").count() == 0
    context.close()


def test_a_phone_does_not_scroll_sideways(browser: Browser, place: Path) -> None:
    page, _ = opened(browser, place, viewport={"width": 390, "height": 844})
    keep(page, "report-phone")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_it_prints_on_white_without_what_cannot_be_pressed(browser: Browser, place: Path) -> None:
    page, _ = opened(browser, place, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("nav:visible, input:visible").count() == 0
    assert page.pdf().startswith(b"%PDF")
