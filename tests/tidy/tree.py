"""The files of the project, and what is in them, for tests that look at the sources."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
CODE: Final = ("storage", "checkpoint", "recovery", "wire", "cli", "engine", "daemon", "server", "audit")
Node = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    """A function or method: where it is, and how many lines it has, decorators not counted."""

    path: Path
    node: Node
    lines: int

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.node.lineno} {self.node.name}: {self.lines} lines"


@functools.cache
def tracked() -> tuple[Path, ...]:
    """Return every file that git knows or would take; from an unpacked archive, every file."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, capture_output=True, text=True, check=False)
    if done.returncode:
        made = {".venv", "build", "dist", "sample"}
        ours = (path for path in ROOT.rglob("*") if made.isdisjoint(path.relative_to(ROOT).parts))
        return tuple(sorted(path for path in ours if path.is_file()))
    return tuple(sorted(path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()))


def sources(*folders: str) -> list[Path]:
    """Return the Python files in these folders."""
    return [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders]


@functools.cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(), str(path))


def functions(*folders: str) -> Iterator[Function]:
    """Yield every function and method in these folders, also the inner ones."""
    for path in sources(*folders):
        for node in ast.walk(tree(path)):
            if isinstance(node, Node):
                yield Function(path, node, (node.end_lineno or node.lineno) - node.lineno + 1)


def texts() -> Iterator[tuple[Path, str]]:
    """Yield every tracked file that is text."""
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data:
            yield path, data.decode(errors="replace")
