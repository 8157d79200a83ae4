"""Runs the programs of this folder and puts their figures into one table, one JSON file and one picture.

Usage: python bench/run.py [--mib N | --quick] [--repeat N] [--only recover,open] [--out DIR] [--scratch DIR]
writes results.json, results.svg and growth.svg. BENCH_MIB in the environment stands for --mib, so that
`make bench BENCH_MIB=64` is a short run; small logs say little, for what a process takes to start and to sync does not
shrink with them. Without a size the logs are as large as the targets say, and it takes about an hour.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
QUICK_MIB: Final = 256
PROGRAMS: Final[dict[str, Callable[[int], dict[str, object]]]] = {
    "bench_recover.py": lambda mib: {"mib": mib, "python": ""},
    "bench_verify.py": lambda mib: {"mib": max(mib // 4, 8)},
    "bench_shapes.py": lambda mib: {"mib": max(mib // 4, 8), "segments": 4096 if mib >= 1024 else 256},
    "bench_open.py": lambda mib: {"partitions": min(max(mib, 20), 1000)},
    "bench_many.py": lambda mib: {"partitions": min(max(mib, 20), 500)},
    "bench_audit.py": lambda mib: {"mib": mib, "segments": min(mib * 100, 100_000)},
    "bench_engine.py": lambda mib: {"mib": max(mib // 2, 16)},
    "bench_listener.py": lambda mib: {"mib": max(mib // 4, 8)},
    "bench_daemon.py": lambda mib: {"rounds": 3, "seconds": 8, "partitions": min(mib * 4, 10_000), "idle-seconds": 20},
}
"""Each program, and what makes it of a size. Those that know no repetitions have rounds."""
FULL: Final[dict[str, dict[str, object]]] = {
    "bench_recover.py": {"mib": 4096, "python": "", "repeat": 2},
    "bench_daemon.py": {"rounds": 4, "seconds": 10, "idle-seconds": 30},
}
"""What the others need not be told where no size is wanted."""
NEEDS: Final = {
    "bench_audit.py": "pyspark",
    "bench_listener.py": "confluent_kafka",
    "bench_daemon.py": "confluent_kafka",
}
"""Packages of the extra `test`, which `make bench` installs."""
NO_REPEAT: Final = "bench_daemon.py"
BESIDE_ITSELF: Final = ("bench_daemon.py", "bench_shapes.py")
"""Those that know no Kafka."""
RECOVER_TARGETS: Final = {16384: 2.3, 1024: 10.0, 170: 30.0}
SHARES: Final = {16384: 0.85, 1024: 0.7, 170: 0.35}
BAR: Final = 22


def figures(program: str, told: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what, our seconds, theirs, spreads and target of every line of a program's results."""
    for row in told["rows"]:
        if program != "bench_recover.py":
            told_row = {"what": row["what"], "ours": row["ours"], "theirs": row["theirs"], "target": row["target"]}
            if program == "bench_audit.py":
                told_row |= {"what": f"{row['what']}, beside the plain scan", "is_kafka": False}
            elif program in BESIDE_ITSELF:
                told_row["is_kafka"] = False
            yield told_row
            continue
        for name in ("logmend -j 1", "logmend"):
            size, form = row["batch_bytes"], row["form"]
            target = f">= {RECOVER_TARGETS[size]:g}" if (form, name) == ("recover", "logmend -j 1") else ""
            what = f"{name.replace('logmend', 'recover')}, {row['log_bytes'] >> 20} MiB as {form}, {size} B"
            yield {"what": what, "ours": row[name], "theirs": row.get("kafka"), "target": target}
        if "python" in row:
            what = f"recover -j 1, Python kernel, {row['log_bytes'] >> 20} MiB as {form}, {size} B"
            yield {"what": what, "ours": row["python"], "theirs": row["kafka"], "target": ""}
        if form == "recover":
            what = f"limit / recover -j 1, {row['log_bytes'] >> 20} MiB as {form}, {size} B"
            target = f">= {SHARES[size]:g}"
            yield {
                "what": what,
                "ours": row["logmend -j 1"],
                "theirs": row["limit"],
                "target": target,
                "is_kafka": False,
            }
        what = f"recover / recover -j 1, {row['log_bytes'] >> 20} MiB as {form}, {size} B"
        yield {
            "what": what,
            "ours": row["logmend"],
            "theirs": row["logmend -j 1"],
            "target": ">= 1.7",
            "is_kafka": False,
        }


