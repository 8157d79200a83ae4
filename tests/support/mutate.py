"""Damage a log directory on purpose, the same way every time for a seed.

usage: mutate.py DIR SEED [--count N] [--kind KIND ...] [--list]        prints one JSON line for each damage done

DIR is one partition directory or one log directory. As a module: `mutate(directory, seed, count, kinds)`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Damage = Callable[[Path, random.Random], "dict[str, Any] | None"]
KINDS: dict[str, Damage] = {}


def kind(function: Damage) -> Damage:
    KINDS[function.__name__] = function
    return function


def pick(directory: Path, rng: random.Random, pattern: str, *, last: bool = False, least: int = 1) -> Path | None:
    files = sorted(p for p in directory.rglob(pattern) if p.is_file() and p.stat().st_size >= least)
    if not files:
        return None
    if last:
        newest = {p.parent: p for p in files}
        return rng.choice(sorted(newest.values()))
    return rng.choice(files)


def batches(path: Path) -> Iterator[tuple[int, int]]:
    """Yield (position, size) by the length fields alone, while they make sense."""
    data, position = path.read_bytes(), 0
    while position + 17 <= len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        if size < 14 or position + 12 + size > len(data):
            return
        yield position, 12 + size
        position += 12 + size


def overwrite(path: Path, position: int, new: bytes) -> dict[str, Any]:
    data = bytearray(path.read_bytes())
    data[position : position + len(new)] = new
    path.write_bytes(data)
    return {"file": path.name, "position": position, "size": len(new)}


# ---- what a crash does to a log
@kind
def tail_torn(d: Path, rng: random.Random) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log", last=True)) is None:
        return None
    size = path.stat().st_size
    cut = rng.randint(1, min(size, 3000))
    path.write_bytes(path.read_bytes()[: size - cut])
    return {"file": path.name, "position": size - cut, "size": cut}


@kind
def tail_zeroed(d: Path, rng: random.Random) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log", last=True)) is None:
        return None
    size = path.stat().st_size
    start = max(0, (size - rng.randint(1, 8192)) // 512 * 512)
    return overwrite(path, start, bytes(size - start))


@kind
def tail_grown(d: Path, rng: random.Random) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log", last=True)) is None:
        return None
    size = rng.choice([1, 7, 17, 60, 61, 512, 4096, 70_000])
    more = bytes(size) if rng.random() < 0.5 else rng.randbytes(size)
    position = path.stat().st_size
    path.write_bytes(path.read_bytes() + more)
    return {"file": path.name, "position": position, "size": size, "zero": not any(more)}


@kind
def log_emptied(d: Path, rng: random.Random) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log")) is None:
        return None
    path.write_bytes(b"")
    return {"file": path.name}


@kind
def log_removed(d: Path, rng: random.Random) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log")) is None:
        return None
    path.unlink()
    return {"file": path.name}


# ---- rot
@kind
def bit_flipped(d: Path, rng: random.Random) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log")) is None:
        return None
    position, bit = rng.randrange(path.stat().st_size), rng.randrange(8)
    return overwrite(path, position, bytes([path.read_bytes()[position] ^ 1 << bit])) | {"bit": bit}


@kind
def run_randomised(d: Path, rng: random.Random) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log")) is None:
        return None
    size = path.stat().st_size
    position = rng.randrange(size)
    return overwrite(path, position, rng.randbytes(min(size - position, rng.randint(2, 2000))))


@kind
def sector_zeroed(d: Path, rng: random.Random) -> dict[str, Any] | None:
    sector = rng.choice([512, 4096])
    if (path := pick(d, rng, "*.log", least=sector)) is None:
        return None
    position = rng.randrange(path.stat().st_size // sector) * sector
    return overwrite(path, position, bytes(sector))


@kind
def header_field_set(d: Path, rng: random.Random) -> dict[str, Any] | None:
    """Offset, size, epoch, magic, crc, attributes, delta, count: an extreme value in one header."""
    if (path := pick(d, rng, "*.log", least=61)) is None or not (found := list(batches(path))):
        return None
    position, _ = rng.choice(found)
    at, width, name = rng.choice(
        [
            (0, 8, "base_offset"),
            (8, 4, "size"),
            (12, 4, "epoch"),
            (16, 1, "magic"),
            (17, 4, "crc"),
            (21, 2, "attributes"),
            (23, 4, "last_offset_delta"),
            (57, 4, "count"),
        ]
    )
    new = rng.choice(
        [
            bytes(width),
            b"\x7f" + b"\xff" * (width - 1),
            b"\xff" * width,
            b"\x80" + bytes(width - 1),
            rng.randbytes(width),
        ]
    )
    return overwrite(path, position + at, new[: max(0, path.stat().st_size - position - at)]) | {"field": name}


def _rearranged(d: Path, rng: random.Random, change: Callable[[list[bytes], int], object]) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log", least=122)) is None:
        return None
    data, found = path.read_bytes(), list(batches(path))
    if len(found) < 2:
        return None
    parts = [data[p : p + s] for p, s in found]
    index = rng.randrange(len(parts) - 1)
    change(parts, index)
    path.write_bytes(b"".join(parts) + data[found[-1][0] + found[-1][1] :])
    return {"file": path.name, "batch": index, "position": found[index][0]}


@kind
def batch_dropped(d: Path, rng: random.Random) -> dict[str, Any] | None:
    return _rearranged(d, rng, lambda parts, i: parts.pop(i))


@kind
def batch_doubled(d: Path, rng: random.Random) -> dict[str, Any] | None:
    return _rearranged(d, rng, lambda parts, i: parts.insert(i, parts[i]))


@kind
def batches_swapped(d: Path, rng: random.Random) -> dict[str, Any] | None:
    def swap(parts: list[bytes], i: int) -> None:
        parts[i], parts[i + 1] = parts[i + 1], parts[i]

    return _rearranged(d, rng, swap)


# ---- side files
@kind
def side_file_removed(d: Path, rng: random.Random) -> dict[str, Any] | None:
    pattern = rng.choice(
        ["*.index", "*.timeindex", "*.txnindex", "*.snapshot", "leader-epoch-checkpoint", "partition.metadata"]
    )
    if (path := pick(d, rng, pattern, least=0)) is None:
        return None
    path.unlink()
    return {"file": path.name}


@kind
def side_file_damaged(d: Path, rng: random.Random) -> dict[str, Any] | None:
    pattern = rng.choice(
        ["*.index", "*.timeindex", "*.txnindex", "*.snapshot", "leader-epoch-checkpoint", "partition.metadata"]
    )
    if (path := pick(d, rng, pattern)) is None:
        return None
    size = path.stat().st_size
    how = rng.choice(["cut", "zero", "flip", "noise", "pad"])
    if how == "cut":
        path.write_bytes(path.read_bytes()[: rng.randrange(size)])
    elif how == "pad":
        path.write_bytes(path.read_bytes() + bytes(rng.choice([1, 8, 12, 24, 96, 65_532])))
    else:
        position = rng.randrange(size)
        length = min(size - position, rng.randint(1, 64))
        old = path.read_bytes()[position : position + length]
        new = {"zero": bytes(length), "flip": bytes([old[0] ^ 1 << rng.randrange(8)]), "noise": rng.randbytes(length)}[
            how
        ]
        overwrite(path, position, new)
    return {"file": path.name, "how": how}


@kind
def checkpoint_damaged(d: Path, rng: random.Random) -> dict[str, Any] | None:
    pattern = rng.choice(
        [
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
            "cleaner-offset-checkpoint",
            "meta.properties",
        ]
    )
    if (path := pick(d, rng, pattern, least=0)) is None:
        return None
    text = path.read_text()
    how = rng.choice(["removed", "emptied", "cut", "garbage", "count", "negative", "beyond"])
    if how == "removed":
        path.unlink()
    else:
        path.write_text(
            {
                "emptied": "",
                "cut": text[: len(text) // 2],
                "garbage": "\x00" * len(text) or "\x00",
                "count": text.replace("\n", "\n9", 1),
                "negative": text.rstrip("\n") + "7\n-5\n",
                "beyond": "".join(_beyond(line) for line in text.splitlines(True)),
            }[how]
        )
    return {"file": path.name, "how": how}


def _beyond(line: str) -> str:
    words = line.split()
    return f"{words[0]} {words[1]} {int(words[2]) + 1_000_000}\n" if len(words) == 3 and words[2].isdigit() else line


# ---- what interrupted work leaves
@kind
def leftover(d: Path, rng: random.Random) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log")) is None:
        return None
    suffix = rng.choice([".cleaned", ".swap", ".deleted"])
    moved = rng.random() < 0.5 and suffix != ".cleaned"
    for part in sorted(path.parent.glob(path.stem + ".*")):
        if part.suffix in (".log", ".index", ".timeindex", ".txnindex"):
            target = part.with_name(part.name + suffix)
            part.rename(target) if moved else shutil.copyfile(part, target)
    return {"file": path.name, "suffix": suffix, "moved": moved}


@kind
def orphan(d: Path, rng: random.Random) -> dict[str, Any] | None:
    if (path := pick(d, rng, "*.log")) is None:
        return None
    name = f"{int(path.stem) + rng.randint(1, 50):020d}{rng.choice(['.index', '.timeindex', '.snapshot', '.txnindex'])}"
    (path.parent / name).write_bytes(rng.randbytes(rng.choice([0, 8, 12, 24, 100])))
    return {"file": name}


@kind
def clean_marker(d: Path, rng: random.Random) -> dict[str, Any] | None:
    root = d if (d / "meta.properties").exists() else None
    if root is None:
        return None
    text = rng.choice(["", '{"version":0,"brokerEpoch":5}', '{"version":0}', "{", "\x00" * 20])
    (root / ".kafka_cleanshutdown").write_text(text)
    return {"file": ".kafka_cleanshutdown", "text": text}


def mutate(directory: Path, seed: int | str, count: int = 1, kinds: list[str] | None = None) -> list[dict[str, Any]]:
    """Do `count` damages, chosen by `seed`; return what was done. Kinds that find nothing to damage are passed over."""
    rng = random.Random(f"mutate-{seed}")
    done: list[dict[str, Any]] = []
    names = sorted(kinds or KINDS)
    for _ in range(count * 20):
        if len(done) == count:
            break
        name = rng.choice(names)
        if (what := KINDS[name](Path(directory), rng)) is not None:
            done.append({"kind": name, **what})
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("seed", nargs="?", default="0")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--kind", action="append")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list or args.directory is None:
        print("\n".join(sorted(KINDS)))
        return
    for what in mutate(args.directory, args.seed, args.count, args.kind):
        print(json.dumps(what))


if __name__ == "__main__":
    main()
