"""The pages: every link leads somewhere, the index lists each page once, and a linked function stands in its file."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tidy.links import CODE_LINK, LINK, linked, missing_names, names_in, pages
from tidy.tree import CODE, ROOT, tracked

NAMED = re.compile(rf"`((?:{'|'.join((*CODE, 'tests', 'docs', 'bench', 'scripts', 'deploy'))})/[\w./-]+\.[a-z]+)`")
MAKE = re.compile(r"(?:`|^    )make ([a-z-]+)", re.MULTILINE)
INDEX = ROOT / "docs" / "README.md"
INDEXES = (INDEX, ROOT / "docs" / "decisions" / "README.md")
OVERVIEW = ROOT / "docs" / "architecture.md"


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


def test_every_file_of_the_project_that_a_page_names_exists() -> None:
    named = {(page, name) for page in pages() for name in NAMED.findall(page.read_text())}
    assert len(named) > 30
    assert sorted(f"{page.relative_to(ROOT)}: {name}" for page, name in named if not (ROOT / name).exists()) == []


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in pages() for name in MAKE.findall(page.read_text())}
    assert len(named) > 8
    assert named - targets == set()


def test_links_are_seen_with_and_without_a_heading() -> None:
    assert LINK.findall("[a](b.md) [c](d.md#e) [f](https://example.org/g)") == ["b.md", "d.md"]
    assert CODE_LINK.findall("[`C.m`](../a/b.py), [`f()`](c.py) [`x`](d.md)") == [("C.m", "../a/b.py"), ("f", "c.py")]


def test_names_are_functions_classes_and_methods() -> None:
    names = names_in(Path(__file__))
    assert "test_names_are_functions_classes_and_methods" in names
    assert "INDEX" not in names
    assert "Service.run" in names_in(ROOT / "daemon" / "service" / "service.py")
