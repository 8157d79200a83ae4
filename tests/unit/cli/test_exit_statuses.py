"""Every exit status, each from the real command in a process of its own."""

from __future__ import annotations

import fcntl
import json
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.batches import batch_v2, reseal
from support.command import RECOVERY_POINTS, environment, logmend, make_log_dir, sound_log, start
from support.recovering import tree

TORN = sound_log() + batch_v2(6, 2)[:50]
FOREIGN = (
    "aiohttp", "jinja2", "kio", "pandas", "pyarrow", "pyspark", "scramp", "sqlite3", "structlog", "watchdog", "server",
    "daemon.ledger",
)  # fmt: skip
"""What only other commands need: it is heavy, or an extra that may be missing."""


def flushed_rot(directory: Path) -> Path:
    """Make a log directory whose second batch has rotted although it was flushed."""
    log = bytearray(sound_log())
    log[-20] ^= 1
    return make_log_dir(directory, bytes(log), recovery_point=6)


def newer_broker(directory: Path) -> Path:
    """Make a log directory with a batch of a magic that nobody knows yet, whose checksum holds."""
    return make_log_dir(directory, sound_log() + reseal(batch_v2(6, 2, magic=3)))


def patched(directory: Path, code: str) -> dict[str, str]:
    """Return an environment in which the command runs `code` before it starts."""
    (directory / "sitecustomize.py").write_text(code)
    env = environment()
    return {**env, "PYTHONPATH": f"{directory}:{env['PYTHONPATH']}"}


def imported(directory: Path, names: Sequence[str], *words: str | Path) -> list[str]:
    """Return which of these modules are imported at the end of a command."""
    code = (
        "import os, sys\n"
        "leave = os._exit\n"
        "def ended(status):\n"
        f"    sys.stderr.write(' '.join(name for name in {names!r} if name in sys.modules))\n"
        "    sys.stderr.flush()\n"
        "    leave(status)\n"
        "os._exit = ended\n"
    )
    done = logmend(*words, env=patched(directory, code))
    assert done.returncode in (0, 1)
    return done.stderr.split()


def test_0_a_log_directory_that_was_only_formatted_needs_no_recovery_and_an_empty_one_is_a_mistake(
    tmp_path: Path,
) -> None:
    assert logmend("recover", tmp_path).returncode == 2
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    assert logmend("recover", tmp_path).returncode == 0


def test_0_a_torn_tail_is_made_clean_and_stays_so(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path, TORN)
    assert logmend("recover", tmp_path).returncode == 0
    assert log.read_bytes() == sound_log()
    before = tree(tmp_path)
    again = logmend("recover", tmp_path)
    assert (again.returncode, tree(tmp_path)) == (0, before)
    assert "nothing to do" in again.stdout


@pytest.mark.parametrize("words", [("verify",), ("plan",), ("recover", "--dry-run")])
def test_1_who_only_looks_reports_findings_and_changes_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    make_log_dir(tmp_path, TORN)
    before = tree(tmp_path)
    done = logmend(*words, tmp_path)
    assert (done.returncode, tree(tmp_path)) == (1, before)
    assert not (tmp_path / ".lock").exists()
    assert "00000000000000000000.log at" in done.stdout
    assert "next: logmend" in done.stdout


def test_1_a_dump_of_a_damaged_file(tmp_path: Path) -> None:
    done = logmend("dump", make_log_dir(tmp_path, TORN))
    assert done.returncode == 1
    assert "damage at" in done.stdout


