"""What the report page says, as small values: the tables of an audit in, all that is counted and cut to size out.

Needs pyarrow and no Spark. Memory is bounded by partitions and disks, not by segments: those are read in pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from audit.tables.schema import Verdict
from recovery.plan.findings import Severity

VERDICTS: Final = tuple(verdict.value for verdict in Verdict)
"""From the best to the worst."""
SEVERITIES: Final = tuple(severity.value for severity in reversed(Severity))
"""From the worst to the mildest."""
AUDITS: Final = 60
"""Audits of a trend, at most."""
MAP_NAMES: Final = 5000
"""Partitions that the map of the fleet names, at most."""
AGES: Final = ((1, "less than a day"), (7, "1 to 7 days"), (30, "7 to 30 days"), (90, "30 to 90 days"))
LAST_AGE: Final = "over 90 days"
QUICK_AGE: Final = "never in full"
_NAMES: Final = ("cluster", "topic", "partition")

Row = dict[str, Any]


class Tables(Protocol):
    """What the report reads. Columns are those of `audit.tables.schema`."""

    def audit_ids(self) -> list[str]:
        """Return the finished audits, the oldest first."""

    def batches(self, name: str, audit_id: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of one table of one audit, in pieces."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Rows that are shown, the worst first, and how many there are in all."""

    rows: list[Row]
    total: int

    @property
    def hidden(self) -> int:
        """Rows that did not fit."""
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class Past:
    """One audit of the trend."""

    audit_id: str
    started_at: datetime
    seconds: float | None
    bytes_read: int
    bytes_listed: int
    status: int
    verdicts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Fleet:
    """All that the page says."""

    run: Row
    verdicts: Counter[str]
    brokers: int
    replicas: int
    lone: Listed
    disagreeing: Listed
    unreadable: Listed
    findings: Listed
    kinds: list[tuple[str, str, int]]
    """Kind, severity and number, the worst first."""
    disks: Listed
    topics: Listed
    ages: dict[str, int]
    """Bytes by how long ago they were last read in full."""
    oldest: datetime | None
    map: Sequence[int]
    """Of each partition in order of cluster, topic and number, the place of its verdict in `VERDICTS`."""
    bad_names: dict[int, str]
    """Names of what is not healthy, by the place in `map`."""
    past: list[Past]

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self.verdicts.total()

    @property
    def severities(self) -> Counter[str]:
        """How many findings there are of each severity."""
        found: Counter[str] = Counter()
        for _, severity, number in self.kinds:
            found[severity] += number
        return found


def gather(tables: Tables, audit_id: str, limit: int) -> Fleet:
    """Return what is to be said of an audit, with at most `limit` rows in each list."""
    ids = tables.audit_ids()
    ids = ids[: ids.index(audit_id) + 1][-AUDITS:]
    past = [_past(tables, each) for each in ids]
    run = _table(tables, "runs", audit_id).to_pylist()[0]
    verdicts = _table(tables, "verdicts", audit_id)
    verdicts = verdicts.sort_by([(name, "ascending") for name in _NAMES])
    segments = _Segments(tables, audit_id, run["finished_at"] or run["started_at"])
    kinds, findings, by_disk = _findings(tables, audit_id, limit)
    return Fleet(
        run=run,
        verdicts=Counter(dict(past[-1].verdicts)),
        brokers=len({(row["cluster"], row["broker"]) for row in segments.disks()}),
        replicas=pc.sum(verdicts["replicas"]).as_py() or 0,
        lone=_worst(verdicts, limit, Verdict.ONE_GOOD_COPY),
        disagreeing=_worst(verdicts, limit, Verdict.DIVERGENT, Verdict.DEGRADED),
        unreadable=_worst(verdicts, limit, Verdict.UNREADABLE),
        findings=findings,
        kinds=kinds,
        disks=_disks(segments.disks(), by_disk, limit),
        topics=_topics(verdicts, segments.topics(), limit),
        ages=segments.ages(),
        oldest=segments.oldest(),
        map=pc.index_in(verdicts["verdict"], pa.array(VERDICTS)).to_pylist(),
        bad_names=_bad_names(verdicts),
        past=past,
    )


