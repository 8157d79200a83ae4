"""`logmend read`: from where, how many, and beside the process that owns the log directory."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.batches import TS, batch_v2, marker
from support.calling import call as logmend
from support.command import start
from support.managers import NOW, P0, append

from cli.engine.read import From, first_offset, parse_from, records_between
from engine.client.topic_list import find_partitions
from engine.client.view import LogView
from engine.manager.manager import LogManager
from engine.settings.options import ManagerOptions
from storage.base.errors import BatchCorrupt
from storage.base.refusals import OffsetOutOfRange
from storage.base.units import Offset
from storage.disk.fs import OsFs, ReadOnlyFs

SMALL = {"internal.segment.bytes": "300"}


@pytest.fixture
def manager(tmp_path: Path) -> Any:
    """A running engine that holds the lock."""
    with LogManager.open(OsFs(), [PurePath(tmp_path)], NOW, ManagerOptions()) as opened:
        opened.topics.create("orders", 1, SMALL, NOW)
        for number in range(10):
            append(opened, f"v{number}", timestamp=NOW + 10 * number)
        yield opened


def read(log_dir: Path, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = logmend("read", "--topic", "orders", "--log-dir", log_dir, *words)
    assert done.returncode == status, done.stderr
    return done


def values(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [json.loads(line)["value"] for line in done.stdout.splitlines()]


def test_all_records_are_printed_from_the_first_on(manager: LogManager, tmp_path: Path) -> None:
    manager.close()
    assert values(read(tmp_path)) == [f"v{n}" for n in range(10)]
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("where", "first"),
    [("7", 7), ("10", 10), (f"@{NOW + 41}", 5), ("2023-11-14T22:13:20.030Z", 3), ("2023-11-14T23:13:20.030+01:00", 3),
     ("2023-11-14T22:13:20", 0), ("earliest", 0), ("latest", 10), (f"@{NOW * 2}", 10)],
)  # fmt: skip
def test_reading_begins_where_it_is_told_to(manager: LogManager, tmp_path: Path, where: str, first: int) -> None:
    manager.close()
    assert values(read(tmp_path, "--from", where)) == [f"v{n}" for n in range(first, 10)]


def test_a_count_ends_it(manager: LogManager, tmp_path: Path) -> None:
    manager.close()
    assert values(read(tmp_path, "--count", 3)) == ["v0", "v1", "v2"]
    assert values(read(tmp_path, "--count", 0)) == []


def test_an_offset_beyond_the_end_is_out_of_range(manager: LogManager, tmp_path: Path) -> None:
    manager.close()
    assert "from 0 up to below 10" in read(tmp_path, "--from", 11, status=2).stderr


@pytest.mark.parametrize(
    ("words", "reason"), [(("--partition", "1"), "orders-1 does not exist"), (("--from", "yesterday"), "is not an")]
)
def test_what_is_not_there_is_wrong_usage(tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    logmend("topics", "create", "--init", "--topic", "orders", "--log-dir", tmp_path)
    assert reason in read(tmp_path, *words, status=2).stderr


def test_an_offset_needs_a_partition_where_there_are_several(tmp_path: Path) -> None:
    logmend("topics", "create", "--init", "--topic", "orders", "--partitions", 2, "--log-dir", tmp_path)
    assert "--partition" in read(tmp_path, "--from", "3", status=2).stderr
    assert values(read(tmp_path, "--from", "0", "--partition", "1")) == []


def test_beside_an_owner_files_are_read_as_they_are_and_nothing_is_changed(manager: LogManager, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = read(tmp_path, "--from", "8")
    assert values(done) == ["v8", "v9"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_following_sees_what_comes_rolls_and_retention_included(manager: LogManager, tmp_path: Path) -> None:
    following = start("read", "--topic", "orders", "--log-dir", tmp_path, "--follow", "--count", 60, "--from", 5)
    assert following.stdout is not None
    assert [json.loads(following.stdout.readline())["value"] for _ in range(5)] == [f"v{n}" for n in range(5, 10)]
    for number in range(10, 40):
        append(manager, f"v{number}")
    assert [json.loads(following.stdout.readline())["value"] for _ in range(30)] == [f"v{n}" for n in range(10, 40)]
    manager.topics.alter("orders", NOW, settings={"retention.ms": "0"})
    manager.retain(NOW + 10**10)
    assert manager.log(P0).log_start == 40
    for number in range(40, 65):
        append(manager, f"v{number}")
    out, err = following.communicate(timeout=180)
    assert (following.returncode, err) == (0, "")
    assert [json.loads(line)["value"] for line in out.splitlines()] == [f"v{n}" for n in range(40, 65)]


def test_following_leaves_the_lock_to_who_appends(tmp_path: Path) -> None:
    logmend("topics", "create", "--init", "--topic", "orders", "--log-dir", tmp_path)
    following = start("read", "--topic", "orders", "--log-dir", tmp_path, "--follow", "--count", 1)
    while logmend("topics", "list", "--log-dir", tmp_path).returncode:
        pass
    with LogManager.open(OsFs(), [PurePath(tmp_path)], NOW, ManagerOptions()) as manager:
        append(manager, "a")
        out, _ = following.communicate(timeout=180)
    assert json.loads(out)["value"] == "a"


# ---- parts


@pytest.fixture
def make_log(tmp_path: Path) -> Iterator[Callable[..., LogView]]:
    """A function that writes batches to a log and returns a view of it."""
    with contextlib.ExitStack() as views:

        def make(*batches: bytes) -> LogView:
            home = tmp_path / "orders-0"
            home.mkdir()
            (home / f"{0:020d}.log").write_bytes(b"".join(batches))
            return views.enter_context(contextlib.closing(LogView(ReadOnlyFs(OsFs()), home)))

        yield make


def test_markers_of_transactions_are_not_shown(make_log: Callable[..., LogView]) -> None:
    view = make_log(batch_v2(0, 2), marker(2, 7, commit=True), batch_v2(3, 1))
    assert [record.offset for record in records_between(view, Offset(0), view.log_end)] == [0, 1, 3]
    assert [record.offset for record in records_between(view, Offset(1), Offset(3))] == [1]


def test_a_gap_is_passed_over(make_log: Callable[..., LogView]) -> None:
    view = make_log(batch_v2(0, 2), batch_v2(10, 1))
    assert [record.offset for record in records_between(view, Offset(2), view.log_end)] == [10]


def test_rot_is_an_error_and_never_shown(make_log: Callable[..., LogView]) -> None:
    rotten = bytearray(batch_v2(1, 1))
    rotten[-1] ^= 1
    view = make_log(batch_v2(0, 1), bytes(rotten), batch_v2(2, 1))
    found = records_between(view, Offset(0), view.log_end)
    assert next(found).offset == 0
    with pytest.raises(BatchCorrupt, match="checksum"):
        next(found)


def test_half_a_batch_at_the_end_is_not_there_yet(make_log: Callable[..., LogView], tmp_path: Path) -> None:
    whole = batch_v2(1, 1)
    view = make_log(batch_v2(0, 1), whole[:-1])
    assert view.log_end == 1
    with (tmp_path / "orders-0" / f"{0:020d}.log").open("ab") as file:
        file.write(whole[-1:])
    view.refresh()
    assert view.log_end == 2


def test_a_view_begins_where_the_checkpoint_says_and_answers_no_other_offset(
    make_log: Callable[..., LogView], tmp_path: Path
) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 2\n")
    view = make_log(batch_v2(0, 2), batch_v2(2, 2))
    assert (view.log_start, view.log_end) == (2, 4)
    for offset in (1, 5):
        with pytest.raises(OffsetOutOfRange):
            view.read(Offset(offset), 100)
    assert first_offset(view, From(timestamp=TS)) == 2


def test_only_live_partitions_of_the_topic_are_found(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "orders-2.abc-delete", "orders-x-0", "clicks-0"):
        (tmp_path / name).mkdir()
    (tmp_path / "orders-3").write_text("")
    found = find_partitions(OsFs(), [PurePath(tmp_path)], "orders")
    assert sorted(found) == [0, 1]


@pytest.mark.parametrize("text", ["", "-1", "@", "@x", "9223372036854775808", "tomorrow"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="earliest or latest"):
        parse_from(text)
