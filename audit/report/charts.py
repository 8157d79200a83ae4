"""The plots of the report: SVG as text, made of numbers only, with words for screen readers.

Colours are classes of the page's style sheet, so that a plot follows light and dark. A share that is not nothing never
gets narrower than can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from audit.report.facts import VERDICTS, Past
from audit.report.html import Markup, escaped
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


def share_bar(parts: Sequence[Part], *, height: int = 22, width: int = WIDTH, words: str = "") -> Markup:
    """Return one bar divided by shares; each that is not 0 can be seen."""
    shown = [part for part in parts if part.number > 0]
    widths = _widths([part.number for part in shown], width)
    drawn, x = [], 0.0
    for part, wide in zip(shown, widths, strict=True):
        title = f"<title>{escaped(part.words)}</title>"
        drawn.append(f'<rect class="{part.style}" x="{x:.1f}" width="{wide:.1f}" height="{height}">{title}</rect>')
        x += wide
    return _svg(width, height, "".join(drawn), words, "bar")


def _widths(numbers: Sequence[float], width: float) -> list[float]:
    """Return widths that add up to `width`, none below what can be seen."""
    total = sum(numbers)
    wide = [max(number / total * width, min(_LEAST, width / len(numbers))) for number in numbers] if total else []
    over = sum(wide) - width
    if wide and over > 0:
        wide[wide.index(max(wide))] -= over
    return wide


def fleet_map(verdicts: Sequence[int], names: Mapping[int, str]) -> tuple[Markup, int]:
    """Return a square a partition, or the worst of some of them together, and how many one square stands for."""
    per_cell = max(-(-len(verdicts) // CELLS), 1)
    worst = [max(verdicts[at : at + per_cell]) for at in range(0, len(verdicts), per_cell)]
    size = min(max(math.sqrt(WIDTH * 380 / max(len(worst), 1)), 6.0), 40.0)
    across = max(int(WIDTH // size), 1)
    size = WIDTH / across
    squares: dict[int, list[str]] = {}
    pointed = []
    for at, verdict in enumerate(worst):
        x, y, side = at % across * size, at // across * size, size - max(size * 0.14, 1)
        if verdict == 0:
            squares.setdefault(verdict, []).append(f"M{x:.1f} {y:.1f}h{side:.1f}v{side:.1f}h-{side:.1f}z")
            continue
        told = _told(verdicts, names, at * per_cell, per_cell, verdict)
        rect = f'<rect class="{VERDICTS[verdict]}" x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}">'
        pointed.append(f"{rect}<title>{escaped(told)}</title></rect>")
    paths = [f'<path class="{VERDICTS[verdict]}" d="{"".join(parts)}"/>' for verdict, parts in squares.items()]
    height = math.ceil(-(-len(worst) // across) * size)
    words = "every partition in order of cluster, topic and number, in the colour of its verdict"
    return _svg(WIDTH, max(height, 1), "".join(paths + pointed), words, "map"), per_cell


def _told(verdicts: Sequence[int], names: Mapping[int, str], start: int, count: int, verdict: int) -> str:
    bad = [at for at in range(start, min(start + count, len(verdicts))) if verdicts[at] == verdict]
    first = names.get(bad[0], "")
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{first}{more}: {VERDICTS[verdict].replace('_', ' ')}"


def trends(past: Sequence[Past]) -> list[tuple[str, Markup]]:
    """Return the titles and plots of what changed from audit to audit."""
    bad = [[_count(one, name) for name in VERDICTS[1:]] for one in past]
    read = [[_size(one, one.bytes_read, "read"), _size(one, one.bytes_listed - one.bytes_read, "rest")] for one in past]
    took = [
        [Part((one.seconds or 0) / 60, "read", f"{_when(one)}: {(one.seconds or 0) / 60:,.1f} min")] for one in past
    ]
    dates = [f"{one.started_at:%d %b}" for one in past]
    return [
        ("Partitions that are not healthy", _columns(bad, dates, _whole)),
        ("GB read, of all that is there", _columns(read, dates, _short)),
        ("Minutes taken", _columns(took, dates, _short)),
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


def _columns(stacks: Sequence[Sequence[Part]], dates: Sequence[str], shown: Callable[[float], str]) -> Markup:
    """Return stacked columns with an axis of round numbers."""
    width, height = _PANEL
    top = max((sum(part.number for part in stack) for stack in stacks), default=0)
    ticks = round_ticks(top)
    scale = (height - _TOP - _BOTTOM) / ticks[-1]
    step = (width - _LEFT) / max(len(stacks), 6)
    drawn = []
    for tick in ticks:
        y = height - _BOTTOM - tick * scale
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shown(tick)}</text>')
    for at, stack in enumerate(stacks):
        y = height - _BOTTOM
        for part in stack:
            tall = part.number * scale
            if part.number > 0:
                tall = max(tall, 1.5)
                y -= tall
                x, wide = _LEFT + at * step + step * 0.12, step * 0.76
                rect = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"'
                drawn.append(f'<rect class="{part.style}" {rect}><title>{escaped(part.words)}</title></rect>')
    for at in sorted({0, len(dates) - 1}) if dates else ():
        x = _LEFT + at * step + step / 2
        anchor = "start" if at == 0 and len(dates) > 1 else "middle" if len(dates) < 5 else "end"
        drawn.append(f'<text class="tick" x="{x:.1f}" y="{height - 6}" text-anchor="{anchor}">{dates[at]}</text>')
    words = f"{len(stacks)} audits; the newest: " + "; ".join(part.words for part in stacks[-1]) if stacks else ""
    return _svg(width, height, "".join(drawn), words, "plot")


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


def _svg(width: float, height: float, inside: str, words: str, style: str) -> Markup:
    label = f' role="img" aria-label="{escaped(words)}"' if words else ' aria-hidden="true"'
    stretch = ' preserveAspectRatio="none"' if style == "bar" else ""
    return Markup(f'<svg class="{style}" viewBox="0 0 {width:g} {height:g}"{stretch}{label}>{inside}</svg>')
