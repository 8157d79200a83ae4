"""`logmend append`: lines become records in batches on the right partitions; what is refused is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.calling import call as logmend
from support.command import environment
from support.waiting import until

from cli.engine.append import lines
from storage.base.errors import ConfigInvalid
from storage.batch.batch import parse_header as header_of
from storage.batch.batch import split_batches
from storage.batch.murmur2 import partition_for_key
from storage.codec.compression import Codec


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    done = logmend("topics", "create", "--init", "--topic", "orders", "--partitions", 3, "--log-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def append(log_dir: Path, text: str | bytes, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = logmend("append", "--topic", "orders", "--log-dir", log_dir, *words, stdin=text)
    assert done.returncode == status, done.stderr
    return done


def read(log_dir: Path, *words: object) -> list[dict[str, Any]]:
    done = logmend("read", "--topic", "orders", "--log-dir", log_dir, *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def log_of(log_dir: Path, partition: int = 0) -> memoryview:
    return memoryview((log_dir / f"orders-{partition}" / f"{0:020d}.log").read_bytes())


def test_records_come_out_as_they_went_in_each_on_the_partition_of_its_key(log_dir: Path) -> None:
    sent = [{"key": f"k{n}", "value": f"v{n}", "timestamp": n, "headers": [["h", None]]} for n in range(50)]
    done = append(log_dir, "".join(json.dumps(each) + "\n" for each in sent), "--json")
    told = json.loads(done.stdout)
    assert (told["document"], told["records"], told["status"]) == ("append", 50, 0)
    found = read(log_dir)
    assert sorted(found, key=lambda each: each["timestamp"]) == [
        {**each, "topic": "orders", "partition": got["partition"], "offset": got["offset"],
         "timestamp_type": "CreateTime"}
        for each, got in zip(sent, sorted(found, key=lambda each: each["timestamp"]), strict=True)
    ]  # fmt: skip
    assert {each["key"]: each["partition"] for each in found} == {
        f"k{n}": partition_for_key(b"k%d" % n, 3) for n in range(50)
    }
    ends = {each["partition"]: each["last_offset"] + 1 for each in told["partitions"]}
    assert sum(ends.values()) == 50


def test_what_read_prints_can_be_appended_elsewhere(log_dir: Path, tmp_path: Path) -> None:
    append(log_dir, b'{"key":"a","value":"\\udcff"}\n{"value":null}\n', "--partition", 1)
    printed = logmend("read", "--topic", "orders", "--log-dir", log_dir).stdout
    append(log_dir, printed.replace('"partition":1', '"partition":2'))
    of = {number: read(log_dir, "--partition", number, "--encoding", "base64") for number in (1, 2)}
    assert [(each["key"], each["value"]) for each in of[1]] == [("YQ==", "/w=="), (None, None)]
    assert [(each["key"], each["value"]) for each in of[2]] == [("YQ==", "/w=="), (None, None)]


def test_plain_lines_are_values_and_the_last_one_needs_no_end(log_dir: Path) -> None:
    append(log_dir, "a\r\n\nb", "--format", "text", "--partition", 2)
    assert [each["value"] for each in read(log_dir)] == ["a", "b"]


@pytest.mark.parametrize("codec", [codec.name.lower() for codec in Codec])
def test_batches_are_compressed_as_asked_for_and_as_large(log_dir: Path, codec: str) -> None:
    text = "".join(f"line {n}\n" for n in range(100))
    words = ("--partition", 0, "--codec", codec, "--batch-bytes", 300, "--linger-ms", 60000)
    append(log_dir, text, "--format", "text", *words)
    headers = [header_of(batch) for batch in split_batches(log_of(log_dir))]
    assert {header.codec for header in headers} == {Codec[codec.upper()]}
    assert 5 < len(headers) < 20
    assert [each["value"] for each in read(log_dir)] == text.splitlines()


def test_records_without_keys_go_in_turn_where_that_is_asked_for(log_dir: Path) -> None:
    append(log_dir, "".join(f"{n}\n" for n in range(6)), "--format", "text", "--round-robin")
    assert [(each["partition"], each["value"]) for each in read(log_dir)] == [
        (0, "0"), (0, "3"), (1, "1"), (1, "4"), (2, "2"), (2, "5"),
    ]  # fmt: skip


def test_a_bad_line_ends_it_and_the_lines_before_are_there(log_dir: Path) -> None:
    done = append(log_dir, '{"value":"a"}\n{"value":1}\n{"value":"b"}\n', "--partition", 0, status=2)
    assert "line 2: value is no text" in done.stderr
    assert [each["value"] for each in read(log_dir)] == ["a"]


def test_a_batch_that_is_refused_is_told_with_its_lines_and_the_others_are_there(log_dir: Path) -> None:
    small, large = "x" * 10, "x" * 2_000_000
    done = append(log_dir, f"{small}\n{large}\n", "--format", "text", "--partition", 0, status=2)
    assert "max.message.bytes" in done.stderr
    assert "not appended: line 2" in done.stdout
    assert [each["value"] for each in read(log_dir)] == [small]


@pytest.mark.parametrize(
    ("words", "reason"),
    [(("--topic", "clicks"), "topic clicks does not exist"), (("--partition", "9"), "orders-9 does not exist")],
)
def test_what_is_not_there_is_wrong_usage(log_dir: Path, words: tuple[str, ...], reason: str) -> None:
    assert reason in append(log_dir, "", *words, status=2).stderr


def start(log_dir: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cli.main", "append", "--topic", "orders", "--log-dir", str(log_dir), *words]
    return subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_a_line_does_not_wait_for_the_next_one_longer_than_it_may(log_dir: Path) -> None:
    running = start(log_dir, "--partition", "0", "--linger-ms", "1")
    assert running.stdin is not None
    running.stdin.write(b'{"value":"a"}\n')
    running.stdin.flush()
    until(lambda: len(log_of(log_dir)) > 0)
    running.communicate(timeout=180)
    assert running.returncode == 0


def test_interrupted_it_keeps_what_it_has_read_and_shuts_down_cleanly(log_dir: Path) -> None:
    running = start(log_dir, "--partition", "0", "--linger-ms", "60000", "--batch-bytes", "40")
    assert running.stdin is not None
    running.stdin.write(b'{"value":"a"}\n{"value":"b"}\n')  # the second one completes the batch of the first
    running.stdin.flush()
    until(lambda: len(log_of(log_dir)) > 0)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=180)
    assert running.returncode == 130
    assert b"appended 2 records" in out
    assert (log_dir / ".kafka_cleanshutdown").exists()
    assert [each["value"] for each in read(log_dir)] == ["a", "b"]


def test_a_killed_one_is_recovered_by_the_next(log_dir: Path) -> None:
    running = start(log_dir, "--partition", "0", "--linger-ms", "1")
    assert running.stdin is not None
    running.stdin.write(b'{"value":"a"}\n')
    running.stdin.flush()
    until(lambda: len(log_of(log_dir)) > 0)
    running.kill()
    running.communicate(timeout=180)
    assert not (log_dir / ".kafka_cleanshutdown").exists()
    append(log_dir, '{"value":"b"}\n', "--partition", 0)
    assert [each["value"] for each in read(log_dir)] == ["a", "b"]
    epochs = (log_dir / "orders-0" / "leader-epoch-checkpoint").read_text()
    assert epochs == "0\n2\n0 0\n1 1\n"


def test_lines_are_put_together_from_pieces_whatever_their_borders() -> None:
    reading, writing = os.pipe()
    text = b"first\r\n" + b"x" * 200_000 + b"\n\nlast"
    if not os.fork():
        os.close(reading)
        os.write(writing, text) if len(text) < 60_000 else [os.write(writing, text[n : n + 999])
                                                            for n in range(0, len(text), 999)]  # fmt: skip
        os._exit(0)
    os.close(writing)
    found = list(lines(reading, lambda: True))
    os.close(reading)
    assert found == [(1, b"first"), (2, b"x" * 200_000), (3, b""), (4, b"last")]


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("cli.engine.append._LINE_LIMIT", 1000)
    path = tmp_path / "long"
    path.write_bytes(b"a\n" + b"x" * 2000)
    with path.open("rb") as file, pytest.raises(ConfigInvalid, match="line 2: longer than 1000 bytes"):
        list(lines(file.fileno(), lambda: True))
