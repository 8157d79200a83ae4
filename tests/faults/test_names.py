"""Names from the disk reach nobody raw: no control character, no mark that turns text around, no byte without sense."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import environment
from support.faults import DAMAGES, write_tree
from support.log_dirs import POINTS
from support.recovering import tree
from support.tiers import spread

from checkpoint.offsets import decode_offsets
from storage.base.units import TopicPartition

ONE_BYTE = [bytes([number]) for number in range(1, 256) if number != ord("/")]
NASTY = [
    b"\x1b[2J\x1b[31mred", b"\x1b]0;title\x07", b"\x1bP+q\x1b\\", b"line\nERROR forged: all is clean", b"back\rover",
    b"tab\there", b"\x08\x08\x08", b"\x7f", b"\xc2\x9b31m", b"\xe2\x80\xaeevil\xe2\x80\xac", b"\xe2\x81\xa6isolate",
    b"\xe2\x80\x8fmark", b"\xef\xbb\xbfbom", b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"n" * 255,
    b"%s%n%d", b"{}{0}", b'"quoted"', b"'$(reboot)'", b"`id`", b"<script>", b"-rf", b"--accept-loss", b"~", b"*",
    b"\xe2\x80\xa8separator", b"\xc2\xad soft", b"a\\nb", "ß-0".encode(), "日本-0".encode(), b" lead", b"trail ",
    b"\x00\x01"[1:], b"\xf0\x9f\x92\xa9", b"\xcc\x81combining", b"..%2f", b"orders\n-0", b"orders-0\n", b"-0", b"-",
]  # fmt: skip
KEPT = {"\n"}
COMMANDS = [
    ("verify",), ("plan",), ("recover", "--dry-run"), ("verify", "--json"), ("plan", "--json"), ("verify", "--jsonl"),
    ("recover",), ("quarantine", "list"), ("quarantine", "list", "--json"),
]  # fmt: skip


def raw_in(data: bytes) -> Iterator[str]:
    """Yield what a terminal, or whoever reads line by line, could act upon."""
    text = data.decode("utf-8", "surrogateescape")
    for sign in sorted(set(text) - KEPT):
        if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
            yield repr(sign)


def run(*words: object, cwd: str = "/") -> subprocess.CompletedProcess[bytes]:
    command: list[str | bytes] = [sys.executable, "-m", "cli.main", *(os.fsencode(str(word)) for word in words)]
    return subprocess.run(
        command, env=environment(LC_ALL="C.UTF-8"), capture_output=True, check=False, timeout=180, cwd=cwd
    )


def usable(name: bytes) -> bool:
    return name not in (b".", b"..") and b"/" not in name


def plant(home: Path, names: list[bytes], kind: str) -> None:
    """Put the names where they belong to partitions, to files of one, and to files at the top."""
    top = os.fsencode(home)
    for name in filter(usable, names):
        if kind == "directory":
            os.makedirs(os.path.join(top, name), exist_ok=True)
            with open(os.path.join(top, name, b"00000000000000000000.log"), "wb") as file:
                file.write(b"torn")
        elif kind == "topic":
            os.makedirs(os.path.join(top, name[:253] + b"-0"), exist_ok=True)
            with open(os.path.join(top, name[:253] + b"-0", b"00000000000000000000.log"), "wb") as file:
                file.write(b"torn")
        else:
            for shown in (name, name[:250] + b".log", name[:247] + b".index", name[:248] + b".swap"):
                with open(os.path.join(top, b"orders-0", shown), "wb") as file:
                    file.write(b"x")


@pytest.mark.parametrize("kind", ["directory", "topic", "file"])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_name_on_the_disk_is_shown_raw(tmp_path: Path, kind: str, words: tuple[str, ...]) -> None:
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    plant(home, ONE_BYTE + NASTY, kind)
    done = run(*words, home)
    assert done.returncode in range(8), done.stderr
    assert b"Traceback" not in done.stderr
    for told in (done.stdout, done.stderr):
        assert list(raw_in(told)) == []
        assert b"\nERROR forged" not in told
    if "--json" in words:
        json.loads(done.stdout)
    if "--jsonl" in words:
        assert [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", spread(filter(usable, NASTY), 12), ids=repr)
def test_a_log_directory_of_any_name_is_worked_on_and_never_shown_raw(tmp_path: Path, name: bytes) -> None:
    home = write_tree(tmp_path / os.fsdecode(name), DAMAGES["torn"])
    looked, done = run("verify", home), run("recover", home)
    assert (looked.returncode, done.returncode) == (1, 0), done.stderr
    for told in (looked.stdout, looked.stderr, done.stdout, done.stderr):
        assert list(raw_in(told)) == []
        assert b"\nERROR forged" not in told


def test_no_text_in_a_file_is_shown_raw(tmp_path: Path) -> None:
    """What a checkpoint, a manifest and settings say is quoted where it is wrong."""
    evil = b"\x1b[31mred\nERROR forged\xe2\x80\xae\xff\x9b"
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    for name in (POINTS, "meta.properties", "orders-0/leader-epoch-checkpoint", "orders-0/partition.metadata"):
        (home / name).write_bytes(evil)
    (home / "orders-0/0123456789ab.logmend.json").write_bytes(b'{"schema_version": "\\u001b[31m\\u202e"}')
    settings = tmp_path / "logmend.toml"
    settings.write_bytes(b'"\\u001b[31m" = 1\n')
    properties = tmp_path / "server.properties"
    properties.write_bytes(b"log.dirs=/\\u001b[31m\\u202e\n")
    for words in (
        ("verify", home), ("recover", "--dry-run", home), ("quarantine", "list", home),
        ("verify", "--config", str(settings), home), ("verify", "--server-properties", str(properties)),
        ("dump", home / "orders-0/leader-epoch-checkpoint"), ("dump", home / POINTS),
        ("dump", home / "meta.properties"),
        ("dump", home / "orders-0/0123456789ab.logmend.json"), ("apply", settings), ("verify", "\x1b[31m"),
    ):  # fmt: skip
        done = run(*words)
        assert b"Traceback" not in done.stderr
        assert done.returncode in range(8), done.stderr
        assert list(raw_in(done.stdout + done.stderr)) == [], words


@pytest.mark.parametrize("topic", [b"a b", b"tab\there", b"two\nlines", b"\xff\xfe", b"\xed\xa0\x80"])
def test_a_topic_that_no_checkpoint_can_hold_is_held_and_every_other_partition_is_recovered(
    tmp_path: Path, topic: bytes
) -> None:
    """The recovery points of the others rise, and the partition itself is left as it was."""
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    odd = Path(os.fsdecode(os.path.join(os.fsencode(home), topic + b"-0")))
    shutil.copytree(home / "orders-0", odd)
    was = tree(odd)
    for _ in range(2):
        done = run("recover", home, "--json")
        assert done.returncode == 3, done.stderr
        assert tree(odd) == was
    assert decode_offsets((home / POINTS).read_bytes()) == {TopicPartition("orders", 0): 27}
    assert run("verify", home / "orders-0").returncode == 0
