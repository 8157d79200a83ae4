"""What a parser takes for an input of 1 MiB: processor time and memory, measured in a process of its own.

usage: bounds.py [PARSER ...]     a line for each: seconds of the processor for the slowest input, and largest memory

The inputs are 1 MiB of what hurts: one byte repeated, noise, what brokers wrote repeated, what fuzzing kept repeated,
brackets in brackets, one line without an end, and lines without number.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[number]) for number in (1, 2)]

from fuzz.fuzz_parsers import EXPECTED, PARSERS, kept, made

SIZE = 1 << 20
LONGEST = {"toml": 512 << 10, "properties": 512 << 10, "names": 4096}
"""What is longer is refused before, or cannot be; otherwise it is 1 MiB."""
NESTED = ("toml", "manifest", "plan")
MOST_REPEATED = 6
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


def measured(names: Sequence[str]) -> dict[str, Taken | str]:
    """Give each parser every input, in processes of their own; return what each took, or how it ended."""
    done = subprocess.run([sys.executable, __file__, "--here", *names], capture_output=True, text=True, check=True)
    found = {name: json.loads(line) for name, line in zip(names, done.stdout.splitlines(), strict=True)}
    return {name: Taken(*told) if isinstance(told, list) else told for name, told in found.items()}


def measure_in_children(names: Sequence[str]) -> None:
    """Print a line of JSON for each: all that is needed is imported once."""
    for name in names:
        child = os.fork()
        if not child:
            try:
                told: object = measure(name)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is the finding)
                told = f"{type(error).__name__}: {error}"
            print(json.dumps(told), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            print(json.dumps("it was killed"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parsers", nargs="*")
    parser.add_argument("--here", action="store_true", help="in this process, and as JSON")
    arguments = parser.parse_args()
    if arguments.here:
        measure_in_children(arguments.parsers)
        return
    for name, taken in measured(arguments.parsers or list(PARSERS)).items():
        print(f"{name}: {taken}")


if __name__ == "__main__":
    main()
