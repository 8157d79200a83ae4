"""Records as lines: what is read can be appended again byte for byte; what is no record is named with its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.engine.record_text import BadLine, Encoding, parse_json, parse_plain, to_document
from engine.client.batching import NewRecord
from storage.base.units import TopicPartition
from storage.batch.record import Record

P0 = TopicPartition("orders", 0)
NOW = 1_700_000_000_000
DATA = st.none() | st.binary(max_size=12)


def parse(line: str, encoding: Encoding = Encoding.TEXT) -> NewRecord:
    return parse_json(line.encode(), 7, encoding, NOW)


def test_a_line_has_key_value_headers_and_timestamp_or_the_time_that_it_is() -> None:
    assert parse('{"key":"k","value":"v","headers":{"a":"1","b":null},"timestamp":5,"partition":2}') == NewRecord(
        b"k", b"v", 5, (("a", b"1"), ("b", None)), 2, 7
    )
    assert parse('{"value":"v"}') == NewRecord(None, b"v", NOW, source=7)


def test_bytes_may_be_given_as_base64() -> None:
    made = parse('{"key":"AAE=","value":"/w==","headers":[["h","AQ=="]]}', Encoding.BASE64)
    assert made[:2] == (b"\0\1", b"\xff")
    assert made.headers == (("h", b"\1"),)


@given(DATA, DATA, st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=4), DATA), max_size=3),
       st.sampled_from(Encoding))  # fmt: skip
def test_what_read_writes_append_takes_byte_for_byte(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], encoding: Encoding
) -> None:
    record = Record(3, NOW, key=key, value=value, headers=tuple(headers))
    line = json.dumps(to_document(P0, record, encoding)).encode()
    assert line.isascii()
    assert parse_json(line, 1, encoding, 0) == NewRecord(key, value, NOW, tuple(headers), 0, 1)


def test_a_record_without_a_timestamp_is_shown_without_one() -> None:
    assert to_document(P0, Record(0), Encoding.TEXT)["timestamp"] is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not JSON"), ("[]", "no JSON object"), ('{"value":', "not JSON"), ('{"valu":1}', "unknown key valu"),
        ('{"value":1}', "value is no text"), ('{"key":{}}', "key is no text"), ('{"timestamp":-1}', "timestamp is no"),
        ('{"timestamp":true}', "timestamp is no"), ('{"timestamp":9223372036854775808}', "timestamp is no"),
        ('{"partition":1.5}', "partition is no"), ('{"headers":1}', "headers are neither"),
        ('{"headers":[["a"]]}', "no pair"), ('{"headers":[[1,"a"]]}', "no pair"), ('{"headers":{"a":1}}', "no text"),
        (r'{"value":"\ud800"}', "half a character"), ("[" * 100_000, "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_named_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(BadLine, match=f"line 7: .*{reason}"):
        parse(line)


def test_what_is_no_base64_is_refused_where_that_is_wanted() -> None:
    with pytest.raises(BadLine, match="value is no base64"):
        parse('{"value":"@"}', Encoding.BASE64)
    with pytest.raises(BadLine, match="value is no base64"):
        parse_plain(b"\xff", 1, Encoding.BASE64, NOW)


def test_a_plain_line_is_the_value() -> None:
    assert parse_plain(b' {"a"} \xff', 3, Encoding.TEXT, NOW) == NewRecord(None, b' {"a"} \xff', NOW, source=3)
    assert parse_plain(b"AAE=", 3, Encoding.BASE64, NOW).value == b"\0\1"