def test_a_dump_takes_the_flags_of_kafka_dump_log(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path, sound_log())
    ours = logmend("dump", "--data", log, log).stdout
    assert logmend("dump", "--files", f"{log},{log}", "--deep-iteration", "--print-data-log").stdout == ours
    assert logmend("dump", "--files", log, "--deep-iteration").stdout == logmend("dump", "--records", log).stdout
    assert logmend("dump").returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "logmend recover DIR"),
        (("mend",), "there is no command mend"),
        (("verify",), "no log directory"),
        (("verify", "--nothing", "."), "unrecognized arguments"),
        (("recover", "-j", "0", "."), "from 1 to 256"),
        (("recover", "--discard", "--quarantine", "q", "."), "--discard keeps no copy"),
        (("apply", "no-such-plan.json"), "cannot be read"),
    ],
)
def test_2_wrong_usage(words: tuple[str, ...], said: str) -> None:
    done = logmend(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_2_a_place_for_copies_inside_a_log_directory(tmp_path: Path) -> None:
    make_log_dir(tmp_path, TORN)
    before = tree(tmp_path)
    done = logmend("recover", "--quarantine", tmp_path / "kept", tmp_path)
    assert (done.returncode, tree(tmp_path)) == (2, before)


def test_2_a_directory_that_is_none_of_a_broker_gets_no_lock_file(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    assert logmend("recover", tmp_path).returncode == 2
    assert not (tmp_path / ".lock").exists()


def test_3_damage_in_flushed_data_is_held_and_left_as_it_is(tmp_path: Path) -> None:
    log = flushed_rot(tmp_path)
    before = log.read_bytes()
    done = logmend("recover", tmp_path)
    assert (done.returncode, log.read_bytes()) == (3, before)
    assert "--accept-loss" in done.stdout
    assert logmend("recover", "--accept-loss", tmp_path).returncode == 0


@pytest.mark.parametrize("command", ["verify", "plan", "recover"])
def test_4_a_format_of_a_newer_broker_is_never_cut(tmp_path: Path, command: str) -> None:
    log = newer_broker(tmp_path)
    before = log.read_bytes()
    assert logmend(command, tmp_path).returncode == 4
    assert log.read_bytes() == before


def test_4_a_dump_of_it(tmp_path: Path) -> None:
    assert logmend("dump", newer_broker(tmp_path)).returncode == 4


@pytest.mark.parametrize("command", ["verify", "plan", "recover", "dump"])
def test_5_a_directory_that_is_not_there(tmp_path: Path, command: str) -> None:
    done = logmend(command, tmp_path / "gone")
    assert done.returncode == 5
    assert "No such file or directory (ENOENT)" in done.stderr
    assert "next: check the name" in done.stderr


def test_5_results_that_cannot_be_written(tmp_path: Path) -> None:
    make_log_dir(tmp_path, TORN)
    with Path("/dev/full").open("w") as full:
        process = start("verify", tmp_path, stdout=full.fileno())
        _, err = process.communicate(timeout=180)
    assert process.returncode == 5
    assert "results were lost" in err


def test_6_a_broker_holds_the_lock(tmp_path: Path) -> None:
    make_log_dir(tmp_path, TORN)
    before = tree(tmp_path)
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        done = logmend("recover", tmp_path)
        looked = logmend("verify", tmp_path)
        applied = logmend("quarantine", "list", tmp_path)
    assert (done.returncode, looked.returncode, applied.returncode) == (6, 1, 0)
    assert "stop the broker first" in done.stderr
    assert ".lock is held" in looked.stdout
    assert tree(tmp_path) == before


def test_7_a_plan_whose_files_have_changed(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path / "data", TORN)
    plan = tmp_path / "plan.json"
    assert logmend("plan", "--out", plan, tmp_path / "data").returncode == 1
    log.write_bytes(TORN + b"more")
    before = tree(tmp_path / "data")
    done = logmend("apply", plan)
    assert (done.returncode, tree(tmp_path / "data")) == (7, before)
    assert f"{log}: its size has changed since the plan was made" in done.stderr


def test_a_plan_of_two_log_directories_is_refused_where_it_is_stale_and_done_where_it_holds(tmp_path: Path) -> None:
    logs = [make_log_dir(tmp_path / name, TORN, partition=f"{name}-0") for name in ("one", "two")]
    plan = tmp_path / "plan.json"
    logmend("plan", "--out", plan, tmp_path / "one", tmp_path / "two")
    logs[0].write_bytes(TORN + b"more")
    assert logmend("apply", plan).returncode == 7
    assert [log.read_bytes() for log in logs] == [TORN + b"more", sound_log()]


@pytest.mark.parametrize("out", ["data/plan.json", "old.json"])
def test_2_a_plan_is_written_to_a_new_file_outside_the_log_directories(tmp_path: Path, out: str) -> None:
    make_log_dir(tmp_path / "data", TORN)
    (tmp_path / "old.json").write_text("precious")
    before = tree(tmp_path)
    done = logmend("plan", "--out", tmp_path / out, tmp_path / "data")
    assert (done.returncode, tree(tmp_path)) == (2, before)


def test_a_plan_is_applied_once_and_stale_the_second_time(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path / "data", TORN)
    plan = tmp_path / "plan.json"
    logmend("plan", "--out", plan, tmp_path / "data")
    assert logmend("apply", plan).returncode == 0
    assert log.read_bytes() == sound_log()
    assert logmend("apply", plan).returncode == 7


def test_70_a_fault_of_our_own_is_short_unless_asked(tmp_path: Path) -> None:
    env = patched(tmp_path, "import storage.disk.fs\nstorage.disk.fs.OsFs.entries = lambda self, directory: 1 // 0\n")
    done = logmend("verify", tmp_path, env=env)
    assert done.returncode == 70
    assert "Traceback" not in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "--debug" in done.stderr
    assert "Traceback" in logmend("--debug", "verify", tmp_path, env=env).stderr


def test_70_a_fault_of_our_own_in_one_log_directory_does_not_stop_the_others(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "bad", TORN, partition="clicks-0")
    log = make_log_dir(tmp_path / "good", TORN)
    code = (
        "import storage.disk.fs\n"
        "entries = storage.disk.fs.OsFs.entries\n"
        "def broken(self, directory):\n"
        "    assert directory.name != 'clicks-0'\n"
        "    return entries(self, directory)\n"
        "storage.disk.fs.OsFs.entries = broken\n"
    )
    done = logmend("recover", tmp_path / "bad", tmp_path / "good", env=patched(tmp_path, code))
    assert done.returncode == 70
    assert f"{tmp_path / 'bad'}: a fault of logmend itself: AssertionError" in done.stderr
    assert log.read_bytes() == sound_log()


def test_70_a_plan_that_is_not_empty_after_it_was_carried_out(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "data", TORN)
    code = "import storage.disk.fs\nstorage.disk.fs.OsFs.truncate = lambda self, path, size: None\n"
    done = logmend("recover", tmp_path / "data", env=patched(tmp_path, code))
    assert done.returncode == 70
    assert "a second look still finds work" in done.stderr


SLOW_SCAN = """
import recovery.partition.partition, sys, time
def run(self, job, reader, progress):
    progress(1)
    sys.stderr.write("reading\\n")
    sys.stderr.flush()
    for _ in range(600):
        progress(1)
        time.sleep(0.05)
recovery.partition.partition.Survey.run = run
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("log_dirs", [("data",), ("data", "more")])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_130_and_143_a_signal_ends_the_work_at_once(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    number: int,
    status: int,
    log_dirs: tuple[str, ...],
    jobs: str,
) -> None:
    for log_dir in log_dirs:
        for partition in ("0", "1", "2", "3"):
            make_log_dir(tmp_path / log_dir, TORN, partition=f"{log_dir}-{partition}")
    before = tree(tmp_path)
    env = patched(tmp_path_factory.mktemp("patch"), SLOW_SCAN)
    process = start("recover", "-j", jobs, *(tmp_path / log_dir for log_dir in log_dirs), env=env)
    assert process.stderr is not None
    assert process.stderr.readline() == "reading\n"
    asked = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=180)
    assert (process.returncode, tree(tmp_path)) == (status, before)
    assert time.monotonic() - asked < 5
    assert "run it again" in err
    assert "Traceback" not in err


def test_after_an_interruption_recover_goes_on(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path / "data", TORN)
    code = (
        "import os, signal, storage.disk.fs\n"
        "whole = storage.disk.fs.OsFs.truncate\n"
        "def truncate(self, path, size):\n"
        "    whole(self, path, size)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "storage.disk.fs.OsFs.truncate = truncate\n"
    )
    done = logmend("recover", tmp_path / "data", env=patched(tmp_path, code))
    assert done.returncode == 130
    assert logmend("recover", tmp_path / "data").returncode == 0
    assert log.read_bytes() == sound_log()


def test_sigusr1_prints_how_far_it_is(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "data", TORN)
    process = start("verify", tmp_path / "data", "-j", "1", "--progress", "none", env=patched(tmp_path, SLOW_SCAN))
    assert process.stderr is not None
    assert process.stderr.readline() == "reading\n"
    process.send_signal(signal.SIGUSR1)
    line = process.stderr.readline()
    process.kill()
    process.communicate(timeout=180)
    assert line.startswith(f"logmend: {tmp_path / 'data'}: ")
    assert "of 1 partition, orders-0" in line


def test_the_worst_of_several_log_directories_wins_and_none_stops_the_others(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "torn", TORN)
    flushed_rot(tmp_path / "rotten")
    with_lock = make_log_dir(tmp_path / "used", TORN, partition="clicks-0").parents[1]
    with (with_lock / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = logmend("recover", tmp_path / "rotten", tmp_path / "torn")
        used = logmend("recover", tmp_path / "used", tmp_path / "rotten")
        gone = logmend("recover", tmp_path / "gone", tmp_path / "used", tmp_path / "rotten")
    assert (held.returncode, used.returncode, gone.returncode) == (3, 6, 5)
    assert (tmp_path / "torn/orders-0/00000000000000000000.log").read_bytes() == sound_log()


def test_a_reader_that_goes_away_changes_neither_work_nor_status(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path, TORN)
    process = start("recover", "--jsonl", tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert (process.wait(timeout=180), process.stderr.read()) == (0, "")
    assert log.read_bytes() == sound_log()


def test_json_is_one_document_on_standard_output_and_nothing_else(tmp_path: Path) -> None:
    make_log_dir(tmp_path, TORN)
    for command, status in (("verify", 1), ("plan", 1), ("recover", 0)):
        done = logmend("--json", command, tmp_path)
        told = json.loads(done.stdout)
        assert (done.returncode, told["schema_version"], told["document"]) == (status, 1, command)


def test_jsonl_ends_with_the_status_of_each_log_directory(tmp_path: Path) -> None:
    make_log_dir(tmp_path, TORN)
    done = logmend("verify", "--jsonl", tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "scan_started"
    assert {event["event"] for event in events} >= {"finding", "partition_verified", "log_dir_finished"}
    assert (events[-1]["event"], events[-1]["status"]) == ("log_dir_finished", 1)


def test_a_dry_run_prints_the_very_plan(tmp_path: Path) -> None:
    make_log_dir(tmp_path, TORN)
    dry, plan = logmend("recover", "--dry-run", "--json", tmp_path), logmend("plan", "--json", tmp_path)
    assert dry.stdout == plan.stdout
    done = json.loads(logmend("recover", "--json", tmp_path).stdout)
    assert done["results"][0]["plan_id"] == json.loads(plan.stdout)["id"]


def test_discard_is_the_only_way_to_cut_without_a_copy(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "kept", TORN)
    make_log_dir(tmp_path / "lost", TORN)
    logmend("recover", tmp_path / "kept")
    logmend("recover", "--discard", tmp_path / "lost")
    kept, lost = (list((tmp_path / name / "orders-0").glob("*.log.*.logmend")) for name in ("kept", "lost"))
    assert [path.read_bytes() for path in kept] == [TORN[len(sound_log()) :]]
    assert lost == []


def test_copies_go_where_quarantine_says_and_can_be_put_back(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path / "data", TORN)
    assert logmend("recover", "--quarantine", tmp_path / "kept", tmp_path / "data").returncode == 2
    (tmp_path / "kept").mkdir()
    assert logmend("recover", "--quarantine", tmp_path / "kept", tmp_path / "data").returncode == 0
    assert list((tmp_path / "kept").rglob("*.log.*.logmend")) != []
    listed = json.loads(logmend("quarantine", "list", "--json", tmp_path / "kept").stdout)
    plan_id = listed["kept"][0]["manifest"]["plan_id"]
    # What lies on another volume is not believed in which directory it speaks of: that has to be named.
    assert logmend("quarantine", "restore", "--plan", plan_id, tmp_path / "kept").returncode == 2
    restored = logmend("quarantine", "restore", "--plan", plan_id, tmp_path / "kept", tmp_path / "data")
    assert (restored.returncode, log.read_bytes()) == (0, TORN), restored.stderr


@pytest.mark.parametrize("command", ["verify", "plan", "recover"])
def test_a_look_or_a_repair_imports_nothing_that_only_other_commands_need(tmp_path: Path, command: str) -> None:
    make_log_dir(tmp_path / "data", TORN)
    assert imported(tmp_path, [*FOREIGN, "recovery.logdir.survey"], command, tmp_path / "data") == [
        "recovery.logdir.survey"
    ]


def test_verify_imports_nothing_that_changes_a_disk(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "data", TORN)
    assert imported(tmp_path, ["recovery.apply.execute", "recovery.logdir.survey"], "verify", tmp_path / "data") == [
        "recovery.logdir.survey"
    ]


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help_import_nothing_that_only_commands_need(tmp_path: Path, flag: str) -> None:
    names = [*FOREIGN, "cli.settings", "recovery.plan.plan", "storage.disk.fs", "cli.version"]
    assert imported(tmp_path, names, flag) == ["cli.version"]


def test_version_is_told_for_people_and_programs() -> None:
    assert "scanner" in logmend("--version").stdout
    told = json.loads(logmend("--version", "--json").stdout)
    assert told["kernel"] in {"c", "python"}


def test_somebody_elses_daemon_package_is_noticed(tmp_path: Path) -> None:
    foreign = tmp_path / "site/daemon"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("")
    (foreign / "daemon.py").write_text("")
    env = environment()
    done = logmend("recover", tmp_path, env={**env, "PYTHONPATH": f"{foreign.parent}:{env['PYTHONPATH']}"})
    assert done.returncode == 2
    assert "python-daemon" in done.stderr


def test_directories_come_from_the_brokers_own_file(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path / "data", TORN)
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=1\nlog.dirs={tmp_path / 'data'}\n")
    assert logmend("recover", "--server-properties", properties).returncode == 0
    assert log.read_bytes() == sound_log()
    assert (tmp_path / "data" / RECOVERY_POINTS).exists()
    shown = logmend("config", "show", "--origin", "--server-properties", properties).stdout
    assert f"{properties}: log.dirs" in shown


def test_a_partition_in_two_log_directories_blocks_both(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "a", sound_log())
    make_log_dir(tmp_path / "b", sound_log())
    done = logmend("verify", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1
    assert done.stdout.count("duplicate_partition") == 2
    assert logmend("recover", tmp_path / "a", tmp_path / "b").returncode == 3
    assert logmend("recover", tmp_path / "a", tmp_path / "b").returncode == 3
