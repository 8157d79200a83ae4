"""The links of pages: to files and folders, and to functions by their name and file."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidy.tree import CODE, sources, tracked, tree

LINK: Final = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
CODE_LINK: Final = re.compile(r"\[`([\w.]+)(?:\(\))?`\]\(([^)#:\s]+\.(?:py|c))\)")


def pages() -> list[Path]:
    """Return every page of the project."""
    return [path for path in tracked() if path.suffix == ".md"]


def linked(page: Path) -> Iterator[Path]:
    """Yield the files and folders of the project that a page links to."""
    for name in LINK.findall(page.read_text()):
        yield (page.parent / name).resolve()


def names_in(path: Path) -> set[str]:
    """Return the functions, classes and methods of a source file: `f`, `C`, `C.m`; of C code, every word before `(`."""
    if path.suffix == ".c":
        return set(re.findall(r"\b(\w+)\(", path.read_text()))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tops = [node for node in tree(path).body if isinstance(node, kinds)]
    classes = [node for node in tops if isinstance(node, ast.ClassDef)]
    methods = {f"{node.name}.{inner.name}" for node in classes for inner in node.body if isinstance(inner, kinds)}
    return {node.name for node in tops} | methods


def missing_names(page: Path) -> list[str]:
    """Return each linked function of a page that is not in its file."""
    links = [(name, (page.parent / target).resolve()) for name, target in CODE_LINK.findall(page.read_text())]
    return [f"{name}: {path}" for name, path in links if not path.is_file() or name not in names_in(path)]


def follow(page: Path) -> None:
    """Point the links of a page to functions that have moved at their new files, if only one file has the name."""

    def moved(match: re.Match[str]) -> str:
        name, place = match[1], (page.parent / match[2]).resolve()
        if place.is_file() and name in names_in(place):
            return match[0]
        homes = [path for path in sources(*CODE) if name in names_in(path)]
        return match[0].replace(match[2], os.path.relpath(homes[0], page.parent)) if len(homes) == 1 else match[0]

    page.write_text(CODE_LINK.sub(moved, page.read_text()))
