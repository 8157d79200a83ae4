"""Every record of every golden, and of batches made here, as Kafka's own classes read it and as we do."""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest
from golden.golden import NAMES, extract
from interop.kafka_lab import Oracle
from support.vectors import SOUND, TS

from storage.base.errors import CorruptData
from storage.batch.batch import BatchHeader, TimestampType, encode_batch_v2, set_log_append_time, split_batches
from storage.batch.control import (
    ControlType,
    EndTxnMarker,
    KRaftVersion,
    SnapshotFooter,
    SnapshotHeader,
    encode_control_batch,
)
from storage.batch.legacy import Message, encode_message, encode_wrapper
from storage.batch.record import Record, encode_batch, encode_record, encode_remaining, records_of
from storage.codec.compression import Codec, compress
from storage.codec.lz4_frame import header_checksum, xxhash32


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def as_kafka_says_it(record: Record) -> dict[str, Any]:
    headers = [[name, text(value)] for name, value in record.headers]
    said = {"offset": record.offset, "timestamp": record.timestamp, "headers": headers}
    return said | {"key": text(record.key), "value": text(record.value)}


def ours(data: bytes) -> list[list[dict[str, Any]]]:
    return [list(map(as_kafka_says_it, records_of(batch))) for batch in split_batches(memoryview(data))]


def kafkas(oracle: Oracle, file: Path) -> list[list[dict[str, Any]]]:
    batches = oracle(op="dump", file=str(file), records=True)["batches"]
    assert all(batch["valid"] for batch in batches)
    return [batch["records"] for batch in batches]


@pytest.mark.parametrize("name", NAMES)
def test_every_record_that_real_brokers_wrote_is_read_as_kafka_reads_it(
    name: str, oracle: Oracle, tmp_path: Path
) -> None:
    seen = 0
    for file in sorted(extract(name, tmp_path).rglob("*.log*")):
        if file.suffix in {".log", ".deleted"} and file.stat().st_size:
            batches = ours(file.read_bytes())
            assert batches == kafkas(oracle, file)
            seen += sum(map(len, batches))
    assert seen > 500


NEWER = [
    Record(50 + 2 * n, TS + (n * 7919) % 100 - 50, key=None if n % 3 else b"k%d" % n, value=b"value " * n or None,
           headers=(("name", b"x"), ("", None), ("größe", b"")) if n % 2 else ())
    for n in range(200)
]  # fmt: skip
OLDER = [
    Message(10 + n, TS + n % 7, TimestampType.CREATE, b"k" if n % 2 else None, b"v" * n or None) for n in range(99)
]


def append_time(batch: bytes) -> bytes:
    changed = bytearray(batch)
    set_log_append_time(memoryview(changed), TS + 5)
    return bytes(changed)


