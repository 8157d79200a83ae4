"""Every record of a client's batch is checked, in bounded memory, and listed only where one is refused.

That answers are Kafka's is shown in tests/interop; here is what those tests do not reach.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.batches import LOG_APPEND_TIME, TS, batch_v2, record, varint

from storage.append import append_records
from storage.append.append_records import judge_records, walk_batch, with_codec
from storage.base.config import LogConfig
from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.refusals import InvalidRecord, InvalidTimestamp
from storage.base.rows import Walked
from storage.batch.batch import parse_header
from storage.batch.record import Record, encode_batch, records_of
from storage.codec.compression import CHUNK_BYTES, HELD_LIMIT, compress

PLAIN = LogConfig()


def walked(batch: bytes) -> Walked:
    return walk_batch(parse_header(batch), memoryview(batch))


def packed(payload: bytes, count: int, codec: int = 4) -> bytes:
    return batch_v2(0, count=count, payload=compress(codec, payload), attributes=codec)


@pytest.mark.parametrize("codec", range(5))
def test_records_that_do_not_end_where_the_pieces_of_decompression_do_are_all_seen(codec: int) -> None:
    rng = random.Random(codec)
    sizes = [rng.choice([10, 1000, CHUNK_BYTES // 3, CHUNK_BYTES + 7, 3 * CHUNK_BYTES]) for _ in range(12)]
    made = [
        Record(n, TS + rng.randint(-9, 9), key=None if n == 7 else b"k", value=bytes([n]) * size)
        for n, size in enumerate(sizes)
    ]
    found = walked(encode_batch(made, codec=codec))
    times = [each.timestamp for each in made]
    assert (found.count, found.least, found.most) == (12, min(times), max(times))
    assert found.is_dense
    assert found.lacks_key


def test_more_records_or_fewer_than_the_header_says_break_the_format() -> None:
    payload = record(0) + record(1)
    for codec in (0, 4):
        with pytest.raises(BatchCorrupt, match="record 2 of 3"):
            walked(packed(payload, 3, codec))
        with pytest.raises(BatchCorrupt, match="bytes are left behind record 0"):
            walked(packed(payload, 1, codec))


def test_rubbish_that_decompresses_to_a_lot_is_told_by_its_first_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(*arguments: object, **more: object) -> object:
        for chunk in stream(*arguments, **more):  # type: ignore[arg-type]
            asked.append(len(chunk))
            yield chunk

    stream = append_records.decompress_stream
    monkeypatch.setattr(append_records, "decompress_stream", counted)
    rubbish = varint(9) + b"\xff" * (20 * CHUNK_BYTES)
    with pytest.raises(BatchCorrupt, match="record 0 of 1"):
        walked(packed(rubbish, 1))
    assert sum(asked) <= CHUNK_BYTES


def test_a_record_that_claims_more_than_is_held_is_not_waited_for() -> None:
    with pytest.raises(UnsupportedFormat, match="record of"):
        walked(packed(varint(HELD_LIMIT + 1) + bytes(2 * CHUNK_BYTES), 1))


def test_more_than_the_limit_of_all_records_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_records, "_STREAM_LIMIT", 3 * CHUNK_BYTES)
    made = encode_batch([Record(n, TS, value=bytes(CHUNK_BYTES)) for n in range(4)], codec=4)
    with pytest.raises(UnsupportedFormat, match="decompresses to more"):
        walked(made)


def test_a_batch_without_records_is_not_looked_into() -> None:
    assert walked(batch_v2(0, count=0, payload=b"?", attributes=4)).count == 0


def test_what_is_refused_is_told_record_by_record() -> None:
    late = batch_v2(0, [record(n, timestamp_delta=-(10**9) * n) for n in range(3)])
    with pytest.raises(InvalidTimestamp, match=r"record 1 .*; record 2 has"):
        judge_records(parse_header(late), memoryview(late), LogConfig(message_timestamp_before_max_ms=10**6), TS)
    keyless = batch_v2(0, [record(0), record(1, key=None)])
    with pytest.raises(InvalidRecord, match="record 1 has no key"):
        judge_records(parse_header(keyless), memoryview(keyless), LogConfig(cleanup_policy=("compact",)), TS)
    assert judge_records(parse_header(keyless), memoryview(keyless), PLAIN, TS).largest == TS


@pytest.mark.parametrize("good", [0, 40_000])
@pytest.mark.parametrize(
    ("bad", "config", "fault"),
    [
        (record(1, timestamp_delta=-(10**9)), LogConfig(message_timestamp_before_max_ms=10**6), InvalidTimestamp),
        (record(1, key=None), LogConfig(cleanup_policy=("compact",)), InvalidRecord),
    ],
)
def test_of_many_records_to_be_refused_few_are_looked_at(
    bad: bytes, config: LogConfig, fault: type[Exception], good: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, decode = [], append_records.decode

    def counted(batch: memoryview) -> Iterator[Record]:
        for each in decode(batch):
            seen.append(each)
            yield each

    monkeypatch.setattr(append_records, "decode", counted)
    made = packed(record(0) * good + bad * 40_000, good + 40_000)
    with pytest.raises(fault, match="a record has" if good else "; and 9997 more"):
        judge_records(parse_header(made), memoryview(made), config, TS)
    assert len(seen) == 10_000


def test_records_of_append_time_have_the_time_of_their_header() -> None:
    batch = batch_v2(0, [record(0, timestamp_delta=900)], attributes=LOG_APPEND_TIME, max_timestamp=TS - 5)
    assert judge_records(parse_header(batch), memoryview(batch), PLAIN, TS).largest == TS - 5
    moved = with_codec(parse_header(batch), memoryview(batch), 2, PLAIN)
    assert [each.timestamp for each in records_of(memoryview(moved))] == [TS - 5]


def test_another_codec_changes_nothing_that_a_consumer_sees() -> None:
    made = [Record(n, TS - n, key=b"k", value=b"v" * n, headers=(("h", None),)) for n in range(50)]
    for source in range(5):
        batch = encode_batch(made, codec=source, producer_id=3, producer_epoch=1, base_sequence=9)
        for target in range(5):
            moved = with_codec(parse_header(batch), memoryview(batch), target, PLAIN)
            assert list(records_of(memoryview(moved))) == list(records_of(memoryview(batch)))
            assert parse_header(moved).codec == target


def test_levels_of_the_topic_are_those_of_its_codec() -> None:
    rng = random.Random(1)
    words = b" ".join(b"word%d" % int(rng.expovariate(0.01)) for _ in range(4000))
    batch = encode_batch([Record(0, TS, value=words)])

    def size(codec: int, **config: int) -> int:
        return len(with_codec(parse_header(batch), memoryview(batch), codec, LogConfig(**config)))  # type: ignore[arg-type]

    assert size(1, compression_gzip_level=9) < size(1, compression_gzip_level=1)
    assert size(3, compression_lz4_level=12) < size(3, compression_lz4_level=9)
    assert size(4, compression_zstd_level=19) < size(4, compression_zstd_level=-50)
