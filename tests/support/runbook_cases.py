"""The log directories that the runbooks speak of: a real broker's, damaged as each page says."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.command import ROOT, logmend
from support.faults import tmpfs
from support.needs import need_mounts

SAMPLE = ROOT / "tests" / "golden" / "crashed-sample.tar.gz"
DATA, RESCUE, BACKUP = "/var/lib/kafka/data", "/rescue/kept", "/backup/data"
CASES: dict[str, Callable[[Path, ExitStack], None]] = {}
"""By the name of a page: makes what it needs below a root; what has to be undone goes onto the stack."""


def case(function: Callable[[Path, ExitStack], None]) -> Callable[[Path, ExitStack], None]:
    CASES[function.__name__.replace("_", "-")] = function
    return function


def below(root: Path, place: str) -> Path:
    return root / place.lstrip("/")


def crashed(directory: Path) -> Path:
    """Put a broker's directory there, as it was when its power went."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(directory, filter="fully_trusted")
    return directory


def sound(directory: Path) -> Path:
    """Put one there in which nothing is to be done."""
    done = logmend("recover", "--depth", "full", "--discard", crashed(directory))
    assert done.returncode == 0, done.stderr
    for left in directory.rglob("*.logmend*"):
        left.unlink()
    return directory


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


@case
def machine_came_back(root: Path, _stack: ExitStack) -> None:
    crashed(below(root, DATA))


@case
def full_disk(root: Path, stack: ExitStack) -> None:
    need_mounts(root / "probe")
    disk = below(root, DATA).parent
    disk.mkdir(parents=True)
    stack.enter_context(tmpfs(disk, 32 << 20))
    data = crashed(below(root, DATA))
    closed = data / "clicks-0" / "00000000000000000000.log"
    closed.with_name("00000000000000000000.log.deleted").write_bytes(closed.read_bytes() * 12)  # as retention leaves it
    below(root, RESCUE).mkdir(parents=True)
    with (data.parent / "filler").open("wb", buffering=0) as filler:
        left = os.statvfs(disk)
        filler.write(bytes(left.f_bavail * left.f_frsize))


@case
def crc_error(root: Path, _stack: ExitStack) -> None:
    data = sound(below(root, DATA))
    flip(data / "orders-1" / "00000000000000000000.log", 20_000)


@case
def corrupt_index(root: Path, _stack: ExitStack) -> None:
    data = sound(below(root, DATA))
    padded = data / "orders-0" / "00000000000000000000.timeindex"
    padded.write_bytes(padded.read_bytes().ljust(8184, b"\0"))  # as when its trim failed: full of zeroes
    flip(data / "clicks-0" / "00000000000000000000.index", 12)


@case
def broker_does_not_start(root: Path, _stack: ExitStack) -> None:
    data = sound(below(root, DATA))
    (data / "lost+found").mkdir(mode=0o700)
    (data / "orders-0.bak").mkdir()
    points = data / "recovery-point-offset-checkpoint"
    points.write_bytes(points.read_bytes()[:40])
    (data / "orders-1" / "leader-epoch-checkpoint").write_bytes(b"")
    (data / "clicks-0" / "partition.metadata").unlink()


@case
def slow_recovery(root: Path, _stack: ExitStack) -> None:
    crashed(below(root, DATA))


@case
def restored_snapshot(root: Path, _stack: ExitStack) -> None:
    data = sound(below(root, BACKUP))
    last = sorted((data / "orders-0").glob("*.log"))[-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 700)  # the copy read the log first, the checkpoint later
    shutil.rmtree(data / "payments-0")
    sorted((data / "clicks-0").glob("*.index"))[0].unlink()


@contextmanager
def prepared(name: str, root: Path) -> Iterator[Path]:
    """Make what a page needs, for as long as the block; the root stands for `/` of the page."""
    with ExitStack() as stack:
        CASES[name](root, stack)
        yield root
