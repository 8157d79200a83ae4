"""What is called clean names what was read; nothing is called clean of which nothing was read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.calling import call
from support.runbook_cases import sound

COMMANDS = ("verify", "plan", "recover", "recover --dry-run", "scrub now --log-dir")
META = "version=0\nbroker.id=1\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound(tmp_path_factory.mktemp("whole") / "data")


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "data"))


def bytes_of_logs(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob("*.log"))


def test_clean_names_what_was_read_and_what_was_not(data: Path) -> None:
    (result,) = json.loads(call("verify", "--json", data).stdout)["results"]
    read = result["read"]
    assert read["flushed"] == 0
    assert min(read["unflushed"], read["unread"]) > 100_000
    assert read["unflushed"] + read["unread"] == bytes_of_logs(data)
    for name in ("verify", "recover"):
        line = call(name, data).stdout.splitlines()[0]
        assert line.startswith(
            f"{data}: clean as far as read: {read['unflushed'] / 1024:.1f} KiB unflushed; "
            f"{read['unread'] / 1024:.1f} KiB flushed not read (--depth full reads them); "
        )
    assert call("plan", data).stdout.splitlines()[0].endswith("KiB flushed not read (--depth full reads them)")


def test_beside_a_marker_the_ends_of_logs_are_what_was_read(data: Path) -> None:
    assert call("recover", "--clean-marker", "4.3", "--discard", data).returncode == 0
    shutil.rmtree(data / "__cluster_metadata-0")
    size = bytes_of_logs(data) / 1024
    assert (
        f"clean as far as read: the ends of logs; {size:.1f} KiB flushed not read" in call("verify", data).stdout
    )  # fmt: skip


def test_clean_without_more_is_what_was_read_whole(data: Path) -> None:
    for name in ("verify", "recover"):
        done = call(name, "--depth", "full", data)
        assert done.stdout.startswith(f"{data}: clean: ")
        assert "not read" not in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_without_logs_is_the_same_mistake_for_every_command(tmp_path: Path, command: str) -> None:
    for name in ("empty", "locked", "mounted", "strange"):
        (tmp_path / name).mkdir()
    (tmp_path / "locked" / ".lock").touch()
    (tmp_path / "mounted" / "lost+found").mkdir()
    (tmp_path / "strange" / "notes.txt").touch()
    for name, words in (
        ("empty", "is empty, so nothing was read: is its volume mounted? for the first start of a broker format it"),
        ("locked", "is empty"),
        ("mounted", "is empty"),
        ("strange", "holds no partition and no file of a broker: is it a log directory?"),
    ):
        done = call(*command.split(), tmp_path / name)
        assert (done.returncode, done.stdout) == (2, ""), name
        assert words in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_above_log_directories_names_them(data: Path, command: str) -> None:
    shutil.copytree(data, data.with_name("data-1"))  # which would do as the name of a partition
    done = call(*command.split(), data.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"these below it are: {data}, {data}-1" in done.stderr


@pytest.mark.parametrize("command", COMMANDS[:-1])
def test_topics_that_no_partition_has_are_a_mistake(data: Path, command: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    done = call(*command.split(), "--topic", "orders", "--topic", "nosuch", data)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--topic nosuch: no partition in" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


def test_a_directory_that_a_broker_has_not_used_yet_is_in_order_but_not_called_clean(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(META)
    for name in ("verify", "recover"):
        done = call(name, tmp_path)
        assert done.returncode == 0
        assert "nothing read: there is no partition" in done.stdout
        assert "clean" not in done.stdout


def test_one_mistake_among_several_directories_does_not_stop_the_others(data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = call("recover", data, tmp_path / "empty")
    assert done.returncode == 2
    assert f"{tmp_path / 'empty'} is empty" in done.stderr
    assert f"{data}: clean as far as read" in done.stdout
