"""What is read comes from the device, and the page cache is as it was."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import subprocess
import sys
from pathlib import Path, PurePath

import pytest
from support.guarding import Place

from daemon.ledger import disk as module
from daemon.ledger.disk import BLOCK, CHUNK, DeviceFile, Disk, read_pressure
from storage.base.errors import EnvironmentFault, FileVanished, ReadFault

SIZES = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 4097)
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(params=["direct", "cached"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read past the page cache, or as on a file system that refuses that."""
    if request.param == "cached":
        monkeypatch.setattr(module, "_DIRECT", 0)
    return str(request.param)


def made(path: Path, size: int, *, cached: bool = False) -> bytes:
    data = random.Random(size).randbytes(size)
    path.write_bytes(data)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if not cached:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return data


def resident(path: Path) -> int:
    """Return how many pages of a file are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        pages = (ctypes.c_ubyte * ((size + 4095) // 4096))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) == 0, ctypes.get_errno()
        return sum(page & 1 for page in pages)


@pytest.mark.parametrize("size", SIZES)
def test_it_reads_what_is_there(tmp_path: Path, size: int, way: str) -> None:
    path = tmp_path / "a.log"
    data = made(path, size)
    rng = random.Random(1)
    with Disk().open_read(path) as file:
        for _ in range(60):
            position, length = rng.randrange(size + 10), rng.randrange(1, 2 * CHUNK if rng.random() < 0.2 else 5000)
            target = bytearray(length)
            count = file.read_into(position, memoryview(target))
            assert bytes(target[:count]) == data[position : position + length]


def test_what_grows_is_seen_to_have_grown(tmp_path: Path, way: str) -> None:
    path = tmp_path / "a.log"
    made(path, 100)
    with Disk().open_read(path) as file:
        target = bytearray(200)
        assert file.read_into(0, memoryview(target)) == 100
        with path.open("ab") as more:
            more.write(b"x" * 9000)
        assert file.read_into(100, memoryview(target)) == 200
        assert bytes(target) == b"x" * 200


def test_the_page_cache_is_as_it_was(tmp_path: Path, way: str) -> None:
    cold, warm = tmp_path / "cold.log", tmp_path / "warm.log"
    made(cold, 4 << 20)
    made(warm, 4 << 20, cached=True)
    assert (resident(cold), resident(warm)) == (0, 1024)
    assert came_from_device(warm) is (way == "direct")
    assert resident(warm) == 1024
    # A disk that answers before RWF_NOWAIT has given up looks like the cache; it is not that fast five times.
    for _ in range(5):
        made(cold, 4 << 20)
        if came_from_device(cold):
            break
    else:
        pytest.fail("what was in no cache never came from the device")
    assert resident(cold) == 0


def came_from_device(path: Path) -> bool:
    with Disk().open_read(path) as file:
        assert file.read_into(0, memoryview(bytearray(4 << 20))) == 4 << 20
        return Disk().is_from_device(file)


def test_a_second_look_is_past_the_page_cache(tmp_path: Path, way: str) -> None:
    path = tmp_path / "a.log"
    made(path, 1 << 20, cached=True)
    with Disk().open_again(path) as file:
        file.read_into(0, memoryview(bytearray(1 << 20)))
        assert file.from_device


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "socket", "lock", "nothing"])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.log"
    (tmp_path / "other").write_bytes(b"x")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "other")
    elif kind == "socket":
        os.mknod(path, 0o140600)
    elif kind == "lock":
        path = tmp_path / ".lock"
        path.write_bytes(b"")
    with pytest.raises(FileVanished if kind == "nothing" else ReadFault):
        Disk().open_read(path)


def test_a_refusal_of_the_disk_is_a_fault_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    made(path, 3 * CHUNK)

    def failing(_descriptor: int, _targets: object, position: int, _flags: int = 0) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with Disk().open_read(path) as file:
        monkeypatch.setattr(os, "preadv", failing)
        with pytest.raises(EnvironmentFault, match=rf"reading at {CHUNK}.*EIO"):
            file.read_into(CHUNK + 5, memoryview(bytearray(10)))


def test_a_file_system_that_takes_the_flag_but_not_the_read_is_read_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    data = made(path, 9000)
    real, refused = os.preadv, []

    def picky(descriptor: int, targets: list[memoryview], position: int, flags: int = 0) -> int:
        if not refused:
            refused.append(position)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, targets, position, flags)

    monkeypatch.setattr(os, "preadv", picky)
    target = bytearray(9000)
    with Disk().open_read(path) as file:
        assert file.read_into(0, memoryview(target)) == 9000
    assert bytes(target) == data
    assert refused == [0]


def test_listings_see_logs_and_what_we_set_aside(tmp_path: Path) -> None:
    place = Place(tmp_path / "data")
    place.make("orders-0", 3)
    directory = place.directory("orders-0")
    for name in ("5.log", f"{7:020}.log.deleted", f"{'9' * 20}x.log", "x.0123456789ab.logmend"):
        (directory / name).write_bytes(b"12345")
    (directory / f"{300:020}.log").mkdir()
    listed = Disk().listed(directory)
    assert list(listed.logs) == [0, 100, 200]
    assert listed.logs[100].size == 1510
    assert (listed.kept_items, listed.kept_bytes) == (1, 5)
    assert Disk().bases(directory)[:3] == [0, 100, 200]
    with pytest.raises(FileVanished):
        Disk().listed(PurePath(tmp_path / "no"))


def test_an_index_is_searched_without_reading_it_all(tmp_path: Path) -> None:
    index = tmp_path / "a.index"
    entries = [(relative, relative * 100) for relative in range(10, 5000, 10)]
    index.write_bytes(b"".join(r.to_bytes(4, "big") + p.to_bytes(4, "big") for r, p in entries) + bytes(8 * 100_000))
    found = [Disk().floor_position(index, relative) for relative in (0, 9, 10, 11, 2345, 4990, 10**6)]
    assert found == [0, 0, 1000, 1000, 234_000, 499_000, 499_000]
    assert Disk().floor_position(tmp_path / "none", 5) == 0


def test_the_pressure_is_a_percentage_or_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_PRESSURE", str(tmp_path / "io"))
    assert read_pressure() is None
    (tmp_path / "io").write_text("some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=1.00\n")
    assert read_pressure() == 12.34
    (tmp_path / "io").write_text("rubbish")
    assert read_pressure() is None


@pytest.mark.needs("strace")
def test_no_call_that_could_change_anything_reaches_the_directory(tmp_path: Path) -> None:
    """As the kernel sees it: `strace` of a process that guards, scrubs and finds damage."""
    place = Place(tmp_path / "data")
    place.make("orders-0", 5)
    place.flip("orders-0", 100, 200)
    program = (
        "import sys; from pathlib import Path; from support.guarding import Guarded, Place\n"
        "place = Place.__new__(Place); place.path = Path(sys.argv[1]); place.points = {'orders-0': 450}\n"
        "guarded = Guarded(place, Path(sys.argv[2])); guarded.worker.command('scrub-now'); guarded.run(200)\n"
        "assert guarded.kinds == ['batch_crc'], guarded.kinds\n"
        "guarded.close()\n"
    )
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-y", "-e", "trace=%file,%desc", "-o", trace, sys.executable, "-c", program]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    subprocess.run([*map(str, command), str(place.path), str(tmp_path / "state")], check=True, env=environment)
    lines = [line for line in trace.read_text().splitlines() if str(place.path) in line]
    looks = "stat lstat newfstatat statx fstat readlink access getdents64 execve statfs statvfs fcntl ioctl"
    reads = "preadv preadv2 pread64 read lseek close fadvise64"
    names = {line.split("(")[0].split()[-1] for line in lines}
    assert names - {*looks.split(), *reads.split(), "openat"} == set()
    opened = [line for line in lines if "openat(" in line]
    assert len(opened) > 10
    assert [line for line in opened if any(flag in line for flag in ("WRONLY", "RDWR", "O_CREAT", "O_TRUNC"))] == []
    assert [line for line in lines if "F_SETLK" in line] == []
    assert any("O_DIRECT" in line for line in opened)


_: type[DeviceFile] = DeviceFile
