"""How fast `logmend recover` is on logs of other shapes, beside itself on plain ones of as many bytes on the disk.

- kinds: batches of lz4 and of zstd, and of 1,000 producers in turn, beside plain ones of 16 producers. Recovery reads
  headers and sums the bytes of batches, compressed or not, so that all should take the same time;
- cold: the same log with none of it in the page cache (posix_fadvise DONTNEED before each run) beside warm. On a disk
  that a host caches this says little of a real one;
- growth: 1, 4 and 16 partitions of 64 to 4,096 segments each, all of one size: seconds a GB, beside the first of them.
  What each segment costs besides its bytes weighs the more, the smaller it is: see --segment-kib.

Nothing but the logs is there: indexes, epochs and snapshots are made, written and synced. The whole command is timed
with `-j 1`; `cpu` is its processor time. What a run changes is undone before the next; kinds take turns.

Usage: python bench/bench_shapes.py [--mib 256] [--repeat 3] [--segments 4096] [--segment-kib 64]
       [--only kinds,cold,growth] [--svg FILE] [--json FILE] [--scratch DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench_recover import PARTITION, RECORDS, SMALL_FILES, keep, put_back, segment
from harness import about, head, line, logmend, processor_seconds, row, write_json
from logs import write_segment

KINDS: Final[dict[str, dict[str, Any]]] = {
    "16 producers": {},
    "lz4": {"codec": "lz4"},
    "zstd": {"codec": "zstd"},
    "1,000 producers": {"producers": 1000},
}
PARTS: Final = ("kinds", "cold", "growth")
PARTITIONS: Final = (1, 4, 16)
LEAST_SEGMENTS: Final = 64
BATCH_BYTES: Final = 1024
COLORS: Final = ("#247", "#4a7", "#c63")


def small_files(directory: Path, partitions: int = 1) -> None:
    """Write what names topic and broker."""
    for name, text in SMALL_FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for number in range(1, partitions):
        shutil.copytree(directory / PARTITION, directory / f"bench-{number}")


def forget(directory: Path) -> None:
    """Take all files out of the page cache."""
    for path in directory.rglob("*.log"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(work: Mapping[str, Callable[[], None]], directories: Mapping[str, Path], repeat: int) -> dict[str, Any]:
    """Recover each directory in turn, `repeat` + 1 times; `work` is done before, with what the last run made undone."""
    found: dict[str, dict[str, list[float]]] = {name: {"seconds": [], "processor_seconds": []} for name in directories}
    for turn in range(repeat + 1):
        for name, directory in directories.items():
            put_back(directory, directory.with_name(f"{directory.name}.kept"))
            work[name]()
            before = processor_seconds()
            taken = logmend("recover", "-j", 1, directory)
            if turn or not repeat:
                found[name]["seconds"].append(taken)
                found[name]["processor_seconds"].append(processor_seconds() - before)
    return {name: _figures(told) for name, told in found.items()}


def _figures(told: dict[str, list[float]]) -> dict[str, Any]:
    median = statistics.median(told["seconds"])
    spread = (max(told["seconds"]) - min(told["seconds"])) / median
    return {
        **told,
        "median": median,
        "spread": spread,
        "processor_median": statistics.median(told["processor_seconds"]),
    }


def made(directory: Path, size: int, total: int, **how: Any) -> Path:
    """Make a log directory of one segment, and the copy of all but the log."""
    small_files(directory)
    write_segment(directory / PARTITION / f"{0:020d}.log", size, total, **how)
    keep(directory, directory.with_name(f"{directory.name}.kept"))
    return directory


def kinds(scratch: Path, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Compare the kinds of batches, all as large on the disk."""
    for size in (16384, 1024, 170):
        places = {
            name: made(scratch / f"{size}-{n}", size, asked.mib << 20, **how)
            for n, (name, how) in enumerate(KINDS.items())
        }
        found = timed(dict.fromkeys(places, lambda: None), places, asked.repeat)
        plain, *others = places
        for name in others:
            what = f"recover, {asked.mib} MiB of {size} B, {name} / plain"
            yield row(what, found[name], found[plain], ">= 0.87")
        for place in places.values():
            shutil.rmtree(place)


