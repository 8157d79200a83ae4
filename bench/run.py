"""Runs the programs of this folder and puts their figures into one table, one JSON file and one picture.

Usage: python bench/run.py [--quick] [--out DIR] [--scratch DIR]    writes results.json, results.svg and growth.svg
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
PROGRAMS: Final = {
    "bench_recover.py": ("--mib", "256"),
    "bench_verify.py": ("--mib", "64"),
    "bench_shapes.py": ("--mib", "64", "--repeat", "1", "--segments", "256"),
    "bench_open.py": ("--partitions", "100"),
    "bench_audit.py": ("--mib", "256", "--segments", "10000"),
    "bench_engine.py": ("--mib", "128"),
    "bench_daemon.py": ("--rounds", "3", "--seconds", "8", "--partitions", "1000", "--idle-seconds", "20"),
}
"""Each program, and what makes it quick."""
BESIDE_ITSELF: Final = ("bench_daemon.py", "bench_shapes.py")
"""Those that know no Kafka."""
RECOVER_TARGETS: Final = {16384: 2.3, 1024: 10.0, 170: 30.0}
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
        lines.append(f"{line}  {row['target']}")
    return "\n".join(lines) + "\n"


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Run all and put the figures together.")
    parser.add_argument("--quick", action="store_true", help="smaller logs: minutes instead of half an hour")
    parser.add_argument("--out", metavar="DIR", default=".", help="where results.json and results.svg go")
    parser.add_argument("--scratch", metavar="DIR", help="where to make the logs")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    every: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for program, quick in PROGRAMS.items():
            result = Path(place) / f"{program}.json"
            words = [sys.executable, str(HERE / program), "--json", str(result), *(quick if asked.quick else ())]
            print(f"== {program}", flush=True)
            if program == "bench_shapes.py":
                words += ["--svg", str(Path(asked.out, "growth.svg"))]
            subprocess.run([*words, *(["--scratch", asked.scratch] if asked.scratch else [])], check=False)
            if result.exists():
                every[program] = json.loads(result.read_text())
                rows += figures(program, every[program])
    print("\n" + text(rows))
    Path(asked.out, "results.json").write_text(json.dumps({"rows": rows, "programs": every}, indent=1) + "\n")
    Path(asked.out, "results.svg").write_text(picture(rows))


if __name__ == "__main__":
    main()
