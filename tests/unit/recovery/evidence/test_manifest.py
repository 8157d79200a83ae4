"""Manifests: read back as written, and refused whatever else they say."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

import pytest

from recovery.evidence.manifest import Item, Manifest, decode, encode, kept_name, manifest_name
from storage.base.errors import CheckpointCorrupt, UnsupportedFormat

PLAN = "0123456789ab"
PATH = PurePath("/data/p-0") / manifest_name(PLAN)
CUT = Item("cut", "0.log", "torn", kept_name("0.log", PLAN, 9), 9, 4, sha256="00", mtime_ns=5, result_size=9)
MANIFEST = Manifest(PLAN, "/data/p-0", 17, "1.0", (CUT, Item("created", "0.index", "missing")))


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(encode(MANIFEST)), **fields}).encode()


def with_item(**fields: Any) -> bytes:
    plain = json.loads(encode(MANIFEST))
    plain["items"][0] |= fields
    return json.dumps(plain).encode()


def test_a_manifest_is_read_back_as_it_was_written() -> None:
    assert decode(encode(MANIFEST), PATH) == MANIFEST
    assert MANIFEST.kept_bytes == 4


def test_fields_of_later_releases_are_passed_over() -> None:
    assert decode(changed(colour="blue"), PATH) == MANIFEST
    assert decode(with_item(colour="blue"), PATH) == MANIFEST


@pytest.mark.parametrize("version", [0, 2, "1", None, 1e300])
def test_another_version_is_not_understood(version: object) -> None:
    with pytest.raises(UnsupportedFormat, match="manifest version"):
        decode(changed(schema_version=version), PATH)


NAMES = ["..", ".", "/etc/passwd", "../0.log", "a/b", "a\0b", "/", "\ud800"]


@pytest.mark.parametrize("name", [*NAMES, ""])
def test_an_item_names_a_file_of_its_directory_and_nothing_else(name: str) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode(with_item(name=name), PATH)


@pytest.mark.parametrize("field", ["kept", "result_name"])
@pytest.mark.parametrize("name", NAMES)
def test_nor_does_what_it_keeps_or_results_in(field: str, name: str) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode(with_item(**{field: name}), PATH)


def test_only_names_of_ours_are_kept() -> None:
    with pytest.raises(CheckpointCorrupt, match="no name of ours"):
        decode(with_item(kept="1.log"), PATH)


@pytest.mark.parametrize("field", ["position", "size", "result_size", "mtime_ns"])
@pytest.mark.parametrize("value", [-1 << 70, 1 << 63, 1 << 200, 1.5, True, "1", None, [], {}])
def test_numbers_are_whole_and_fit_64_bits(field: str, value: object) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode(with_item(**{field: value}), PATH)


@pytest.mark.parametrize("directory", ["", "p-0", "a\0b", "\ud800", "/data/../etc", 7])
def test_its_directory_is_an_absolute_path_without_detours(directory: object) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode(changed(directory=directory), PATH)


@pytest.mark.parametrize("plan_id", ["", "0123456789a", "0123456789abc", "0123456789aG", "../../../../a", 12])
def test_a_plan_id_is_twelve_hex_digits(plan_id: object) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode(changed(plan_id=plan_id), PATH)


HOSTILE = {
    "nothing": b"",
    "no text": b"\xff\xfe\xff",
    "not JSON": b"{",
    "a list": b"[]",
    "a number": b"7",
    "infinity": b'{"schema_version": Infinity}',
    "digits without end": b'{"schema_version": ' + b"9" * 10**5 + b"}",
    "nested lists": b"[" * 10**5,
    "nested objects": b'{"a":' * 10**5,
    "keys twice": b'{"schema_version": 1, "schema_version": 1}',
    "items that are none": changed(items=7),
    "an item that is none": changed(items=[7]),
    "an item without fields": changed(items=[{}]),
    "an unknown step": with_item(step="rm -rf"),
    "a step that is a list": with_item(step=[]),
    "no time": changed(created_ms=None),
    "a time beyond time": changed(created_ms=1 << 200),
    "zeroes that are no boolean": with_item(zeroes=1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_manifest_is_refused_with_a_typed_error(what: str) -> None:
    with pytest.raises((CheckpointCorrupt, UnsupportedFormat)):
        decode(HOSTILE[what], PATH)


@pytest.mark.parametrize("field", ["items", "plan_id", "directory", "created_ms", "logmend_version"])
def test_every_field_must_be_there(field: str) -> None:
    plain = json.loads(encode(MANIFEST))
    del plain[field]
    with pytest.raises(CheckpointCorrupt):
        decode(json.dumps(plain).encode(), PATH)
