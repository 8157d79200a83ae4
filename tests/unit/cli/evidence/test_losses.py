"""What was cut is accounted for, record by record, and comes back out of quarantine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden.golden import extract
from support.command import logmend
from support.recovering import tree

from daemon.events.events import EventLog
from daemon.ledger.ledger import Ledger
from daemon.ledger.page import Page
from daemon.service.clock import SystemClock
from storage.base.units import TopicPartition

ENDS = (1694, 1011, 1295)
WATERMARKS = "replication-offset-checkpoint"


@pytest.fixture
def brokers(tmp_path: Path) -> list[Path]:
    """Return the log directories of three replicas."""
    extract("three-brokers", tmp_path)
    return [tmp_path / str(number) / "data" for number in range(3)]


def losses(*words: object) -> list[dict[str, object]]:
    done = logmend("losses", "--json", *words)
    found = json.loads(done.stdout)["losses"]
    assert (done.returncode == 1) == bool(found)
    return list(found)


def records(partition: Path) -> dict[int, object]:
    """Return every record of a partition as `dump` has it, by offset."""
    found = {}
    for log in sorted(partition.glob("*.log")):
        done = logmend("dump", "--records", "--json", log)
        for batch in json.loads(done.stdout)["batches"]:
            for record in batch["records"]:
                found[record["offset"]] = record["value"]
    return found


def last_log(log_dir: Path, partition: str) -> Path:
    return sorted((log_dir / partition).glob("*.log"))[-1]


def watermark(log_dir: Path, partition: int, offset: int) -> None:
    (log_dir / WATERMARKS).write_text(f"0\n1\nledger {partition} {offset}\n")


def test_a_cut_tail_is_told_with_its_offsets_and_who_still_has_it(brokers: list[Path]) -> None:
    log = last_log(brokers[1], "ledger-0")
    data = bytearray(log.read_bytes())
    data[70] ^= 1  # the first batch of the unflushed segment: all behind it goes
    log.write_bytes(data)
    assert logmend("recover", brokers[1]).returncode == 0
    (loss,) = losses("--heal-from", brokers[0], brokers[1])
    assert (loss["first_offset"], loss["last_offset"], loss["by"]) == (1493, 1693, "logmend")
    assert loss["held_by"] == [str(brokers[0])]
    assert loss["epochs"] == [0]
    assert 0 < int(str(loss["torn_bytes"])) < int(str(loss["size"]))


def test_records_that_were_cut_come_out_again_each_one(brokers: list[Path], tmp_path: Path) -> None:
    log = last_log(brokers[1], "ledger-0")
    whole = log.read_bytes()
    first = int.from_bytes(whole[8:12], "big") + 12
    log.write_bytes(whole[:70] + bytes([whole[70] ^ 1]) + whole[71:])
    assert logmend("recover", brokers[1]).returncode == 0
    (loss,) = losses(brokers[1])
    done = logmend("quarantine", "export", "--plan", loss["plan_id"], brokers[1])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [line["offset"] for line in lines] == list(range(lines[0]["offset"], 1694))
    assert len(lines) == loss["records"]
    out = tmp_path / "00000000000000000000.log"
    assert logmend("quarantine", "export", "--format", "segment", "--out", out, brokers[1]).returncode == 0
    assert out.read_bytes() == whole[first:]


def test_a_directory_that_lost_nothing_has_no_losses(brokers: list[Path]) -> None:
    assert logmend("recover", brokers[0]).returncode == 0
    assert losses(brokers[0]) == []


def test_what_a_broker_truncates_after_the_tail_was_kept_is_a_loss_that_can_be_exported(brokers: list[Path]) -> None:
    watermark(brokers[1], 0, 1600)
    done = logmend("recover", "--keep-tail", "1M", brokers[1])
    assert done.returncode == 0, done.stderr
    assert "of 3 partitions copied" in done.stdout
    assert losses(brokers[1]) == []
    # The only replica that has these comes back as a follower, and cuts to what the new leader has.
    log = last_log(brokers[1], "ledger-0")
    log.write_bytes(b"")
    (loss,) = losses(brokers[1])
    assert (loss["by"], loss["first_offset"], loss["last_offset"]) == ("broker", 1493, 1693)
    done = logmend("quarantine", "export", "--partition", "ledger-0", brokers[1])
    offsets = {json.loads(line)["offset"] for line in done.stdout.splitlines()}
    assert offsets >= set(range(1600, 1694))


def test_copies_of_tails_are_bounded_and_made_once(brokers: list[Path]) -> None:
    assert "no room for ledger-1, ledger-2, ledger-0" in logmend("recover", "--keep-tail", "1K", brokers[1]).stdout
    assert list(brokers[1].rglob("*.log.*.logmend")) == []
    assert logmend("recover", "--keep-tail", "10M", brokers[1]).returncode == 0
    once = tree(brokers[1])
    assert "0 B of 0 partitions copied" in logmend("recover", "--keep-tail", "10M", brokers[1]).stdout
    assert tree(brokers[1]) == once


def test_what_the_service_saw_a_broker_cut_is_a_loss_too(brokers: list[Path], tmp_path: Path) -> None:
    state = tmp_path / "state"
    ledger = Ledger(state, SystemClock(), EventLog("json", "error"), "test")
    name = TopicPartition("ledger", 1)
    Page(ledger, brokers[1]).note_truncation(name, 900, 1010, 1_700_000_000_000)
    Page(ledger, brokers[2]).note_truncation(name, 1, 2, 1_700_000_000_000)
    ledger.close()
    (loss,) = losses("--state-dir", state, brokers[1])
    assert (loss["by"], loss["partition"], loss["first_offset"], loss["last_offset"]) == (
        "broker",
        "ledger-1",
        900,
        1010,
    )
    assert loss["kept"] is None


@pytest.mark.parametrize("size", ["x", "-1", "1X", "M", "1" * 20])
def test_a_size_that_is_none_is_wrong_usage(brokers: list[Path], size: str) -> None:
    done = logmend("recover", f"--keep-tail={size}", brokers[1])
    assert done.returncode == 2
    assert "not a size such as" in done.stderr
