"""A log directory whose owner is killed every few seconds loses nothing that was flushed, and the judge would know."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from soak.contents import Send
from soak.ledger import Ledger
from soak.log_files import look
from soak.runner import Report, Soak

from storage.batch.batch import split_batches
from storage.kernel.scan import crc32c

SECONDS = float(os.environ.get("LOGMEND_SOAK", "60"))
RESIDENT_MIB = 150
OPEN_FILES = 400


def check_bounded(report: Report) -> None:
    samples = [sample for life in report.lives for sample in life.samples]
    assert max(sample[1] for sample in samples) < RESIDENT_MIB
    assert max(sample[2] for sample in samples) < OPEN_FILES


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.timeout(0)
def test_nothing_that_was_flushed_is_lost_altered_or_there_twice(tmp_path: Path) -> None:
    seed = int(os.environ.get("LOGMEND_SOAK_SEED", "0")) or random.SystemRandom().getrandbits(32)
    print(f"LOGMEND_SOAK_SEED={seed}")
    report = Soak(tmp_path / "logs", SECONDS, seed).run()
    print(report)
    assert report.wrong == []
    figures = report.ledger.figures
    assert min(report.appends, figures.flushed, figures.keys, figures.visible, report.reads) > 0
    check_bounded(report)


# ---- what the judge is worth: bugs of the worker, and of logs made by hand


def test_a_flush_that_is_told_before_it_is_done_is_found(tmp_path: Path) -> None:
    report = Soak(tmp_path / "logs", 40, 1, plant="early", tears=1.0).run()
    assert any("is lost; flushed up to" in what for what in report.wrong), report


def test_a_batch_that_is_stored_again_when_it_is_sent_again_is_found(tmp_path: Path) -> None:
    report = Soak(tmp_path / "logs", 40, 2, plant="twice").run()
    assert any("taken again" in what or "twice" in what for what in report.wrong), report


def placed(send: Send, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + send.encoded()[8:]


def told(*sends: tuple[Send, int]) -> Ledger:
    """Return a ledger of batches that were acknowledged at these offsets and flushed."""
    ledger = Ledger()
    for send, offset in sends:
        ledger.hear({"e": "send", "send": send.plain()})
        ledger.hear({"e": "ack", "partition": send.partition, "number": send.first, "first": offset, "again": False})
        end = offset + send.count
        ledger.hear({"e": "flushed", "partition": send.partition, "to": end, "really": end})
    return ledger


def judged(ledger: Ledger, name: str, directory: Path, data: bytes, end: int, seen: list[tuple[int, int]]) -> str:
    (directory / f"{0:020d}.log").write_bytes(data)
    return " / ".join(ledger.judge(name, look(directory), (0, end), seen, now=2))


A = Send("asked-0", 0, 2, 1)
B = Send("asked-0", 2, 1, 1)
SEEN = [(0, 0), (1, 1), (2, 2)]


def test_a_sound_log_is_found_so(tmp_path: Path) -> None:
    assert judged(told((A, 0), (B, 2)), "asked-0", tmp_path, placed(A, 0) + placed(B, 2), 3, SEEN) == ""


def test_a_lost_end_is_found(tmp_path: Path) -> None:
    wrong = judged(told((A, 0), (B, 2)), "asked-0", tmp_path, placed(A, 0), 2, SEEN[:2])
    assert "record 2 at 2 is lost" in wrong


def test_a_lost_beginning_is_found(tmp_path: Path) -> None:
    wrong = judged(told((A, 0), (B, 2)), "asked-0", tmp_path, placed(B, 2), 3, SEEN[2:])
    assert "record 0 at 0 is lost" in wrong


def test_a_duplicate_is_found(tmp_path: Path) -> None:
    wrong = judged(told((A, 0), (B, 2)), "asked-0", tmp_path, placed(A, 0) + placed(B, 2) + placed(B, 3), 4, SEEN)
    assert "record 2 is there twice, at 2 and 3" in wrong


def test_a_byte_that_was_altered_under_a_checksum_made_anew_is_found(tmp_path: Path) -> None:
    data = bytearray(placed(A, 0) + placed(B, 2))
    first = next(split_batches(memoryview(data)))
    first[len(first) - 20] ^= 1
    first[17:21] = crc32c(first[21:]).to_bytes(4, "big")
    assert "is altered" in judged(told((A, 0), (B, 2)), "asked-0", tmp_path, bytes(data), 3, SEEN)


KEY = [Send("keys-0", n, 1, 1, keys=(7,), nulls=(1,) if n == 1 else ()) for n in range(3)]


def test_a_key_without_its_last_value_is_found(tmp_path: Path) -> None:
    ledger = told((KEY[0], 0), (KEY[2], 1))
    assert "key 7 is back" in judged(ledger, "keys-0", tmp_path, placed(KEY[0], 0), 1, [(0, 0)])


def test_a_deleted_key_that_is_back_is_found(tmp_path: Path) -> None:
    ledger = told((KEY[0], 0), (KEY[1], 1))
    assert "key 7 is back" in judged(ledger, "keys-0", tmp_path, placed(KEY[0], 0), 1, [(0, 0)])


def test_a_deleted_key_may_be_gone_with_its_tombstone(tmp_path: Path) -> None:
    (tmp_path / f"{2:020d}.log").write_bytes(b"")
    assert judged(told((KEY[0], 0), (KEY[1], 1)), "keys-0", tmp_path, b"", 2, []) == ""


def test_a_committed_read_of_what_was_aborted_is_found(tmp_path: Path) -> None:
    send = Send("txns-0", 0, 1, 1, producer_id=20, producer_epoch=0, sequence=0, txn=0)
    ledger = told((send, 0))
    ledger.hear({"e": "ending", "partition": "txns-0", "txn": 0, "producer": 20, "epoch": 0, "commit": False})
    ledger.hear({"e": "ended", "txn": 0, "offset": 1})
    ledger.hear({"e": "flushed", "partition": "txns-0", "to": 2, "really": 2})
    wrong = judged(ledger, "txns-0", tmp_path, placed(send, 0), 1, [(0, 0)])
    assert "of a transaction that is aborted" in wrong


def test_a_deleted_topic_that_is_back_is_found() -> None:
    ledger = Ledger()
    for event in ("making", "made", "dropping", "dropped"):
        ledger.hear({"e": event, "topic": "fleeting-a"})
    assert ledger.judge_topics(["fleeting-a"]) == ["topic fleeting-a is back"]
