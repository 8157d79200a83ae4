"""What a parser takes for an input of 1 MiB: processor time and memory, measured in a process of its own.

usage: bounds.py [PARSER ...]     a line for each: seconds of the processor for the slowest input, and largest memory

The inputs are 1 MiB of what hurts: one byte repeated, noise, what brokers wrote repeated, what fuzzing kept repeated,
brackets in brackets, one line without an end, and lines without number.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[number]) for number in (1, 2)]

from fuzz.fuzz_parsers import EXPECTED, PARSERS, kept, made

SIZE = 1 << 20
LONGEST = {"toml": 512 << 10, "properties": 512 << 10, "names": 4096}
"""What is longer is refused before, or cannot be; otherwise it is 1 MiB."""
NESTED = ("toml", "manifest", "plan")
MOST_REPEATED = 12
TEXTS = {
    "brackets": b"[", "braces": b'{"a":', "quotes": b'"', "backslashes": b"\\", "spaces": b" ", "digits": b"9",
    "lines": b"\n", "pairs": b"a=b\n", "entries": b"1 1\n", "sections": b"[a]\n", "dots": b"a.", "continued": b"a\\\n",
    "escapes": b"\\n", "commas": b"1,", "tables": b"{a=1},", "comments": b"#\n",
}  # fmt: skip


class Taken(NamedTuple):
    """What one parser took: seconds of the processor for its slowest input, which that was, and MiB at most."""

    seconds: float
    slowest: str
    mebibytes: float


def inputs(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield 1 MiB of each kind, one after the other so that one is in memory at a time."""
    for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
        yield f"byte {byte}", bytes([byte]) * SIZE
    yield "noise", random.Random(name).randbytes(SIZE)
    for what, text in TEXTS.items():
        yield what, (text * (SIZE // len(text) + 1))[:SIZE]
    for begins in () if name not in NESTED else (b'a = "', b'a = """', b"a = [", b"a = {", b"["):
        for what in ("dots", "escapes", "commas", "tables", "spaces", "digits", "pairs"):
            yield f"{begins.decode()} and {what}", (begins + TEXTS[what] * (SIZE // len(TEXTS[what])))[:SIZE]
    yield "a list that says it is long", (b"0\n150000\n" + b"".join(b"%d %d\n" % (n, n) for n in range(90_000)))[:SIZE]
    yield "many keys", b"".join(b"k%d=%d\n" % (n, n) for n in range(80_000))[:SIZE]
    chosen = [*made(), *kept(name)]
    for number, data in enumerate(random.Random(0).sample(chosen, min(MOST_REPEATED, len(chosen)))):
        if data:
            yield f"what is known, {number}", (data * (SIZE // len(data) + 1))[:SIZE]


def measure(name: str) -> Taken:
    """Give one parser every input, in this process."""
    parse, worst, slowest = PARSERS[name], 0.0, ""
    for what, whole in inputs(name):
        data = whole[: LONGEST.get(name, SIZE)]
        began = time.process_time()
        with contextlib.suppress(*EXPECTED):
            parse(data)
        took = time.process_time() - began
        if took > worst:
            worst, slowest = took, what
    return Taken(worst, slowest, _largest_mebibytes())


def _largest_mebibytes() -> float:
    """Return what this process held at most; `ru_maxrss` would count what its parent held when it was started, too."""
    told = Path("/proc/self/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0]) / 1024


def measured(name: str) -> Taken:
    """Give one parser every input in a process of its own, which ends at the first that is no typed error."""
    done = subprocess.run([sys.executable, __file__, "--here", name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{name}: {done.stderr[-2000:]}")
    return Taken(*json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parsers", nargs="*")
    parser.add_argument("--here", action="store_true", help="in this process, and as JSON")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments.parsers[0])))
        return
    for name in arguments.parsers or PARSERS:
        taken = measured(name)
        print(f"{name}: {taken.seconds:.2f} s ({taken.slowest}), {taken.mebibytes:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
