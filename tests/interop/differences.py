"""The differences between Kafka's own recovery and ours that are meant, each a rule with a name.

docs/differences.md says of each why it is so and what it means for an operator. An outcome is explained if every aspect
in which the two results differ is covered by a rule that applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(slots=True)
class Outcome:
    """What came of one mutated directory, in values that JSON knows."""

    seed: int
    golden: str
    key: str
    damages: list[dict[str, Any]]
    points: dict[str, Any]
    theirs: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    held: bool = False
    stopped: bool = False
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    cuts: list[dict[str, Any]] = field(default_factory=list)
    marker_removed: bool = False
    empty_again: bool = False
    changed: list[list[Any]] = field(default_factory=list)
    """Files that Kafka changed when it opened our result: name, size before, size after."""
    files: list[list[Any]] = field(default_factory=list)
    """Files that differ between Kafka's result and ours, as opened: name, size there, size here."""
    not_restored: str = ""
    """What differs after everything was put back from quarantine."""


def aspects(outcome: Outcome) -> set[str]:
    """Return in what the two results differ."""
    theirs, ours = outcome.theirs, outcome.ours
    if "error" in theirs:
        return {"start"}
    found = {name for name in ("log_start", "log_end", "producers", "epochs") if theirs.get(name) != ours.get(name)}
    if [(s["base"], s["size"]) for s in theirs["segments"]] != [(s["base"], s["size"]) for s in ours["segments"]]:
        found.add("segments")
    return found | {_kind_of(name) for name, _, _ in outcome.files}


def _kind_of(file: str) -> str:
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        if file.endswith(suffix):
            return suffix
    return file if file in ("leader-epoch-checkpoint", "partition.metadata") else "other"


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference that is meant: where it applies, and which aspects it accounts for (None: all)."""

    name: str
    applies: Callable[[Outcome], bool]
    covers: frozenset[str] | None = None


_INDEXES: Final = frozenset({".index", ".timeindex"})
_PRODUCERS: Final = frozenset({"producers", ".snapshot"})
_SNAPSHOTS: Final = ("snapshot_missing", "snapshot_corrupt", "snapshot_differs")
_EPOCHS: Final = frozenset({"epochs", "leader-epoch-checkpoint"})


def _bases(state: dict[str, Any]) -> list[tuple[int, int]]:
    return [(segment["base"], segment["size"]) for segment in state.get("segments", [])]


def _keeps_all_of_theirs(outcome: Outcome) -> bool:
    """Whatever Kafka's log holds ours holds too, byte for byte as far as sizes tell, and ours holds more."""
    theirs, ours = dict(_bases(outcome.theirs)), dict(_bases(outcome.ours))
    return sum(ours.values()) > sum(theirs.values()) and all(
        ours.get(base, -1) >= size for base, size in theirs.items() if size
    )


def _kafka_empties_segments(outcome: Outcome) -> bool:
    theirs, ours = _bases(outcome.theirs), dict(_bases(outcome.ours))
    return bool(theirs) and theirs[-1][1] == 0 and ours.get(theirs[-1][0], 0) > 0 and _keeps_all_of_theirs(outcome)


def _keeps_contiguous(outcome: Outcome) -> bool:
    """The cut is in a segment that another one follows, and that one is kept: no offset is missing between the two."""
    last = max(dict(_bases(outcome.ours)), default=0)
    cut = [c for c in outcome.cuts if c["position"] and int(c["file"].split(".", 1)[0]) < last]
    return bool(cut) and _keeps_all_of_theirs(outcome)


def _gives_offsets_out_again(outcome: Outcome) -> bool:
    """Under the marker Kafka takes a log that is shorter than its index says for an empty one; no byte is gone."""
    same = _bases(outcome.theirs) == _bases(outcome.ours)
    return same and bool(outcome.points["clean"]) and outcome.theirs["log_end"] < outcome.ours["log_end"]


def _hole_behind(outcome: Outcome) -> bool:
    """Kafka cut the same segment at the same place, and kept those behind it, across the hole."""
    theirs, ours = _bases(outcome.theirs), _bases(outcome.ours)
    common = 0 < len(ours) < len(theirs) and theirs[: len(ours)] == ours
    return common and theirs[len(ours)][0] > outcome.ours["log_end"] and bool(outcome.cuts)


def _snapshots_below_the_scan(outcome: Outcome) -> bool:
    """The snapshots in which the results differ are each there in one of them alone, below the recovery point."""
    differing = [change for change in outcome.files if change[0].endswith(".snapshot")]
    return all(
        (theirs is None or ours is None) and int(name.split(".", 1)[0]) <= outcome.points["recovery_point"]
        for name, theirs, ours in differing
    )


def _replaced(outcome: Outcome, suffixes: Iterable[str]) -> bool:
    """Every such file in which the results differ is one that we found wanting and wrote anew."""
    judged = {v["file"].split(".", 1)[0] for v in outcome.verdicts if v["decision"] in ("rebuild", "trim")}
    return all(name.split(".", 1)[0] in judged for name, _, _ in outcome.files if name.endswith(tuple(suffixes)))


def _waits_for_a_person(outcome: Outcome) -> bool:
    return any(v["row"] == "m" for v in outcome.verdicts)


