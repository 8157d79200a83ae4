"""A plan file is believed in nothing: whatever `plan` does not write is refused before any effect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.batches import batch_v2
from support.command import make_log_dir, sound_log
from support.recovering import plan

from cli.recover.plan_file import Wanted, decode_plan, ensure_same, read_plan_file
from recovery.plan.plan import LogDirPlan, PlanOptions
from recovery.report.documents import plan_document
from storage.base.errors import ConfigInvalid, PlanStale


@pytest.fixture
def made(tmp_path: Path) -> LogDirPlan:
    make_log_dir(tmp_path / "data", sound_log() + batch_v2(6, 2)[:50])
    return plan(tmp_path / "data", PlanOptions(topics=("orders",)))


def document(made: LogDirPlan) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(plan_document([made], "1")))
    return plain


def reseal(told: dict[str, Any]) -> dict[str, Any]:
    """Return the document with ids that fit its content, as somebody who means harm would make them."""
    for each in told["plans"]:
        content = {name: value for name, value in each.items() if name != "plan_id"}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        each["plan_id"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    told["id"] = told["plans"][0]["plan_id"]
    return told


def decode(told: object) -> list[Wanted]:
    return decode_plan(json.dumps(told).encode())


def test_what_plan_writes_is_read_back(made: LogDirPlan) -> None:
    (wanted,) = decode(document(made))
    assert (wanted.log_dir, wanted.options, wanted.plan_id) == (made.log_dir, made.options, made.plan_id)
    ensure_same(wanted, made)


def set_top(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda told: told.__setitem__(name, value)


def set_plan(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda told: told["plans"][0].__setitem__(name, value)


def set_option(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda told: told["plans"][0]["options"].__setitem__(name, value)


def set_action(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda told: told["plans"][0]["partitions"][0]["actions"][0].__setitem__(name, value)


def drop_option(told: dict[str, Any]) -> None:
    del told["plans"][0]["options"]["depth"]


def nest(told: dict[str, Any]) -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    told["plans"][0]["verdicts"] = value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_top("schema_version", 2), "schema version 2"),
        (set_top("schema_version", True), "not a plan"),
        (set_top("document", "verify"), "not a plan"),
        (set_top("more", 1), "unknown key more"),
        (set_top("plans", []), "one or more"),
        (set_plan("log_dir", "data"), "not absolute and direct"),
        (set_plan("log_dir", "/a/../b"), "not absolute and direct"),
        (set_plan("log_dir", "/a//b"), "not absolute and direct"),
        (set_plan("log_dir", "/a\0b"), "no name of a file"),
        (set_plan("log_dir", 7), "no name of a file"),
        (set_plan("more", 1), "unknown key more"),
        (set_option("depth", "deep"), "options: depth"),
        (set_option("depth", ["quick"]), "options: depth"),
        (set_option("accept_loss", 1), "options: accept_loss"),
        (set_option("topics", "orders"), "options: topics"),
        (set_option("segment_index_bytes", -1), "options: segment_index_bytes"),
        (set_option("user", True), "options: user"),
        (set_option("more", 1), "unknown key more"),
        (drop_option, "missing key depth"),
        (set_action("path", "/etc/passwd"), "lies outside"),
        (set_action("path", "/etc/../passwd"), "not absolute and direct"),
        (set_action("size", 10**30), "too large"),
        (nest, "nested too deeply"),
    ],
)
def test_anything_else_is_refused(made: LogDirPlan, change: Callable[[dict[str, Any]], None], said: str) -> None:
    told = document(made)
    change(told)
    with pytest.raises(ConfigInvalid, match=said):
        decode(reseal(told) if told["plans"] else told)


def test_a_content_that_is_not_that_of_the_id_was_changed(made: LogDirPlan) -> None:
    told = document(made)
    set_option("accept_loss", value=True)(told)
    with pytest.raises(ConfigInvalid, match="it was changed"):
        decode(told)


def test_one_log_directory_may_stand_once(made: LogDirPlan) -> None:
    told = document(made)
    told["plans"] *= 2
    with pytest.raises(ConfigInvalid, match="stands twice"):
        decode(told)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a": 1, "a": 2}',
        b'{"a": 1.5}',
        b'{"a": NaN}',
        b'{"a": ' + b"9" * 10_000 + b"}",
        b"null",
        b"[]",
    ],
)
def test_bytes_that_are_no_such_json_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigInvalid):
        decode_plan(data)


def test_a_file_that_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("cli.recover.plan_file._LIMIT", 10)
    (tmp_path / "plan.json").write_bytes(b"{}" * 10)
    with pytest.raises(ConfigInvalid, match="more than 10 bytes"):
        read_plan_file(str(tmp_path / "plan.json"))


def test_the_first_file_that_differs_is_named(made: LogDirPlan) -> None:
    (wanted,) = decode(document(made))
    log = Path(made.log_dir) / "orders-0/00000000000000000000.log"
    log.write_bytes(log.read_bytes() + b"x")
    with pytest.raises(PlanStale, match=rf"{log}: its size has changed since the plan was made"):
        ensure_same(wanted, plan(Path(made.log_dir), wanted.options))


def test_a_partition_that_has_come_is_named(made: LogDirPlan) -> None:
    (wanted,) = decode(document(made))
    make_log_dir(Path(made.log_dir), sound_log() + b"\0" * 10, partition="orders-1")
    with pytest.raises(PlanStale, match="since the plan was made"):
        ensure_same(wanted, plan(Path(made.log_dir), wanted.options))
