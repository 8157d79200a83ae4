"""From findings to a plan for healing: which broker has a good copy of which range that another lacks.

The document says what to fetch from where, with the digests of what this audit saw: `logmend recover --heal-from` reads
it. Nothing is decided here about what a broker would do by itself: a replica
that is only behind catches up once its broker runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from audit.tables.kinds import AuditKind
from audit.tables.schema import BLOCK_OFFSETS
from audit.tables.tables import Tables
from recovery.plan.findings import Damage
from storage.base.errors import printable

SCHEMA_VERSION: Final = 1
DOCUMENT: Final = "heal_plan"
_HEALED: Final = {
    AuditKind.REPLICA_HOLE.value: "lacks",
    AuditKind.REPLICA_BEHIND.value: "lacks",
    AuditKind.REPLICA_DIFFERS.value: "differs",
    AuditKind.REPLICA_MISSING.value: "missing",
    Damage.BATCH_CRC.value: "rotten",
    Damage.BATCH_SIZE.value: "rotten",
    Damage.BATCH_MAGIC.value: "rotten",
    Damage.BATCH_ORDER.value: "rotten",
    Damage.GARBAGE_TAIL.value: "rotten",
    AuditKind.UNREADABLE.value: "unreadable",
}
_UINT64: Final = 1 << 64

Row = Mapping[str, Any]


def plan_heal(tables: Tables, audit_id: str) -> dict[str, Any]:
    """Return the plan as a JSON document; raises `ConfigInvalid` if that audit is not there."""
    audit = tables.find(audit_id)
    findings = [row for row in tables.read("findings", audit.audit_id).to_pylist() if _is_healable(row)]
    partitions = {_partition(row) for row in findings}
    segments = _of(tables, "segments", audit.audit_id, partitions, ("log_dir", "base_offset", "last_offset", "broker"))
    blocks = _of(
        tables,
        "blocks",
        audit.audit_id,
        partitions,
        ("log_dir", "block", "digest", "batches", "first_offset", "last_offset"),
    )
    verdicts = _of(tables, "verdicts", audit.audit_id, partitions, ("good_brokers", "comparable_until"))
    heals, hopeless = [], []
    covered: list[tuple[Row, int, int | None]] = []
    for finding in sorted(findings, key=lambda row: row["kind"] == AuditKind.REPLICA_HOLE.value):
        key = _partition(finding)
        first, last = _range(finding, segments[key])
        if any(_covers(one, finding, first, last) for one in covered):
            continue  # what is rotten is lacking, too
        covered.append((finding, first, last))
        source = _source(finding, first, last, segments[key], findings, verdicts[key])
        entry = _entry(finding, first, last)
        if source is None:
            hopeless.append(entry | {"reason": "no other replica of this audit is sound there"})
            continue
        told = _blocks_between(blocks[key], source["log_dir"], first, last)
        heals.append(entry | {"source": source, "block_offsets": BLOCK_OFFSETS, "blocks": told})
    return {
        "schema_version": SCHEMA_VERSION,
        "document": DOCUMENT,
        "audit_id": audit.audit_id,
        "heals": heals,
        "hopeless": hopeless,
    }


def plan_text(plan: Mapping[str, Any]) -> str:
    """Return the plan for people, a line a range."""
    lines = []
    for one in plan["heals"]:
        source = one["source"]
        lines.append(
            f"{_who(one)}: offsets {_until(one)} from broker {source['broker']}, {printable(source['log_dir'])}"
        )
    lines += [f"{_who(one)}: offsets {_until(one)}: {one['reason']}" for one in plan["hopeless"]]
    return "\n".join(lines) or "nothing to heal"


def _who(one: Row) -> str:
    return f"broker {one['broker']} {one['topic']}-{one['partition']} ({one['why']})"


def _until(one: Row) -> str:
    return f"{one['first_offset']} to {'the end' if one['last_offset'] is None else one['last_offset']}"


def _is_healable(row: Row) -> bool:
    return row["kind"] in _HEALED and row["severity"] != "note" and row["topic"] is not None and bool(row["broker"])


def _partition(row: Row) -> tuple[str, str, int]:
    return row["cluster"], row["topic"], row["partition"]


def _of(
    tables: Tables, table: str, audit_id: str, partitions: set[tuple[str, str, int]], columns: Sequence[str]
) -> dict[tuple[str, str, int], list[Row]]:
    """Return the rows of the partitions that are wanted; the table itself may be much larger than memory."""
    by_partition: dict[tuple[str, str, int], list[Row]] = {key: [] for key in partitions}
    if not partitions:
        return by_partition
    for batch in tables.batches(table, audit_id, ["cluster", "topic", "partition", *columns]):
        keys = zip(*(batch.column(name).to_pylist() for name in ("cluster", "topic", "partition")), strict=True)
        chosen = [at for at, key in enumerate(keys) if key in partitions]
        for row in batch.take(chosen).to_pylist() if chosen else ():
            by_partition[_partition(row)].append(row)
    return by_partition


def _range(finding: Row, segments: Iterable[Row]) -> tuple[int, int | None]:
    """Return first and last offset, inclusive; None for the end of the log."""
    first = finding["first_offset"]
    if first is None:
        mine = [row["base_offset"] for row in segments if row["log_dir"] == finding["log_dir"]]
        others = [row["base_offset"] for row in segments]
        return min(mine or others, default=0), None
    last = finding["last_offset"]
    if last is None and finding["next_good_offset"] is not None:
        last = finding["next_good_offset"] - 1
    return first, last


def _source(
    finding: Row,
    first: int,
    last: int | None,
    segments: Sequence[Row],
    findings: Sequence[Row],
    verdicts: Sequence[Row],
) -> dict[str, Any] | None:
    """Return the broker and log directory of a sound copy of a range, those that agree with most first."""
    good = set(verdicts[0]["good_brokers"]) if verdicts else set()
    places = {(row["broker"], row["log_dir"]) for row in segments}
    for broker, log_dir in sorted(places, key=lambda place: (place[0] not in good, place)):
        if (broker, log_dir) == (finding["broker"], finding["log_dir"]):
            continue
        bad = [
            row
            for row in findings
            if _partition(row) == _partition(finding) and (row["broker"], row["log_dir"]) == (broker, log_dir)
        ]
        if not any(_overlap(_range(row, segments), (first, last)) for row in bad) and _reaches(
            segments, log_dir, first, last
        ):
            return {"broker": broker, "log_dir": log_dir}
    return None


def _reaches(segments: Iterable[Row], log_dir: str, first: int, last: int | None) -> bool:
    mine = [row for row in segments if row["log_dir"] == log_dir]
    ends = [row["last_offset"] for row in mine if row["last_offset"] is not None]
    return min(row["base_offset"] for row in mine) <= first <= max(ends, default=-1) and (
        last is None or last <= max(ends, default=-1)
    )


def _covers(known: tuple[Row, int, int | None], finding: Row, first: int, last: int | None) -> bool:
    other, start, end = known
    same = (_partition(other), other["log_dir"]) == (_partition(finding), finding["log_dir"])
    return same and start <= first and (end is None or (last is not None and last <= end))


def _overlap(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    return (one[1] is None or one[1] >= other[0]) and (other[1] is None or other[1] >= one[0])


def _entry(finding: Row, first: int, last: int | None) -> dict[str, Any]:
    named = {name: finding[name] for name in ("cluster", "topic", "partition", "broker", "log_dir")}
    return named | {
        "why": _HEALED[finding["kind"]],
        "finding": finding["kind"],
        "path": finding["path"],
        "first_offset": first,
        "last_offset": last,
    }


def _blocks_between(blocks: Iterable[Row], log_dir: str, first: int, last: int | None) -> list[dict[str, Any]]:
    """Return the digests of a good copy for each block of a range, whole blocks, segments put together."""
    merged: dict[int, dict[str, Any]] = {}
    for row in blocks:
        number = row["block"]
        if row["log_dir"] != log_dir or number < first // BLOCK_OFFSETS:
            continue
        if last is not None and number > last // BLOCK_OFFSETS:
            continue
        one = merged.setdefault(number, {"digest": 0, "batches": 0, "first": row["first_offset"], "last": -1})
        one["digest"] ^= row["digest"] % _UINT64
        one["batches"] += row["batches"]
        one["first"], one["last"] = min(one["first"], row["first_offset"]), max(one["last"], row["last_offset"])
    return [
        {
            "block": number,
            "digest": f"{one['digest']:016x}",
            "batches": one["batches"],
            "first_offset": one["first"],
            "last_offset": one["last"],
        }
        for number, one in sorted(merged.items())
    ]
