"""Fixtures that let real Kafka look at our files, or write some for us."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from interop.kafka_lab import Cluster, Oracle
from support.needs import need_kafka

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder `interop`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("interop")


@pytest.fixture(scope="session")
def kafka_kit() -> None:
    need_kafka()


@pytest.fixture(scope="session")
def oracle(kafka_kit: None) -> Iterator[Oracle]:
    """Kafka's own log classes in one JVM for all tests of a worker; name your logs so that they do not meet."""
    with Oracle() as started:
        yield started


@pytest.fixture
def kafka_cluster(kafka_kit: None, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Return a function that starts a cluster, with the arguments of `Cluster`; all are killed after the test."""
    with ExitStack() as running:

        def start(name: str = "kafka", **arguments: Any) -> Cluster:
            return running.enter_context(Cluster(tmp_path / name, **arguments))

        yield start
