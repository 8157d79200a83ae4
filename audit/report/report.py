"""One HTML page that says how a fleet is: nothing is loaded from elsewhere, and no script but its own runs.

`audit.report.facts` counts, `audit/report/templates` has the words and tables, `audit/report/assets` the style and the
little script that filters, sorts and unfolds. Without the script everything is there to read.
"""

from __future__ import annotations

from typing import Final

from audit.report.facts import LAST_AGE, QUICK_AGE, VERDICTS, Fleet, Tables, gather
from audit.report.html import ENVIRONMENT, asset
from recovery.plan.words import count, grouped

LARGEST: Final = 10_000_000
"""Bytes of a page, at most."""
_ROWS: Final = 2000
_MEANINGS: Final = {
    "healthy": "every replica could be read and agrees with every other",
    "degraded": "the data is there at least twice, but a replica lacks some of it or is damaged",
    "divergent": "replicas hold different data below the high watermark",
    "one_good_copy": "some of the data is sound in a single replica",
    "unreadable": "a replica could not be read, so nothing is known of it",
}


def report(tables: Tables, audit_id: str) -> tuple[str, str]:
    """Return the page of an audit, and its verdict.

    It has at most `LARGEST` bytes: lists are cut as far as that takes, and say so.
    """
    limit = _ROWS
    while True:
        fleet = gather(tables, audit_id, limit)
        page = render(fleet)
        if len(page.encode()) <= LARGEST or limit < 10:
            return page, verdict_of(fleet)
        limit //= 2


def verdict_of(fleet: Fleet) -> str:
    """Return what the fleet is, in a sentence."""
    total, counts = fleet.partitions, fleet.verdicts
    if not total:
        return "No partition was found, so nothing was verified."
    if counts["healthy"] == total:
        return f"All {count(total, 'partition')} are healthy: every replica could be read and agrees with every other."
    ones = {
        "unreadable": ("could not be read in full", "could not be read in full"),
        "one_good_copy": ("has one good copy left", "have one good copy left"),
        "divergent": ("holds different data on its replicas", "hold different data on their replicas"),
        "degraded": ("lacks a sound replica", "lack a sound replica"),
    }
    parts = [
        f"{grouped(counts[name])} {ones[name][counts[name] > 1]}" for name in reversed(VERDICTS[1:]) if counts[name]
    ]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    sound = counts["healthy"]
    healthy = f"; {grouped(sound)} {'is' if sound == 1 else 'are'} healthy" if sound else ""
    return f"Of {count(total, 'partition')}, {listed}{healthy}."


def worst_of(fleet: Fleet) -> str:
    """Return the worst verdict that a partition has; unreadable if there is none to have one."""
    return next((name for name in reversed(VERDICTS) if fleet.verdicts[name]), "unreadable")


def render(fleet: Fleet) -> str:
    """Return the page."""
    page = ENVIRONMENT.get_template("report.html").render(
        fleet=fleet, sentence=verdict_of(fleet), worst=worst_of(fleet), meanings=_MEANINGS,
        old_ages=(LAST_AGE, QUICK_AGE), style=asset("report.css"), script=asset("report.js"),
    )  # fmt: skip
    return f"{page}\n"
