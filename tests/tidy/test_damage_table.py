"""docs/understand/damage-table.md and docs/reference/exit-status.md: the same as the code."""

from __future__ import annotations

import re

from tidy.tree import ROOT

from recovery.plan.decide import TABLE
from storage.base.errors import ExitStatus


def rows_of(document: str) -> list[list[str]]:
    """Return the cells of each row of the first table of a document, without its head."""
    lines = (ROOT / "docs" / document).read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| --- "))
    table = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


def test_the_documented_decisions_are_those_of_the_code_in_the_same_order() -> None:
    documented = [(cells[0], cells[-1]) for cells in rows_of("understand/damage-table.md")]
    assert documented == [(row.letter, row.decision.value) for row in TABLE]


def test_every_exit_status_is_documented() -> None:
    documented = [
        int(number) for cells in rows_of("reference/exit-status.md") for number in re.findall(r"\d+", cells[0])
    ]
    assert documented == sorted(int(status) for status in ExitStatus)
