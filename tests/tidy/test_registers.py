"""The generated pages equal the code, and every event that is told and metric that is shown is registered."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

import pytest
from tidy.registers import PAGES, expected, written
from tidy.tree import ROOT, sources, tree

from daemon.events.events import LEVELS
from daemon.events.names import EVENTS
from daemon.http.metrics import METRICS

METRIC = re.compile(r"\b(?:logmend|kafka)_[a-z_]+\b")


@pytest.mark.parametrize("page", list(PAGES))
def test_the_generated_part_of_a_page_is_that_of_the_code(page: str) -> None:
    assert written(page) == expected(page), "run python tests/tidy/registers.py"


def told() -> Iterator[tuple[str, str, list[str] | None]]:
    """Yield (place, event, fields) of each `tell` of a name as it stands; no fields where some are unpacked."""
    for path in sources("engine", "daemon", "server", "cli"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "tell":
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                if node.args and isinstance(node.args[0], ast.Constant):
                    names = [keyword.arg for keyword in node.keywords]
                    fields = None if None in names else [name for name in names if name is not None]
                    yield place, str(node.args[0].value), fields


def test_every_event_that_is_told_is_registered_with_its_fields() -> None:
    found = list(told())
    assert len(found) > 10
    assert [f"{place}: {event}" for place, event, _ in found if event not in EVENTS] == []
    strange = [
        f"{place}: {event}: {field}"
        for place, event, fields in found
        for field in fields or ()
        if field not in EVENTS[event].fields
    ]
    assert strange == []


def test_every_registered_event_is_told_somewhere() -> None:
    words = {
        str(node.value)
        for path in sources("engine", "daemon", "server", "cli")
        if path != ROOT / "daemon/events/names.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant)
    }
    assert sorted(set(EVENTS) - words) == []


def test_the_register_of_events_is_sound() -> None:
    for name, kind in EVENTS.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name), name
        assert kind.level in LEVELS, name
        assert kind.meaning, name
        assert len(set(kind.fields)) == len(kind.fields), name
        assert set(kind.sums) <= set(kind.fields), name


def test_names_of_metrics_say_their_unit_and_kind() -> None:
    for name, kind in METRICS.items():
        assert name.endswith("_total") == (kind.type == "counter"), name
        assert kind.meaning.endswith("."), name
        assert not kind.labels or kind.labels[0] in ("dir", "listen", "group", "version", "kind", "event"), name


def used(text: str) -> set[str]:
    names = {name for name in METRIC.findall(text) if not name.startswith("logmend_data")}
    series = {f"{name}_bucket": name for name, kind in METRICS.items() if kind.type == "histogram"}
    return {series.get(name, name) for name in names}


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    board = json.loads((ROOT / "deploy" / "grafana" / "logmend.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) >= 15
    assert used(" ".join(queries)) - set(METRICS) == set()
    assert all(panel["title"] and panel.get("description") for panel in panels)


def test_the_alerts_use_metrics_that_there_are() -> None:
    text = (ROOT / "deploy" / "prometheus" / "logmend-alerts.yml").read_text()
    names = used(" ".join(line for line in text.splitlines() if not line.lstrip().startswith("#")))
    assert len(names) >= 8
    assert names - set(METRICS) == set()
