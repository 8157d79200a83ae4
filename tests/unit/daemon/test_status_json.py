"""The document of the service's state: whole, versioned, and safe wherever it is shown."""

from __future__ import annotations

import dataclasses
import json

import pytest
from support.service_states import NASTY, ONE_BYTE, STATES, cell, hostile, log_dir, service

from daemon.http_view import difference, page_document
from daemon.metrics import exposition
from daemon.safe_json import dumps
from daemon.snapshot import LogDirStatus, ServiceStatus
from daemon.status_json import CELL_FIELDS, to_document
from daemon.status_text import render


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
