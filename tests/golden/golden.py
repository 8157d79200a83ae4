"""Log directories that real brokers left, and what Kafka's own loader says of them; README.md tells their origin."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
NAMES: Final = tuple(sorted(path.name.removesuffix(".json") for path in HERE.glob("*.json")))
"""The directories with a verdict of Kafka's beside them; `crashed-sample` and `lived-in` are none of them."""


def extract(name: str, target: Path) -> Path:
    """Unpack the archive `name` under `target`, which is made if need be; return `target`."""
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(target, filter="tar")  # it keeps the modes: a broker's metadata snapshots are read-only
        else:  # Debian 12's own 3.11.2: the archives are ours
            archive.extractall(target)
    return target


def log_dirs(root: Path) -> list[Path]:
    """Return the log directories below the place where a golden was unpacked, in order."""
    return sorted(path for path in root.glob("*/data*") if path.is_dir())


def expected(name: str) -> dict[str, Any]:
    """Return the JSON beside the archive: version, config, stopped, partitions {path: {asked, loaded}}."""
    return dict(json.loads((HERE / f"{name}.json").read_text()))


def unpack(name: str, target: Path) -> dict[str, Path]:
    """Unpack `name`; return its partition directories by the keys that `expected(name)["partitions"]` uses.

    A key is `<broker>/<log directory>/<topic>-<number>`. KRaft's metadata is not among them.
    """
    extract(name, target)
    return {key: target / key for key in sorted(expected(name)["partitions"])}


def checkpoint(path: Path) -> dict[str, int]:
    """Return `<topic>-<partition>`: offset of an offset checkpoint; nothing where there is none."""
    if not path.exists():
        return {}
    rows = [line.split() for line in path.read_text().splitlines()[2:]]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in rows}
