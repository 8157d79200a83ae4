"""The document of the service's state: whole, versioned, and safe wherever it is shown."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.service_states import NASTY, ONE_BYTE, STATES, cell, hostile, listener, log_dir, service, serving

from daemon.events.safe_json import dumps
from daemon.http.metrics import exposition
from daemon.http.page_document import difference, page_document
from daemon.status.document import CELL_FIELDS, to_document
from daemon.status.headline import Level, headline_of
from daemon.status.model import CellVerdict, GroupLag, LogDirStatus, ServiceStatus
from daemon.status.phrases import runbook_of
from daemon.status.text import render
from recovery.plan.findings import Damage


def acting(text: str) -> list[str]:
    """Return the characters upon which a terminal or a page would act."""
    return [character for character in text if not character.isprintable() and character != "\n"]


def test_the_document_holds_every_field_of_the_state() -> None:
    told = to_document(STATES["damaged"]())
    assert {field.name for field in dataclasses.fields(ServiceStatus)} - {"version"} <= set(told)
    for each in told["log_dirs"]:
        assert {field.name for field in dataclasses.fields(LogDirStatus)} <= set(each)
    assert list(told["log_dirs"][0]["partitions"][0]) == list(CELL_FIELDS)


def test_the_document_comes_back_from_json_as_it_was() -> None:
    told = to_document(hostile())
    assert json.loads(dumps(told)) == told


def test_names_of_every_byte_are_safe_in_json_metrics_and_text() -> None:
    state = hostile()
    names = {each.topic for each in state.log_dirs[0].partitions}
    assert names == {*NASTY, *ONE_BYTE}
    document = dumps(to_document(state))
    assert document.isascii()
    assert acting(document) == []
    assert acting(exposition(state, (), partition_labels=True).decode()) == []
    assert acting("\n".join(render(json.loads(document), lambda text, role: text))) == []


def test_a_label_stays_within_its_quotes() -> None:
    text = exposition(
        service(log_dir(partitions=(cell('a",b="c"} 1\nfake 1', 0),))), (), partition_labels=True
    ).decode()
    (line,) = [each for each in text.splitlines() if each.startswith("logmend_partition_findings{")]
    assert line.endswith(" 0.0")
    assert not any(each.startswith("fake") for each in text.splitlines())


@pytest.mark.parametrize("name", ["small", "damaged", "offline", "recovering"])
def test_a_difference_turns_the_old_into_the_new(name: str) -> None:
    old = page_document(STATES["small"](), [])
    new = page_document(STATES[name](), [["t", "info", "x", ""]])
    delta = difference(old, new)
    if name != "small":
        assert delta is None, "other directories or partitions are sent whole"
        return
    assert delta == {"events": [["t", "info", "x", ""]], "log_dirs": [{"cells": []}]}


def test_no_more_findings_are_sent_to_the_page_than_a_person_reads_and_the_worst_come_first() -> None:
    found = STATES["damaged"]().log_dirs[0].findings[0]
    many = tuple(dataclasses.replace(found, id=str(i), severity="note") for i in range(500))
    worst = dataclasses.replace(found, id="worst", severity="blocking")
    (told,) = page_document(service(log_dir(findings=(*many, worst))), [])["log_dirs"]
    assert (len(told["findings"]), told["findings_total"]) == (200, 501)
    assert told["findings"][0]["id"] == "worst"


def test_what_kafka_clients_do_is_shown_everywhere() -> None:
    state = serving()
    text = "\n".join(render(json.loads(dumps(to_document(state))), lambda text, role: text))
    assert "127.0.0.1:9092  Kafka clients are served" in text
    assert "12 connections, 40 since the start" in text
    assert "billing, orders: 1 234 records behind" in text.replace("\u202f", " ").replace(",234", " 234")
    metrics = exposition(state, ()).decode()
    for line in (
        'logmend_listener_up{listen="127.0.0.1:9092"} 1.0',
        'logmend_listener_requests_total{listen="127.0.0.1:9092",request="Produce"} 12000.0',
        'logmend_listener_request_seconds_bucket{le="0.0025",listen="127.0.0.1:9092",request="Produce"} 12000.0',
        'logmend_listener_request_seconds_sum{listen="127.0.0.1:9092",request="Produce"} 36.0',
        'logmend_listener_ended_total{kind="refused",listen="127.0.0.1:9092"} 2.0',
        'logmend_group_lag_records{group="billing",topic="orders"} 1234.0',
    ):
        assert line in metrics.splitlines()


def test_a_listener_without_its_address_is_bad_and_one_that_only_starts_is_not() -> None:
    def verdict(reason: str) -> tuple[Level, str]:
        return headline_of(replace(serving(), listeners=(listener(reason=reason),)))

    level, text = verdict("port 9092: Address already in use")
    assert (level, text) == (
        Level.BAD,
        "Kafka clients are not served at 127.0.0.1:9092: port 9092: Address already in use",
    )
    assert verdict("starting") == verdict("")


def test_the_page_is_sent_the_groups_that_are_furthest_behind() -> None:
    lags = tuple(GroupLag(f"g{n}", "orders", n) for n in range(500))
    (told,) = page_document(replace(serving(), listeners=(listener(lags=lags),)), [])["listeners"]
    assert (told["lags_total"], len(told["lags"]), told["lags"][0]["group"]) == (500, 50, "g499")


@pytest.mark.parametrize(
    ("verdicts", "level", "text"),
    [
        (["unverified"] * 7, Level.WORKING, "Nothing read yet: 0 of 7 partitions"),
        (["sound", "unverified"], Level.WORKING, "Nothing wrong so far: 1 of 2 partitions read"),
        (["suspect", "unverified"], Level.ATTENTION, "1 partition read badly once waits for a second look"),
    ],
)
def test_the_headline_does_not_contradict_the_partitions(verdicts: list[str], level: Level, text: str) -> None:
    shown = tuple(cell("orders", number, verdict=CellVerdict(verdict)) for number, verdict in enumerate(verdicts))
    assert headline_of(service(log_dir(partitions=shown))) == (level, text)


def test_every_kind_of_finding_has_a_runbook_that_is_there() -> None:
    runbooks = Path(__file__).resolve().parents[4] / "docs" / "operate" / "runbooks"
    for kind in [*(damage.value for damage in Damage), "changed_in_place", "recovery_point_regressed"]:
        assert (runbooks / f"{runbook_of(kind)}.md").is_file(), kind