def _table(tables: Tables, name: str, audit_id: str, columns: Sequence[str] = ()) -> pa.Table:
    from audit.tables.schema import TABLES, arrow_schema  # noqa: PLC0415

    schema = arrow_schema(TABLES[name])
    wanted = columns or schema.names
    schema = pa.schema([schema.field(column) for column in wanted])
    return pa.Table.from_batches([batch.cast(schema) for batch in tables.batches(name, audit_id, wanted)], schema)


def _past(tables: Tables, audit_id: str) -> Past:
    (run,) = _table(tables, "runs", audit_id).to_pylist()
    counted = _table(tables, "verdicts", audit_id, ["verdict"]).group_by("verdict").aggregate([([], "count_all")])
    counts = dict(zip(counted["verdict"].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    took = None if run["finished_at"] is None else (run["finished_at"] - run["started_at"]).total_seconds()
    return Past(
        audit_id, run["started_at"], took, run["bytes_read"], run["bytes_listed"], run["status"],
        {name: counts.get(name, 0) for name in VERDICTS},
    )  # fmt: skip


def _worst(verdicts: pa.Table, limit: int, *kinds: Verdict) -> Listed:
    """Return the partitions of some verdicts, one after another, the largest first."""
    rows: list[Row] = []
    total = 0
    for verdict in kinds:
        found = verdicts.filter(pc.equal(verdicts["verdict"], verdict.value)).sort_by([("size_bytes", "descending")])
        rows += found.slice(0, limit - len(rows)).to_pylist()
        total += found.num_rows
    return Listed(rows, total)


def _bad_names(verdicts: pa.Table) -> dict[int, str]:
    """Return the names of partitions that are not healthy, by their row."""
    bad = pc.indices_nonzero(pc.not_equal(verdicts["verdict"], Verdict.HEALTHY.value)).slice(0, MAP_NAMES)
    rows = verdicts.select(["cluster", "topic", "partition"]).take(bad).to_pylist()
    return {
        at: f"{row['cluster']}: {row['topic']}-{row['partition']}"
        for at, row in zip(bad.to_pylist(), rows, strict=True)
    }


def _findings(
    tables: Tables, audit_id: str, limit: int
) -> tuple[list[tuple[str, str, int]], Listed, Counter[tuple[str, str, str, str]]]:
    """Return numbers by kind, the worst findings, and numbers by disk and severity."""
    kinds: Counter[tuple[str, str]] = Counter()
    by_disk: Counter[tuple[str, str, str, str]] = Counter()
    by_severity: dict[str, list[Row]] = {severity: [] for severity in SEVERITIES}
    names = ("cluster", "broker", "log_dir", "topic", "partition", "path", "kind", "position", "size", "first_offset",
             "last_offset", "next_good_offset", "evidence", "severity")  # fmt: skip
    for batch in tables.batches("findings", audit_id, names):
        for keys, number in _grouped(batch, ("kind", "severity")):
            kinds[keys] += number
        for disk, number in _grouped(batch, ("cluster", "broker", "log_dir", "severity")):
            by_disk[disk] += number
        for severity, rows in by_severity.items():
            if len(rows) < limit:
                more = batch.filter(pc.equal(batch["severity"], severity)).slice(0, limit - len(rows))
                rows.extend(more.to_pylist())
    worst = [row for severity in SEVERITIES if severity != Severity.NOTE.value for row in by_severity[severity]][:limit]
    total = sum(number for (_, severity), number in kinds.items() if severity != Severity.NOTE.value)
    ordered = sorted(kinds.items(), key=lambda item: (SEVERITIES.index(item[0][1]), -item[1], item[0]))
    return [(kind, severity, number) for (kind, severity), number in ordered], Listed(worst, total), by_disk


def _grouped(batch: pa.RecordBatch, names: tuple[str, ...]) -> Iterator[tuple[Any, int]]:
    found = pa.Table.from_batches([batch.select(list(names))]).group_by(list(names)).aggregate([([], "count_all")])
    keys = zip(*(found[name].to_pylist() for name in names), strict=True)
    yield from zip(keys, found["count_all"].to_pylist(), strict=True)


class _Segments:
    """The segments, added up by disk, topic and age."""

    _COLUMNS: Final = ("cluster", "broker", "log_dir", "topic", "size_bytes", "verified_at", "depth")
    _SUMS: Final[tuple[tuple[Any, str], ...]] = (("size_bytes", "sum"), ("verified_at", "min"), ([], "count_all"))

    def __init__(self, tables: Tables, audit_id: str, now: datetime) -> None:
        pieces: dict[str, list[pa.Table]] = {"disks": [], "topics": [], "ages": []}
        for batch in tables.batches("segments", audit_id, self._COLUMNS):
            table = pa.Table.from_batches([batch])
            table = table.append_column("age", _ages(table, now))
            pieces["disks"].append(self._sums(table, "cluster", "broker", "log_dir"))
            pieces["topics"].append(self._sums(table, "cluster", "topic"))
            pieces["ages"].append(self._sums(table, "age"))
        self._found = {name: self._joined(parts) for name, parts in pieces.items()}

    def _sums(self, table: pa.Table, *keys: str) -> pa.Table:
        return table.group_by(list(keys)).aggregate(list(self._SUMS))

    def _joined(self, parts: list[pa.Table]) -> list[Row]:
        if not parts:
            return []
        table = pa.concat_tables(parts)
        keys = [name for name in table.column_names if not name.endswith(("_sum", "_min", "_all"))]
        added = table.group_by(keys).aggregate(
            [("size_bytes_sum", "sum"), ("verified_at_min", "min"), ("count_all", "sum")]
        )
        rows: list[Row] = added.rename_columns([*keys, "bytes", "oldest", "segments"]).to_pylist()
        return rows

    def disks(self) -> list[Row]:
        return self._found["disks"]

    def topics(self) -> dict[tuple[str, str], Row]:
        return {(row["cluster"], row["topic"]): row for row in self._found["topics"]}

    def ages(self) -> dict[str, int]:
        found = {row["age"]: row["bytes"] for row in self._found["ages"]}
        return {name: found.get(name, 0) for name in (*(name for _, name in AGES), LAST_AGE, QUICK_AGE)}

    def oldest(self) -> datetime | None:
        return min((row["oldest"] for row in self._found["disks"]), default=None)


def _ages(table: pa.Table, now: datetime) -> pa.ChunkedArray:
    names = pa.array([LAST_AGE] * table.num_rows)
    for days, name in reversed(AGES):
        border = pa.scalar(now - timedelta(days=days), table["verified_at"].type)
        names = pc.if_else(pc.greater(table["verified_at"], border), name, names)
    return pc.if_else(pc.equal(table["depth"], "quick"), QUICK_AGE, names)


def _disks(disks: list[Row], findings: Counter[tuple[str, str, str, str]], limit: int) -> Listed:
    """Return the disks, those with the worst findings first; one with findings alone has no bytes."""
    rows = {(row["cluster"], row["broker"], row["log_dir"]): row for row in disks}
    for cluster, broker, log_dir, _ in findings:
        if broker:
            empty = {"bytes": 0, "segments": 0, "oldest": None}
            rows.setdefault(
                (cluster, broker, log_dir), empty | {"cluster": cluster, "broker": broker, "log_dir": log_dir}
            )
    for key, row in rows.items():
        row["findings"] = {severity: findings[(*key, severity)] for severity in SEVERITIES}
    ordered = sorted(rows.items(), key=lambda item: ([-n for n in list(item[1]["findings"].values())[:3]], item[0]))
    return Listed([row for _, row in ordered[:limit]], len(rows))


def _topics(verdicts: pa.Table, sizes: Mapping[tuple[str, str], Row], limit: int) -> Listed:
    """Return the topics, the worst first, then the largest."""
    counted = verdicts.group_by(["cluster", "topic", "verdict"]).aggregate([([], "count_all")]).to_pylist()
    topics: dict[tuple[str, str], Row] = {}
    for row in counted:
        key = row["cluster"], row["topic"]
        size = sizes.get(key, {"bytes": 0, "segments": 0, "oldest": None})
        topic = topics.setdefault(
            key, {**size, "cluster": key[0], "topic": key[1], "verdicts": dict.fromkeys(VERDICTS, 0)}
        )
        topic["verdicts"][row["verdict"]] = row["count_all"]
    ordered = sorted(
        topics.values(), key=lambda row: ([-row["verdicts"][name] for name in reversed(VERDICTS[1:])], -row["bytes"])
    )
    return Listed(ordered[:limit], len(ordered))