def batches_of_every_kind() -> list[bytes]:
    plain = [encode_batch(NEWER, codec=codec, producer_id=7, base_sequence=2**31 - 5) for codec in Codec]
    headers = [
        BatchHeader(0, record_count=1, attributes=codec, last_offset_delta=500, base_timestamp=9) for codec in Codec
    ]
    remaining = [encode_remaining(header, NEWER[3:90], delete_horizon=TS * 2) for header in headers]
    large = [encode_batch([Record(0, 1, value=os.urandom(1 << 18) + bytes(1 << 18))], codec=codec) for codec in Codec]
    wrappers = [
        encode_wrapper(OLDER, magic=magic, codec=codec)
        for magic, codec in itertools.product((0, 1), (Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    ]
    messages = [encode_message(message, magic=magic) for magic in (0, 1) for message in OLDER[:3]]
    control = [
        encode_control_batch([SnapshotHeader(TS), KRaftVersion(1)], base_offset=0, timestamp=TS, leader_epoch=3),
        encode_control_batch([SnapshotFooter()], base_offset=2, timestamp=TS, leader_epoch=3),
        encode_control_batch(
            [EndTxnMarker(ControlType.COMMIT, 4)],
            base_offset=9,
            timestamp=1,
            leader_epoch=0,
            producer_id=5,
            producer_epoch=0,
        ),
    ]
    timed = [append_time(batch) for batch in (*plain, *wrappers[3:], messages[3])]
    return [*SOUND.values(), *plain, *remaining, *large, *wrappers, *messages, *control, *timed]


def test_what_we_write_is_read_by_kafka_as_it_was_meant(oracle: Oracle, tmp_path: Path) -> None:
    file = tmp_path / "0.log"
    file.write_bytes(b"".join(batches_of_every_kind()))
    assert ours(file.read_bytes()) == kafkas(oracle, file)


PAYLOAD = b"".join(encode_record(Record(n, n, key=b"k%d" % n, value=b"value " * 40), 0, 0) for n in range(3))
SET = encode_message(Message(4, 1, key=b"k", value=b"v"), magic=1) + encode_message(Message(7, 2), magic=1)
XERIAL = bytes.fromhex("82534e4150505900 00000001 00000001")
SKIPPABLE = bytes.fromhex("5a2a4d18 03000000 616263")


def chunk(data: bytes) -> bytes:
    packed = bytes(cramjam.snappy.compress_raw(data))
    return len(packed).to_bytes(4, "big") + packed


def frame(
    data: bytes, flags: int = 0x60, code: int = 0x40, between: bytes = b"", end: bytes = bytes(4), check: bytes = b""
) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(data, store_size=False))
    summed = xxhash32(memoryview(packed)).to_bytes(4, "little") if flags & 0x10 else b""
    head = bytes((flags, code)) + between
    block = len(packed).to_bytes(4, "little") + packed + summed
    return b"\x04\x22\x4d\x18" + head + (check or header_checksum(head)) + block + end


def flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def ended_badly(data: bytes) -> bytes:
    """Return a frame of zstd from which all of `data` can be had, and whose last, empty block is cut."""
    stored = (len(data) << 3).to_bytes(3, "little") + data
    return bytes.fromhex("28b52ffd 00 38") + stored + b"\x01\0"


GZIP: list[Callable[[bytes], bytes]] = [
    lambda data: compress(1, data[:9]) + compress(1, data[9:]),
    lambda data: compress(1, data) + b"garbage",
    lambda data: compress(1, data) + b"\x1f\x8b\x08" + bytes(30),
    lambda data: flipped(compress(1, data), -8),
    lambda data: flipped(compress(1, data), -1),
    lambda data: compress(1, data)[:-1],
    lambda data: compress(1, data)[:20],
    lambda data: compress(1, data) + compress(1, data)[:-3],
    lambda _: b"",
]
SNAPPY: list[Callable[[bytes], bytes]] = [
    lambda data: bytes(cramjam.snappy.compress_raw(data)),
    lambda data: XERIAL + chunk(data),
    lambda data: XERIAL + chunk(data[:9]) + chunk(data[9:]),
    lambda data: XERIAL + chunk(data[:9]) + XERIAL + chunk(data[9:]),
    lambda data: XERIAL[:8] + bytes(8) + chunk(data),
    lambda data: XERIAL + chunk(data) + b"\x01\x02\x03",
    lambda data: XERIAL + chunk(data)[:-1],
    lambda data: XERIAL + chunk(data) + b"\xff\xff\xff\xff",
    lambda data: XERIAL + chunk(data) + XERIAL[:9],
    lambda data: XERIAL + bytes(4) + chunk(data),
    lambda data: XERIAL + chunk(data[:9]) + XERIAL[:8] + bytes(8) + chunk(data[9:]),
    lambda data: XERIAL + chunk(data[:9]) + XERIAL[:4] + b"????" + XERIAL[8:] + chunk(data[9:]),
    lambda data: XERIAL + chunk(data[:9]) + XERIAL[:4] + bytes(12) + chunk(data[9:]),
    lambda data: XERIAL[:8] + b"\xff" * 8 + chunk(data),
    lambda _: b"",
]
LZ4: list[Callable[[bytes], bytes]] = [
    lambda data: frame(data, flags=0x68, between=bytes(8)),
    lambda data: frame(data, flags=0x70),
    lambda data: flipped(frame(data, flags=0x70), -5),
    lambda data: frame(data, flags=0x64, end=bytes(4) + b"\xde\xad\xbe\xef"),
    lambda data: frame(data, flags=0x64),
    lambda data: frame(data, code=0x70),
    lambda data: frame(data, code=0x30),
    lambda data: frame(data) + b"anything",
    lambda data: frame(data) + frame(data),
    lambda data: frame(data[:9]) + frame(data[9:]),
    lambda data: frame(data, check=b"\x1a"),
    lambda data: frame(data, end=b""),
    lambda data: frame(data, flags=0x40),
    lambda data: frame(data, flags=0x61),
    lambda data: frame(data, end=b"\0\0\0\x80"),
    lambda data: flipped(frame(data), 0),
    lambda _: b"",
]
ZSTD: list[Callable[[bytes], bytes]] = [
    lambda data: compress(4, data[:9]) + compress(4, data[9:]),
    lambda data: SKIPPABLE + compress(4, data) + SKIPPABLE,
    lambda data: compress(4, data) + b"\0",
    lambda data: compress(4, data) + b"garbage behind it",
    lambda data: compress(4, data)[:-1],
    lambda data: compress(4, data)[:-1] + SKIPPABLE,
    lambda data: SKIPPABLE + compress(4, data)[:-1],
    lambda data: SKIPPABLE + ended_badly(data),
    ended_badly,
    lambda data: compress(4, b"") + ended_badly(data),
    lambda data: compress(4, data) + compress(4, b"more" * 99)[:-1],
    lambda data: compress(4, data) + SKIPPABLE[:-1],
    lambda data: compress(4, data) + SKIPPABLE[:2],
    lambda data: compress(4, data) + b"\x28\xb5",
    lambda data: compress(4, data) + b"\x28\xb6",
    lambda _: b"",
]
MADE = [
    (codec, n, make) for codec, kinds in ((1, GZIP), (2, SNAPPY), (3, LZ4), (4, ZSTD)) for n, make in enumerate(kinds)
]
COUNTS = [(codec, count) for codec in Codec for count in (-1, 0, 1, 2, 4, 2**31 - 1)]


def newer(codec: int, count: int, payload: bytes) -> bytes:
    return encode_batch_v2(BatchHeader(0, attributes=codec, base_timestamp=0, record_count=count), payload)


def older(magic: int, codec: int, value: bytes) -> bytes:
    return encode_message(Message(9, 5, value=value), magic=magic, codec=codec)


CASES = {
    **{f"v2-{codec}-{n}": newer(codec, 3, make(PAYLOAD)) for codec, n, make in MADE},
    **{f"v1-{codec}-{n}": older(1, codec, make(SET)) for codec, n, make in MADE},
    **{f"v0-{codec}-{n}": older(0, codec, make(SET)) for codec, n, make in MADE},
    **{f"count-{codec}-{count}": newer(codec, count, compress(codec, PAYLOAD)) for codec, count in COUNTS},
}


@pytest.mark.parametrize("kind", ["v2", "v1", "v0", "count"])
def test_what_kafka_accepts_we_accept_and_what_it_refuses_we_refuse(kind: str, oracle: Oracle, tmp_path: Path) -> None:
    file = tmp_path / "0.log"
    differing = {}
    for name in (name for name in CASES if name.startswith(kind)):
        file.write_bytes(CASES[name])
        theirs = oracle.ask(op="dump", file=str(file), records=True)
        expected = None if "error" in theirs else [batch["records"] for batch in theirs["batches"]]
        try:
            found = ours(CASES[name])
        except CorruptData:
            found = None
        if found != expected:
            differing[name] = (found, theirs)
    assert differing == {}
