"""Every plan is read back from its file as it was made; any document is a plan, a configuration or a typed error."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.recover.plan_file import decode_plan, ensure_same
from cli.settings.settings import KEYS, SERVICE_KEYS, load_settings, parse_toml
from daemon.service.config import KEYS as TABLE_KEYS
from daemon.service.config import LOG_DIR, TABLES, parse_service
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import (
    Cut,
    KeepCopy,
    LoadedOffsets,
    LogDirPlan,
    Piece,
    PlanOptions,
    Precondition,
    Quarantine,
    RecoveryPlan,
    Rename,
    ReplaceFile,
    Roll,
    SetAside,
    SplicePiece,
    SpliceSegment,
    SplitLog,
    TruncateTo,
    Verdict,
)
from recovery.report.documents import plan_document
from storage.base.errors import ConfigInvalid, PlanStale

T = TypeVar("T")
TOP = PurePath("/data")
WHOLE = st.integers(0, 2**63 - 1)
MAYBE = st.none() | WHOLE
HEX = st.text("0123456789abcdef", max_size=64)
NAMES = (
    st.binary(min_size=1, max_size=60)
    .filter(lambda raw: not {0, 47} & set(raw) and raw not in (b".", b".."))
    .map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)
PATHS = NAMES.map(TOP.__truediv__)
REASONS = st.text(max_size=30)
PIECES = st.builds(Piece, WHOLE, WHOLE, WHOLE)
SPLICES = st.builds(SplicePiece, MAYBE, WHOLE, REASONS, MAYBE, MAYBE, HEX)
ACTIONS = st.one_of(
    st.builds(Quarantine, PATHS, WHOLE, WHOLE, st.booleans(), REASONS),
    st.builds(TruncateTo, PATHS, WHOLE, WHOLE),
    st.builds(SetAside, PATHS, REASONS),
    st.builds(Rename, PATHS, PATHS),
    st.builds(ReplaceFile, PATHS, WHOLE, HEX, st.booleans(), REASONS),
    st.builds(SplitLog, PATHS, st.lists(PIECES, max_size=2).map(tuple)),
    st.builds(KeepCopy, PATHS, WHOLE, WHOLE, WHOLE, REASONS),
    st.builds(SpliceSegment, PATHS, st.lists(SPLICES, max_size=2).map(tuple), WHOLE, REASONS),
)
FINDINGS = st.builds(Finding, st.sampled_from(Damage), PATHS, REASONS, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE)
VERDICTS = st.builds(Verdict, FINDINGS, st.sampled_from("abc"), st.sampled_from(["note", "cut", "hold"]))


def few(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=2).map(tuple)


CONDITIONS = few(st.builds(Precondition, PATHS, WHOLE, WHOLE, WHOLE))
PARTITIONS = st.builds(
    RecoveryPlan,
    partition=NAMES, directory=PATHS, verdicts=few(VERDICTS), held=st.booleans(), preconditions=CONDITIONS,
    actions=few(ACTIONS), cuts=few(st.builds(Cut, PATHS, WHOLE, WHOLE, WHOLE, MAYBE, MAYBE, REASONS)),
    loaded=st.none() | st.builds(LoadedOffsets, WHOLE, WHOLE, WHOLE), scanned_bytes=WHOLE,
    roll=st.none() | st.builds(Roll, WHOLE, WHOLE), seen=st.none(),
)  # fmt: skip
OPTIONS = st.builds(
    PlanOptions,
    depth=st.sampled_from(["quick", "full", "records"]), accept_loss=st.booleans(), topics=few(NAMES),
    index_interval_bytes=st.integers(0, 2**31 - 1), segment_index_bytes=st.integers(12, 2**31 - 1),
    metadata_dir=st.none() | PATHS.map(str), user=st.none() | st.integers(0, 2**32 - 1), now_ms=MAYBE,
    clean_marker=st.booleans(), roll_from=MAYBE,
)  # fmt: skip
PLANS = st.builds(
    LogDirPlan,
    log_dir=st.just(TOP), options=OPTIONS, verdicts=few(VERDICTS), stopped=st.booleans(), before=few(ACTIONS),
    partitions=few(PARTITIONS), after=few(ACTIONS), preconditions=CONDITIONS,
)  # fmt: skip
SLOWLY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def encoded(plan: LogDirPlan) -> bytes:
    return json.dumps(plan_document([plan], "1")).encode()


@SLOWLY
@given(PLANS)
def test_every_plan_is_read_back_as_it_was_made(plan: LogDirPlan) -> None:
    (found,) = decode_plan(encoded(plan))
    assert (found.log_dir, found.options, found.plan_id) == (plan.log_dir, plan.options, plan.plan_id)
    ensure_same(found, plan)


@SLOWLY
@given(PLANS, PLANS)
def test_no_plan_is_taken_for_another(one: LogDirPlan, other: LogDirPlan) -> None:
    (found,) = decode_plan(encoded(one))
    if one.plan_id == other.plan_id:
        return
    with pytest.raises(PlanStale):
        ensure_same(found, other)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value in a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, inner in pairs for place in places(inner, (*at, key)))]


@SLOWLY
@given(PLANS, JSON, st.data())
def test_a_plan_with_any_value_changed_and_sealed_again_is_one_or_a_typed_error(
    plan: LogDirPlan, value: Any, data: st.DataObject
) -> None:
    told: dict[str, Any] = json.loads(encoded(plan))
    content = copy.deepcopy(told["plans"][0])
    del content["plan_id"]
    way = data.draw(st.sampled_from(places(content)[1:]))
    holder = content
    for step in way[:-1]:
        holder = holder[step]
    holder[way[-1]] = value
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    told["id"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    told["plans"] = [{**content, "plan_id": told["id"]}]
    try:
        (found,) = decode_plan(json.dumps(told).encode())
        ensure_same(found, plan)
    except (ConfigInvalid, PlanStale):
        return
    assert found.plan_id == plan.plan_id, "another plan is taken for this one"


# ---- the configuration

WORDS = [key.name for key in KEYS] + list(SERVICE_KEYS) + list(TABLE_KEYS)
INNER = sorted({setting.key for table in (*TABLES.values(), LOG_DIR) for setting in table})
NEAR = st.sampled_from(["full", "36h", "-1s", "512KiB", "22-2", "unix:/run/x", "[::1]:0", "/data", "guard", "1e400"])
SCALARS = NEAR | st.text(max_size=10) | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.booleans()


def toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = "".join(c if c.isalnum() or c in " -:/[]" else f"\\U{ord(c):08x}" for c in value)
        return f'"{plain}"'
    if isinstance(value, float):
        return ("nan" if math.isnan(value) else f"{'-' * (value < 0)}inf") if not math.isfinite(value) else repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml(key)} = {toml(inner)}' for key, inner in value.items())}}}"
    return str(value)


VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER) | st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=3)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "logmend.toml"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS)
def test_any_document_is_a_configuration_or_a_typed_error(path: Path, document: dict[str, Any]) -> None:
    text = "".join(f"{toml(name)} = {toml(value)}\n" for name, value in document.items())
    path.write_text(text, "utf-8")
    told = tomllib.loads(text)
    assert told.keys() == document.keys()
    error, found = refusal(lambda: load_settings({"config": str(path)}, {}))
    assert error.isprintable(), "a value of the file is shown as it is"
    if found is not None:
        given_keys = {key.name for key in KEYS} & told.keys()
        assert all(str(path) in found.origins[name] for name in given_keys)
    error, _ = refusal(lambda: parse_service(told, "logmend.toml"))
    assert error.isprintable(), "a value of the file is shown as it is"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_configuration_or_a_typed_error(raw: bytes) -> None:
    error, found = refusal(lambda: parse_toml(raw, "logmend.toml"))
    assert error.isprintable()
    assert bool(error) is (found is None)


def refusal(parse: Callable[[], T]) -> tuple[str, T | None]:
    """Return why something is refused, or what it is."""
    try:
        return "", parse()
    except ConfigInvalid as error:
        return str(error), None
