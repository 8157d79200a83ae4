"""The pages: what they link to is there, and none is left out of the index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tidy.tree import ROOT, tracked

LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
INDEX = ROOT / "docs" / "README.md"


def pages() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def linked(page: Path) -> Iterator[Path]:
    """Yield what a page links to within the project."""
    for name in LINK.findall(page.read_text()):
        yield (page.parent / name).resolve()


def test_every_link_of_a_page_leads_to_a_file_or_a_folder() -> None:
    there = {place for path in tracked() for place in (path, *path.parents)}
    broken = [f"{page.relative_to(ROOT)}: {place}" for page in pages() for place in linked(page) if place not in there]
    assert broken == []


def test_every_page_of_the_documentation_stands_in_its_index() -> None:
    written = {page for page in pages() if page.is_relative_to(ROOT / "docs")} - {INDEX}
    assert len(written) > 10
    assert written - set(linked(INDEX)) == set()


def test_links_are_seen_with_and_without_a_heading() -> None:
    assert LINK.findall("[a](b.md) [c](d.md#e) [f](https://example.org/g)") == ["b.md", "d.md"]
