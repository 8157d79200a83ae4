"""The runbooks: each command of theirs is run on a directory damaged as the page says, and prints what stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.command import ROOT, logmend
from support.runbook_cases import BACKUP, CASES, DATA, RESCUE, below, prepared

PAGES = ROOT / "docs" / "operate" / "runbooks"
BLOCK = re.compile(r"```console\n\$ logmend ([^\n]*)\n(.*?)```", re.DOTALL)
SHAPES = (
    (re.compile(r"\b[0-9a-f]{12}\b"), "<plan>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "<time>"),
    (re.compile(r"\d[\d ]*(\.\d+)?( [KMGT]iB)?"), "<n>"),
    (re.compile(r" +"), " "),
)
PLACES = (DATA, BACKUP, RESCUE)


def shape(text: str) -> list[str]:
    """Return what stays the same from run to run: lines without numbers, ids and times."""
    for pattern, stands in SHAPES:
        text = pattern.sub(stands, text)
    return [line.strip() for line in text.splitlines()]


def blocks(name: str) -> list[tuple[str, str]]:
    """Return (arguments, output) of each command of a page."""
    return BLOCK.findall((PAGES / f"{name}.md").read_text())


def run(root: Path, line: str) -> tuple[int, str]:
    words = [str(below(root, word)) if word.startswith("/") else word for word in shlex.split(line)]
    done = logmend(*words)
    return done.returncode, (done.stdout + done.stderr).replace(str(root), "")


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_commands_of_a_page_print_what_stands_there(name: str, tmp_path: Path) -> None:
    written = blocks(name)
    assert written
    with prepared(name, tmp_path):
        for line, expected in written:
            assert any(place in line for place in PLACES)
            status, printed = run(tmp_path, line)
            assert shape(printed) == shape(expected), line
            assert status == 0 or f"tatus {status}" in (PAGES / f"{name}.md").read_text()


def test_every_page_has_a_case_and_the_four_parts() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")}
    assert pages == set(CASES)
    assert len(pages) == 7
    for name in pages:
        text = (PAGES / f"{name}.md").read_text()
        for part in ("**What you see.**", "**The one command**", "**What next.**"):
            assert text.count(part) == 1, (name, part)


def test_a_shape_is_not_so_loose_that_all_is_alike() -> None:
    outputs = ["\n".join(shape(output)) for name in CASES for _, output in blocks(name)]
    assert len(set(outputs)) >= len(outputs) - 2, "one directory stands on three pages"
    assert shape("2 cuts of 478 B") == shape("31 cuts of 1 204 B")
    assert shape("clean: 2 cuts") != shape("held: 2 cuts")