def text(rows: list[dict[str, Any]]) -> str:
    """Return the one table."""
    lines = [f"{'':62}{'logmend':>10}{'spread':>8}{'kafka':>10}{'spread':>8}{'ratio':>8}  target"]
    for row in rows:
        ours, theirs = row["ours"], row["theirs"]
        line = f"{row['what']:62}{ours['median']:8.3f} s{ours['spread'] * 100:6.0f} %"
        line += (
            f"{theirs['median']:8.3f} s{theirs['spread'] * 100:6.0f} %{theirs['median'] / ours['median']:8.2f}"
            if theirs
            else " " * 26
        )
        missed = "" if is_reached(row) else ": missed"
        lines.append(f"{line}  {row['target']}{missed}")
    aimed = [row for row in rows if row["target"]]
    lines.append(f"{sum(map(is_reached, aimed))} of {len(aimed)} targets are reached")
    return "\n".join(lines) + "\n"


def is_reached(row: dict[str, Any]) -> bool:
    """Tell whether a line reaches its target, also if it has none.

    `>=` speaks of their time by ours; `<` of ours by theirs, or of seconds where there is nothing to compare with.
    """
    target = re.fullmatch(r"(>=|<=?) ([0-9.]+)( s)?", row["target"])
    if target is None:
        return True
    ours, theirs, limit = row["ours"]["median"], row["theirs"], float(target[2])
    if target[1] == ">=":
        return theirs is not None and bool(theirs["median"] / ours >= limit)
    return bool(ours <= limit * (1 if theirs is None or target[3] else theirs["median"]))


def picture(rows: list[dict[str, Any]]) -> str:
    """Return an SVG: a bar a line, as long as we are faster than Kafka, by powers of two; a mark at the target."""
    compared = [row for row in rows if row["theirs"] and row.get("is_kafka", True)]
    size = f'width="960" height="{BAR * len(compared) + 40}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    parts.append('<text x="8" y="16">how many times faster than Kafka (60 points: twice; mark: target)</text>')
    for number, row in enumerate(compared):
        ratio, y = row["theirs"]["median"] / row["ours"]["median"], 28 + BAR * number
        width = max(60 * _log2(ratio), 1)
        parts.append(f'<text x="8" y="{y + 12}">{escape(row["what"])}</text>')
        parts.append(f'<rect x="440" y="{y}" width="{width:.0f}" height="{BAR - 6}" fill="#4a7"/>')
        parts.append(f'<text x="{446 + width:.0f}" y="{y + 12}">{ratio:.1f}</text>')
        if row["target"].startswith(">= ") and row["target"][3:].replace(".", "").isdigit():
            at = 440 + 60 * _log2(float(row["target"][3:]))
            parts.append(f'<line x1="{at:.0f}" x2="{at:.0f}" y1="{y - 2}" y2="{y + BAR - 4}" stroke="#000"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _log2(number: float) -> float:
    return max(math.log2(number), 0.0)


def command(program: str, asked: argparse.Namespace, result: Path) -> list[str]:
    """Return the words that run a program of this folder."""
    words = {"json": str(result), **(PROGRAMS[program](asked.mib) if asked.mib else FULL.get(program, {}))}
    if asked.repeat and program != NO_REPEAT:
        words["repeat"] = asked.repeat
    if asked.scratch:
        words["scratch"] = asked.scratch
    if program == "bench_shapes.py":
        words["svg"] = str(Path(asked.out, "growth.svg"))
    flags = [word for name, value in words.items() for word in (f"--{name}", str(value)) if word]
    return [sys.executable, str(HERE / program), *flags]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run all and put the figures together.")
    size = os.environ.get("BENCH_MIB")
    parser.add_argument(
        "--mib", type=int, default=int(size) if size else None, help="size of the logs of bench_recover"
    )
    parser.add_argument("--quick", dest="mib", action="store_const", const=QUICK_MIB, help=f"--mib {QUICK_MIB}")
    parser.add_argument("--repeat", type=int, help="counted repetitions of each case")
    parser.add_argument("--only", metavar="NAMES", help="some of the programs: recover,verify,shapes,open,engine")
    parser.add_argument("--out", metavar="DIR", default=".", help="where results.json and results.svg go")
    parser.add_argument("--scratch", metavar="DIR", help="where to make the logs")
    return parser.parse_args()


def main() -> None:
    """Run, and write the table, the JSON and the picture."""
    asked = arguments()
    rows: list[dict[str, Any]] = []
    every: dict[str, Any] = {}
    Path(asked.out).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for program in PROGRAMS:
            if asked.only and program.removeprefix("bench_").removesuffix(".py") not in asked.only.split(","):
                continue
            result = Path(place) / f"{program}.json"
            print(f"== {program}", flush=True)
            if program in NEEDS and find_spec(NEEDS[program]) is None:
                print(f"left out: it needs {NEEDS[program]} (pip install '.[test]')")
                continue
            subprocess.run(command(program, asked, result), check=False)
            if result.exists():
                every[program] = json.loads(result.read_text())
                rows += figures(program, every[program])
    print("\n" + text(rows))
    Path(asked.out, "results.json").write_text(json.dumps({"rows": rows, "programs": every}, indent=1) + "\n")
    Path(asked.out, "results.svg").write_text(picture(rows))


if __name__ == "__main__":
    main()
