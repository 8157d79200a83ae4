"""What the codecs accept: each row of what Kafka's own decompressors accept, and what it costs to refuse the rest."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import ROOT, environment

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.codec import compression
from storage.codec.compression import CHUNK_BYTES, Codec, compress, decompress, decompress_stream
from storage.codec.lz4_frame import header_checksum, xxhash32

TEXT = b"one two three four five six seven " * 40
XERIAL = bytes.fromhex("82534e4150505900 00000001 00000001")
RAW_SNAPPY = bytes.fromhex("1b00615a010008626364")
PLAIN_SNAPPY = b"a" * 24 + b"bcd"
EVERYWHERE = [(codec, magic) for codec in Codec for magic in (0, 1, 2) if codec is not Codec.ZSTD or magic == 2]


def read(codec: int, payload: bytes, magic: int = 2) -> bytes:
    return decompress(codec, memoryview(payload), magic=magic)


@pytest.mark.parametrize(("codec", "magic"), EVERYWHERE)
@pytest.mark.parametrize("size", [0, 1, 1024, 65535, 65536, 65537, 3 << 20])
def test_what_was_compressed_reads_back(codec: Codec, magic: int, size: int) -> None:
    for data in (os.urandom(size), (TEXT * (size // len(TEXT) + 1))[:size]):
        assert read(codec, compress(codec, data, magic=magic), magic) == data


@given(st.sampled_from(EVERYWHERE), st.binary(max_size=300))
def test_small_things_read_back(where: tuple[Codec, int], data: bytes) -> None:
    codec, magic = where
    assert read(codec, compress(codec, data, magic=magic), magic) == data


@given(st.sampled_from(EVERYWHERE[3:]), st.binary(max_size=60), st.integers(0, 60), st.binary(max_size=4))
def test_rubbish_gives_data_or_a_typed_error(where: tuple[Codec, int], data: bytes, cut: int, more: bytes) -> None:
    codec, magic = where
    for payload in (data, compress(codec, data, magic=magic)[:cut] + more):
        try:
            assert isinstance(read(codec, payload, magic), bytes)
        except (BatchCorrupt, UnsupportedFormat):
            continue


SLOW_IMPORT = """
import builtins
builtins.importing.set()
assert builtins.gate.wait(30)
whole = True
"""
TWO_READERS = """
import builtins, sys, threading
from concurrent.futures import ThreadPoolExecutor, wait
from storage.codec import compression
builtins.importing, builtins.gate = threading.Event(), threading.Event()
def read():
    return getattr(compression._zstd(), "whole", False)
def waits(thread):
    frame, names = sys._current_frames().get(thread), []
    while frame is not None:
        names.append(frame.f_code.co_filename)
        frame = frame.f_back
    return any("importlib" in name for name in names)
with ThreadPoolExecutor(2) as pool:
    first = pool.submit(read)
    assert builtins.importing.wait(30)
    threads = []
    second = pool.submit(lambda: (threads.append(threading.get_ident()), read())[1])
    while not second.done() and not (threads and waits(threads[0])):
        wait([second], timeout=0.01)
    builtins.gate.set()
    print(first.result(), second.result())
