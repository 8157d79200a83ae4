"""What an audit is asked to do, and where the log directories lie."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from audit.tables.reading import open_place
from recovery.plan.plan import DEFAULT_INDEX_BYTES, DEFAULT_INDEX_INTERVAL
from storage.base.errors import ConfigInvalid, printable
from storage.disk.fs import read_all

DEFAULT_CLUSTER: Final = "cluster"
_MANIFEST_LIMIT: Final = 256 << 20
_COLUMNS: Final = ("broker", "log_dir")


class Source(NamedTuple):
    """One log directory: a path that every executor can read, or a URI."""

    cluster: str
    broker: str
    log_dir: str


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How an audit is done; sizes in bytes. It travels to the executors."""

    out: str = ""
    """Where the tables are: a directory or URI that driver and executors can write to."""
    depth: str = "full"
    """`quick`, `full` or `records`."""
    audit_id: str = ""
    """Empty: named after the time of its start."""
    previous: str | None = None
    """Id of an audit in the same place whose rows are taken over where nothing changed; `latest` for the newest."""
    cycle: int = 30
    """One in so many unchanged segments is read again all the same."""
    topics: tuple[str, ...] = ()
    """Patterns; none means all."""
    task_bytes: int = 8 << 30
    split_bytes: int = 8 << 30
    """A segment larger than this is cut, at index entries, into parts of about this size."""
    wave_tasks: int = 50_000
    """Tasks of one Spark job."""
    detail_blocks: int = 256
    """Blocks of a partition, at most, of which batches are fetched where digests differ."""
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL
    segment_index_bytes: int = DEFAULT_INDEX_BYTES
    now_ms: int = 0
    """Time of the start in ms."""
    reports: tuple[str, ...] = ()
    """Files that `audit scan` wrote where the disks are; then no disk is read."""
    version: str = ""
    """Of logmend, where it is known."""


def sources_from_flags(pairs: Iterable[str], cluster: str = DEFAULT_CLUSTER) -> list[Source]:
    """Return the sources of `BROKER=PATH`; raises `ConfigInvalid` for anything else."""
    found = []
    for pair in pairs:
        broker, equals, place = pair.partition("=")
        if not equals or not broker or not place:
            raise ConfigInvalid(f"--log-dir {printable(pair)}: BROKER=PATH is wanted, as in --log-dir 1=/var/lib/kafka")
        found.append(Source(cluster, broker, place))
    return _checked(found)


def read_manifest(name: str) -> list[Source]:
    """Return the log directories that a CSV, JSON lines or Parquet file lists, told apart by its suffix.

    Columns are `cluster` (may be left out), `broker` and `log_dir`. Raises `ConfigInvalid`, and `ReadFault`.
    """
    fs, path = open_place(name)
    data = read_all(fs, path, _MANIFEST_LIMIT)
    suffix = path.suffix.lower()
    try:
        rows = _PARSERS[suffix](data)
    except KeyError:
        raise ConfigInvalid(f"manifest {printable(name)}: .csv, .jsonl or .parquet are known") from None
    except (ValueError, csv.Error) as error:
        raise ConfigInvalid(f"manifest {printable(name)}: {printable(error)}") from None
    return _checked([_source(name, number, row) for number, row in enumerate(rows, start=1)])


def _source(name: str, number: int, row: Mapping[str, Any]) -> Source:
    missing = [column for column in _COLUMNS if row.get(column) in (None, "")]
    if missing:
        raise ConfigInvalid(f"manifest {printable(name)}, row {number}: {' and '.join(missing)} missing")
    return Source(str(row.get("cluster") or DEFAULT_CLUSTER), str(row["broker"]), str(row["log_dir"]))


def _checked(sources: Sequence[Source]) -> list[Source]:
    if not sources:
        raise ConfigInvalid("no log directory: give --manifest FILE, or --log-dir BROKER=PATH")
    seen = set()
    for source in sources:
        if source in seen:
            raise ConfigInvalid(f"{printable(source.log_dir)} of broker {printable(source.broker)} is named twice")
        seen.add(source)
    return list(sources)


def manifest_digest(sources: Iterable[Source]) -> str:
    """Return a SHA-256, in hex, over the sources, whatever their order."""
    lines = sorted(json.dumps(source, ensure_ascii=True) for source in sources)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _csv(data: bytes) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"))))


def _json_lines(data: bytes) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in data.decode("utf-8").splitlines() if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a line is no JSON object")
    return rows


def _parquet(data: bytes) -> list[dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415 (only this form needs it)
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(data)).to_pylist()
    except pa.ArrowInvalid as error:
        raise ValueError(error) from None
    return rows


_PARSERS: Final = {".csv": _csv, ".jsonl": _json_lines, ".json": _json_lines, ".parquet": _parquet}


def place_of(source: Source, *parts: str) -> str:
    """Return the path or URI of something in a log directory, as it is shown to people."""
    joined = PurePath(*parts).as_posix() if parts else ""
    return f"{source.log_dir.rstrip('/')}/{joined}" if joined else source.log_dir
