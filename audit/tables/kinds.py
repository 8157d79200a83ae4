"""Kinds of finding that only an audit has, beside those of `recovery.plan.findings`, and what of those is no alarm."""

from __future__ import annotations

from enum import Enum
from typing import Final

from recovery.plan.findings import Damage, Severity


class AuditKind(Enum):
    """The value is the public name and never changes its meaning."""

    UNREADABLE = "unreadable"
    TASK_FAILED = "task_failed"
    SEAM = "seam"
    CHANGED_IN_PLACE = "changed_in_place"
    FOREIGN_CLUSTER = "foreign_cluster"
    # what replicas say of one another
    REPLICA_DIFFERS = "replica_differs"
    REPLICA_HOLE = "replica_hole"
    REPLICA_BEHIND = "replica_behind"
    NO_GOOD_COPY = "no_good_copy"
    LAYOUT_DIFFERS = "layout_differs"
    LOG_STARTS_DIFFER = "log_starts_differ"
    NOT_COMPARED = "not_compared"
    # what KRaft's metadata says of the directories
    REPLICA_MISSING = "replica_missing"
    UNDER_REPLICATED = "under_replicated"
    STRAY_REPLICA = "stray_replica"
    WRONG_TOPIC_ID = "wrong_topic_id"
    TOPIC_IDS_DIFFER = "topic_ids_differ"
    DUPLICATE_REPLICA = "duplicate_replica"

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return _SEVERITIES.get(self, Severity.DAMAGE)


_SEVERITIES: Final = {
    AuditKind.UNREADABLE: Severity.BLOCKING,
    AuditKind.TASK_FAILED: Severity.BLOCKING,
    AuditKind.SEAM: Severity.NOTE,
    AuditKind.FOREIGN_CLUSTER: Severity.BLOCKING,
    AuditKind.NO_GOOD_COPY: Severity.BLOCKING,
    AuditKind.LAYOUT_DIFFERS: Severity.NOTE,
    AuditKind.LOG_STARTS_DIFFER: Severity.NOTE,
    AuditKind.NOT_COMPARED: Severity.NOTE,
    AuditKind.STRAY_REPLICA: Severity.REPAIRABLE,
    AuditKind.WRONG_TOPIC_ID: Severity.BLOCKING,
    AuditKind.TOPIC_IDS_DIFFER: Severity.BLOCKING,
    AuditKind.DUPLICATE_REPLICA: Severity.BLOCKING,
}

DISAGREEMENTS: Final = frozenset(
    kind.value
    for kind in (AuditKind.REPLICA_DIFFERS, AuditKind.REPLICA_HOLE, AuditKind.REPLICA_BEHIND, AuditKind.NO_GOOD_COPY)
)
"""Replicas disagree below the high watermark: exit status 3."""
UNREADABLES: Final = frozenset((AuditKind.UNREADABLE.value, AuditKind.TASK_FAILED.value))
"""Part could not be read: exit status 5."""

# A running broker does these things all day long, and who copies its files gets them half done.
PASSING: Final = frozenset(
    (
        Damage.LEFTOVER_SWAP,
        Damage.LEFTOVER_COMPACTION,
        Damage.LEFTOVER_CLEANED,
        Damage.LEFTOVER_DELETED,
        Damage.LEFTOVER_PART,
        Damage.ORPHAN_INDEX,
        Damage.INDEX_PREALLOCATED,
        Damage.TIME_INDEX_PREALLOCATED,
    )
)
"""Damage to a recovery, to an audit a note."""
UNSAID: Final = frozenset(
    (
        Damage.OFFSET_GAP,
        Damage.INDEX_PREALLOCATED,
        Damage.TIME_INDEX_PREALLOCATED,
        Damage.FOREIGN_OWNER,
        Damage.NOT_READABLE,
    )
)
"""Not worth a row: normal after compaction or while a broker runs, or about owners, which copies do not keep."""
