"""Commands that read leave a log directory as it is: bytes, names, modes and times, of files and directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden.golden import extract, log_dirs
from serve.serving import torn
from support.calling import call as logmend
from support.trees import contents

from storage.disk.fs import lock_log_dir

READING = {
    "read": ("read", "--topic", "payments", "--log-dir"),
    "read committed": ("read", "--topic", "payments", "--isolation", "read_committed", "--log-dir"),
    "read --follow": ("read", "--topic", "payments", "--follow", "--count", "1", "--log-dir"),
    "topics list": ("topics", "list", "--log-dir"),
    "topics describe": ("topics", "describe", "--log-dir"),
    "explain": ("explain", "payments-0", "--holes", "--log-dir"),
    "verify": ("verify", "--depth", "records"),
    "plan": ("plan",),
    "losses": ("losses",),
    "quarantine list": ("quarantine", "list"),
    "manifest": ("manifest",),
}


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The log directory of a broker that was killed."""
    (log_dir,) = log_dirs(extract("transactions", tmp_path / "broker"))
    return log_dir


def tree(directory: Path) -> dict[str, object]:
    """Return what a reading command must not change, the directory itself included."""
    return {**contents(directory), ".": directory.stat().st_mtime_ns}


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_a_killed_brokers_directory_is_read_and_stays_as_it_is(killed: Path, words: tuple[str, ...]) -> None:
    before = tree(killed)
    done = logmend(*words, killed)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout
    assert tree(killed) == before


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_a_torn_directory_without_a_lock_file_stays_as_it_is(killed: Path, words: tuple[str, ...]) -> None:
    torn(killed)
    before = tree(killed)
    done = logmend(*words, killed)
    assert done.returncode in (0, 1), done.stderr
    assert tree(killed) == before


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_a_name_that_is_wrong_makes_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = logmend(*words, tmp_path / "dta" / "logs")
    assert done.returncode in (2, 5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["read", "topics list", "topics describe", "explain", "verify"])
def test_beside_a_running_broker_reading_needs_no_lock(killed: Path, name: str) -> None:
    with lock_log_dir(killed):
        before = tree(killed)
        done = logmend(*READING[name], killed)
        assert done.returncode in (0, 1), done.stderr
        assert tree(killed) == before


def test_topics_are_described_as_the_files_are(killed: Path) -> None:
    described = json.loads(logmend("topics", "describe", "--json", "--log-dir", killed).stdout)["topics"]
    payments = next(topic for topic in described if topic["topic"] == "payments")
    read = [json.loads(line) for line in logmend(*READING["read"], killed).stdout.splitlines()]
    for partition in payments["partitions"]:
        offsets = [record["offset"] for record in read if record["partition"] == partition["partition"]]
        assert partition["log_start"] <= min(offsets)
        assert max(offsets) < partition["log_end"]
        log = killed / f"payments-{partition['partition']}"
        assert partition["bytes"] == sum(path.stat().st_size for path in log.glob("*.log"))
