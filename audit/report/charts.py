"""The plots of the report as numbers: where each piece stands and how large it is. `templates/charts.html` draws them.

A share that is not nothing never gets narrower than can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from audit.report.facts import VERDICTS, Past
from recovery.plan.words import grouped

WIDTH: Final = 1000
CELLS: Final = 8000
"""Squares of the map of the fleet, at most."""
_LEAST: Final = 4.0
_PANEL: Final = (320, 190)
_LEFT, _TOP, _BOTTOM = 46, 12, 24


class Part(NamedTuple):
    """One part of a whole: what it counts, how it is drawn, and what it says when pointed at."""

    number: float
    style: str
    words: str


class Square(NamedTuple):
    """One square of the map; without words if all that it stands for is healthy."""

    x: float
    y: float
    side: float
    style: str
    words: str


class FleetMap(NamedTuple):
    """A square a partition, or the worst of `per_square` of them together."""

    squares: list[Square]
    per_square: int
    width: int
    height: int


class Plot(NamedTuple):
    """Stacked columns. Ticks: y, words. Pieces: part, x, y, width, height. Dates: x, anchor, words."""

    title: str
    words: str
    ticks: list[tuple[float, str]]
    pieces: list[tuple[Part, float, float, float, float]]
    dates: list[tuple[float, str, str]]
    width: int = _PANEL[0]
    height: int = _PANEL[1]
    left: int = _LEFT


def verdict_parts(verdicts: Mapping[str, int]) -> list[Part]:
    """Return how many partitions have each verdict, the best first."""
    return [Part(verdicts[name], name, f"{grouped(verdicts[name])} {name.replace('_', ' ')}") for name in VERDICTS]


def shares(parts: Sequence[tuple[float, str, str]], width: float) -> list[tuple[Part, float, float]]:
    """Return each part that is not 0 with its x and its width on a bar; none is too narrow to be seen."""
    visible = [Part(*part) for part in parts if part[0] > 0]
    if not visible:
        return []
    total = sum(part.number for part in visible)
    widths = [max(part.number / total * width, min(_LEAST, width / len(visible))) for part in visible]
    widths[widths.index(max(widths))] -= max(sum(widths) - width, 0)
    starts = accumulate(widths, initial=0.0)
    return list(zip(visible, starts, widths, strict=False))


def squares(verdicts: Sequence[int], names: Mapping[int, str]) -> FleetMap:
    """Return the map of the fleet."""
    per_square = max(-(-len(verdicts) // CELLS), 1)
    worst = [max(verdicts[at : at + per_square]) for at in range(0, len(verdicts), per_square)]
    size = min(max(math.sqrt(WIDTH * 380 / max(len(worst), 1)), 6.0), 40.0)
    across = max(int(WIDTH // size), 1)
    size = WIDTH / across
    side = size - max(size * 0.14, 1)
    drawn = []
    for at, verdict in enumerate(worst):
        words = _words(verdicts, names, at * per_square, per_square, verdict) if verdict else ""
        drawn.append(Square(at % across * size, at // across * size, side, VERDICTS[verdict], words))
    return FleetMap(drawn, per_square, WIDTH, max(math.ceil(-(-len(worst) // across) * size), 1))


def _words(verdicts: Sequence[int], names: Mapping[int, str], start: int, count: int, verdict: int) -> str:
    bad = [at for at in range(start, min(start + count, len(verdicts))) if verdicts[at] == verdict]
    first = names.get(bad[0], "")
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{first}{more}: {VERDICTS[verdict].replace('_', ' ')}"


def trends(past: Sequence[Past]) -> list[Plot]:
    """Return plots of what changed from audit to audit."""
    bad = [[_count(one, name) for name in VERDICTS[1:]] for one in past]
    read = [[_size(one, one.bytes_read, "read"), _size(one, one.bytes_listed - one.bytes_read, "rest")] for one in past]
    took = [
        [Part((one.seconds or 0) / 60, "read", f"{_when(one)}: {(one.seconds or 0) / 60:,.1f} min")] for one in past
    ]
    dates = [f"{one.started_at:%d %b}" for one in past]
    return [
        _columns("Partitions that are not healthy", bad, dates, _whole),
        _columns("GB read, of all that is there", read, dates, _short),
        _columns("Minutes taken", took, dates, _short),
    ]


def _count(one: Past, verdict: str) -> Part:
    number = one.verdicts[verdict]
    return Part(number, verdict, f"{_when(one)}: {grouped(number)} {verdict.replace('_', ' ')}")


def _size(one: Past, size: int, style: str) -> Part:
    """Return a part in GB."""
    words = {"read": "read", "rest": "taken over from earlier audits or not read"}[style]
    return Part(max(size, 0) / 1e9, style, f"{_when(one)}: {size / 1e9:,.1f} GB {words}")


def _when(one: Past) -> str:
    return f"{one.started_at:%Y-%m-%d %H:%M}"


def _columns(title: str, stacks: Sequence[Sequence[Part]], dates: Sequence[str], text: Callable[[float], str]) -> Plot:
    """Return stacked columns with an axis of round numbers."""
    width, height = _PANEL
    ticks = round_ticks(max(sum(part.number for part in stack) for stack in stacks))
    scale = (height - _TOP - _BOTTOM) / ticks[-1]
    step = (width - _LEFT) / max(len(stacks), 6)
    pieces = []
    for at, stack in enumerate(stacks):
        y: float = height - _BOTTOM
        for part in stack:
            if part.number > 0:
                tall = max(part.number * scale, 1.5)
                y -= tall
                pieces.append((part, _LEFT + at * step + step * 0.12, y, step * 0.76, tall))
    marks = []
    for at in sorted({0, len(dates) - 1}):
        anchor = "start" if at == 0 and len(dates) > 1 else "middle" if len(dates) < 5 else "end"
        marks.append((_LEFT + at * step + step / 2, anchor, dates[at]))
    words = f"{len(stacks)} audits; the newest: " + "; ".join(part.words for part in stacks[-1])
    return Plot(title, words, [(height - _BOTTOM - tick * scale, text(tick)) for tick in ticks], pieces, marks)


def round_ticks(top: float) -> list[float]:
    """Return 3 to 6 round numbers from 0 to `top` or just above it."""
    if top <= 0:
        return [0, 1]
    rough = top / 4
    base = 10 ** math.floor(math.log10(rough))
    step = next(base * factor for factor in (1, 2, 2.5, 5, 10) if base * factor >= rough)
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]


def _whole(number: float) -> str:
    return f"{number:.0f}" if number == int(number) else ""


def _short(number: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"
