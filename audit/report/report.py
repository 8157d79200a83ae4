"""One HTML page that says how a fleet is: nothing is loaded from elsewhere, and no script but its own runs.

`audit.report.facts` counts, this module puts into words and tables, `audit/report/assets` has the style and the little
script that filters, sorts and unfolds. Without the script everything is there to read.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any, Final, NamedTuple

from audit.report.charts import Part, fleet_map, share_bar, trends
from audit.report.facts import LAST_AGE, QUICK_AGE, SEVERITIES, VERDICTS, Fleet, Listed, Row, Tables, gather
from audit.report.html import Markup, joined, tag
from recovery.plan.words import count, grouped, short_size

LARGEST: Final = 10_000_000
"""Bytes of a page, at most."""
_ROWS: Final = 2000
_WORDS: Final = {
    "healthy": "healthy",
    "degraded": "degraded",
    "divergent": "divergent",
    "one_good_copy": "one good copy",
    "unreadable": "unreadable",
}
_MEANINGS: Final = {
    "healthy": "every replica could be read and agrees with every other",
    "degraded": "the data is there at least twice, but a replica lacks some of it or is damaged",
    "divergent": "replicas hold different data below the high watermark",
    "one_good_copy": "some of the data is sound in a single replica",
    "unreadable": "a replica could not be read, so nothing is known of it",
}

_SHORT: Final = {
    "map": "Fleet",
    "one-good-copy": "One copy",
    "disagreeing": "Disagreeing",
    "disks": "Disks",
    "ages": "Age",
    "about": "About",
}
"""What the links at the top call a section with a longer title."""


class Column(NamedTuple):
    """One column of a table: its heading, what a cell shows, and by what it sorts if not by that."""

    title: str
    cell: Callable[[Row], object]
    key: Callable[[Row], object] | None = None
    """Given for numbers, which stand to the right."""
    style: str | None = None


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
    total, found = fleet.partitions, fleet.verdicts
    if not total:
        return "No partition was found, so nothing was verified."
    if found["healthy"] == total:
        return f"All {count(total, 'partition')} are healthy: every replica could be read and agrees with every other."
    ones = {
        "unreadable": ("could not be read in full", "could not be read in full"),
        "one_good_copy": ("has one good copy left", "have one good copy left"),
        "divergent": ("holds different data on its replicas", "hold different data on their replicas"),
        "degraded": ("lacks a sound replica", "lack a sound replica"),
    }
    told = [f"{grouped(found[name])} {ones[name][found[name] > 1]}" for name in reversed(VERDICTS[1:]) if found[name]]
    listed = told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
    sound = found["healthy"]
    healthy = f"; {grouped(sound)} {'is' if sound == 1 else 'are'} healthy" if sound else ""
    return f"Of {count(total, 'partition')}, {listed}{healthy}."


def worst_of(fleet: Fleet) -> str:
    """Return the worst verdict that a partition has; unreadable if there is none to have one."""
    return next((name for name in reversed(VERDICTS) if fleet.verdicts[name]), "unreadable")


def render(fleet: Fleet) -> str:
    """Return the page."""
    style, script = _asset("report.css"), _asset("report.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    title = f"Fleet audit {fleet.run['audit_id']}"
    sections = [
        section for section in (
            _map(fleet), _lone(fleet), _disagreeing(fleet), _unreadable(fleet), _disks(fleet), _findings(fleet),
            _ages(fleet), _trend(fleet), _topics(fleet), _about(fleet),
        ) if section is not None
    ]  # fmt: skip
    head = joined(
        (
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            tag("title", title),
            Markup(f"<style>{style}</style>"),
        )
    )
    links = tag(
        "ul", *(tag("li", tag("a", _SHORT.get(each.name, each.title), href=f"#{each.name}")) for each in sections)
    )
    body = joined(
        (
            tag("a", "Skip to the verdict", href="#verdict", class_="skip"),
            tag("nav", tag("span", "logmend audit", class_="brand"), links, aria_label="Sections"),
            tag("main", _hero(fleet), *(each.html for each in sections)),
            Markup(f"<script>{script}</script>"),
        )
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _asset(name: str) -> str:
    return (files("audit.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class _Section(NamedTuple):
    name: str
    title: str
    html: Markup


def _section(name: str, title: str, *inside: object, number: int | None = None) -> _Section:
    many = [] if number is None else [" ", tag("span", grouped(number), class_="many")]
    heading = tag("h2", title, *many, id=f"{name}-title")
    return _Section(name, title, tag("section", heading, *inside, id=name, aria_labelledby=f"{name}-title"))


# ---- the top


def _hero(fleet: Fleet) -> Markup:
    worst = worst_of(fleet)
    urgency = {"healthy": "All is well", "degraded": "Needs attention"}.get(worst, "Needs action now")
    parts = [Part(fleet.verdicts[name], name, f"{grouped(fleet.verdicts[name])} {_WORDS[name]}") for name in VERDICTS]
    steps = _steps(fleet)
    return tag(
        "header",
        tag("p", urgency, class_="urgency"),
        tag("h1", verdict_of(fleet)),
        share_bar(parts, words=", ".join(part.words for part in parts)),
        _legend(fleet),
        _tiles(fleet),
        tag("div", tag("h2", "What to do"), tag("ol", *(tag("li", step) for step in steps)), class_="steps")
        if steps
        else "",
        id="verdict",
        class_=f"hero is-{worst}",
        tabindex="-1",
    )


def _legend(fleet: Fleet) -> Markup:
    entries = [
        tag("li", tag("span", class_=f"dot {name}"), tag("b", grouped(fleet.verdicts[name])), " ", _WORDS[name],
            title=_MEANINGS[name])
        for name in VERDICTS
    ]  # fmt: skip
    return tag("ul", *entries, class_="legend")


def _tiles(fleet: Fleet) -> Markup:
    run, severe = fleet.run, fleet.severities
    size, read = run["bytes_listed"], run["bytes_read"]
    share = f"{read / size:.0%} of it read by this audit" if size else "nothing to read"
    tiles = [
        (grouped(fleet.replicas), f"replicas of {count(fleet.partitions, 'partition')}"),
        (grouped(fleet.brokers), f"brokers with {count(fleet.disks.total, 'log directory', 'log directories')}"),
        (short_size(size), share),
        (grouped(severe["blocking"] + severe["damage"]), f"grave findings, {grouped(severe['repairable'])} repairable"),
        (_day(fleet.oldest), "is when the oldest data was last verified"),
    ]
    return tag("dl", *(tag("div", tag("dt", words), tag("dd", number)) for number, words in tiles), class_="tiles")


def _steps(fleet: Fleet) -> list[object]:
    """Return what to do next, the most pressing first."""
    steps: list[object] = []
    if fleet.verdicts["unreadable"]:
        steps.append(
            "Look at the disks that could not be read, and audit them again: until then nothing is known of them."
        )
    if fleet.verdicts["one_good_copy"]:
        steps.append("Save the copies listed under “One good copy left” before anything else is moved or restarted.")
    if fleet.verdicts["divergent"]:
        steps.append(
            "Do not let a broker of “Replicas that disagree” take leadership before it is clear whose data is right."
        )
    if (
        set(fleet.verdicts) & {"one_good_copy", "divergent", "degraded"}
        and fleet.verdicts["healthy"] < fleet.partitions
    ):
        heal = tag("code", "logmend audit plan-heal")
        steps.append(joined(("Run ", heal, ": it says which broker has the good copy of which range.")))
    return steps


# ---- tables


def _table(listed: Listed, columns: Sequence[Column], words: str) -> Markup:
    """Return a table, and how many rows there was no room for."""
    heads = [
        tag(
            "th",
            column.title,
            scope="col",
            class_="number" if column.key else None,
            data_number="" if column.key else None,
        )
        for column in columns
    ]
    rows = [tag("tr", *(_cell(column, row) for column in columns)) for row in listed.rows]
    more = ""
    if listed.hidden > 0:
        more = tag(
            "p", f"{grouped(listed.hidden)} more are in the tables: ask them with `logmend audit sql`.", class_="more"
        )
    table = tag("table", tag("caption", words), tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return tag(
        "div", tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=words), more, class_="table"
    )


def _cell(column: Column, row: Row) -> Markup:
    shown = column.cell(row)
    if column.key is None:
        return tag("td", "" if shown is None else shown, class_=column.style)
    return tag("td", "–" if shown is None else shown, class_="number", data_key=column.key(row))


def _number(title: str, name: str) -> Column:
    return Column(title, lambda row: None if row[name] is None else grouped(row[name]), lambda row: row[name])


def _size_column(title: str, name: str) -> Column:
    return Column(title, lambda row: short_size(row[name]), lambda row: row[name])


_CLUSTER: Final = Column("Cluster", lambda row: row["cluster"])
_PARTITION: Final = Column("Partition", lambda row: tag("b", f"{row['topic']}-{row['partition']}"))


def _brokers(row: Row, name: str) -> str:
    return ", ".join(row[name]) or "none"


def _replicas(row: Row) -> str:
    expected = row["expected_replicas"]
    return f"{row['replicas']}" if expected is None else f"{row['replicas']} of {expected}"


def _span(first: int | None, last: int | None) -> str | None:
    if first is None:
        return None
    return grouped(first) if last in (None, first) else f"{grouped(first)} – {grouped(last or first)}"


def _badge(name: str) -> Markup:
    return tag("span", _WORDS.get(name, name), class_=f"badge {name}", title=_MEANINGS.get(name))


_VERDICT: Final = Column("Verdict", lambda row: _badge(row["verdict"]))
_REPLICAS: Final = Column("Replicas", _replicas, lambda row: row["replicas"])
_COMPARED: Final = _number("Compared up to", "comparable_until")
_SIZE: Final = _size_column("Size", "size_bytes")
_OLDEST: Final = Column("Oldest verification", lambda row: _day(row["oldest"]))
_SINCE: Final = Column(
    "Bad offsets",
    lambda row: _span(row["disagree_first_offset"], row["disagree_last_offset"]),
    lambda row: row["disagree_first_offset"],
)


def _lone(fleet: Fleet) -> _Section | None:
    if not fleet.lone.total:
        return None
    columns = (
        _CLUSTER, _PARTITION, Column("Good copy on broker", lambda row: tag("b", row["lone_broker"] or "?")), _REPLICAS,
        Column("Bad or missing on", lambda row: _brokers(row, "bad_brokers")), _SINCE, _SIZE,
    )  # fmt: skip
    words = "Partitions of which some data is sound on a single broker"
    return _section("one-good-copy", "One good copy left", _table(fleet.lone, columns, words), number=fleet.lone.total)


def _disagreeing(fleet: Fleet) -> _Section:
    if not fleet.disagreeing.total:
        text = tag("p", "None: wherever replicas can be compared they agree.", class_="none")
        return _section("disagreeing", "Replicas that disagree", text, number=0)
    columns = (
        _VERDICT, _CLUSTER, _PARTITION, _REPLICAS, _number("Agree", "agreeing"),
        Column("Good on", lambda row: _brokers(row, "good_brokers")),
        Column("Bad on", lambda row: _brokers(row, "bad_brokers")), _SINCE, _COMPARED, _SIZE,
    )  # fmt: skip
    words = "Partitions whose replicas differ below the high watermark, lack data or are damaged"
    table = _table(fleet.disagreeing, columns, words)
    return _section("disagreeing", "Replicas that disagree", table, number=fleet.disagreeing.total)


def _unreadable(fleet: Fleet) -> _Section | None:
    if not fleet.unreadable.total:
        return None
    columns = (
        _CLUSTER, _PARTITION, _REPLICAS, Column("Good on", lambda row: _brokers(row, "good_brokers")),
        Column("Not known of", lambda row: _brokers(row, "bad_brokers")), _SIZE,
    )  # fmt: skip
    words = "Partitions with a replica that could not be read"
    return _section("unreadable", "Unreadable", _table(fleet.unreadable, columns, words), number=fleet.unreadable.total)


def _disks(fleet: Fleet) -> _Section:
    largest = max((row["bytes"] for row in fleet.disks.rows), default=0) or 1

    def findings(severity: str) -> Column:
        def cell(row: Row) -> object:
            number = row["findings"][severity]
            return tag("span", grouped(number), class_=f"hit {severity}") if number else None

        return Column(severity.capitalize(), cell, lambda row: row["findings"][severity])

    def bar(row: Row) -> Markup:
        parts = [Part(row["bytes"], "read", ""), Part(largest - row["bytes"], "rest", "")]
        return joined((share_bar(parts, height=8, width=120), tag("span", short_size(row["bytes"]))))

    columns = (
        _CLUSTER, Column("Broker", lambda row: tag("b", row["broker"])),
        Column("Log directory", lambda row: row["log_dir"]), Column("Size", bar, lambda row: row["bytes"]),
        _number("Segments", "segments"), _OLDEST, *(findings(severity) for severity in SEVERITIES),
    )  # fmt: skip
    return _section(
        "disks", "Brokers and disks", _table(fleet.disks, columns, "Log directories, those with grave findings first"),
        number=fleet.disks.total,
    )  # fmt: skip


def _findings(fleet: Fleet) -> _Section:
    if not fleet.kinds:
        return _section("findings", "Findings", tag("p", "None.", class_="none"), number=0)
    most = max(number for _, _, number in fleet.kinds)
    kinds = [
        tag("li", tag("span", kind.replace("_", " "), class_="kind"), tag("span", severity, class_=f"badge {severity}"),
            share_bar([Part(number, severity, ""), Part(most - number, "rest", "")], height=10, width=200),
            tag("b", grouped(number)))
        for kind, severity, number in fleet.kinds[:40]
    ]  # fmt: skip
    columns = (
        Column("Severity", lambda row: tag("span", row["severity"], class_=f"badge {row['severity']}")),
        Column("Kind", lambda row: row["kind"].replace("_", " ")),
        Column("Broker", lambda row: joined((row["cluster"], " ", tag("b", row["broker"])))),
        Column("File or directory", lambda row: tag("code", row["path"]), style="path"), _number("At byte", "position"),
        Column(
            "Offsets", lambda row: _span(row["first_offset"], row["last_offset"]), lambda row: row["first_offset"]
        ),
        Column("How it is known", lambda row: row["evidence"], style="words"),
    )  # fmt: skip
    table = (
        _table(fleet.findings, columns, "Findings that are more than notes, the gravest first")
        if fleet.findings.total
        else ""
    )
    return _section("findings", "Findings", tag("ul", *kinds, class_="kinds"), table, number=fleet.findings.total)


# ---- plots


def _map(fleet: Fleet) -> _Section | None:
    if not fleet.map:
        return None
    drawn, per_square = fleet_map(fleet.map, fleet.bad_names)
    words = (
        "One square is a partition"
        if per_square == 1
        else f"One square is {per_square} partitions, coloured by the worst"
    )
    return _section(
        "map", "The fleet", tag("p", f"{words}; in the order of clusters, topics and numbers.", class_="note"), drawn
    )


def _ages(fleet: Fleet) -> _Section:
    total, most = sum(fleet.ages.values()), max(fleet.ages.values(), default=0) or 1
    styles = {LAST_AGE: "old", QUICK_AGE: "old"}
    rows = [
        tag("li", tag("span", name, class_="kind"),
            share_bar([Part(size, styles.get(name, "read"), ""), Part(most - size, "rest", "")], height=14, width=400),
            tag("b", short_size(size)), tag("span", f"{size / total:.1%}" if total else "–", class_="note"))
        for name, size in fleet.ages.items()
    ]  # fmt: skip
    oldest = f"The oldest data was verified on {_day(fleet.oldest)}." if fleet.oldest else ""
    return _section(
        "ages", "Oldest unverified data", tag("p", oldest, class_="note"), tag("ul", *rows, class_="kinds ages")
    )


def _trend(fleet: Fleet) -> _Section:
    panels = [tag("figure", tag("figcaption", title), plot) for title, plot in trends(fleet.past)]
    alone = tag("p", "This is the first audit; a trend takes two.", class_="note") if len(fleet.past) < 2 else ""
    return _section("trend", "Trend", alone, tag("div", *panels, class_="panels"))


def _topics(fleet: Fleet) -> _Section:
    def bar(row: Row) -> Markup:
        parts = [
            Part(row["verdicts"][name], name, f"{grouped(row['verdicts'][name])} {_WORDS[name]}") for name in VERDICTS
        ]
        return share_bar(parts, height=10, width=200, words=", ".join(part.words for part in parts if part.number))

    def partitions(row: Row) -> int:
        return sum(row["verdicts"].values())

    def not_healthy(row: Row) -> int:
        return partitions(row) - int(row["verdicts"]["healthy"])

    columns = (
        _CLUSTER, Column("Topic", lambda row: tag("b", row["topic"])),
        Column("Partitions", lambda row: grouped(partitions(row)), partitions), Column("Verdicts", bar),
        Column("Not healthy", lambda row: grouped(not_healthy(row)), not_healthy),
        _size_column("Size", "bytes"), _OLDEST,
    )  # fmt: skip
    return _section(
        "topics", "Topics", _table(fleet.topics, columns, "Topics, the worst first, then the largest"),
        number=fleet.topics.total,
    )  # fmt: skip


def _about(fleet: Fleet) -> _Section:
    run = fleet.run
    told = {
        "Audit": run["audit_id"],
        "Started": _moment(run["started_at"]),
        "Finished": _moment(run["finished_at"]),
        "Depth": run["depth"],
        "Taken over from": run["previous_audit_id"] or "nothing: all was read",
        "Exit status": run["status"],
        "logmend": f"{run['logmend_version']}, scanner {run['kernel']}",
        "Manifest, SHA-256": run["manifest_digest"],
    }
    facts = tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in told.items()), class_="facts")
    keys = Markup(
        "<p class='note keys'>Keys: <kbd>/</kbd> filter, <kbd>t</kbd> light or dark, <kbd>Esc</kbd> clear.</p>"
    )
    return _section("about", "About this audit", facts, keys)


def _day(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d}"


def _moment(moment: Any) -> str:
    return "not finished" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
