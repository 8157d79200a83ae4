"""Three brokers' log directories, damaged in every way that an audit has to find, and in ways that it must not mind.

Each `plant_*` changes a copy of the golden `three-brokers` and returns what has to be found: broker, partition
directory and kind. Broker 1 of the golden was killed early, so its high watermarks are lower than those of 0 and 2.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from golden.golden import extract
from support.batches import batch_v2, record, reseal

from audit.tables.options import Source
from storage.batch.batch import parse_header

BROKERS = ("0", "1", "2")


class Expected(NamedTuple):
    """What an audit must say: all findings, as broker, directory and kind; and verdicts that are not healthy."""

    findings: frozenset[tuple[str, str, str]] = frozenset()
    verdicts: frozenset[tuple[str, str]] = frozenset()


Plant = Callable[[Path], Expected]


def copy_fleet(target: Path) -> Path:
    """Unpack the golden below `target` and return it."""
    return extract("three-brokers", target)


def sources(root: Path, cluster: str) -> list[Source]:
    """Return the log directories of one copy."""
    return [Source(cluster, broker, str(root / broker / "data")) for broker in BROKERS]


def log_of(root: Path, broker: str, directory: str, number: int) -> Path:
    """Return the `.log` of a segment by its place in the partition, -1 for the last."""
    return sorted((root / broker / "data" / directory).glob("*.log"))[number]


def batches_of(path: Path) -> list[bytes]:
    """Return the batches of a sound `.log`."""
    data, found = path.read_bytes(), []
    while data:
        size = parse_header(data).size
        found.append(data[:size])
        data = data[size:]
    return found


def _found(*rows: tuple[str, str, str], verdicts: Iterable[tuple[str, str]] = ()) -> Expected:
    return Expected(frozenset(rows), frozenset(verdicts))


# ---- what must be found


def plant_rot(root: Path) -> Expected:
    """Flip a bit within a batch of a sealed segment; sound batches lie behind it."""
    path = log_of(root, "2", "ledger-0", 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    return _found(
        ("2", "ledger-0", "batch_crc"), ("2", "ledger-0", "replica_hole"), verdicts=[("ledger-0", "degraded")]
    )


def plant_divergence(root: Path) -> Expected:
    """Give the last batches of one replica another content and a newer epoch, as an unclean election does."""
    path = log_of(root, "2", "ledger-0", -1)
    changed = []
    for number, batch in enumerate(batches_of(path)):
        if number >= 2:
            other = bytearray(batch)
            other[12:16] = (7).to_bytes(4)
            other[27:35] = (int.from_bytes(batch[27:35]) + 5).to_bytes(8)
            batch = reseal(bytes(other))  # noqa: PLW2901
        changed.append(batch)
    path.write_bytes(b"".join(changed))
    return _found(("2", "ledger-0", "replica_differs"), verdicts=[("ledger-0", "divergent")])


def plant_missing_tail(root: Path) -> Expected:
    """Cut the last segment of one replica at a batch, below the high watermark."""
    path = log_of(root, "2", "ledger-1", -1)
    path.write_bytes(b"".join(batches_of(path)[:3]))
    _without_indexes(path)
    return _found(
        ("2", "ledger-1", "replica_behind"),
        ("2", "ledger-1", "index_missing"),
        ("2", "ledger-1", "time_index_missing"),
        verdicts=[("ledger-1", "degraded")],
    )


def plant_missing_segment(root: Path) -> Expected:
    """Remove a whole segment from the middle of one replica."""
    path = log_of(root, "0", "ledger-0", 1)
    for file in path.parent.glob(path.stem + ".*"):
        file.unlink()
    return _found(("0", "ledger-0", "replica_hole"), verdicts=[("ledger-0", "degraded")])


def plant_missing_replica(root: Path) -> Expected:
    """Remove a partition directory that the metadata assigns to the broker."""
    shutil.rmtree(root / "1" / "data" / "ledger-1")
    return _found(
        ("1", "ledger-1", "replica_missing"), ("", "ledger-1", "under_replicated"), verdicts=[("ledger-1", "degraded")]
    )


def plant_lone_copy(root: Path) -> Expected:
    """Leave one replica of three."""
    for broker in ("0", "1"):
        shutil.rmtree(root / broker / "data" / "ledger-2")
    return _found(
        ("0", "ledger-2", "replica_missing"),
        ("1", "ledger-2", "replica_missing"),
        ("", "ledger-2", "under_replicated"),
        verdicts=[("ledger-2", "one_good_copy")],
    )


def plant_wrong_topic_id(root: Path) -> Expected:
    """Let a directory belong to an older topic of the same name."""
    path = root / "0" / "data" / "ledger-0" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    return _found(("0", "ledger-0", "wrong_topic_id"), verdicts=[("ledger-0", "degraded")])


def plant_stray(root: Path) -> Expected:
    """Leave a directory of a partition that the metadata does not know."""
    shutil.copytree(root / "0" / "data" / "ledger-0", root / "0" / "data" / "ledger-7")
    return _found(("0", "ledger-7", "stray_replica"))


def plant_unreadable(root: Path) -> Expected:
    """Take the log directory of one broker away, as a disk that is not mounted."""
    shutil.rmtree(root / "1" / "data")
    partitions = ("ledger-0", "ledger-1", "ledger-2")
    return _found(("1", "", "unreadable"), verdicts=[(name, "unreadable") for name in partitions])


def plant_lost_key(root: Path) -> Expected:
    """Lose the last record of a key in one replica of a compacted topic."""
    _compacted(root, ["a", "b", "c", "a", "b", "d"], {"0": [], "1": [0, 1], "2": [0, 2]})
    return _found(("2", "profiles-0", "replica_hole"), verdicts=[("profiles-0", "degraded")])


def plant_other_value(root: Path) -> Expected:
    """Let replicas of a compacted topic hold different values at an offset that both still have."""
    _compacted(root, ["a", "b", "c", "a", "b", "d"], {"0": [0], "1": [0, 1], "2": [0]})
    path = root / "2" / "data" / "profiles-0" / f"{0:020}.log"
    path.write_bytes(b"".join(_keyed(n, key, value=b"x" if n == 2 else None) for n, key in enumerate("abcabd") if n))
    return _found(("2", "profiles-0", "replica_differs"), verdicts=[("profiles-0", "divergent")])


# ---- what must not be minded


def plant_nothing(root: Path) -> Expected:
    """Change nothing."""
    return _found()


def plant_torn_tail(root: Path) -> Expected:
    """Stop a copy in the middle of a batch that was just being written."""
    for broker, size in (("0", 100), ("2", 300)):
        with log_of(root, broker, "ledger-2", -1).open("ab") as file:
            file.write(batch_v2(1295, 40)[:size])
    return _found()


def plant_roll(root: Path) -> Expected:
    """Copy a replica just when a new segment was made."""
    directory = root / "0" / "data" / "ledger-2"
    for suffix, size in ((".log", 0), (".index", 10_485_760), (".timeindex", 10_485_756)):
        path = directory / f"{1295:020}{suffix}"
        path.touch()
        with path.open("ab") as file:
            file.truncate(size)
    for suffix, width in ((".index", 8), (".timeindex", 12)):  # a broker trims them before it makes new ones
        _trim(directory / f"{1084:020}{suffix}", width)
    return _found()


def plant_cleaned_at_other_times(root: Path) -> Expected:
    """Compact the same topic once on one broker, further on another, not at all on the third."""
    _compacted(root, ["a", "b", "c", "a", "b", "d"], {"0": [], "1": [0], "2": [0, 1]})
    return _found()


def plant_compaction_under_way(root: Path) -> Expected:
    """Copy a directory while its segments are being replaced."""
    _compacted(root, ["a", "b", "c", "a", "b", "d"], {"0": [], "1": [0], "2": [0, 1]})
    directory = root / "1" / "data" / "profiles-0"
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copy(directory / f"{0:020}{suffix}", directory / f"{0:020}{suffix}.deleted")
    shutil.copy(directory / f"{0:020}.log", directory / f"{0:020}.log.cleaned")
    return _found()


def plant_other_log_start(root: Path) -> Expected:
    """Let retention take the first segment of one replica earlier than those of the others."""
    first = log_of(root, "0", "ledger-0", 0)
    for file in first.parent.glob(first.stem + ".*"):
        file.unlink()
    return _found()


DAMAGED: dict[str, Plant] = {
    "rot": plant_rot,
    "divergence": plant_divergence,
    "missing-tail": plant_missing_tail,
    "missing-segment": plant_missing_segment,
    "missing-replica": plant_missing_replica,
    "lone-copy": plant_lone_copy,
    "wrong-topic-id": plant_wrong_topic_id,
    "stray": plant_stray,
    "unreadable": plant_unreadable,
    "lost-key": plant_lost_key,
    "other-value": plant_other_value,
}
HEALTHY: dict[str, Plant] = {
    "nothing": plant_nothing,
    "torn-tail": plant_torn_tail,
    "roll": plant_roll,
    "cleaned-at-other-times": plant_cleaned_at_other_times,
    "compaction-under-way": plant_compaction_under_way,
    "other-log-start": plant_other_log_start,
}


def _trim(path: Path, width: int) -> None:
    data = path.read_bytes()
    while data.endswith(bytes(width)):
        data = data[:-width]
    path.write_bytes(data)


def _without_indexes(path: Path) -> None:
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()


def _keyed(offset: int, key: str, value: bytes | None = None) -> bytes:
    content = value if value is not None else f"{key}{offset}".encode()
    return batch_v2(offset, [record(key=key.encode(), value=content)])


def _compacted(root: Path, keys: list[str], removed: dict[str, list[int]]) -> None:
    """Add a compacted topic: a record a batch, without those that each broker has removed; no metadata knows it."""
    for broker in BROKERS:
        shutil.rmtree(root / broker / "data" / "__cluster_metadata-0")
        log_dir = root / broker / "data"
        directory = log_dir / "profiles-0"
        directory.mkdir()
        gone = removed[broker]
        data = b"".join(_keyed(n, key) for n, key in enumerate(keys) if n not in gone)
        (directory / f"{0:020}.log").write_bytes(data)
        for suffix in (".index", ".timeindex"):
            (directory / f"{0:020}{suffix}").write_bytes(bytes(1200))
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        _append_line(log_dir / "replication-offset-checkpoint", f"profiles 0 {len(keys)}")
        _append_line(log_dir / "cleaner-offset-checkpoint", f"profiles 0 {3 if gone else 0}")


def _append_line(path: Path, line: str) -> None:
    lines = path.read_text().splitlines() if path.stat().st_size else ["0", "0"]
    path.write_text("\n".join([lines[0], str(int(lines[1]) + 1), *lines[2:], line]) + "\n")
