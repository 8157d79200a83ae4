"""Log directories on a real disk as a clean shutdown leaves them, and small changes that make them odd."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from support.batches import TS, batch_v2, legacy
from support.log_dirs import EPOCHS, MARKER, META, POINTS, STARTS, checkpoint, name_of, place
from support.mutate import mutate
from support.recovering import recover

from checkpoint.leader_epoch import EpochStart, encode_epochs
from checkpoint.markers import encode_partition_metadata
from recovery.plan.plan import PlanOptions
from storage.base.units import Epoch, Offset

PARTITION = "orders-0"
OPTIONS = PlanOptions(index_interval_bytes=150)
DAMAGES: list[str] = [
    "side_file_removed",
    "side_file_damaged",
    "leftover",
    "orphan",
    "bit_flipped",
    "run_randomised",
    "tail_torn",
]
DAMAGES += ["tail_zeroed", "tail_grown", "log_emptied", "log_removed", "sector_zeroed", "header_field_set"]


def modern(base: int) -> list[bytes]:
    return [batch_v2(base + 2 * n, 2, leader_epoch=base // 10, base_timestamp=TS + base + n) for n in range(5)]


def idempotent(base: int) -> list[bytes]:
    return [
        batch_v2(base + 2 * n, 2, leader_epoch=base // 10, producer_id=7, producer_epoch=0, base_sequence=base + 2 * n)
        for n in range(5)
    ]


def before_0_11(base: int) -> list[bytes]:
    return [legacy(base + n, magic=base // 10 % 2) for n in range(10)]


Segment = Callable[[int], list[bytes]]
SEGMENTS: Sequence[Segment] = (modern, idempotent, before_0_11)


def write_shut_down(log_dir: Path, segment: Segment, count: int = 4, *, rolled: bool = False) -> Path:
    """Write a log directory with one partition of `count` segments of ten offsets, and an empty one if `rolled`."""
    (log_dir / PARTITION).mkdir(parents=True)
    end = 10 * count
    for base in range(0, end, 10):
        (log_dir / place(base)).write_bytes(b"".join(segment(base)))
    if rolled:
        (log_dir / place(end)).touch()
    (log_dir / PARTITION / "partition.metadata").write_bytes(encode_partition_metadata(bytes(range(16))))
    (log_dir / STARTS).write_bytes(checkpoint({}))
    (log_dir / "meta.properties").write_bytes(META)
    recover(log_dir, OPTIONS)
    if segment is before_0_11:
        (log_dir / EPOCHS).write_bytes(encode_epochs([EpochStart(Epoch(0), Offset(0))]))
    (log_dir / POINTS).write_bytes(checkpoint({PARTITION: end}))
    (log_dir / MARKER).touch()
    for kept in log_dir.rglob("*.logmend*"):
        kept.unlink()
    return log_dir / PARTITION


def _renamed(path: Path, rng: random.Random) -> None:
    odd = (
        path.name[1:],
        f"+{path.name}",
        path.name.upper(),
        f"{path.name}.swap",
        f"{path.name}.deleted",
        "9" + path.name[1:],
    )
    path.rename(path.with_name(rng.choice(odd)))


def _linked(path: Path, _: random.Random) -> None:
    target = path.rename(path.parents[2] / f"target of {path.name}")
    path.symlink_to(target)


def _closed(path: Path, rng: random.Random) -> None:
    path.chmod(rng.choice((0o000, 0o200, 0o400, 0o644)))


def _given_away(path: Path, _: random.Random) -> None:
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)


def _moved_on(path: Path, rng: random.Random) -> None:
    """Give the file the offset of a neighbour, whether there is one or not."""
    if path.name[:20].isdigit():
        path.replace(path.with_name(name_of(int(path.name[:20]) + rng.choice((-10, 1, 10)), path.name[21:])))


def _made_longer(path: Path, rng: random.Random) -> None:
    with path.open("ab") as file:
        file.write(rng.choice((bytes(1), bytes(8), bytes(12), bytes(24), rng.randbytes(8), rng.randbytes(12))))


def _made_shorter(path: Path, rng: random.Random) -> None:
    os.truncate(path, max(path.stat().st_size - rng.choice((1, 4, 8, 12, 61)), 0))


def _joined_by(path: Path, rng: random.Random) -> None:
    names = ("notes.txt", "x.logmend", name_of(0, "txnindex"), name_of(0, "timeindex.tmp"), name_of(7, "snapshot"))
    path.with_name(rng.choice(names)).write_bytes(rng.randbytes(rng.choice((0, 34, 40))))


def _joined_by_a_directory(path: Path, rng: random.Random) -> None:
    path.with_name(rng.choice(("inner", name_of(100)))).mkdir()


def _byte_set(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, ord("\n"), ord("5")))
        path.write_bytes(data)


def _removed(path: Path, _: random.Random) -> None:
    path.unlink()


CHANGES: list[Callable[[Path, random.Random], None]] = [_renamed, _linked, _closed, _given_away, _moved_on, _removed]
CHANGES += [_made_longer, _made_shorter, _joined_by, _joined_by_a_directory, _byte_set, _byte_set]


def make_odd(directory: Path, seed: int) -> None:
    """Change something in a partition directory that may or may not be noticed, the same for each seed."""
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 2))):
        change = rng.choice(CHANGES)
        path = rng.choice(sorted(path for path in directory.iterdir() if path.is_file() and not path.is_symlink()))
        if rng.random() < 0.2:
            mutate(directory, seed, 1, DAMAGES)
        else:
            change(path, rng)
