"""The tables of made-up audits in memory, of any size, in the form that a report reads; and on a disk."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from audit.tables.schema import TABLES, arrow_schema
from audit.tables.tables import Tables

NOW = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)
CHANCES = {"degraded": 0.004, "divergent": 0.0004, "one_good_copy": 0.0006, "unreadable": 0.0002}
WORDS = ("orders", "payments", "clicks", "sessions", "inventory", "shipments", "prices", "ledger", "mail", "search")


class MemoryTables:
    """Tables as lists of rows by audit."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, list[dict[str, Any]]]] = {}

    def add(self, audit_id: str, **tables: list[dict[str, Any]]) -> None:
        self.found[audit_id] = tables

    def audit_ids(self) -> list[str]:
        return list(self.found)

    def batches(self, name: str, audit_id: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = self.found[audit_id].get(name, [])
        for at in range(0, len(rows), 50_000):
            made = pa.RecordBatch.from_pylist(rows[at : at + 50_000], arrow_schema(TABLES[name]))
            yield made.select(list(columns))


def run_row(audit_id: str, started_at: datetime, **known: Any) -> dict[str, Any]:
    return {
        "audit_id": audit_id, "started_at": started_at, "finished_at": started_at + timedelta(minutes=41),
        "logmend_version": "0.1.0", "kernel": "c", "manifest_digest": "5e884898da28047151d0e56f8dc62927" * 2,
        "depth": "full", "bytes_read": 41 * 10**12, "bytes_listed": 44 * 10**12, "status": 3,
        "previous_audit_id": None, "cycle": 30,
    } | known  # fmt: skip


def verdict_row(topic: str, partition: int, verdict: str = "healthy", **known: Any) -> dict[str, Any]:
    bad = {"healthy": [], "one_good_copy": ["2", "3"]}.get(verdict, ["3"])
    good = [broker for broker in ("1", "2", "3") if broker not in bad]
    first = None if verdict in ("healthy", "unreadable") else 1_200_000 + partition * 311
    return {
        "cluster": "west", "topic": topic, "partition": partition, "topic_id": None, "expected_replicas": 3,
        "replicas": 3 - (verdict == "degraded"), "agreeing": len(good), "good_brokers": good, "bad_brokers": bad,
        "lone_broker": good[0] if verdict == "one_good_copy" else None, "disagree_first_offset": first,
        "disagree_last_offset": None if first is None else first + 4095, "comparable_from": 0,
        "comparable_until": 4_210_000 + partition, "size_bytes": 9 * 10**9 + partition * 10**7, "verdict": verdict,
    } | known  # fmt: skip


def finding_row(kind: str, severity: str, **known: Any) -> dict[str, Any]:
    return {
        "cluster": "west", "broker": "3", "log_dir": "/var/lib/kafka/d0", "topic": "orders", "partition": 7,
        "path": "/var/lib/kafka/d0/orders-7/00000000000001187333.log", "kind": kind, "position": 734_003_200,
        "size": 16_384, "first_offset": 1_202_177, "last_offset": 1_202_326, "next_good_offset": 1_202_327,
        "evidence": "the checksum does not hold; the next sound batch is at 734019584", "severity": severity,
    } | known  # fmt: skip


def segment_row(topic: str, partition: int, **known: Any) -> dict[str, Any]:
    return {
        "cluster": "west", "broker": "1", "log_dir": "/var/lib/kafka/d0", "topic": topic, "partition": partition,
        "directory": f"{topic}-{partition}", "base_offset": 0, "size_bytes": 10**9, "valid_bytes": 10**9, "mtime_ms": 0,
        "is_active": False, "batches": 60_000, "records": 9_000_000, "first_offset": 0, "last_offset": 8_999_999,
        "max_timestamp_ms": None, "epochs": [0], "digest": b"\1" * 8, "verified_at": NOW, "depth": "full",
        "from_previous": False,
    } | known  # fmt: skip


def healthy_fleet(partitions: int = 10) -> MemoryTables:
    """Return one audit of one cluster with nothing wrong."""
    tables = MemoryTables()
    segments = [segment_row("orders", n, broker=broker) for n in range(partitions) for broker in ("1", "2", "3")]
    verdicts = [verdict_row("orders", n) for n in range(partitions)]
    run = run_row("2026-11-20", NOW - timedelta(minutes=41), status=0, bytes_read=30 * 10**9, bytes_listed=30 * 10**9)
    tables.add("2026-11-20", runs=[run], verdicts=verdicts, segments=segments, findings=[])
    return tables


def broken_fleet(partitions: int, audits: int = 12, seed: int = 1) -> MemoryTables:
    """Return audits of a fleet in which everything goes wrong now and then, and more so of late."""
    chance = random.Random(seed)
    tables = MemoryTables()
    for number in range(audits):
        started = NOW - timedelta(days=7 * (audits - 1 - number), minutes=41)
        audit_id = f"{started:%Y-%m-%d}"
        factor = 0.3 + number / audits
        verdicts = [verdict_row(*_name(n), _verdict(chance, factor), cluster=_cluster(n)) for n in range(partitions)]
        last = number == audits - 1
        run = run_row(
            audit_id, started, bytes_listed=partitions * (42 + number) * 10**8,
            bytes_read=int(partitions * (42 + number) * 10**8 * chance.uniform(0.5, 1)),
            finished_at=started + timedelta(minutes=chance.randrange(30, 55)),
        )  # fmt: skip
        tables.add(
            audit_id, runs=[run], verdicts=verdicts,
            segments=_segments(chance, partitions) if last else [],
            findings=_findings(chance, verdicts) if last else [],
        )  # fmt: skip
    return tables


def _cluster(number: int) -> str:
    return "west" if number % 3 else "east"


def _name(number: int) -> tuple[str, int]:
    topic, partition = divmod(number, 48)
    return f"{WORDS[topic % 10]}.{WORDS[topic // 10 % 10]}.{topic}", partition


def _verdict(chance: random.Random, factor: float) -> str:
    drawn = chance.random()
    for verdict, share in CHANCES.items():
        drawn -= share * factor
        if drawn < 0:
            return verdict
    return "healthy"


def _segments(chance: random.Random, partitions: int) -> list[dict[str, Any]]:
    made = []
    for n in range(partitions):
        topic, partition = _name(n)
        for replica in range(3):
            broker = str((n + replica) % 12 + 1)
            age = chance.choice([0, 0, 0, 2, 9, 20, 29]) + (80 if broker == "11" and not n % 97 else 0)
            made.append(
                segment_row(
                    topic,
                    partition,
                    cluster=_cluster(n),
                    broker=broker,
                    log_dir=f"/var/lib/kafka/d{n % 2}",
                    verified_at=NOW - timedelta(days=age),
                    size_bytes=chance.randrange(10**8, 10**9),
                )
            )
    return made


def _findings(chance: random.Random, verdicts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds = {
        "unreadable": ("unreadable", "blocking"), "one_good_copy": ("batch_crc", "damage"),
        "divergent": ("replica_differs", "damage"), "degraded": ("replica_missing", "damage"),
    }  # fmt: skip
    made = []
    for n, row in enumerate(verdicts):
        where = {"cluster": row["cluster"], "topic": row["topic"], "partition": row["partition"]}
        if row["verdict"] != "healthy":
            kind, severity = kinds[row["verdict"]]
            broker = str(n % 12 + 1)
            path = f"/var/lib/kafka/d{n % 2}/{row['topic']}-{row['partition']}/00000000000001187333.log"
            made.append(
                finding_row(kind, severity, **where, broker=broker, log_dir=f"/var/lib/kafka/d{n % 2}", path=path)
            )
        if not n % 40:
            kind, severity = chance.choice([("index_short", "repairable"), ("above_high_watermark", "note")])
            made.append(finding_row(kind, severity, **where, broker=str(n % 12 + 1)))
    return made


def write_tables(tables: MemoryTables, out: Path) -> Path:
    """Write made-up audits as real ones lie on a disk."""
    place = Tables(str(out))
    for audit_id, found in tables.found.items():
        for name, row_class in TABLES.items():
            directory = place.directory(name, audit_id, "1")
            place.make(directory)
            made = pa.Table.from_pylist(found.get(name, []), arrow_schema(row_class))
            pq.write_table(made, f"{directory}/part-0.parquet")
        run = found["runs"][0]
        place.commit(audit_id, "1", {"started_at": run["started_at"].isoformat(), "status": run["status"]})
    return out
