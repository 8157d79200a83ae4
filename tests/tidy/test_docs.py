"""The pages: every link leads somewhere, the index lists each page once, and a linked function stands in its file."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tidy.tree import ROOT, tracked, tree

LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
CODE_LINK = re.compile(r"\[`([\w.]+)(?:\(\))?`\]\(([^)#:\s]+\.(?:py|c))\)")
INDEX = ROOT / "docs" / "README.md"
INDEXES = (INDEX, ROOT / "docs" / "decisions" / "README.md")
OVERVIEW = ROOT / "docs" / "architecture.md"


def pages() -> list[Path]:
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


def test_every_link_of_a_page_leads_to_a_file_or_a_folder() -> None:
    there = {place for path in tracked() for place in (path, *path.parents)}
    broken = [f"{page.relative_to(ROOT)}: {place}" for page in pages() for place in linked(page) if place not in there]
    assert broken == []


def test_the_index_lists_every_page_of_the_documentation_once() -> None:
    written = {page for page in pages() if page.is_relative_to(ROOT / "docs")} - {INDEX}
    places = (place for index in INDEXES for place in linked(index))
    listed = Counter(place for place in places if place in written)
    assert len(written) > 10
    assert written - set(listed) == set()
    assert [str(place) for place, times in listed.items() if times > 1] == []


def test_every_function_that_a_page_links_to_stands_in_its_file() -> None:
    assert {str(page.relative_to(ROOT)): gone for page in pages() if (gone := missing_names(page))} == {}


def test_the_walks_link_their_steps() -> None:
    assert len(CODE_LINK.findall(OVERVIEW.read_text())) > 40


def test_links_are_seen_with_and_without_a_heading() -> None:
    assert LINK.findall("[a](b.md) [c](d.md#e) [f](https://example.org/g)") == ["b.md", "d.md"]
    assert CODE_LINK.findall("[`C.m`](../a/b.py), [`f()`](c.py) [`x`](d.md)") == [("C.m", "../a/b.py"), ("f", "c.py")]


def test_names_are_functions_classes_and_methods() -> None:
    names = names_in(Path(__file__))
    assert {"names_in", "linked"} <= names
    assert "INDEX" not in names
