"""The engine opens what real brokers have left, of every release, killed or shut down, and leaves it clean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

import pytest
from golden.golden import NAMES, extract, log_dirs
from support.managers import NOW
from support.recovering import plan

from cli.engine.read import records_between
from engine.manager.manager import LogManager
from storage.disk.fs import OsFs


def read_all(paths: Sequence[Path]) -> dict[str, list[tuple[int, bytes | None, bytes | None]]]:
    """Open, read everything, shut down cleanly; return the records by partition."""
    with LogManager.open(OsFs(), [PurePath(path) for path in paths], NOW) as manager:
        assert manager.offline == {}
        return {
            str(partition.name): [
                (record.offset, record.key, record.value)
                for record in records_between(partition.log, partition.log.log_start, partition.log.log_end)
            ]
            for _, partition in manager.partitions()
        }


def brokers(root: Path) -> list[list[Path]]:
    """Return the log directories of each broker."""
    found: dict[Path, list[Path]] = {}
    for log_dir in log_dirs(root) or [root]:
        found.setdefault(log_dir.parent, []).append(log_dir)
    return list(found.values())


@pytest.mark.parametrize("name", [*NAMES, "crashed-sample"])
def test_the_logs_of_a_broker_are_served_and_left_clean(name: str, tmp_path: Path) -> None:
    for paths in brokers(extract(name, tmp_path / name)):
        first = read_all(paths)
        assert sum(map(len, first.values())) > 0
        assert all((path / ".kafka_cleanshutdown").exists() for path in paths)
        assert [plan(path).is_empty for path in paths] == [True] * len(paths)
        assert read_all(paths) == first
