"""Messages: what is read is what kio reads, what is written is what kio writes, in every version that is served."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from support.kio_messages import drawn, plain, request_frame, request_of, response_frame

from server.api.versions import VERSIONS
from wire.messages import FETCH, PRODUCE, Header, build, decode, decode_response, encode, read_header
from wire.produce import is_plain
from wire.reading import MOST_ELEMENTS, MessageInvalid, Reader
from wire.requests import request_reader
from wire.segments import FileRange, Segment

ALL = [(int(key), version) for key, found in VERSIONS.items() for version in range(found.lowest, found.highest + 1)]
ROUNDS = 5


def joined(segments: list[Segment]) -> bytes:
    return b"".join(bytes(each) for each in segments if not isinstance(each, FileRange))


def encoded(entity: Any, values: Any) -> bytes:
    head = Header(int(entity.__api_key__), int(entity.__version__), 99, None, 0)
    return joined(encode(head, values))


@pytest.mark.parametrize(("key", "version"), ALL)
def test_every_request_that_is_served_is_read_as_it_was_written(key: int, version: int) -> None:
    draw = random.Random(key * 100 + version)
    for _ in range(ROUNDS):
        entity = request_of(key, version, draw)
        request = decode(memoryview(request_frame(entity)))
        assert (request.api_key, request.api_version, request.correlation_id) == (key, version, 7)
        assert (request.client_id, request.trailing) == ("tests", 0)
        if key == PRODUCE:
            check_produce(request.body, entity)
        elif key == FETCH:
            check_fetch_request(request.body, entity)
        else:
            assert request.body == entity


@pytest.mark.parametrize(("key", "version"), ALL)
def test_unknown_tagged_fields_are_skipped_and_everything_is_read_as_kio_wrote_it(key: int, version: int) -> None:
    draw = random.Random(key * 7 + version)
    schema = load_request_schema(key, version)
    for _ in range(ROUNDS):
        entity = request_of(key, version, draw)
        frame = request_frame(entity)
        start = read_header(memoryview(frame)).body_position + bool(schema.__flexible__)
        reader = Reader(memoryview(frame), start, is_flexible=schema.__flexible__)
        assert request_reader(schema)(reader) == entity
        assert reader.left == 0
        has_tagged = any(
            "tag" in f.metadata and getattr(entity, f.name) != f.default for f in dataclasses.fields(schema)
        )
        if schema.__flexible__ and key != PRODUCE and not has_tagged:
            more = frame[:-1] + b"\x02\x63\x03abc\x64\x00"
            request = decode(memoryview(more))
            assert request.trailing == 0
            assert request.body == decode(memoryview(frame)).body


def check_fetch_request(body: Any, entity: Any) -> None:
    names = ("min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch")
    session = {"session_id": 0, "session_epoch": -1}
    assert [getattr(body, name) for name in names] == [getattr(entity, name, session.get(name)) for name in names]
    assert body.max_wait == plain(entity.max_wait)
    found = [(topic.topic or topic.topic_id, *each) for topic in body.topics for each in topic.partitions]
    assert found == [
        (
            getattr(topic, "topic", None) or plain(getattr(topic, "topic_id", None)) or bytes(16),
            each.partition,
            each.fetch_offset,
            each.partition_max_bytes,
            getattr(each, "current_leader_epoch", -1),
            getattr(each, "last_fetched_epoch", -1),
        )
        for topic in entity.topics
        for each in topic.partitions
    ]


def check_produce(body: Any, entity: Any) -> None:
    assert (body.transactional_id, body.acks) == (entity.transactional_id, entity.acks)
    assert body.timeout == plain(entity.timeout)
    found = [
        (topic.name, each.index, None if each.records is None else bytes(each.records))
        for topic in body.topic_data
        for each in topic.partition_data
    ]
    assert found == [(t.name, p.index, p.records) for t in entity.topic_data for p in t.partition_data]


@pytest.mark.parametrize(("key", "version"), ALL)
def test_every_response_is_written_from_plain_values_as_kio_writes_it(key: int, version: int) -> None:
    draw = random.Random(key * 1000 + version)
    schema = load_response_schema(key, version)
    for _ in range(ROUNDS):
        entity = drawn(schema, draw)
        if key == FETCH:
            check_fetch(entity)
        else:
            assert build(key, version, plain(entity)) == entity
            assert encoded(entity, plain(entity)) == response_frame(entity, 99)


def check_fetch(entity: Any) -> None:
    values = plain(entity)
    kept: list[Any] = []
    for topic, written in zip(entity.responses, values["responses"], strict=True):
        partitions = []
        for each, one in zip(topic.partitions, written["partitions"], strict=True):
            aborted = one["aborted_transactions"]
            if aborted is not None:
                one["aborted_transactions"] = [(txn["producer_id"], txn["first_offset"]) for txn in aborted]
            one["records"] = [memoryview(one["records"] or b"")]
            partitions.append(as_it_is_sent(each))
        written["topic_id"] = written.get("topic_id") or bytes(16)
        kept.append(type(topic)(**{**fields(topic), "partitions": tuple(partitions)}))
        for one in written["partitions"]:
            for name in ("diverging_epoch", "current_leader"):
                if name in one and one[name] == plain(default(topic, name)):
                    del one[name]
    sent = {**fields(entity), "responses": tuple(kept)}
    sent |= {"throttle_time": type(entity.throttle_time)(0)}
    if "node_endpoints" in sent:
        sent["node_endpoints"] = ()
    if "error_code" not in sent:
        values.pop("error_code", None)
    assert encoded(entity, values) == response_frame(type(entity)(**sent), 99)


def fields(entity: Any) -> dict[str, Any]:
    return {field.name: getattr(entity, field.name) for field in dataclasses.fields(entity)}


def default(topic: Any, name: str) -> Any:
    partition = type(topic).__dataclass_fields__["partitions"].type.__args__[0]
    return partition.__dataclass_fields__[name].default


def as_it_is_sent(partition: Any) -> Any:
    """Return the partition without what is never sent: snapshot ids of metadata logs, and records that are null."""
    changed = {"records": partition.records or b""}
    if "snapshot_id" in partition.__dataclass_fields__:
        changed["snapshot_id"] = type(partition).__dataclass_fields__["snapshot_id"].default
    return type(partition)(**{**fields(partition), **changed})


@pytest.mark.parametrize("version", range(3, 12))
def test_a_response_to_produce_without_what_is_rare_is_written_by_hand_as_kio_writes_it(version: int) -> None:
    draw = random.Random(version)
    for _ in range(ROUNDS):
        entity = drawn(load_response_schema(PRODUCE, version), draw)
        values = plain(entity)
        rare = {"record_errors", "current_leader"}
        topics = [
            {
                "name": topic["name"],
                "partition_responses": [
                    {name: value for name, value in each.items() if name not in rare}
                    for each in topic["partition_responses"]
                ],
            }
            for topic in values["responses"]
        ]
        assert is_plain({"responses": topics})
        by_kio = build(PRODUCE, version, {"responses": topics})
        assert encoded(entity, {"responses": topics}) == response_frame(by_kio, 99)
        assert not is_plain({"responses": topics, "throttle_time": 1})


@pytest.mark.parametrize(("key", "version"), [(FETCH, 11), (3, 12), (23, 3), (18, 3), (36, 2)])
def test_responses_of_others_are_read_as_kio_wrote_them(key: int, version: int) -> None:
    draw = random.Random(key)
    for _ in range(ROUNDS):
        entity = drawn(load_response_schema(key, version), draw)
        assert decode_response(response_frame(entity, 9)[4:], type(entity)) == (9, entity)
    with pytest.raises(MessageInvalid):
        decode_response(b"\0\0\0\1", type(entity))


def test_records_are_views_of_the_frame_and_not_copies() -> None:
    draw = random.Random(1)
    while True:
        frame = bytearray(request_frame(request_of(PRODUCE, 9, draw)))
        body = decode(memoryview(frame)).body
        found = [each.records for topic in body.topic_data for each in topic.partition_data if each.records]
        if found:
            break
    before = bytes(found[0])
    for i in range(len(frame)):
        frame[i] ^= 0xFF
    assert bytes(found[0]) == bytes(byte ^ 0xFF for byte in before)


def test_bytes_behind_a_request_are_counted_and_let_be() -> None:
    frame = request_frame(request_of(3, 12, random.Random(2)))
    assert decode(memoryview(frame + b"\0\0\0")).trailing == 3


def test_a_name_that_a_version_lacks_is_dropped_and_one_that_is_missing_takes_the_default() -> None:
    old = build(11, 0, {"generation_id": 4, "protocol_name": "range", "members": [], "skip_assignment": True})
    assert (old.generation_id, old.leader, old.member_id) == (4, "", "")
    assert not hasattr(old, "skip_assignment")
    new = build(3, 12, {})
    assert (new.topics, new.cluster_id, new.throttle_time.total_seconds()) == ((), None, 0)


def test_a_value_of_the_wrong_kind_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(TypeError):
        build(3, 12, {"topics": "orders"})
    with pytest.raises(ValueError, match="12345"):
        build(3, 12, {"topics": [{"error_code": 12345}]})


@pytest.mark.parametrize(("key", "version"), [(999, 0), (3, 99), (-1, -1)])
def test_what_kio_does_not_know_is_no_message(key: int, version: int) -> None:
    frame = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(4) + b"\xff\xff"
    assert read_header(memoryview(frame)).api_key == key
    with pytest.raises(MessageInvalid):
        decode(memoryview(frame))


@pytest.mark.parametrize(
    "frame", [b"", b"\0", b"\0\3\0\1\0\0\0", b"\0\3\0\1\0\0\0\1\0\5ab", b"\0\3\0\1\0\0\0\1\0\1\xff"]
)
def test_a_header_that_is_cut_or_no_text_is_no_message(frame: bytes) -> None:
    with pytest.raises(MessageInvalid):
        read_header(memoryview(frame))


@pytest.mark.parametrize(("key", "version"), ALL)
def test_damaged_requests_are_read_or_refused_and_nothing_else(key: int, version: int) -> None:
    draw = random.Random(key * 10 + version)
    for _ in range(20):
        frame = bytearray(request_frame(request_of(key, version, draw)))
        for _ in range(draw.choice([1, 1, 4])):
            match draw.randrange(3):
                case 0:
                    frame[draw.randrange(8, len(frame))] = draw.randrange(256)
                case 1:
                    del frame[draw.randrange(8, len(frame)) :]
                    frame += b"\0"
                case _:
                    position = draw.randrange(8, len(frame))
                    frame[position:position] = draw.randbytes(3)
        with contextlib.suppress(MessageInvalid):
            assert decode(memoryview(frame)).api_key == key


@pytest.mark.parametrize(
    "count", [b"\x7f\xff\xff\xff", b"\x79\x1a\x94\0", b"\x80\0\0\0", b"\xff\xff\xff\xfe", b"\0\0\0\5"]
)
def test_a_claim_of_elements_that_are_not_there_takes_no_memory_and_ends_in_a_refusal(count: bytes) -> None:
    with pytest.raises(MessageInvalid, match="elements"):
        decode(memoryview(b"\0\2\0\1\0\0\0\7\xff\xff" + bytes(4) + count))  # ListOffsets
    produce = b"\0\0\0\x03\0\0\0\7\xff\xff" + b"\xff\xff\0\1\0\0\0\0"
    with pytest.raises(MessageInvalid, match="elements"):
        decode(memoryview(produce + count))
    fetch = b"\0\1\0\4\0\0\0\7\xff\xff" + bytes(17)
    with pytest.raises(MessageInvalid, match="elements"):
        decode(memoryview(fetch + count))


def test_a_request_of_very_many_elements_is_refused() -> None:
    names = b"\0\3\0\0\0\0\0\7\xff\xff" + (MOST_ELEMENTS + 1).to_bytes(4, "big") + b"\0\1a" * (MOST_ELEMENTS + 1)
    with pytest.raises(MessageInvalid, match="more than"):
        decode(memoryview(names))
    fewer = b"\0\3\0\0\0\0\0\7\xff\xff" + MOST_ELEMENTS.to_bytes(4, "big") + b"\0\1a" * MOST_ELEMENTS
    assert len(decode(memoryview(fewer)).body.topics) == MOST_ELEMENTS


def test_tagged_fields_count_as_elements_in_headers_and_bodies() -> None:
    many = b"\x81\x80\x04"  # MOST_ELEMENTS + 1, as a varint
    fields = b"\0\0" * (MOST_ELEMENTS + 1)
    for header in (b"\0\x12\0\3\0\0\0\7\xff\xff", b"\0\x12\0\3\0\0\0\7\xff\xff\0\2a\2b"):
        with pytest.raises(MessageInvalid, match="more than"):
            decode(memoryview(header + many + fields))


def test_null_is_refused_where_the_schema_has_none() -> None:
    with pytest.raises(MessageInvalid, match="null"):
        decode(memoryview(b"\0\x0c\0\0\0\0\0\7\xff\xff" + b"\xff\xff" + bytes(10)))  # the id of a group


def test_arrays_are_bounded_by_the_bytes_that_are_left() -> None:
    with pytest.raises(MessageInvalid, match="elements"):
        Reader(memoryview(b"\x7f\xff\xff\xff\0\0")).count()
    with pytest.raises(MessageInvalid, match="five bytes"):
        Reader(memoryview(b"\xff" * 6)).varint()
    with pytest.raises(MessageInvalid):
        Reader(memoryview(b"\0\0\0\x05abc")).data()
    with pytest.raises(MessageInvalid):
        Reader(memoryview(b"\xff\xff\xff\xf0")).data()
