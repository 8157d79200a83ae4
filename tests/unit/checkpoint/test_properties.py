"""Properties files are read as java.util.Properties reads them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.properties import decode_properties, encode_value
from storage.base.errors import CheckpointCorrupt


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", {}),
        (b"#\n#Fri Nov 14 22:13:20 UTC 2023\nnode.id=7\nversion=1\n", {"node.id": "7", "version": "1"}),
        (b"a=1", {"a": "1"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a = 1 \r\nb:2\rc 3\n", {"a": "1 ", "b": "2", "c": "3"}),
        (b"  \t\f a\t=\t1", {"a": "1"}),
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"=1", {"": "1"}),
        (b"a==1", {"a": "=1"}),
        (b"a : = 1", {"a": "= 1"}),
        (b"! comment\n  # comment\na#b=c#d", {"a#b": "c#d"}),
        (b"a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        (b"a=1\\\n   2\\\n# no comment", {"a": "12# no comment"}),
        (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (b"a=1\\", {"a": "1"}),
        (b"\\\n\na=1", {"a": "1"}),
        (b"\\\n# a comment after all\na=1", {"a": "1"}),
        (b"\\", {"": ""}),
        (b"\\\n", {"": ""}),
        (b"a=\\t\\n\\r\\f\\x\\\\", {"a": "\t\n\r\fx\\"}),
        (b"a=\\u00e4\\u263A", {"a": "ä☺"}),
        (b"a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        (b"a=\\ud83d", {"a": "\ud83d"}),
        (b"a=\xe4", {"a": "ä"}),
        (b"# no continuation \\\na=1", {"a": "1"}),
    ],
)
def test_keys_and_values_are_javas(data: bytes, found: dict[str, str]) -> None:
    assert decode_properties(data) == found


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\uxyzw", b"\\u=1", b"a=\\u"])
def test_a_malformed_unicode_escape_is_corrupt(data: bytes) -> None:
    with pytest.raises(CheckpointCorrupt, match="unicode"):
        decode_properties(data)


@given(st.binary(max_size=80))
def test_any_bytes_are_properties_or_a_typed_error(data: bytes) -> None:
    try:
        found = decode_properties(data)
    except CheckpointCorrupt:
        return
    assert len(found) <= data.count(b"\n") + data.count(b"\r") + 1


@given(st.text(max_size=40))
def test_every_value_is_read_back(text: str) -> None:
    line = f"key={encode_value(text)}\nnext=1\n"
    assert line.isascii()
    assert decode_properties(line.encode()) == {"key": text, "next": "1"}


def test_hostile_files_cost_linear_time() -> None:
    begin = time.process_time()
    for data in (b"\\" * 1_000_000, b"a\\\n" * 300_000, b" " * 1_000_000, b"=" * 1_000_000, b"\\ " * 500_000):
        assert len(decode_properties(data)) <= 1
    assert time.process_time() - begin < 3
