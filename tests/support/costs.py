"""What tests cost in processor time, their processes included: `PYTHONPATH=tests pytest -p support.costs PATHS`.

Processor time holds on a machine that others use too, where wall time does not.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
ROWS = 40


def _used_by(process: str) -> float:
    """Return the seconds that a process, those it has waited for and its living descendants have used."""
    try:
        fields = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
        threads = list(Path("/proc", process, "task").iterdir())
        children = " ".join((thread / "children").read_text() for thread in threads).split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS + sum(map(_used_by, children))


class Costs:
    """Counts in each worker, adds up where the reports arrive."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._before = 0.0

    def pytest_collection_finish(self) -> None:
        self._before = _used_by(str(os.getpid()))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note what was used since the test before it: a shared fixture counts for its first and its last user."""
        report = yield
        if call.when == "teardown":
            now = _used_by(str(os.getpid()))
            report.user_properties.append(("processor_seconds", now - self._before))
            self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.seconds[report.nodeid] += float(str(dict(report.user_properties).get("processor_seconds", 0)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        suites: Counter[str] = Counter()
        files: Counter[str] = Counter()
        for test, seconds in self.seconds.items():
            file = test.partition("::")[0]
            suites["/".join(file.split("/")[:2])] += seconds
            files[file] += seconds
        terminalreporter.section("processor seconds")
        for title, table in ("suites", suites), ("files", files), ("tests", self.seconds):
            terminalreporter.write_line(f"{sum(table.values()):8.1f} all {title}")
            for name, seconds in table.most_common(ROWS):
                terminalreporter.write_line(f"{seconds:8.1f} {name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs())
