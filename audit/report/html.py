"""The templates of the page: what they show is text, escaped and cut, unless a template made it."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from importlib.resources import files
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from audit.report import charts
from audit.report.facts import SEVERITIES
from recovery.plan.words import count, grouped, short_size
from storage.base.errors import printable

CELL: Final = 400
"""Characters of one text, at most: names and evidence come from disks and may be long."""


def asset(name: str) -> Markup:
    """Return a file of this package as it is."""
    return Markup(files("audit.report").joinpath("assets", name).read_text(encoding="utf-8"))  # noqa: S704 (a file of ours)


def _source(name: str) -> str:
    """Return a template as one line, without the line breaks and indents that only its readers need.

    A space that the page needs stands within a line.
    """
    lines = files("audit.report").joinpath("templates", name).read_text(encoding="utf-8").splitlines()
    return "".join(line.strip() for line in lines)


def _shown(value: object) -> str:
    """Return markup of a template as it is, and all else as text that is printable and not too long."""
    if isinstance(value, Markup):
        return value
    plain = printable(value)
    return plain if len(plain) <= CELL else f"{plain[:CELL]}…"


def _span(first: int | None, last: int | None) -> str | None:
    if first is None:
        return None
    return grouped(first) if last in (None, first) else f"{grouped(first)} – {grouped(last or first)}"


def _day(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d}"


def _moment(moment: datetime | None) -> str:
    return "not finished" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


ENVIRONMENT: Final = Environment(
    loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, finalize=_shown
)
ENVIRONMENT.filters |= {
    "day": _day, "digest": _digest, "fixed": "{:.1f}".format, "grouped": grouped, "moment": _moment,
    "shares": charts.shares, "short_size": short_size, "squares": charts.squares, "trends": charts.trends,
    "verdict_parts": charts.verdict_parts,
}  # fmt: skip
ENVIRONMENT.globals |= {"count": count, "severity_names": [name.capitalize() for name in SEVERITIES], "span": _span}
