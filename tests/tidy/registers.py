"""The registers of events and metrics as tables of their pages: `python tests/tidy/registers.py` rewrites them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from daemon.events.names import EVENTS
from daemon.http.metrics import METRICS

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGES: Final = {"events.md": "| event |", "metrics.md": "| metric |"}
"""Each page, and how the header of its table begins."""


def event_rows() -> list[str]:
    """Return the table of docs/events.md, without its header."""
    return [
        f"| `{name}` | {kind.level} | {kind.meaning} | {' '.join(f'`{field}`' for field in kind.fields) or '-'} |"
        for name, kind in sorted(EVENTS.items())
    ]


def metric_rows() -> list[str]:
    """Return the table of docs/metrics.md, without its header."""
    return [
        f"| `{name}` | {kind.type} | {' '.join(f'`{label}`' for label in kind.labels) or '-'} | {kind.meaning}"
        f"{f' Only with `{kind.option}`.' if kind.option else ''} |"
        for name, kind in METRICS.items()
    ]


def expected(page: str) -> list[str]:
    """Return the rows that a page has to hold."""
    return event_rows() if page == "events.md" else metric_rows()


def written(page: str) -> list[str]:
    """Return the rows of the table of a page."""
    lines = (DOCS / page).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(PAGES[page])) + 2
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return lines[start:end]


def rewrite(page: str) -> None:
    """Put the rows of the register into the page."""
    text = (DOCS / page).read_text()
    old, new = written(page), expected(page)
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(PAGES[page])) + 2
    (DOCS / page).write_text("\n".join([*lines[:start], *new, *lines[start + len(old) :]]) + "\n")


if __name__ == "__main__":
    for each in PAGES:
        rewrite(each)
