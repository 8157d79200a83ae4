"""Fixtures: a listener or broker to talk to, and clients that talk to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clients import left
from clients.running import ClientMissing, Driver, Drivers
from clients.targets import AGAINST_KAFKA, Broker, Listener, Target
from support.needs import need_kafka

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder `clients`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("clients")


@pytest.fixture(scope="session")
def a_broker_left(tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """A broker that was killed, with the directory of `left.py`."""
    need_kafka()
    broker = Broker(tmp_path_factory.mktemp("left"))
    with broker, Drivers(broker.bootstrap, broker.cluster.directory / "filling") as drivers:
        left.fill(drivers)
        broker.kill()
    left.plant_far_offsets(broker.log_dir)
    return broker


@pytest.fixture(scope="session")
def inspected(a_broker_left: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The directory that the killed broker left, shown and not repaired; or that broker, started again."""
    if AGAINST_KAFKA:
        with a_broker_left:
            yield a_broker_left
    else:
        with Listener(a_broker_left.log_dir, tmp_path_factory.mktemp("inspected"), "--read-only") as listener:
            yield listener


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A new directory for all clients to write."""
    directory = tmp_path_factory.mktemp("written")
    if AGAINST_KAFKA:
        with Broker(directory) as broker:
            yield broker
    else:
        log_dir = directory / "data"
        log_dir.mkdir()
        with Listener(log_dir, directory / "listener") as listener:
            yield listener


class Asking(Drivers):
    """Drivers that skip the test where a client cannot be had."""

    def __call__(self, name: str, number: int = 0) -> Driver:
        try:
            return super().__call__(name, number)
        except ClientMissing as missing:
            pytest.skip(str(missing))


def _asking(target: Target, directory: Path) -> Iterator[Drivers]:
    with Asking(target.bootstrap, directory) as drivers:
        yield drivers


@pytest.fixture(scope="session")
def readers(inspected: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Clients of `inspected`."""
    yield from _asking(inspected, tmp_path_factory.mktemp("readers"))


@pytest.fixture(scope="session")
def clients(written: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Clients of `written`."""
    yield from _asking(written, tmp_path_factory.mktemp("clients"))


@pytest.fixture
def topic(request: pytest.FixtureRequest, clients: Drivers) -> Callable[..., str]:
    """Return a function that makes a topic nobody else uses, with a name after the test."""
    made = 0

    def make(partitions: int = 1, **config: str) -> str:
        nonlocal made
        made += 1
        plain = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.removeprefix("test_"))
        name = f"{plain[:80].strip('-')}-{made}-{os.getpid()}"
        told = {key.replace("_", "."): value for key, value in config.items()}
        clients("confluent").ask("create", topic=name, partitions=partitions, config=told)
        return name

    return make
