"""Keys, values and headers of records are their owner's: no command and no file of ours but a kept copy tells them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from faults.test_names import run
from faults.test_names_in_the_service import asked, is_ready
from support.command import environment, start
from support.log_dirs import POINTS, checkpoint, place
from support.waiting import until

from storage.batch.record import Record, encode_batch

CANARY = b"canary-7f3a"
COMMANDS = [
    ("verify",), ("verify", "--depth", "records"), ("verify", "--json"), ("verify", "--jsonl"), ("plan",),
    ("plan", "--json"), ("recover", "--dry-run"), ("recover", "--accept-loss"), ("recover",),
    ("verify", "--depth", "records", "--json"), ("quarantine", "list"), ("quarantine", "list", "--json"), ("losses",),
]  # fmt: skip


def batch(offset: int, count: int = 3) -> bytes:
    headers = (("trace", CANARY),)  # `dump --records` names headers, as Kafka's own tool does
    records = [
        Record(n, 1_700_000_000_000, key=CANARY + b"-key", value=CANARY + b"-value", headers=headers)
        for n in range(count)
    ]  # fmt: skip
    made = bytearray(encode_batch(records))
    made[0:8] = offset.to_bytes(8, "big")
    return bytes(made)


def planted(home: Path) -> Path:
    """Make a log whose records have the canary, with damage within a batch, between batches, and at its end."""
    whole = batch(0)
    for base, log in {
        0: batch(0) + batch(3) + whole[:61] + bytes([whole[61] ^ 1]) + whole[62:] + batch(9),
        12: batch(12) + CANARY * 9 + batch(15),
        18: batch(18) + batch(21)[:-9],
    }.items():
        path = home / place(base)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log)
        path.chmod(0o640)
    (home / POINTS).write_bytes(checkpoint({"orders-0": 12}))
    (home / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n" + CANARY + b"\n")
    return home


@pytest.mark.slow
def test_no_command_tells_a_record(tmp_path: Path) -> None:
    home = planted(tmp_path / "data")
    (home / "orders-0" / "leader-epoch-checkpoint").unlink()
    for words in COMMANDS:
        done = run(*words, home)
        assert done.returncode in range(8), (words, done.stderr)
        assert CANARY not in done.stdout + done.stderr, words
        assert done.stdout or done.stderr, words
    dumped = [run("dump", "--records", *more, home / place(0)).stdout for more in ((), ("--data",))]
    assert [CANARY in told for told in dumped] == [False, True], "it is shown to who asks for it alone"
    kept = {path for path in home.rglob("*") if path.is_file() and CANARY in path.read_bytes()}
    assert any(path.name.startswith("kept.") for path in kept), "nothing was kept: nothing was tried"
    assert {path.suffix for path in kept} == {".log", ".logmend"}
    # A copy is its owner's alone; a file that only got another name keeps its mode.
    modes = {path.name.count(".") > 4: path.stat().st_mode & 0o777 for path in kept if path.name.startswith("kept.")}
    assert modes == {True: 0o600, False: 0o640}


@pytest.mark.slow
def test_the_service_tells_no_record(tmp_path: Path) -> None:
    homes = [planted(tmp_path / name) for name in ("guarded", "ours")]
    for home in homes:
        (home / "orders-0" / "leader-epoch-checkpoint").unlink()
    state, log = tmp_path / "state", tmp_path / "log"
    words = ["run", "--state-dir", state, "--log-format", "json", "--log-level", "debug"]
    process = start(*words, "--log-dir", homes[0], "--own", homes[1], "--take-over", env=environment(), stderr=log)
    try:
        until(lambda: is_ready(process.poll(), state, log), 120)
        for path in ("/status", "/metrics", "/", "/v1/broker-state"):
            status, body = asked(state / "logmend.sock", path)
            assert status == 200
            assert CANARY not in body, path
        assert CANARY not in run("status", "--state-dir", state).stdout
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)
    assert [json.loads(line) for line in log.read_text().splitlines()]
    assert CANARY not in log.read_bytes()
    ours = [path for path in state.rglob("*") if path.is_file()]
    assert [path for path in ours if CANARY in path.read_bytes()] == []
    assert len(ours) > 1
