"""The decision table: total, unambiguous, and never careless with what was flushed."""

from __future__ import annotations

import itertools
from pathlib import PurePath

import pytest

from recovery.plan.decide import TABLE, Decision, Flushed, Where, decide, matching_rows
from recovery.plan.findings import Damage, Finding, Severity, Subject

EVERYWHERE = [Where(*values) for values in itertools.product(Flushed, *[(False, True)] * 4)]
EVERY = list(itertools.product(Subject, EVERYWHERE))


def test_every_combination_of_subject_and_conditions_has_exactly_one_row() -> None:
    assert len(EVERYWHERE) == 48
    for subject, where in EVERY:
        assert len(matching_rows(subject, where)) == 1, (subject, where)


def test_every_row_decides_something_and_no_letter_stands_twice() -> None:
    used = {decide(subject, where).letter for subject, where in EVERY}
    assert used == {row.letter for row in TABLE}
    assert len(used) == len(TABLE)


def test_a_cut_of_what_was_or_may_have_been_flushed_needs_a_word_from_a_person() -> None:
    for subject, where in EVERY:
        if decide(subject, where).decision is not Decision.CUT:
            continue
        careful = where.flushed is Flushed.NO or (where.flushed is Flushed.UNKNOWN and not where.valid_after)
        assert subject is Subject.LOG
        assert careful or where.accept_loss, where


def test_what_cannot_be_read_or_understood_stops_everything_whatever_else_holds() -> None:
    for where in EVERYWHERE:
        assert decide(Subject.READ, where).decision is Decision.STOP
        assert decide(Subject.FORMAT, where).decision is Decision.STOP


def test_beside_a_held_log_nothing_is_changed() -> None:
    for subject, where in EVERY:
        if not where.log_open and subject is not Subject.LOG:
            assert decide(subject, where).decision in {
                Decision.STOP,
                Decision.NOTHING,
                Decision.HOLD,
                Decision.REWRITE,
            }, (subject, where)


def test_padding_is_trimmed_only_where_a_broker_would_take_it_for_entries() -> None:
    for where in EVERYWHERE:
        trims = decide(Subject.PADDING, where).decision is Decision.TRIM
        assert trims == (where.trims_padding and where.log_open)


@pytest.mark.parametrize("subject", [Subject.VANISHED, Subject.NONE])
def test_notes_and_vanished_files_ask_for_nothing(subject: Subject) -> None:
    assert {decide(subject, where).decision for where in EVERYWHERE} == {Decision.NOTHING}


def test_every_kind_of_damage_has_a_subject_a_severity_and_a_decision() -> None:
    for kind in Damage:
        assert isinstance(kind.subject, Subject), kind
        assert isinstance(kind.severity, Severity), kind
        assert all(decide(kind.subject, where) for where in EVERYWHERE)


def test_no_name_of_a_kind_stands_twice() -> None:
    assert len({kind.value for kind in Damage}) == len(Damage.__members__)


def test_whatever_stops_or_holds_is_blocking_or_damage() -> None:
    stopping = {Decision.STOP, Decision.HOLD}
    for kind in Damage:
        if any(decide(kind.subject, where).decision in stopping for where in EVERYWHERE):
            assert kind.severity in {Severity.BLOCKING, Severity.DAMAGE}, kind


def test_a_finding_is_one_line_whatever_is_in_its_name() -> None:
    finding = Finding(Damage.BAD_NAME, PurePath("/d/a\nb\x1b[31m\u202e"), "odd\r\nindeed", position=7)
    assert str(finding) == "/d/a\\nb\\x1b[31m\\u202e at 7: bad_name: odd\\r\\nindeed"
