"""The page in a real browser, on a running server: what it shows, how it is used by keyboard, what it never does.

LOGMEND_SCREENSHOTS=DIR keeps a picture of each state, light and dark.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.browsing import chromium
from support.http_asking import serving
from support.service_states import (
    DAY,
    NASTY,
    NOW,
    STATES,
    cell,
    damaged,
    finding,
    hostile,
    log_dir,
    offline,
    recovering,
    service,
    small,
    sound,
)

from daemon.http.server import HttpServer
from daemon.status.model import CellVerdict, Exposure, Owner, RecoveryProgress, ServiceStatus

PORT = "127.0.0.1:0"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open the page of a server; whatever it complains of, or asks others for, fails the test at its end."""
    contexts, complaints = [], []

    def opened(server: HttpServer, **wanted: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **wanted})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        home = f"http://{server.address}"
        page.on("console", lambda message: None if "net::ERR_" in message.text else complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: None if request.url.startswith((home, "data:")) else complaints.append(request.url),
        )
        page.goto(f"{home}/")
        page.wait_for_selector("main[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def sentence(page: Any) -> str:
    return str(page.inner_text("#sentence"))


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('aria-label')"))


@pytest.mark.parametrize(
    ("name", "scheme"),
    [(name, "light") for name in ("small", "sound", "large", "serving", "recovering", "damaged", "offline")]
    + [(name, "dark") for name in ("recovering", "damaged", "offline")],
)
def test_each_state_is_shown_whole_and_nothing_is_wider_than_the_window(visit: Any, name: str, scheme: str) -> None:
    state = STATES[name]()
    with serving(PORT, lambda: state) as server:
        page = visit(server, color_scheme=scheme)
        cells = sum(len(each.partitions) for each in state.log_dirs)
        assert page.locator("[role=option]").count() == cells
        for width in (1280, 400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if os.environ.get("LOGMEND_SCREENSHOTS"):
            page.set_viewport_size({"width": 1280, "height": 900})
            folder = Path(os.environ["LOGMEND_SCREENSHOTS"])
            page.screenshot(path=folder / f"{name}-{scheme}.png", full_page=True)


def test_the_verdict_stands_on_top_in_one_sentence(visit: Any) -> None:
    with serving(PORT, small) as server:
        page = visit(server)
        assert sentence(page) == "All 10 partitions in 1 log directory read and sound."
        assert page.get_attribute("#top", "data-level") == "good"
    with serving(PORT, damaged) as server:
        page = visit(server)
        assert sentence(page).startswith(
            "2 serious findings in 2 partitions need a person, up to 465 577 records at stake;"
        )
        assert page.get_attribute("#top", "data-level") == "bad"
        assert page.title().startswith("\u2716 2 serious findings")
        assert page.locator("#top .sign g:visible").count() == 1


def test_it_shows_what_a_crash_now_would_leave_to_read_and_nothing_of_it_without_marks(visit: Any) -> None:
    exposed = service(log_dir(exposure=Exposure(3 << 20, 40 << 20, 2 << 30, 4)))
    with serving(PORT, lambda: exposed) as server:
        shown = visit(server).locator(".fact", has_text="If the broker were killed now").inner_text()
    assert "3.0 MiB to read" in shown
    assert "40.0 MiB after a power cut: not synced yet; 2.0 GiB are marked" in shown
    with serving(PORT, small) as server:
        assert "killed now" not in visit(server).inner_text("#dirs")


def test_a_finding_is_shown_with_its_very_offsets_and_the_command(visit: Any) -> None:
    with serving(PORT, damaged) as server:
        shown = visit(server).inner_text(".finding >> nth=0")
    for text in ("payments-3", "batch crc", "18311204 to 18311377", "18311378", "byte 536879104", "on disk",
                 "logmend recover --accept-loss /var/lib/kafka/data-1"):  # fmt: skip
        assert text in shown


def test_the_command_of_a_finding_can_be_copied(visit: Any) -> None:
    with serving(PORT, damaged) as server:
        page = visit(server, permissions=["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy the command for payments-3").click()
        page.locator(".run button", has_text="Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "logmend recover --accept-loss /var/lib/kafka/data-1"


def test_a_recovery_is_shown_with_rate_and_time_left(visit: Any) -> None:
    with serving(PORT, recovering) as server:
        page = visit(server)
        shown = page.inner_text(".fact.wide")
        assert page.get_attribute("progress", "aria-label") == "recovery"
    for text in ("42 %, about 3 min left", "275.0 GiB of 640.0 GiB", "1.8 GiB/s", "121 of 300", "4\u202f077 segments"):
        assert text in shown


def test_what_is_offline_says_why(visit: Any) -> None:
    with serving(PORT, offline) as server:
        page = visit(server)
        assert "Input/output error (EIO)" in page.inner_text("section.dir >> nth=1")
        assert "not mounted" in page.inner_text("section.dir >> nth=2")


def test_cells_are_coloured_by_verdict_and_by_age_against_the_promise(visit: Any) -> None:
    ages = [cell("t", i, NOW - days * DAY) for i, days in enumerate((0, 4, 8, 12, 15))]
    rest = [cell("t", 5, None), *(cell("t", 6 + i, verdict=each) for i, each in enumerate(CellVerdict))]
    with serving(PORT, lambda: service(log_dir(partitions=(*ages, *rest)))) as server:
        page = visit(server)
        names = [page.locator("[role=option]").nth(i).get_attribute("class") for i in range(6 + len(CellVerdict))]
    kinds = [str(name).removeprefix("cell ") for name in names]
    assert kinds[:6] == ["a0", "a1", "a2", "a3", "late", "unverified"]
    assert kinds[6:] == ["damaged", "held", "unreadable", "suspect", "repairable", "unverified", "a0"]


def test_verdicts_differ_in_shape_and_not_in_colour_alone(visit: Any) -> None:
    with serving(PORT, lambda: service(log_dir(partitions=tuple(
            cell("t", i, verdict=each) for i, each in enumerate(CellVerdict))))) as server:  # fmt: skip
        page = visit(server)
        drawn = page.evaluate(
            "[...document.querySelectorAll('[role=option]')].map((e) => getComputedStyle(e).backgroundImage)"
        )
    assert len({image for image in drawn if image != "none"}) == 5


def test_the_map_is_one_stop_of_the_tab_key_and_arrows_move_in_it(visit: Any) -> None:
    with serving(PORT, sound) as server:
        page = visit(server)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Tab")
        assert focused(page).startswith("__consumer_offsets-0: sound, read ")
        page.keyboard.press("ArrowRight")
        assert focused(page).startswith("__consumer_offsets-1:")
        page.keyboard.press("ArrowDown")
        assert focused(page).startswith("audit-trail-1:")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowLeft")
        assert focused(page).startswith("__consumer_offsets-0:")
        page.keyboard.press("End")
        assert focused(page).startswith("shipments-24:")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowLeft")
        assert focused(page).startswith("__consumer_offsets-0:")
        assert page.inner_text(".looked").startswith("__consumer_offsets-0 sound, read ")
        assert page.locator("[role=option][tabindex='0']").count() == 1
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.getAttribute('role')") != "option"


def test_the_focus_is_seen(visit: Any) -> None:
    with serving(PORT, STATES["large"]) as server:
        page = visit(server)
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")
        outline = page.evaluate("getComputedStyle(document.activeElement).outline")
    assert "3px" in outline
    assert "none" not in outline


def test_a_key_leads_to_the_next_problem_and_from_there_to_its_finding(visit: Any) -> None:
    with serving(PORT, damaged) as server:
        page = visit(server)
        page.locator("[role=option][tabindex='0']").first.focus()
        page.keyboard.press("n")
        assert focused(page).startswith("clicks-17: read badly once")
        page.keyboard.press("Enter")
        assert "index padded" in page.evaluate("document.activeElement.innerText")


def test_what_changes_is_shown_without_a_reload_and_the_focus_stays(visit: Any) -> None:
    now: dict[str, ServiceStatus] = {"state": small()}
    with serving(PORT, lambda: now["state"]) as server:
        page = visit(server)
        page.evaluate("window.wasHere = true")
        page.locator("[role=option]").nth(3).focus()
        (old,) = now["state"].log_dirs
        bad = tuple(
            replace(c, verdict=CellVerdict.DAMAGED, findings=1) if i == 3 else c for i, c in enumerate(old.partitions)
        )
        found = finding(topic="orders", partition=3)
        now["state"] = service(replace(old, partitions=bad, findings=(found,)))
        page.wait_for_selector("#top[data-level=bad]")
        page.wait_for_selector(".finding")
        assert focused(page).startswith("orders-3: damaged")
        assert page.inner_text(".looked").startswith("orders-3 damaged")
        progress = RecoveryProgress(100, 20, 10.0, 8.0, 10, 2, 5)
        now["state"] = service(replace(old, recovery=progress))
        page.wait_for_selector("#top[data-level=good]")
        page.locator(".fact.wide .main", has_text="20 %").wait_for()
        now["state"] = service(replace(old, recovery=replace(progress, done_bytes=70)))
        page.locator(".fact.wide .main", has_text="70 %").wait_for()
        assert page.evaluate("window.wasHere")


def test_a_lost_connection_is_said_and_taken_up_again(visit: Any, browser: Any) -> None:
    with serving(PORT, small) as server:
        place = server.address
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://{place}/")
        page.wait_for_selector("#link[data-link=live]")
    page.wait_for_selector("#link[data-link=lost]", timeout=15_000)
    assert "trying again" in page.inner_text("#link")
    assert sentence(page).startswith("All 10 partitions"), "what was known last is still shown"
    with serving(place, damaged):
        page.wait_for_selector("#link[data-link=live]", timeout=30_000)
        page.wait_for_selector("#top[data-level=bad]")
    context.close()


def test_names_from_the_disk_run_nothing_and_make_no_markup(visit: Any) -> None:
    with serving(PORT, hostile) as server:
        page = visit(server)
        assert page.evaluate("[window.pwned, document.images.length, document.scripts.length]") == [None, 0, 1]
        assert page.locator("main svg, main img, main script").count() == 0
        assert page.locator("main a:not([href^='runbooks/'])").count() == 0
        text = page.evaluate(
            "document.body.textContent + document.title + [...document.querySelectorAll('[aria-label]')]"
            ".map((e) => e.getAttribute('aria-label') + e.title).join(' ')"
        )
    assert "<img src=x onerror=alert(1)>" in text, "as text"
    assert "a\\x1b[31mred\\x1b[0m" in text
    acting = [c for c in text if not c.isprintable() and c not in "\n\u202f"]
    assert acting == []
    assert len([name for name in NASTY if name.isprintable() and "\\" not in name and name in text]) > 5


def test_a_page_of_another_site_cannot_frame_or_read_it(browser: Any) -> None:
    with serving(PORT, small) as server, serving(PORT, small) as other:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://{other.address}/healthz")
        told = page.evaluate(
            "(url) => fetch(url).then((r) => r.text(), (e) => 'refused')", f"http://{server.address}/status"
        )
        context.close()
    assert told == "refused"


def test_whoever_wants_no_motion_gets_none(visit: Any) -> None:
    with serving(PORT, recovering) as server:
        page = visit(server, reduced_motion="reduce")
        moving = page.evaluate(
            "[...document.querySelectorAll('*')].filter((e) => getComputedStyle(e).transitionDuration !== '0s').length"
        )
    assert moving == 0


def test_text_stands_out_from_its_ground(visit: Any) -> None:
    with serving(PORT, damaged) as server:
        for scheme in ("light", "dark"):
            page = visit(server, color_scheme=scheme)
            worst = page.evaluate(CONTRAST)
            assert worst[0] >= 4.5, worst


CONTRAST = """() => {
  const parsed = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const one = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * one(r) + 0.7152 * one(g) + 0.0722 * one(b);
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (parsed(colour)[3] !== 0) return parsed(colour);
    }
  };
  let worst = [99, ''];
  for (const e of document.querySelectorAll('h1,h2,h3,p,dt,dd,span,b,code,button,time,li')) {
    const hasText = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (e.matches('.cell, .skip') || !e.getClientRects().length || !hasText) continue;
    const [a, b] = [light(parsed(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.className + ': ' + e.textContent.slice(0, 40)];
  }
  return worst;
}"""


def test_a_screen_reader_finds_names_for_everything(visit: Any) -> None:
    with serving(PORT, damaged) as server:
        page = visit(server)
        unnamed = page.evaluate(
            "[...document.querySelectorAll('[role=option],[role=listbox],progress,section,button')].filter((e) => "
            "!e.getAttribute('aria-label') && !document.getElementById(e.getAttribute('aria-labelledby'))).length"
        )
        assert unnamed == 0
        assert page.get_attribute("#sentence", "aria-live") == "polite"
        assert page.evaluate("document.documentElement.lang") == "en"
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_the_page_asks_nobody_else_and_holds_no_address(visit: Any) -> None:
    with serving(PORT, small) as server:
        source = visit(server).content()
    assert re.findall(r"(?:src|href)=\"(?!#|data:|/status\")[^\"]*\"", source) == []
    assert "http://www.w3.org" in source
    assert len(re.findall(r"https?://(?!www\.w3\.org)", source)) == 0


def test_a_log_dir_that_comes_while_one_looks_is_shown(visit: Any) -> None:
    now = {"state": small()}
    with serving(PORT, lambda: now["state"]) as server:
        page = visit(server)
        more = log_dir("/var/lib/kafka/data-2", count=10)
        now["state"] = service(*small().log_dirs, more)
        page.locator("section.dir").nth(1).wait_for()
        assert PurePath(page.locator("section.dir h2").nth(1).inner_text()) == more.path


def test_kafka_clients_and_the_lag_of_their_groups_are_shown(visit: Any) -> None:
    with serving(PORT, STATES["serving"]) as server:
        shown = visit(server).locator("#clients")
        text = shown.inner_text()
        assert "127.0.0.1:9092" in text
        assert re.search(r"12.000 Produce \(3\.0 ms\)", text)
        first, second = shown.locator("tbody tr").all()
        assert [cell.inner_text() for cell in first.locator("td").all()][:2] == ["billing", "orders"]
        assert second.locator("td").first.inner_text() == "audit\\n"


def test_the_page_names_host_broker_and_cluster_and_what_is_at_stake(visit: Callable[..., Any]) -> None:
    mine = log_dir(owner=Owner("kfk-cluster-1", 3), findings=(finding(),))
    state = service(mine, host="kafka-3.example")
    with serving(PORT, lambda: state) as server:
        page = visit(server)
        assert "kafka-3.example" in page.inner_text("#about")
        assert page.inner_text(".chip.owner") == "broker 3 of cluster kfk-cluster-1"
        assert "up to 174 records at stake" in page.inner_text(".finding")
        assert "up to 174 records at stake" in sentence(page)


def test_the_runbook_of_a_finding_is_one_click_away_on_the_same_port(visit: Callable[..., Any]) -> None:
    with serving(PORT, lambda: service(log_dir(findings=(finding(),)))) as server:
        page = visit(server)
        page.click(".finding a")
        page.wait_for_url("**/runbooks/crc-error")
        assert page.inner_text("body").startswith("# The CRC error")


def test_a_wide_screen_is_used(visit: Callable[..., Any]) -> None:
    with serving(PORT, lambda: service(log_dir(findings=(finding(),)))) as server:
        page = visit(server, viewport={"width": 2560, "height": 1300})
        places = [page.locator(place).bounding_box() for place in ("#findings", "#dirs")]
    assert places[0]["y"] == places[1]["y"]
    assert places[1]["x"] + places[1]["width"] > 2400
