"""What is shipped for Prometheus and Grafana, tried with Prometheus' own tool."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.needs import program
from support.service_states import STATES

from daemon.events.names import EVENTS
from daemon.http.metrics import METRICS, exposition

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "logmend-alerts.yml"
TESTS = ROOT / "deploy" / "prometheus" / "logmend-alerts-test.yml"
BOARD = ROOT / "deploy" / "grafana" / "logmend.json"


@pytest.fixture(scope="module")
def promtool() -> str:
    return program("promtool")


def call(*words: str, stdin: bytes | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, input=stdin, cwd=cwd, capture_output=True, check=False)


def alerts() -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)


def test_the_alerts_are_rules_of_prometheus(promtool: str) -> None:
    done = call(promtool, "check", "rules", str(RULES))
    assert done.returncode == 0, done.stderr.decode()


def test_each_alert_fires_when_it_should_and_not_before(promtool: str) -> None:
    done = call(promtool, "test", "rules", TESTS.name, cwd=TESTS.parent)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    tried = re.findall(r"^ +alertname: (\w+)$", TESTS.read_text(), re.MULTILINE)
    assert sorted(tried) == sorted(2 * alerts())
    assert len(set(alerts())) >= 15


def test_the_tests_of_the_alerts_notice_a_rule_that_is_broken(promtool: str, tmp_path: Path) -> None:
    text = RULES.read_text()
    (tmp_path / TESTS.name).write_text(TESTS.read_text())
    for old, new in (("> 600", "> 6000"), ('state="offline"', 'state="ofline"'), ("for: 6h", "for: 7h")):
        assert old in text
        (tmp_path / RULES.name).write_text(text.replace(old, new))
        assert call(promtool, "test", "rules", TESTS.name, cwd=tmp_path).returncode != 0, old


def test_every_runbook_that_an_alert_names_is_there() -> None:
    named = re.findall(r"runbook: (\S+)", RULES.read_text())
    assert len(named) >= 8
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("name", list(STATES))
def test_metrics_of_every_state_pass_the_lint_of_prometheus(promtool: str, name: str) -> None:
    text = exposition(STATES[name](), tuple(EVENTS), partition_labels=name != "large")
    done = call(promtool, "check", "metrics", stdin=text)
    assert (done.returncode, done.stderr) == (0, b"")


def test_kafkas_own_names_are_there_only_when_asked_for_and_only_in_a_recovery() -> None:
    state = STATES["recovering"]()
    plain = exposition(state, ()).decode()
    asked = exposition(state, (), kafka_names=True).decode()
    assert "kafka_" not in plain
    assert 'kafka_log_logmanager_remaininglogstorecover{dir="/var/lib/kafka/data-1"} 179.0' in asked
    assert 'kafka_log_logmanager_remainingsegmentstorecover{dir="/var/lib/kafka/data-1",threadnum="0"} 4077.0' in asked
    idle = exposition(STATES["sound"](), (), kafka_names=True).decode()
    assert "kafka_log_logmanager_remaininglogstorecover{" not in idle


def test_all_that_is_registered_comes_out_and_nothing_else() -> None:
    text = "".join(
        exposition(STATES[name](), tuple(EVENTS), partition_labels=True, kafka_names=True).decode()
        for name in ("damaged", "recovering")
    )
    shown = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    assert shown == set(METRICS)


def test_partitions_are_named_only_when_asked_for() -> None:
    state = STATES["sound"]()
    assert "orders" not in exposition(state, tuple(EVENTS)).decode()
    asked = exposition(state, (), partition_labels=True).decode()
    assert asked.count('topic="orders"') == 50


def test_the_dashboard_is_laid_out_without_overlaps_and_asks_valid_questions(promtool: str, tmp_path: Path) -> None:
    board = json.loads(BOARD.read_text())
    taken: set[tuple[int, int]] = set()
    expressions = []
    for panel in board["panels"]:
        at = panel["gridPos"]
        places = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert taken.isdisjoint(places), panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= places
        expressions += [target["expr"] for target in panel.get("targets", ())]
    rules = [
        {"record": f"panel:{i}", "expr": text.replace("$__rate_interval", "5m")} for i, text in enumerate(expressions)
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = call(promtool, "check", "rules", str(tmp_path / "rules.yml"))
    assert done.returncode == 0, done.stderr.decode()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