RULES: Final[tuple[Rule, ...]] = (
    Rule("held", lambda o: o.held),
    Rule("stopped", lambda o: o.stopped),
    Rule("left_to_a_person", lambda o: "error" in o.ours and _waits_for_a_person(o)),
    Rule("kafka_would_not_start", lambda o: "error" in o.theirs),
    Rule("log_start_above_the_end", lambda o: has(o, ["log_start_above_end"])),
    Rule("kafka_empties_the_segment", _kafka_empties_segments),
    Rule("keeps_contiguous_segments", _keeps_contiguous),
    Rule("log_end_at_the_base", _gives_offsets_out_again),
    Rule("no_hole_behind_a_cut", _hole_behind),
    Rule("order_restored", lambda o: has(o, ["batch_doubled", "batches_swapped"])),
    Rule("topic_id_from_metadata", lambda o: has(o, ["metadata_missing"]), frozenset({"partition.metadata"})),
    Rule("epochs_rebuilt", lambda o: has(o, ["epochs_missing", "epochs_corrupt", "epochs_differ"]), _EPOCHS),
    Rule("marker_removed", lambda o: o.marker_removed, frozenset({".index", ".timeindex", ".snapshot", ".txnindex"})),
    Rule("indexes_rebuilt", lambda o: _replaced(o, [".index", ".timeindex"]), _INDEXES),
    Rule("txn_index_rebuilt", lambda o: _replaced(o, [".txnindex"]), frozenset({".txnindex"})),
    Rule("snapshots_below_the_scan", _snapshots_below_the_scan, frozenset({".snapshot"})),
    Rule("producers_rebuilt", lambda o: has(o, _SNAPSHOTS) and _replaced(o, [".snapshot"]), _PRODUCERS),
)
"""In the order in which they are tried."""


def _is_broker_work(outcome: Outcome, name: str, before: int | None, after: int | None) -> bool:
    """Tell whether a change that Kafka makes to our result is one of the few that are left to it."""
    segments = outcome.ours["segments"]
    if name.endswith((".deleted", ".cleaned")) and after is None:
        return True
    if not outcome.points["clean"] or outcome.marker_removed:
        point = outcome.points["recovery_point"]
        first = max((one["base"] for one in segments if one["base"] <= point), default=segments[0]["base"])
        if name.endswith((".index", ".timeindex")) and int(name.split(".", 1)[0]) >= first:
            return True  # it writes all indexes of what it scans, the right ones too
        if name.endswith(".snapshot") and after is None and int(name.split(".", 1)[0]) > first:
            return True
    begun = [file for file, was, size in outcome.changed if file.endswith(".log") and was is None and size == 0]
    if begun and len(segments) == 1:
        return name == begun[0] or name == "leader-epoch-checkpoint"  # a log without any segment begins anew
    if name.endswith(".snapshot") and after is None:
        offset, first = int(name.split(".", 1)[0]), segments[0]["base"]
        # The scan begins with the snapshot at the first segment's base, and deletes it in the end; under the marker
        # nothing is scanned, and the broker tidies up snapshots that belong to no segment.
        return offset == first == outcome.ours["log_start"] or (outcome.points["clean"] and not outcome.marker_removed)
    return False


def _is_log_damage(verdict: dict[str, Any]) -> bool:
    return str(verdict["kind"]).startswith(("torn_", "zero_", "garbage_", "batch_"))


def _holds_with_cause(outcome: Outcome) -> bool:
    """Only bytes of batches are held, and only where they were flushed or nobody can tell."""
    points = outcome.points
    held = [v for v in outcome.verdicts if v["decision"] == "hold" and _is_log_damage(v)]
    gaps = [v for v in outcome.verdicts if v["kind"] == "offset_gap" and v["offset"] < points["recovery_point"]]
    jumped = {gap["file"] for gap in gaps}  # the offsets behind it say nothing of what was flushed
    flushed = [v for v in held if points["clean"] or v["offset"] <= points["recovery_point"] or v["file"] in jumped]
    unknown = [v for v in held if v["row"] == "f?" and (points["metadata"] or not points["point_known"])]
    unknown += [v for v in held if v["row"] == "f?" and v["kind"] == "batch_order" and v not in unknown + flushed]
    return bool(held) and len(flushed) + len(unknown) >= len(held)


def _cuts_flushed(outcome: Outcome) -> bool:
    points = outcome.points
    cut = [v for v in outcome.verdicts if v["decision"] == "cut"]
    return any(points["clean"] or v["offset"] < points["recovery_point"] for v in cut)


def faults(outcome: Outcome) -> list[str]:
    """Return what no rule can excuse."""
    found = []
    if outcome.not_restored:
        found.append(f"NOT RESTORED: {outcome.not_restored}")
    if not outcome.empty_again:
        found.append("NOT DONE AT ONCE")
    if outcome.held and not _holds_with_cause(outcome):
        found.append("HELD WITHOUT CAUSE")
    if _cuts_flushed(outcome):
        found.append("FLUSHED DATA CUT")
    if not outcome.held and not outcome.stopped:
        if "error" in outcome.ours and not _waits_for_a_person(outcome):
            found.append("OURS DOES NOT OPEN")
        elif wrong := [change for change in outcome.changed if not _is_broker_work(outcome, *change)]:
            found.append(f"KAFKA CHANGES OURS: {wrong}")
    return found


def explain(outcome: Outcome) -> tuple[list[str], list[str]]:
    """Return the names of the rules that account for the outcome, and what is left without explanation."""
    bad = faults(outcome)
    names: list[str] = []
    left = aspects(outcome) if "error" not in outcome.ours else {"start"}
    if not left and not outcome.held:
        return ["equal"], bad
    for rule in RULES:
        if rule.applies(outcome) and (rule.covers is None or rule.covers & left):
            names.append(rule.name)
            left = set() if rule.covers is None else left - rule.covers
        if not left:
            break
    return names or ["unexplained"], bad + sorted(left)


def has(outcome: Outcome, kinds: Iterable[str]) -> bool:
    """Tell whether we found damage of one of those kinds."""
    return any(v["kind"] in kinds for v in outcome.verdicts)
