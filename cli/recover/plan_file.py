"""Reads a plan file strictly. Nothing in it is ever carried out: it says what to plan again, and what must come out.

The file may have been damaged, edited or forged. Whatever is not exactly what `plan` writes is
refused before any effect.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from cli.settings.settings import DEPTHS
from recovery.plan.plan import SCHEMA_VERSION, LogDirPlan, PlanOptions, to_plain
from recovery.report.documents import combined_id
from storage.base.errors import ConfigInvalid, PlanStale, printable
from storage.base.units import INT32_MAX, INT64_MAX

_LIMIT: Final = 256 << 20
_TOP: Final = frozenset({"schema_version", "document", "logmend", "id", "plans"})
_PLAN: Final = frozenset({"plan_id", *LogDirPlan._fields})
_OPTIONS: Final = frozenset(PlanOptions._fields)
_PATHS: Final = frozenset({"path", "target", "directory", "log_dir"})
_DEEPEST: Final = 12


class Wanted(NamedTuple):
    """One log directory of a plan file: what to plan again, the id that must come out, and what the file says of it."""

    log_dir: PurePath
    options: PlanOptions
    plan_id: str
    content: Mapping[str, Any]


def read_plan_file(name: str) -> list[Wanted]:
    """Return what the file asks for; `ConfigInvalid` says what is wrong with it."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(_LIMIT + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigInvalid(f"plan {printable(name)}: cannot be read: {reason}") from error
    try:
        return decode_plan(data)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"plan {printable(name)}: {error}; make a new one with `logmend plan --out FILE`") from None


def decode_plan(data: bytes) -> list[Wanted]:
    """Return what the bytes of a plan file ask for; raises `ConfigInvalid`."""
    if len(data) > _LIMIT:
        raise ConfigInvalid(f"more than {_LIMIT} bytes")
    top = _object(_parse(data), "the document", _TOP)
    if top["document"] != "plan" or type(top["schema_version"]) is not int:
        raise ConfigInvalid("not a plan")
    if top["schema_version"] != SCHEMA_VERSION:
        raise ConfigInvalid(f"schema version {top['schema_version']}; this release reads {SCHEMA_VERSION}")
    if not isinstance(top["plans"], list) or not top["plans"]:
        raise ConfigInvalid("plans: a list of one or more is needed")
    wanted = [_wanted(plain) for plain in top["plans"]]
    if len({one.log_dir for one in wanted}) != len(wanted):
        raise ConfigInvalid("a log directory stands twice")
    if top["id"] != combined_id([one.plan_id for one in wanted]):
        raise ConfigInvalid("its id is not that of its content: it was changed")
    return wanted


def _parse(data: bytes) -> object:
    def refuse(text: str) -> object:
        raise ValueError(f"{text[:20]} is no whole number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands twice")
        return found

    try:
        parsed = json.loads(data.decode(), object_pairs_hook=unique, parse_float=refuse, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"not JSON as a plan has it: {printable(str(error))[:120]}") from None
    for value in _values(parsed, 0):
        if isinstance(value, int) and not -INT64_MAX <= value <= 1 << 64:
            raise ConfigInvalid("a number is too large")
    return parsed


def _values(value: object, depth: int) -> Iterator[object]:
    """Yield every value inside `value`; raises `ConfigInvalid` where it is nested deeper than any plan."""
    if depth > _DEEPEST:
        raise ConfigInvalid("nested too deeply")
    yield value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _values(inner, depth + 1)


