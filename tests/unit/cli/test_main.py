"""From whatever ends a command to its exit status; and what is written where when streams do not take it."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import PurePath
from typing import Any, NoReturn

import pytest
from support.calling import call

import cli.main
from cli.advice import next_step
from cli.console import Console, coloured, plain, style_for
from cli.main import COMMANDS, main, status_of
from cli.signals import Terminated
from storage.base.errors import (
    ConfigInvalid,
    CorruptData,
    DiskFull,
    ExitStatus,
    FileVanished,
    LogDirInUse,
    LogmendError,
    PlanStale,
    ReadFault,
    ReplicaUnusable,
    UnsupportedFormat,
    WriteFault,
)

PATH = PurePath("/data/orders-0/x.log")


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("words", [("read", "--follow"), ("topics", "list"), ("verify",), ("recover", "--dry-run")])
def test_what_only_reads_changes_nothing_when_it_is_stopped(words: tuple[str, ...], monkeypatch: Any) -> None:
    def stopped(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.main, "_dispatch", stopped)
    needed = ["--topic", "orders", "--log-dir", "x"] if words[0] == "read" else ["x"] if words[0] != "topics" else []
    done = call(*words, *needed)
    assert (done.returncode, done.stderr) == (130, "logmend: interrupted; nothing was changed\n")
    assert "as after a crash" in call("recover", "x").stderr


def judged(error: BaseException, *, debug: bool = False) -> tuple[ExitStatus, str]:
    err = io.StringIO()
    return status_of(error, Console(io.StringIO(), err, debug=debug)), err.getvalue()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CorruptData("bad", path=PATH, position=3), ExitStatus.FINDINGS),
        (ConfigInvalid("no"), ExitStatus.USAGE),
        (ReplicaUnusable("no"), ExitStatus.HELD),
        (UnsupportedFormat("magic 3"), ExitStatus.UNSUPPORTED),
        (ReadFault("reading", PATH, os_error(errno.EIO)), ExitStatus.ENVIRONMENT),
        (DiskFull("writing", PATH, os_error(errno.ENOSPC)), ExitStatus.ENVIRONMENT),
        (LogDirInUse(PATH), ExitStatus.IN_USE),
        (PlanStale(PATH, "changed"), ExitStatus.STALE),
        (LogmendError("ours"), ExitStatus.BUG),
        (AssertionError("ours"), ExitStatus.BUG),
        (RecursionError("ours"), ExitStatus.BUG),
        (OSError(errno.EIO, "one that was not wrapped"), ExitStatus.BUG),
        (KeyboardInterrupt(), ExitStatus.INTERRUPTED),
        (Terminated(), ExitStatus.TERMINATED),
    ],
)
def test_every_end_has_its_status_and_says_something(error: BaseException, status: ExitStatus) -> None:
    found, said = judged(error)
    assert found is status
    assert said.startswith("logmend: ")
    assert "Traceback" not in said


def test_a_fault_names_file_reason_and_the_next_thing_to_try() -> None:
    _, said = judged(ReadFault("reading at 812", PATH, os_error(errno.EIO)))
    assert said == (
        "logmend: /data/orders-0/x.log: reading at 812 failed: Input/output error (EIO)\n"
        "logmend: next: see what the kernel says of this disk (dmesg); nothing was cut because of it\n"
    )


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ReadFault("opening", PATH, os_error(errno.EACCES)), "as the user"),
        (WriteFault("opening", PATH, os_error(errno.EROFS)), "read-only"),
        (WriteFault("syncing", PATH, os_error(errno.EIO)), "run recover again"),
        (DiskFull("writing", PATH, os_error(errno.ENOSPC)), "make room on the disk of /data/orders-0"),
        (FileVanished("opening", PATH, os_error(errno.ENOENT)), "mounted"),
        (LogDirInUse(PurePath("/data")), "logmend verify /data"),
        (UnsupportedFormat("magic 3"), "newer logmend"),
    ],
)
def test_advice_fits_the_error(error: LogmendError, hint: str) -> None:
    assert hint in next_step(error)


def test_a_bug_shows_its_traceback_only_when_asked() -> None:
    try:
        raise AssertionError("ours\x1b")
    except AssertionError as error:
        _, short = judged(error)
        _, long = judged(error, debug=True)
    assert "Traceback" not in short
    assert "\x1b" not in short
    assert "please report" in short
    assert "Traceback" in long


def test_every_command_has_a_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        assert f"usage: logmend {name}" in capsys.readouterr().out


def test_flags_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["recover", "--accept", "."])
    assert ended.value.code == 2
    assert "--accept" in capsys.readouterr().err


class Stuck(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise os_error(self.number)


def test_a_reader_that_is_gone_is_no_failure() -> None:
    console = Console(Stuck(errno.EPIPE), io.StringIO())
    console.say("text")
    assert console.is_gone
    assert console.finish() is ExitStatus.CLEAN


def test_results_that_were_lost_are_a_failure_that_is_told() -> None:
    err = io.StringIO()
    console = Console(Stuck(errno.ENOSPC), err)
    console.document({"a": 1})
    assert console.finish() is ExitStatus.ENVIRONMENT
    assert "results were lost" in err.getvalue()


def test_errors_that_nobody_can_read_do_not_stop_the_work() -> None:
    console = Console(io.StringIO(), Stuck(errno.EIO))
    console.complain("text")
    assert console.finish() is ExitStatus.CLEAN


def test_json_holds_any_name() -> None:
    out = io.StringIO()
    Console(out, io.StringIO()).event({"path": "\udcff\u202e"})
    assert out.getvalue().isascii()
    assert json.loads(out.getvalue()) == {"path": "\udcff\u202e"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_only_on_a_terminal_that_wants_them() -> None:
    wanted = {"TERM": "xterm"}
    assert style_for(Terminal(), wanted) is coloured
    assert style_for(io.StringIO(), wanted) is plain
    assert style_for(Terminal(), {**wanted, "NO_COLOR": "1"}) is plain
    assert style_for(Terminal(), {"TERM": "dumb"}) is plain
    assert coloured("x", "damage") == "\x1b[31mx\x1b[0m"
    assert coloured("x", "") == "x"


def test_without_a_command_the_three_main_jobs_are_shown() -> None:
    done = call()
    assert done.returncode == 2
    for line in ("logmend recover DIR", "logmend verify --depth full DIR", "logmend run --log-dir DIR"):
        assert line in done.stderr


def test_a_command_that_is_mistyped_gets_a_suggestion() -> None:
    assert call("recovr", "x").stderr == (
        "logmend: there is no command recovr; did you mean recover?; see logmend --help\n"
    )
    assert "did you mean" not in call("frobnicate").stderr


def test_help_and_version_are_answered_as_words_too() -> None:
    assert call("help").stdout == call("--help").stdout
    assert call("help", "verify").stdout == call("verify", "--help").stdout
    assert call("version").stdout == call("--version").stdout
    assert call("--json", "version").stdout == call("--json", "--version").stdout


@pytest.mark.parametrize(
    ("words", "usage", "hint"),
    [
        (("verify", "--dept", "full", "x"), "usage: logmend verify", "did you mean --depth?"),
        (("topics", "create", "--topic", "a", "--partition", "3"), "usage: logmend topics create", "--partitions?"),
    ],
)
def test_a_wrong_flag_shows_the_usage_of_its_command(words: tuple[str, ...], usage: str, hint: str) -> None:
    done = call(*words)
    assert done.returncode == 2
    assert usage in done.stderr
    assert hint in done.stderr


def test_names_keep_their_capitals_in_the_help() -> None:
    assert "Apache Kafka" in call("--help").stdout
    assert "Serve log directories to Kafka clients" in call("serve", "--help").stdout
    assert "Verify whole clusters on Spark" in call("audit", "--help").stdout
    assert "SQL" in call("audit", "sql", "--help").stdout
