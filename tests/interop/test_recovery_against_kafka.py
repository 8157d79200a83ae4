"""What a recovery leaves, held against what Kafka's own recovery makes of an untouched copy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from golden import golden
from interop.kafka_lab import Oracle
from support.recovering import kept_by_us, options_of, plan, recover

INDEXES = (".index", ".timeindex", ".txnindex")
KEYS = ("log_start", "log_end", "last_stable", "high_watermark", "producers", "epochs")


def recovered(name: str, tmp_path: Path) -> dict[str, Path]:
    """Unpack a golden, recover all its log directories, and return its partition directories."""
    partitions = golden.unpack(name, tmp_path)
    options = options_of(golden.expected(name)["config"])
    for log_dir in golden.log_dirs(tmp_path):
        recover(log_dir, options)
    return partitions


def contents(directory: Path) -> dict[str, bytes]:
    """Return the files that a broker reads, indexes without the zero bytes that it adds for appending."""
    found = {}
    for path in sorted(directory.iterdir()):
        if path.is_file() and not kept_by_us(path.name):
            data = path.read_bytes()
            found[path.name] = data.rstrip(b"\0") if path.suffix in INDEXES else data
    return found


def scanned_bases(asked: dict[str, Any], loaded: dict[str, Any]) -> set[int]:
    bases = [segment["base"] for segment in loaded["segments"]]
    first = max((base for base in bases if base <= asked["recovery_point"]), default=bases[0])
    return {base for base in bases if base >= first}


@pytest.mark.parametrize("name", golden.NAMES)
def test_rebuilt_indexes_equal_those_of_kafka_byte_for_byte(name: str, tmp_path: Path, oracle: Oracle) -> None:
    partitions = golden.unpack(name, tmp_path / "ours")
    shutil.copytree(tmp_path / "ours", tmp_path / "kafka")
    expected = golden.expected(name)
    for log_dir in golden.log_dirs(tmp_path / "ours"):
        (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)  # the verdicts are those of an unclean start
        for index in [*log_dir.rglob("*.index"), *log_dir.rglob("*.timeindex")]:
            index.unlink()  # a right one would stay as it is
        recover(log_dir, options_of(expected["config"]))
    compared = 0
    for key, directory in partitions.items():
        asked, loaded = expected["partitions"][key]["asked"], expected["partitions"][key]["loaded"]
        theirs = tmp_path / "kafka" / key
        oracle(op="open", log=key, dir=str(theirs), clean=False, **asked)
        oracle(op="close", log=key, abruptly=True)
        for base in scanned_bases(asked, loaded):
            for suffix in INDEXES:
                file = f"{base:020d}{suffix}"
                wanted = (theirs / file).read_bytes().rstrip(b"\0") if (theirs / file).exists() else b""
                found = (directory / file).read_bytes().rstrip(b"\0") if (directory / file).exists() else b""
                assert found == wanted, f"{key}/{file}"
                compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", golden.NAMES)
def test_kafka_opens_a_recovered_directory_and_changes_indexes_alone(name: str, tmp_path: Path, oracle: Oracle) -> None:
    """It writes those of the segments that it scans anew, whatever they hold, and removes what is marked as deleted."""
    expected = golden.expected(name)
    for key, directory in recovered(name, tmp_path).items():
        asked = expected["partitions"][key]["asked"]
        clean = (directory.parent / ".kafka_cleanshutdown").exists()
        before = contents(directory)
        state = oracle(op="open", log=key, dir=str(directory), clean=clean, **asked)
        oracle(op="close", log=key, abruptly=True)
        after = contents(directory)
        scanned = set() if clean else scanned_bases(asked, expected["partitions"][key]["loaded"])
        rewritten = {f"{base:020d}{suffix}" for base in scanned for suffix in (".index", ".timeindex")}
        for file in sorted((before.keys() | after.keys()) - rewritten):
            if file.endswith(".deleted"):
                assert file not in after, f"{key}/{file}"
                continue
            if file.endswith(".snapshot"):  # the order of its entries is free
                assert sorted(entries(before.get(file))) == sorted(entries(after.get(file))), f"{key}/{file}"
            elif file != "leader-epoch-checkpoint" or before.get(file) is not None:
                assert before.get(file) == after.get(file) or not (before.get(file) or after.get(file)), f"{key}/{file}"
        if not clean:
            assert {k: state[k] for k in KEYS} == {k: expected["partitions"][key]["loaded"][k] for k in KEYS}, key


def entries(snapshot: bytes | None) -> list[bytes]:
    assert snapshot is not None
    return [snapshot[at : at + 46] for at in range(10, len(snapshot), 46)]


@pytest.mark.parametrize("name", [*golden.NAMES, "crashed-sample"])
def test_a_second_recovery_finds_nothing_to_do(name: str, tmp_path: Path) -> None:
    golden.extract(name, tmp_path)
    config = golden.expected(name)["config"] if name in golden.NAMES else {}
    log_dirs = golden.log_dirs(tmp_path) or [path.parent for path in tmp_path.rglob("meta.properties")]
    assert log_dirs
    for log_dir in log_dirs:
        recover(log_dir, options_of(config))
        assert plan(log_dir, options_of(config)).is_empty
