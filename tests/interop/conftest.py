"""Fixtures that let real Kafka look at our files, or write some for us."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from interop.kafka_lab import KAFKA, Cluster, Oracle, jars

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder `interop`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("interop")


@functools.cache
def missing() -> str:
    """Return what real Kafka lacks on this machine, or nothing."""
    for command in ("java", "mvn"):
        if shutil.which(command) is None:
            return (
                f"{command} is not installed: JDK 17 and Maven are needed (`make test` as root on Debian brings them)"
            )
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=False).stdout
    if "jdk.compiler@" not in modules:
        return "java has no compiler module (install openjdk-17-jdk-headless): Oracle.java runs from its source"
    try:
        jars()
    except subprocess.CalledProcessError as error:
        return f"Maven could not fetch Kafka {KAFKA}: {error}"
    return ""


@pytest.fixture(scope="session")
def kafka_kit() -> None:
    """Skip where Java or Maven are missing; with CI set that is a failure, lest a gate passes on tests it never ran."""
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(f"CI is set and {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def oracle(kafka_kit: None) -> Iterator[Oracle]:
    """Kafka's own log classes in one JVM for all tests of a worker; name your logs so that they do not meet."""
    with Oracle() as started:
        yield started


@pytest.fixture
def kafka_cluster(kafka_kit: None, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Return a function that starts a cluster, with the arguments of `Cluster`; all are shut down after the test."""
    with ExitStack() as running:

        def start(name: str = "kafka", **arguments: Any) -> Cluster:
            return running.enter_context(Cluster(tmp_path / name, **arguments))

        yield start