def cold(scratch: Path, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Compare a cold cache with a warm one."""
    for size in (16384, 1024):
        places = {name: made(scratch / f"{name}-{size}", size, asked.mib << 20) for name in ("cold", "warm")}
        work: dict[str, Callable[[], None]] = {"cold": partial(forget, places["cold"]), "warm": lambda: None}
        found = timed(work, places, asked.repeat)
        yield row(f"recover, {asked.mib} MiB of {size} B, cold / warm", found["cold"], found["warm"], "")
        for place in places.values():
            shutil.rmtree(place)


def growth(scratch: Path, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Recover more and more segments and partitions; the time a byte should not rise."""
    count = (asked.segment_kib << 10) // BATCH_BYTES
    first: dict[str, Any] | None = None
    for partitions in PARTITIONS:
        segments = min(LEAST_SEGMENTS, asked.segments)
        while segments <= asked.segments:
            directory = scratch / f"growth-{partitions}-{segments}"
            small_files(directory, partitions)
            for partition in range(partitions):
                for number in range(segments):
                    name = f"{number * count * RECORDS:020d}.log"
                    (directory / f"bench-{partition}" / name).write_bytes(segment(BATCH_BYTES, number * count, count))
            keep(directory, directory.with_name(f"{directory.name}.kept"))
            log_bytes = partitions * segments * count * BATCH_BYTES
            found = timed({"all": lambda: None}, {"all": directory}, asked.repeat)["all"]
            each = {name: found[name] / log_bytes * 1e9 for name in ("median", "processor_median")} | {
                "spread": found["spread"]
            }
            first = first or each
            what = f"s a GB, {partitions} x {segments} segments of {asked.segment_kib} KiB / the first"
            yield row(what, each, first, "") | {"partitions": partitions, "segments": segments}
            shutil.rmtree(directory)
            segments *= 4


def picture(rows: list[dict[str, Any]]) -> str:
    """Return an SVG: seconds a GB over the number of segments, a line for each number of partitions."""
    most = max(told["ours"]["median"] for told in rows) or 1.0
    places = sorted({told["segments"] for told in rows})
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="320" font-family="sans-serif" font-size="12">'
    ]
    parts.append(f'<text x="8" y="16">recover -j 1: seconds a GB over segments a partition (top: {most:.2f})</text>')
    for at, segments in enumerate(places):
        parts.append(f'<text x="{60 + 140 * at}" y="310">{segments:,}</text>')
    for partitions, color in zip(PARTITIONS, COLORS, strict=True):
        line_of = [told for told in rows if told["partitions"] == partitions]
        points = [(70 + 140 * places.index(t["segments"]), 290 - 250 * t["ours"]["median"] / most) for t in line_of]
        joined = " ".join(f"{x},{y:.0f}" for x, y in points)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{color}" stroke-width="2"/>')
        x, y = points[-1]
        parts.append(f'<text x="{x + 6}" y="{y:.0f}" fill="{color}">{partitions}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time logmend recover on logs of other shapes.")
    parser.add_argument("--mib", type=int, default=256, help="size of each log of kinds and cold")
    parser.add_argument("--repeat", type=int, default=3, help="counted repetitions")
    parser.add_argument("--segments", type=int, default=4096, help="most segments of a partition in growth")
    parser.add_argument("--segment-kib", type=int, default=64, help="size of each of them")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run")
    parser.add_argument("--svg", metavar="FILE", help="draw growth")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument("--scratch", metavar="DIR", help="where to make the logs")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    print(about(asked.repeat, kafka=False))
    print(head().replace("kafka", "other"))
    rows = []
    with tempfile.TemporaryDirectory(dir=asked.scratch) as scratch:
        for name, part in (("kinds", kinds), ("cold", cold), ("growth", growth)):
            if name in asked.only.split(","):
                for told in part(Path(scratch), asked):
                    print(line(told), flush=True)
                    rows.append(told)
    drawn = [told for told in rows if "segments" in told]
    if asked.svg and drawn:
        Path(asked.svg).write_text(picture(drawn))
    write_json(asked.json, asked.repeat, rows)


if __name__ == "__main__":
    main()
