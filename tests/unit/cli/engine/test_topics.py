"""`logmend topics`: made, listed, described, altered, deleted, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from golden.golden import extract, log_dirs
from support.calling import call as logmend
from support.command import make_log_dir, sound_log
from support.trees import contents

from cli.engine.topics import settings_in
from storage.base.errors import ConfigInvalid
from storage.disk.fs import lock_log_dir


def run(log_dir: Path, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = logmend("topics", *words, "--log-dir", log_dir)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def described(log_dir: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run(log_dir, "describe", "--json").stdout)
    assert (told["document"], told["status"]) == ("topics", 0)
    return {topic["topic"]: topic for topic in told["topics"]}


def test_a_topic_is_made_described_altered_and_deleted(tmp_path: Path) -> None:
    log_dir = tmp_path / "new" / "data"
    assert run(
        log_dir, "create", "--init", "--topic", "orders", "--partitions", 2, "--config", "retention.ms=5"
    ).stdout == ("created orders: 2 partitions\n")
    assert run(log_dir, "list").stdout == "orders  2 partitions\n"
    assert described(log_dir)["orders"]["settings"] == {"retention.ms": "5"}
    text = run(log_dir, "describe", "--topic", "orders").stdout
    assert "retention.ms=5" in text
    assert f"1  offsets 0 to below 0, 1 segment, 0 bytes, in {log_dir}" in text
    run(log_dir, "alter", "--topic", "orders", "--partitions", 3, "--config", "segment.ms=9", "--unset", "retention.ms")
    told = described(log_dir)["orders"]
    assert told["settings"] == {"segment.ms": "9"}
    assert [each["partition"] for each in told["partitions"]] == [0, 1, 2]
    assert "deleted orders" in run(log_dir, "delete", "--topic", "orders").stdout
    assert described(log_dir) == {}


def test_a_new_log_directory_is_one_that_the_other_commands_find_clean(tmp_path: Path) -> None:
    run(tmp_path, "create", "--init", "--topic", "orders")
    assert {path.name for path in tmp_path.iterdir()} >= {"meta.properties", ".kafka_cleanshutdown", "orders-0"}
    assert logmend("verify", "--depth", "records", tmp_path).returncode == 0
    assert logmend("quarantine", "list", tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("create", "--init", "--topic", "a/b"), "topic a/b"),
        (("create", "--init", "--topic", "orders", "--config", "retention.ms"), "NAME=VALUE"),
        (("create", "--init", "--topic", "orders", "--config", "retention.mss=1"), "did you mean retention.ms?"),
        (("create", "--init", "--topic", "orders", "--config", "retention.ms=-2"), "-2 is not in the range from -1"),
        (("create", "--init", "--topic", "orders", "--partitions", "0"), "no number of partitions"),
        (("describe", "--topic", "clicks"), "topic clicks does not exist"),
        (("alter", "--topic", "clicks", "--partitions", "2"), "topic clicks does not exist"),
        (("alter", "--topic", "clicks"), "nothing to change"),
        (("delete", "--topic", "clicks"), "topic clicks does not exist"),
    ],
)
def test_what_cannot_be_done_is_wrong_usage(tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    run(tmp_path, "create", "--init", "--topic", "other")
    assert reason in run(tmp_path, *words, status=2).stderr


def test_a_log_directory_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path, "create", "--init", "--topic", "orders")
    with lock_log_dir(tmp_path):
        assert "in use" in run(tmp_path, "delete", "--topic", "orders", status=6).stderr
        assert run(tmp_path, "list").stdout == "orders  1 partition\n"


def test_a_directory_that_holds_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    assert "is it a log directory?" in run(tmp_path, "list", status=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]


def test_a_held_log_directory_is_not_opened(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path, sound_log(), recovery_point=6)
    data = log.read_bytes()
    log.write_bytes(data[:-3])
    change = ("alter", "--topic", "orders", "--partitions", "2", "--take-over")
    assert "orders-0" in run(tmp_path, *change, status=3).stderr
    assert log.read_bytes() == data[:-3]


def test_a_directory_is_made_only_where_that_is_asked_for(tmp_path: Path) -> None:
    missing = tmp_path / "dta"
    for words in (("create", "--topic", "orders"), ("alter", "--topic", "orders"), ("delete", "--topic", "orders")):
        assert "there is no log directory; to make one: logmend topics create --init" in (
            run(missing, *words, status=2).stderr
        )
        assert not missing.exists()
    run(missing, "create", "--topic", "orders", "--init")
    run(missing, "create", "--topic", "clicks")


def test_a_directory_whose_making_was_interrupted_is_made_to_its_end(tmp_path: Path) -> None:
    run(tmp_path, "create", "--topic", "orders", "--init")
    for path in tmp_path.iterdir():
        if path.name != "meta.properties":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert run(tmp_path, "create", "--topic", "orders", "--init").stdout == "created orders: 1 partition\n"


def test_a_brokers_directory_is_taken_over_once_and_says_so(tmp_path: Path) -> None:
    (log_dir,) = log_dirs(extract("transactions", tmp_path))
    before = contents(log_dir)
    change = ("alter", "--topic", "payments", "--config", "retention.ms=-1")
    refused = run(log_dir, *change, status=2).stderr
    assert "a broker's log directory, which this command would recover and write to" in refused
    assert "--take-over" in refused
    assert contents(log_dir) == before
    assert f"taking over {log_dir}" in run(log_dir, *change, "--take-over").stderr
    assert run(log_dir, *change).stderr == ""


def test_without_a_log_directory_nothing_happens() -> None:
    done = logmend("topics", "list")
    assert done.returncode == 2
    assert "no log directory" in done.stderr


def test_a_brokers_settings_are_the_defaults(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={tmp_path / 'data'}\nlog.retention.ms=77\n")
    done = logmend("topics", "create", "--init", "--topic", "orders", "--server-properties", properties)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data" / "orders-0").is_dir()


def test_a_word_is_split_at_its_first_sign() -> None:
    assert settings_in(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    for word in ("a", "=b", ""):
        with pytest.raises(ConfigInvalid, match="NAME=VALUE"):
            settings_in([word])


@pytest.mark.needs(root=True)
def test_root_leaves_nothing_of_its_own_in_the_log_directory_of_somebody_else(tmp_path: Path) -> None:
    os.chown(tmp_path, 4321, 4321)
    run(tmp_path, "create", "--init", "--topic", "orders", "--partitions", "3")
    assert {path.lstat().st_uid for path in tmp_path.rglob("*")} == {4321}
