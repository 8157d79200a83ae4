"""The field tables of docs/formats say what the structs of the code say.

A table is tied to its layout by a comment on the line above it: `<!-- layout: storage.index.indexes.OFFSET_ENTRY -->`.
Its columns are position, size, type and field.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import checkpoint
import storage
from storage.base.layout import Layout, LayoutRow

PAGES = Path(__file__).parents[2] / "docs" / "formats"
MARK = re.compile(r"<!-- layout: ([\w.]+) -->")


def layouts_of_the_code() -> dict[str, Layout]:
    found = {}
    for package in (storage, checkpoint):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.rpartition(".")[2].startswith("_"):
                values = vars(importlib.import_module(module.name))
                found |= {f"{module.name}.{name}": value for name, value in values.items() if isinstance(value, Layout)}
    return found


def table_after(lines: list[str]) -> list[LayoutRow]:
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|\n ").split("|")]
        if cells[0].isdigit():
            rows.append(LayoutRow(int(cells[0]), int(cells[1]), cells[2], cells[3]))
    return rows


def tables_of_the_docs() -> dict[str, list[LayoutRow]]:
    tables = {}
    for page in sorted(PAGES.glob("*.md")):
        lines = page.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            if mark := MARK.search(line):
                assert mark[1] not in tables, f"{mark[1]} has two tables"
                tables[mark[1]] = table_after(lines[number + 1 :])
    return tables


LAYOUTS = layouts_of_the_code()
TABLES = tables_of_the_docs()


def test_every_layout_has_a_table_and_every_table_a_layout() -> None:
    assert LAYOUTS, "no layout was found"
    assert sorted(TABLES.keys() - LAYOUTS.keys()) == []
    # A layout that one module imports from another has two names and needs one table.
    documented = {id(LAYOUTS[name]) for name in TABLES}
    assert [name for name, layout in LAYOUTS.items() if id(layout) not in documented] == []


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_table_of_a_layout_is_equal_to_its_struct(name: str) -> None:
    assert TABLES[name] == LAYOUTS[name].rows()


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_the_fields_of_a_layout_fill_it_without_padding(name: str) -> None:
    assert sum(row.size for row in LAYOUTS[name].rows()) == LAYOUTS[name].size
