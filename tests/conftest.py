"""Rules for all tests: in CI a skip fails unless the machine is at fault, slow tests come first, JVMs start quickly."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from support.needs import fail_in_ci, need

# Read by interop.kafka_lab and clients.running. Benches start Kafka without them.
os.environ.setdefault("LOGMEND_QUICK_JVM", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow tests first: one that began last would leave the other cores idle."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        need(*mark.args, **mark.kwargs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        fail_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_in_ci(report)
    return report
