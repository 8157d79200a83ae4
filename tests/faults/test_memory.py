"""Memory is bounded by what logmend was told, not by what a directory claims: at most 150 MB, whatever lies there.

The figure is the largest resident size of the command's process, as the kernel counted it. `python -m pytest -s` prints
them all.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.batches import batch_v2, reseal
from support.command import environment
from support.faults import EVERYTHING, write_tree
from support.log_dirs import POINTS, checkpoint
from support.needs import impossible
from support.tiers import deep

from storage.codec.compression import Codec, compress

MOST = 150 << 20
PARTITIONS = 100_000 if EVERYTHING else 5_000
LOG = "orders-0/00000000000000000000.log"
SOUND = batch_v2(0, 2) + batch_v2(2, 2)
CODE = """
import sys
from cli.main import main
status = main(sys.argv[1:])
sys.stdout.flush()
# Not what getrusage says: that counts what this process was before it became Python, a copy of its parent.
high = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
sys.stderr.write(f"\\npeak {high}\\n")
sys.exit(status)
"""


def peak(*words: object, seconds: float = 280) -> tuple[int, int, str]:
    """Run the command; return its exit status, its largest resident size in bytes, and what it said of itself."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, words)], env=environment(), capture_output=True, text=True,
        check=False, timeout=seconds, cwd="/",
    )  # fmt: skip
    said, _, kilobytes = done.stderr.rpartition("\npeak ")
    assert kilobytes, done.stderr
    size = int(kilobytes) * 1024
    print(f"{' '.join(map(str, words))}: {size >> 20} MiB, {time.monotonic() - began:.1f} s, status {done.returncode}")
    assert "Traceback" not in said
    assert done.returncode in range(8), said
    return done.returncode, size, done.stdout + said


Make = Callable[[Path], object]


def patched(batch: bytes, position: int, number: int) -> bytes:
    """Return the batch with a 32-bit field changed and a checksum that holds."""
    changed = bytearray(batch)
    changed[position : position + 4] = struct.pack(">i", number)
    return reseal(bytes(changed))


def sparse(name: str, size: int, data: bytes = b"") -> Make:
    def make(home: Path) -> None:
        write_tree(home, {LOG: SOUND, POINTS: checkpoint({})})
        with (home / name).open("wb") as file:
            file.write(data)
            file.truncate(size)

    return make


def of(log: bytes) -> Make:
    return lambda home: write_tree(home, {LOG: log, POINTS: checkpoint({})})


def bomb() -> bytes:
    """Return a batch that decompresses to 1 GiB: of many frames, so that making it takes no memory either."""
    return batch_v2(4, payload=compress(Codec.ZSTD, bytes(32 << 20)) * 32, records=[], count=1, attributes=Codec.ZSTD)


def producers(number: int) -> bytes:
    return b"".join(batch_v2(n, 1, producer_id=n, producer_epoch=0, base_sequence=0) for n in range(number))


CLAIMS: dict[str, Make] = {
    "an index that claims 2^31 entries": sparse("orders-0/00000000000000000000.index", 8 << 31, b"\1" * 16),
    "an index of zeroes": sparse("orders-0/00000000000000000000.index", 1 << 30),
    "a time index that claims 2^31 entries": sparse("orders-0/00000000000000000000.timeindex", 12 << 31, b"\1" * 24),
    "a transaction index of 34 GiB": sparse("orders-0/00000000000000000000.txnindex", 34 << 30),
    "a snapshot of 10 GiB": sparse("orders-0/00000000000000000002.snapshot", 10 << 30, b"\0\1"),
    "an epoch file of 10 GiB": sparse("orders-0/leader-epoch-checkpoint", 10 << 30, b"0\n"),
    "a checkpoint of 10 GiB": sparse("recovery-point-offset-checkpoint", 10 << 30, b"0\n"),
    "a batch of 2^31 - 1 bytes": of(SOUND + struct.pack(">qi", 4, 2**31 - 1) + SOUND[12:61]),
    "a batch of 2^31 - 1 bytes that are there": sparse(
        LOG, len(SOUND) + 2**31 + 11, SOUND + struct.pack(">qi", 4, 2**31 - 1) + SOUND[12:61]
    ),
    "2^31 - 1 records": of(SOUND + patched(batch_v2(4, 2), 57, 2**31 - 1)),
    "2^31 - 1 offsets": of(SOUND + patched(batch_v2(4, 2), 23, 2**31 - 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [deep(name) if "are there" in name else name for name in sorted(CLAIMS)])
@pytest.mark.parametrize("words", [("verify", "--depth", "records"), ("recover",)], ids=" ".join)
def test_what_is_claimed_takes_no_memory(tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    CLAIMS[name](tmp_path / "data")
    assert peak(*words, tmp_path / "data")[1] < MOST


@pytest.mark.slow
def test_a_bomb_is_not_blown_up(tmp_path: Path) -> None:
    home = write_tree(tmp_path / "data", {LOG: SOUND + bomb(), POINTS: checkpoint({})})
    status, size, said = peak("verify", "--depth", "records", home)
    assert (status, size < MOST) == (1, True), said
    assert "record_undecodable" in said


@pytest.mark.slow
def test_a_terabyte_that_is_not_there_is_looked_at_quickly(tmp_path: Path) -> None:
    """A quick look at a flushed segment costs nothing; who wants all of it read gets it read, in bounded memory."""
    home = tmp_path / "data"
    write_tree(home, {LOG: SOUND, "orders-0/00000000000000000004.log": b"", POINTS: checkpoint({"orders-0": 4})})
    with (home / LOG).open("r+b") as log:
        try:
            log.truncate(1 << 40)
        except OSError as error:
            impossible(f"this file system has no files of 1 TiB: {error}")
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "verify", str(home)], env=environment(), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip
    deadline, most = time.monotonic() + 8, 0
    while process.poll() is None and time.monotonic() < deadline:
        most = max(most, resident(process.pid))
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) in (-15, 143, 1)
    print(f"1 TiB of nothing: {most >> 20} MiB while it was read")
    assert 0 < most < MOST


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 600)
def test_many_partitions_of_small_files(tmp_path: Path) -> None:
    home = tmp_path / "data"
    for number in range(PARTITIONS):
        directory = home / f"orders-{number}"
        directory.mkdir(parents=True)
        (directory / "00000000000000000000.log").write_bytes(SOUND)
    (home / POINTS).write_bytes(checkpoint({f"orders-{number}": 0 for number in range(PARTITIONS)}))
    assert peak("verify", home, seconds=3000)[1] < (MOST if not EVERYTHING else MOST * 4)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("verify",), ("recover",)], ids=" ".join)
def test_200_000_producers(tmp_path: Path, words: tuple[str, ...]) -> None:
    home = write_tree(tmp_path / "data", {LOG: producers(200_000), POINTS: checkpoint({"orders-0": 0})})
    # The one thing that grows with what is there: the state of each producer, and the snapshots that are made of it.
    assert peak(*words, home)[1] < MOST


@pytest.mark.slow
def test_2_000_segments_that_each_need_an_index() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:  # where syncing takes no time
        home = Path(place)
        base = 0
        for _ in range(2000):
            log = b"".join(batch_v2(base + 2 * n, 2, payload=b"x" * 4200, count=2) for n in range(20))
            write_tree(home, {f"orders-0/{base:020d}.log": log})
            base += 40
        write_tree(home, {POINTS: checkpoint({"orders-0": 0})})
        assert peak("recover", home)[1] < MOST
        assert len(list((home / "orders-0").glob("*.index"))) == 2000