def _object(value: object, what: str, keys: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigInvalid(f"{what}: an object is needed")
    for name in sorted(value.keys() ^ keys):
        raise ConfigInvalid(f"{what}: {'unknown' if name in value else 'missing'} key {printable(name)}")
    return value


def _wanted(plain: object) -> Wanted:
    content = dict(_object(plain, "a plan", _PLAN))
    plan_id = content.pop("plan_id")
    log_dir = _place(content["log_dir"])
    for value in _values(content, 0):
        if isinstance(value, dict):
            _inside(value, log_dir)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    if plan_id != hashlib.sha256(text.encode()).hexdigest()[:12]:
        raise ConfigInvalid("a plan_id is not that of the plan: it was changed")
    return Wanted(log_dir, _options(content["options"]), plan_id, content)


def _place(value: object) -> PurePath:
    if not isinstance(value, str) or "\0" in value:
        raise ConfigInvalid("a path is no name of a file")
    path = PurePath(value)
    if not path.is_absolute() or ".." in path.parts or str(path) != value:
        raise ConfigInvalid(f"path {printable(value)[:120]} is not absolute and direct")
    return path


def _inside(value: Mapping[str, object], log_dir: PurePath) -> None:
    for name in _PATHS & value.keys():
        if not _place(value[name]).is_relative_to(log_dir):
            raise ConfigInvalid(f"path {printable(value[name])[:120]} lies outside {printable(log_dir)}")


def _options(plain: object) -> PlanOptions:
    values = _object(plain, "options", _OPTIONS)
    topics = values["topics"]
    checks = {
        "depth": values["depth"] in DEPTHS,
        "accept_loss": isinstance(values["accept_loss"], bool),
        "clean_marker": isinstance(values["clean_marker"], bool),
        "frees_deleted": isinstance(values["frees_deleted"], bool),
        "roll_from": values["roll_from"] is None or _is_number(values["roll_from"], 0, INT64_MAX),
        "topics": isinstance(topics, list) and all(isinstance(topic, str) for topic in topics),
        "index_interval_bytes": _is_number(values["index_interval_bytes"], 0, INT32_MAX),
        "segment_index_bytes": _is_number(values["segment_index_bytes"], 12, INT32_MAX),
        "metadata_dir": values["metadata_dir"] is None or bool(_place(values["metadata_dir"])),
        "user": values["user"] is None or _is_number(values["user"], 0, (1 << 32) - 1),
        "now_ms": values["now_ms"] is None or _is_number(values["now_ms"], 0, INT64_MAX),
    }
    for name, is_right in checks.items():
        if not is_right:
            raise ConfigInvalid(f"options: {name} has no value that it can have")
    return PlanOptions(**{**values, "topics": tuple(topics)})


def _is_number(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def ensure_same(wanted: Wanted, plan: LogDirPlan) -> None:
    """Raise `PlanStale`, naming the first file or partition that differs, unless the new plan is the old one."""
    if plan.plan_id == wanted.plan_id:
        return
    # An edited plan may hold anything where lists and names belong; then it is another one as well.
    with contextlib.suppress(AttributeError, KeyError, TypeError):
        _name_difference(wanted.content, to_plain(plan))
    raise PlanStale(plan.log_dir, "what would be done for it has changed")


def _name_difference(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for old, new in ((wanted, found), *_partition_pairs(wanted, found)):
        _compare_files(old.get("preconditions", []), new.get("preconditions", []))
    for old, new in _partition_pairs(wanted, found):
        if old != new:
            place = PurePath(str(new.get("directory") or old.get("directory")))
            raise PlanStale(place, "what would be done for it has changed")


def _partition_pairs(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    before = {each["directory"]: each for each in old["partitions"]}
    after = {each["directory"]: each for each in new["partitions"]}
    for name in sorted(before.keys() | after.keys()):
        yield before.get(name, {}), after.get(name, {})


def _compare_files(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    before, after = ({each["path"]: each for each in files} for files in (old, new))
    for path in sorted(before.keys() & after.keys()):
        for name in ("size", "mtime_ns", "inode"):
            if before[path][name] != after[path][name]:
                raise PlanStale(PurePath(path), f"its {name} has changed")
    for path in sorted(before.keys() ^ after.keys()):
        raise PlanStale(PurePath(path), "it no longer matters" if path in before else "it has come to matter")
