"""Every manifest is read back as it was written, and any bytes are a manifest or a typed error."""

from __future__ import annotations

from pathlib import PurePath

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.evidence.manifest import SCHEMA_VERSION, Item, Manifest, decode, encode, is_plain_name
from storage.base.errors import CheckpointCorrupt, UnsupportedFormat

PATH = PurePath("/data/p-0/0123456789ab.logmend.json")
WHOLE = st.integers(0, 2**63 - 1)
NAMES = st.binary(min_size=1, max_size=80).map(lambda raw: raw.decode("utf-8", "surrogateescape")).filter(is_plain_name)
KEPT = st.one_of(st.just(""), NAMES.map(lambda name: f"kept.{name}.logmend"))
ITEMS = st.builds(
    Item,
    step=st.sampled_from(["cut", "aside", "renamed", "replaced", "created"]),
    name=NAMES, reason=st.text(max_size=40), kept=KEPT, position=WHOLE, size=WHOLE, zeroes=st.booleans(),
    sha256=st.text("0123456789abcdef", max_size=64), mtime_ns=WHOLE, result_name=st.one_of(st.just(""), NAMES),
    result_size=WHOLE, result_sha256=st.text("0123456789abcdef", max_size=64),
    first_offset=st.one_of(st.none(), WHOLE), mode=st.integers(0, 0o777),
    kept_size=st.one_of(st.none(), WHOLE),
)  # fmt: skip
DIRECTORIES = st.lists(NAMES, max_size=4).map(lambda parts: "/" + "/".join(parts))
MANIFESTS = st.builds(
    Manifest,
    plan_id=st.text("0123456789abcdef", min_size=12, max_size=12),
    directory=DIRECTORIES,
    created_ms=WHOLE,
    logmend_version=st.text(max_size=20),
    items=st.lists(ITEMS, max_size=4).map(tuple),
    schema_version=st.just(SCHEMA_VERSION),
    copies_in=st.one_of(st.just(""), DIRECTORIES),
)


@settings(deadline=None)  # a busy machine is no fault
@given(MANIFESTS)
def test_every_manifest_is_read_back_as_it_was_written(manifest: Manifest) -> None:
    assert decode(encode(manifest), PATH) == manifest


@given(MANIFESTS, st.data())
def test_a_manifest_with_any_byte_changed_is_one_or_a_typed_error(manifest: Manifest, data: st.DataObject) -> None:
    raw = bytearray(encode(manifest))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(raw), PATH)
    except (CheckpointCorrupt, UnsupportedFormat):
        return
    assert all(is_plain_name(item.name) for item in found.items)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_manifest_or_a_typed_error(raw: bytes) -> None:
    try:
        found = decode(raw, PATH)
    except (CheckpointCorrupt, UnsupportedFormat):
        return
    assert found.plan_id
