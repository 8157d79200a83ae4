"""A batch that nobody looks at closely is appended, or refused, as if somebody had."""

from __future__ import annotations

import errno
import random
import resource
from pathlib import Path, PurePath

import pytest
from support.batches import TS
from support.log_in_memory import NOW, PLACE, MemoryEpochs, disk

import storage.log.leader_append
from storage.base.config import LogConfig
from storage.base.errors import LogmendError, WriteFault
from storage.base.refusals import LogUnusable
from storage.base.units import INT64_MAX
from storage.batch.batch import attributes_of, reseal
from storage.batch.record import Record, encode_batch
from storage.disk.fs import Fs, OsFs, OsWriteFile
from storage.kernel.scan import kernel_name, lead_batch
from storage.log.log import Log
from storage.log.log_types import LogSetup
from storage.segment.segment_types import Terms

needs_c = pytest.mark.skipif(kernel_name() != "c", reason="the C kernel was not built")
SETTINGS = (
    {}, {"cleanup.policy": "compact"}, {"message.timestamp.type": "LogAppendTime"}, {"compression.type": "zstd"},
    {"message.timestamp.before.max.ms": "500"}, {"message.timestamp.after.max.ms": "10"}, {"max.message.bytes": "300"},
    {"internal.segment.bytes": "600"}, {"segment.ms": "800"}, {"flush.messages": "3"},
)  # fmt: skip


def random_batch(rng: random.Random, sequences: dict[int, int]) -> bytes:
    """Return what a client sends, or what none should send."""
    count = rng.choice([1, 1, 2, 9])
    records = [
        Record(n, rng.choice([NOW, TS, NOW + 20, -1]), key=rng.choice([b"k", b"", None]),
               value=rng.choice([b"v" * rng.randint(0, 60), None]))
        for n in range(count)
    ]  # fmt: skip
    producer_id = rng.choice([-1, -1, 7, 8])
    sequence = sequences.get(producer_id, 0) + rng.choice([0] * 9 + [1]) if producer_id >= 0 else -1
    data = bytearray(
        encode_batch(
            records, codec=rng.choice([0, 0, 0, 0, 4]), producer_id=producer_id, base_sequence=sequence,
            producer_epoch=0 if producer_id >= 0 else -1, flags=attributes_of(is_transactional=producer_id == 8),
        )
    )  # fmt: skip
    if rng.random() < 0.3:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.8 and len(data) >= 61:
            reseal(memoryview(data))
    if rng.random() < 0.05:
        data = data[: rng.randrange(len(data))] if rng.random() < 0.5 else data + data
    return bytes(data)


def tried(log: Log, data: bytes, now_ms: int) -> object:
    try:
        return log.append_as_leader(data, leader_epoch=3, now_ms=now_ms)
    except LogmendError as refusal:
        return type(refusal), str(refusal)


def opened_with(fs: Fs, settings: dict[str, str], directory: PurePath = PLACE) -> Log:
    return Log.open(fs, directory, LogConfig.from_properties(settings), LogSetup(MemoryEpochs()), now_ms=NOW)


@needs_c
@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_answers_and_bytes_are_those_of_a_closer_look(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, settings = random.Random(number), SETTINGS[number]
    discs = disk(), disk()
    quick, close = (opened_with(fs, settings) for fs in discs)
    taken, sequences, again = 0, {}, b""
    quickly = []

    def noted(*asked: object) -> object:
        quickly.append(lead_batch(*asked))  # type: ignore[arg-type]
        return quickly[-1]

    for step in range(250):
        data = again if again and rng.random() < 0.05 else random_batch(rng, sequences)
        monkeypatch.setattr(storage.log.leader_append, "lead_batch", noted)
        found = tried(quick, data, NOW + step)
        monkeypatch.setattr(storage.log.leader_append, "lead_batch", lambda *_: None)
        assert found == tried(close, data, NOW + step)
        assert quick.log_end == close.log_end
        sequences = {key: entry.last_sequence + 1 for key, entry in close.producers.state.entries.items()}
        taken += isinstance(found, tuple) and isinstance(found[0], int)
        again = data
    assert taken > 20
    assert any(quickly) == quick._leader._terms.takes_plain
    quick.close()
    close.close()
    assert discs[0].contents(str(PLACE)) == discs[1].contents(str(PLACE))


@needs_c
def test_a_client_batch_comes_back_with_offset_and_epoch_and_what_its_records_are() -> None:
    data = encode_batch(
        [Record(0, 5, key=b"k"), Record(1, 4, value=b"v")], producer_id=9, producer_epoch=2, base_sequence=6
    )
    led = lead_batch(data, 2**40, 77)
    assert led is not None
    copy, *rest = led
    assert rest == [2, 4, 5, True, 0, 9, 2, 6]
    assert copy == (2**40).to_bytes(8, "big") + data[8:12] + (77).to_bytes(4, "big") + data[16:]


@needs_c
def test_records_without_a_time_have_no_least_one() -> None:
    led = lead_batch(encode_batch([Record(0, -1, key=b"k")]), 0, 0)
    assert led is not None
    assert led[2:4] == (INT64_MAX, -1)


@needs_c
def test_every_bit_that_is_flipped_asks_for_a_closer_look_or_is_none_that_a_leader_keeps() -> None:
    data = encode_batch([Record(0, 5, key=b"k", value=b"v")])
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        led = lead_batch(flipped, 0, 0)
        assert led is None or 12 <= bit // 8 < 16, bit  # a leader sets the epoch itself


def test_terms_are_those_of_the_settings() -> None:
    config = LogConfig.from_properties({"compression.type": "lz4", "internal.segment.bytes": "100"})
    terms = Terms.of(config)
    assert (terms.takes_plain, terms.message_bytes, terms.segment_bytes) == (False, 100, 100)


@needs_c
@pytest.mark.parametrize("size", [3000, 30_000])
def test_an_append_of_which_a_part_is_written_leaves_the_log_as_it_was(tmp_path: Path, size: int) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    log = opened_with(OsFs(), {}, directory)
    batch = encode_batch([Record(0, NOW, key=b"k", value=bytes(size))])
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    before, limits = log.segments.active.size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 1000, limits[1]))
    try:
        with pytest.raises(WriteFault) as caught:
            log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    path = directory / "00000000000000000000.log"
    assert (log.log_end, log.segments.active.size, path.stat().st_size) == (1, before, before)
    done = log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    assert done is not None
    assert done.first_offset == 1
    assert path.stat().st_size == 2 * before
    log.close()


@needs_c
def test_a_part_that_cannot_be_taken_back_is_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    log = opened_with(OsFs(), {}, directory)
    batch = encode_batch([Record(0, NOW, key=b"k")])
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)

    def refuse(*_: object) -> None:
        raise WriteFault("truncating", directory, OSError(errno.EIO, "no"))

    def no_space(*_: object) -> None:
        raise WriteFault("writing", directory, OSError(errno.ENOSPC, "full"))

    monkeypatch.setattr(OsFs, "truncate", refuse)
    monkeypatch.setattr(OsWriteFile, "append", no_space)
    with pytest.raises(LogUnusable, match="what was written of it stays"):
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    monkeypatch.undo()
    with pytest.raises(LogUnusable):
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    log.close_abruptly()