"""


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_free_codec_number_is_unsupported_and_not_damage(codec: int) -> None:
    with pytest.raises(UnsupportedFormat, match=f"codec {codec}"):
        read(codec, b"")
    with pytest.raises(UnsupportedFormat, match=f"codec {codec}"):
        compress(codec, b"")


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_codec_that_is_not_installed_is_unsupported_and_not_damage(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = compress(codec, TEXT)
    for package in ("cramjam", "backports.zstd", "compression.zstd"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(compression, "_zstd", compression._zstd.__wrapped__)  # it keeps the module
    with pytest.raises(UnsupportedFormat, match="not installed"):
        read(codec, payload)
    with pytest.raises(UnsupportedFormat, match="not installed"):
        compress(codec, TEXT)


def test_a_thread_waits_for_the_codec_that_another_thread_still_imports(tmp_path: Path) -> None:
    package = tmp_path / ("compression" if sys.version_info >= (3, 14) else "backports")
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "zstd.py").write_text(SLOW_IMPORT)
    done = subprocess.run(
        [sys.executable, "-c", TWO_READERS], env=environment(PYTHONPATH=f"{tmp_path}:{ROOT}"), timeout=180, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


@pytest.mark.parametrize("codec", list(Codec))
def test_pieces_are_small_whatever_the_codec(codec: Codec) -> None:
    data = bytes(5 << 20)
    pieces = list(decompress_stream(codec, memoryview(compress(codec, data)), magic=2))
    assert max(map(len, pieces)) <= CHUNK_BYTES
    assert b"".join(pieces) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_a_limit_is_kept_to_the_byte(codec: Codec) -> None:
    payload = memoryview(compress(codec, TEXT))
    assert decompress(codec, payload, magic=2, limit=len(TEXT)) == TEXT
    with pytest.raises(UnsupportedFormat, match="more than"):
        decompress(codec, payload, magic=2, limit=len(TEXT) - 1)


# gzip


def test_gzip_members_are_one_stream() -> None:
    assert read(1, compress(1, b"one ") + compress(1, TEXT) + compress(1, b"") + compress(1, b"two")) == (
        b"one " + TEXT + b"two"
    )


@pytest.mark.parametrize("rest", [b"\0", b"garbage", bytes(100), b"\x1f\x8b\x08", b"\x1f\x8b\x08" + bytes(15)])
def test_what_follows_a_gzip_trailer_and_is_no_member_is_ignored(rest: bytes) -> None:
    assert read(1, compress(1, TEXT) + rest) == TEXT


def test_a_second_gzip_member_that_is_damaged_is_not_ignored() -> None:
    with pytest.raises(BatchCorrupt, match="gzip"):
        read(1, compress(1, TEXT) + compress(1, os.urandom(100))[:-1])


@pytest.mark.parametrize("place", [-8, -1])
def test_gzip_with_a_wrong_checksum_or_size_is_corrupt(place: int) -> None:
    payload = bytearray(compress(1, TEXT))
    payload[place] ^= 1
    with pytest.raises(BatchCorrupt, match="gzip: checksum or size"):
        read(1, bytes(payload))


def test_gzip_is_given_out_before_its_trailer_is_looked_at() -> None:
    stream = decompress_stream(1, memoryview(compress(1, TEXT)[:-4]), magic=2)
    assert next(stream) == TEXT
    with pytest.raises(BatchCorrupt, match="ends inside the trailer"):
        next(stream)


def test_cut_gzip_is_corrupt_everywhere() -> None:
    payload = compress(1, TEXT)
    for size in range(len(payload)):
        with pytest.raises(BatchCorrupt, match="gzip"):
            read(1, payload[:size])


def test_every_field_of_a_gzip_header_is_skipped() -> None:
    body = compress(1, TEXT)[10:]
    head = bytes.fromhex("1f8b081e 00000000 00 ff") + b"\x03\x00abc" + b"name\0" + b"comment\0"
    checked = head + (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")
    assert read(1, checked + body) == TEXT
    with pytest.raises(BatchCorrupt, match="no header"):
        read(1, head + b"\0\0" + body)


# snappy


def chunk(block: bytes) -> bytes:
    return len(block).to_bytes(4, "big") + block


@pytest.mark.parametrize(
    ("payload", "times"),
    [
        (RAW_SNAPPY, 1),
        (XERIAL + chunk(RAW_SNAPPY), 1),
        (XERIAL + chunk(RAW_SNAPPY) * 3, 3),
        (XERIAL, 0),
        (XERIAL + chunk(RAW_SNAPPY) + XERIAL + chunk(RAW_SNAPPY), 2),
        (XERIAL[:8] + bytes(8) + chunk(RAW_SNAPPY), 1),
        (XERIAL + chunk(RAW_SNAPPY) + b"\x01", 1),
        (XERIAL + chunk(RAW_SNAPPY) + b"\x01\x02\x03", 1),
    ],
    ids=["bare block", "one chunk", "chunks", "no chunk", "two headers", "version 0", "1 byte more", "3 bytes more"],
)
def test_snappy_that_brokers_accept(payload: bytes, times: int) -> None:
    assert read(2, payload) == PLAIN_SNAPPY * times


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        (XERIAL + chunk(RAW_SNAPPY))[:-1],
        XERIAL + b"\0\0\0\x0b" + RAW_SNAPPY,
        XERIAL + b"\xff\xff\xff\xff",
        XERIAL + chunk(RAW_SNAPPY) + XERIAL[:15],
        XERIAL + chunk(RAW_SNAPPY) + XERIAL[:8] + bytes(8) + chunk(RAW_SNAPPY),
        XERIAL + chunk(RAW_SNAPPY[:-1]),
        XERIAL[:15],
        RAW_SNAPPY[:-1],
    ],
    ids=["empty", "cut", "too long", "negative", "cut header", "old header", "bad block", "short", "cut bare block"],
)
def test_snappy_that_brokers_refuse(payload: bytes) -> None:
    with pytest.raises(BatchCorrupt, match="snappy"):
        read(2, payload)


def test_a_snappy_block_that_claims_the_impossible_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(BatchCorrupt, match="cannot make 4294967295"):
        read(2, b"\xff\xff\xff\xff\x0f\x00a")


def test_a_snappy_block_above_the_limit_is_unsupported() -> None:
    block = cramjam.snappy.compress_raw(bytes(33 << 20))
    with pytest.raises(UnsupportedFormat, match="one block makes 34603008 bytes"):
        read(2, bytes(block))


# LZ4


def frame(
    blocks: bytes, flags: int = 0x60, code: int = 0x40, between: bytes = b"", end: bytes = bytes(4), check: bytes = b""
) -> bytes:
    descriptor = bytes((flags, code)) + between
    return bytes.fromhex("04224d18") + descriptor + (check or header_checksum(descriptor)) + blocks + end


def block(data: bytes, *, summed: bool = False) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(data, store_size=False))
    sum_of = xxhash32(memoryview(packed)).to_bytes(4, "little") if summed else b""
    return len(packed).to_bytes(4, "little") + packed + sum_of


BROKEN_CHECKSUM = b"\x1a"


def test_header_checksums_of_lz4_are_the_known_ones() -> None:
    assert header_checksum(bytes.fromhex("6040")) == b"\x82"
    assert header_checksum(bytes.fromhex("04224d186040")) == BROKEN_CHECKSUM
    assert compress(3, TEXT, magic=1)[:7].hex() == compress(3, TEXT, magic=2)[:7].hex() == "04224d18604082"
    assert compress(3, TEXT, magic=0)[:7].hex() == "04224d1860401a"


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"Nobody inspects the spammish repetition", 0xE2293B2F)],
)
def test_xxhash32_gives_the_known_values(data: bytes, value: int) -> None:
    assert xxhash32(memoryview(data)) == value


@pytest.mark.parametrize(
    "payload",
    [
        frame(block(TEXT)),
        frame(block(TEXT[:700]) + block(TEXT[700:])),
        frame(block(TEXT), flags=0x68, between=(len(TEXT)).to_bytes(8, "little")),
        frame(block(TEXT), flags=0x68, between=bytes(8)),
        frame(block(TEXT, summed=True), flags=0x70),
        frame(block(TEXT), flags=0x64, end=bytes(4) + b"\xde\xad\xbe\xef"),
        frame(block(TEXT), code=0x70),
        frame(block(TEXT)) + b"anything",
        frame((len(TEXT) | 1 << 31).to_bytes(4, "little") + TEXT),
        frame(block(TEXT), end=b"\0\0\0\x80"),
    ],
    ids=[
        "plain", "two blocks", "content size", "wrong content size", "block checksum", "wrong content checksum",
        "4 MiB blocks", "bytes behind", "stored", "end mark with the top bit",
    ],
)  # fmt: skip
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_lz4_that_brokers_accept(payload: bytes, magic: int) -> None:
    assert read(3, payload, magic) == TEXT


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "inside the header"),
        (b"\x05" + frame(b"")[1:], "no frame"),
        (frame(block(TEXT), end=b""), "before its end mark"),
        (frame(block(TEXT), flags=0x40), "frame flags"),
        (frame(block(TEXT), flags=0x61), "frame flags"),
        (frame(block(TEXT), flags=0x62), "frame flags"),
        (frame(block(TEXT), flags=0xA0), "frame flags"),
        (frame(block(TEXT), code=0x30), "block size code"),
        (frame(block(TEXT), code=0x41), "block size code"),
        (frame(block(TEXT), code=0xC0), "block size code"),
        (frame(block(TEXT), flags=0x68, between=bytes(7), check=b"\0")[:14], "inside the header"),
        (frame(block(TEXT), flags=0x64), "before its end mark"),
        (frame(block(TEXT, summed=True)[:-1] + b"\0", flags=0x70), "block checksum"),
        (frame(b"\0\0\0\x01"), "block of 16777216 bytes in a frame of 65536"),
        (frame(b"\x05\0\0\0abc", end=b""), "inside a block"),
        (frame(b"\x03\0\0\0\xff\xff\xff"), "LZ4"),
        (frame(block(bytes(65537))), "LZ4"),
    ],
)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_lz4_that_brokers_refuse(payload: bytes, reason: str, magic: int) -> None:
    with pytest.raises(BatchCorrupt, match=reason):
        read(3, payload, magic)


def test_a_second_lz4_frame_is_not_read() -> None:
    assert read(3, frame(block(TEXT)) + frame(block(b"more"))) == TEXT


def test_the_broken_header_checksum_of_lz4_is_accepted_in_magic_0_only() -> None:
    payload = frame(block(TEXT), check=BROKEN_CHECKSUM)
    assert read(3, payload, 0) == TEXT
    for magic in (1, 2):
        with pytest.raises(BatchCorrupt, match="header checksum"):
            read(3, payload, magic)


# zstd

SKIPPABLE = bytes.fromhex("5a2a4d18 03000000 616263")


@pytest.mark.parametrize(
    ("payload", "times"),
    [
        (compress(4, TEXT), 1),
        (compress(4, TEXT) + compress(4, TEXT), 2),
        (SKIPPABLE + compress(4, TEXT), 1),
        (compress(4, TEXT) + SKIPPABLE + compress(4, b"") + compress(4, TEXT) + SKIPPABLE, 2),
        (b"", 0),
        (compress(4, TEXT) + compress(4, TEXT)[:-1], 1),
        (compress(4, TEXT) + SKIPPABLE[:-1], 1),
        (compress(4, TEXT) + SKIPPABLE[:2], 1),
    ],
    ids=["one", "two", "skippable first", "mixed", "nothing", "second cut", "skippable cut", "start of a magic"],
)
def test_zstd_that_brokers_accept(payload: bytes, times: int) -> None:
    assert read(4, payload) == TEXT * times


@pytest.mark.parametrize(
    "payload",
    [
        compress(4, TEXT) + b"\0",
        compress(4, TEXT) + b"garbage behind it",
        compress(4, TEXT)[:-1],
        compress(4, TEXT)[:3],
        SKIPPABLE[:-1],
        SKIPPABLE[:5],
        b"not zstd at all",
    ],
)
def test_zstd_that_brokers_refuse(payload: bytes) -> None:
    with pytest.raises(BatchCorrupt, match="zstd"):
        read(4, payload)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_does_not_exist_in_old_formats(magic: int) -> None:
    with pytest.raises(BatchCorrupt, match=f"zstd does not exist in magic {magic}"):
        read(4, compress(4, TEXT), magic)
    with pytest.raises(BatchCorrupt, match=f"zstd does not exist in magic {magic}"):
        compress(4, TEXT, magic=magic)


# hostile input


def of_a_mib(unit: bytes) -> bytes:
    return unit * ((1 << 20) // len(unit))


HOSTILE = {
    "gzip of nothing, many times": (1, of_a_mib(compress(1, b""))),
    "gzip with a name without end": (1, bytes.fromhex("1f8b0808000000000000") + b"a" * (1 << 20)),
    "gzip bomb": (1, compress(1, bytes(200 << 20))),
    "snappy of nothing, many times": (2, XERIAL + of_a_mib(chunk(b"\0"))),
    "snappy headers": (2, of_a_mib(XERIAL)),
    "lz4 of nothing, many times": (3, frame(of_a_mib(b"\x01\0\0\0\0"))),
    "lz4 stored bytes": (3, frame(of_a_mib(b"\x01\0\0\x80a"))),
    "lz4 bomb": (3, frame(of_a_mib(block(bytes(4 << 20))), code=0x70)),
    "lz4 checksums": (3, frame(of_a_mib(block(b"a", summed=True)), flags=0x70)),
    "zstd of nothing, many times": (4, of_a_mib(compress(4, b""))),
    "zstd to be skipped": (4, of_a_mib(bytes.fromhex("502a4d1800000000"))),
    "zstd bomb": (4, compress(4, bytes(200 << 20))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_mib_ends_soon(name: str) -> None:
    """Each takes less than a second of an idle core; three are allowed, for machines that do other things as well."""
    codec, payload = HOSTILE[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    try:
        assert len(read(codec, payload)) <= 32 << 20
    except (BatchCorrupt, UnsupportedFormat) as fault:
        print(fault)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 3


BOMB = """
import sys
from storage.codec.compression import decompress
from storage.base.errors import UnsupportedFormat

payload = memoryview(open(sys.argv[1], "rb").read())
try:
    decompress(4, payload, magic=2)
except UnsupportedFormat as fault:
    print(fault)
print(next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def zstd_of_zeros(size: int) -> Iterator[bytes]:
    """Yield a frame that makes `size` zeros: blocks of one repeated byte, 128 KiB each."""
    yield bytes.fromhex("28b52ffd 00 38")  # no content size; window of 128 KiB
    for number in range(size >> 17, 0, -1):
        yield ((1 << 17) << 3 | 1 << 1 | (number == 1)).to_bytes(3, "little") + b"\0"


def test_a_bomb_of_10_gib_ends_quickly_and_small(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(b"".join(zstd_of_zeros(10 << 30)))
    assert bomb.stat().st_size < 1 << 20
    command = [sys.executable, "-c", BOMB, str(bomb)]
    root = Path(__file__).parents[4]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=180)
    reason, resident_mib = done.stdout.splitlines()
    assert reason == "decompresses to more than 33554432 bytes"
    assert int(resident_mib) < 150
