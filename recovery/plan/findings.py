"""What can be wrong with a log directory: kinds of damage, and one finding of one of them."""

from __future__ import annotations

from enum import Enum
from pathlib import PurePath
from typing import Final, NamedTuple

from storage.base.errors import printable


class Severity(Enum):
    """How much a finding matters to the person on call."""

    NOTE = "note"  # worth knowing, nothing to do
    REPAIRABLE = "repairable"  # can be derived again or finished; no record is at stake
    DAMAGE = "damage"  # bytes of records are bad or gone
    BLOCKING = "blocking"  # a broker may refuse to start, or this tool must not go on


class Subject(Enum):
    """What a finding is about, as far as a decision needs to know."""

    READ = "read"  # the operating system would not say
    FORMAT = "format"  # of a version that this release does not know
    LOG = "log"  # bytes of batches
    INDEX = "index"  # .index and .timeindex
    PADDING = "padding"  # the preallocated rest of the active segment's indexes
    SIDE = "side"  # .txnindex, .snapshot, leader-epoch-checkpoint
    CHECKPOINT = "checkpoint"  # the files at the top of a log directory
    LEFTOVER = "leftover"  # what interrupted work left behind
    VANISHED = "vanished"
    BLOCKER = "blocker"  # for a person: names, owners, duplicates
    NONE = "none"  # a note


class Damage(Enum):
    """Every kind of finding. The value is the public name in JSON, logs and metrics, and never changes its meaning."""

    # the log itself
    TORN_TAIL = "torn_tail"
    ZERO_TAIL = "zero_tail"
    GARBAGE_TAIL = "garbage_tail"
    BATCH_CRC = "batch_crc"
    BATCH_SIZE = "batch_size"
    BATCH_MAGIC = "batch_magic"
    BATCH_ORDER = "batch_order"
    BATCH_STATE = "batch_state"
    BATCH_DOUBLED = "batch_doubled"
    BATCHES_SWAPPED = "batches_swapped"
    RECORD_UNDECODABLE = "record_undecodable"
    OFFSET_OVERFLOW = "offset_overflow"
    LOG_MISSING = "log_missing"
    OFFSET_GAP = "offset_gap"
    EPOCH_FALL = "epoch_fall"
    FUTURE_TIMESTAMP = "future_timestamp"
    # indexes
    INDEX_MISSING = "index_missing"
    INDEX_SHORT = "index_short"
    INDEX_MISORDERED = "index_misordered"
    INDEX_OFF_BATCH = "index_off_batch"
    INDEX_PAST_END = "index_past_end"
    INDEX_PADDED = "index_padded"
    INDEX_PREALLOCATED = "index_preallocated"
    INDEX_OVERFULL = "index_overfull"
    TIME_INDEX_MISSING = "time_index_missing"
    TIME_INDEX_SHORT = "time_index_short"
    TIME_INDEX_MISORDERED = "time_index_misordered"
    TIME_INDEX_OFF_BATCH = "time_index_off_batch"
    TIME_INDEX_PAST_END = "time_index_past_end"
    TIME_INDEX_PADDED = "time_index_padded"
    TIME_INDEX_PREALLOCATED = "time_index_preallocated"
    # derived from the log as well
    TXN_INDEX_CORRUPT = "txn_index_corrupt"
    TXN_INDEX_DIFFERS = "txn_index_differs"
    SNAPSHOT_MISSING = "snapshot_missing"
    SNAPSHOT_CORRUPT = "snapshot_corrupt"
    SNAPSHOT_DIFFERS = "snapshot_differs"
    SNAPSHOT_STRAY = "snapshot_stray"
    EPOCHS_MISSING = "epochs_missing"
    EPOCHS_CORRUPT = "epochs_corrupt"
    EPOCHS_DIFFER = "epochs_differ"
    EPOCHS_LOST = "epochs_lost"
    # the top of a log directory, and small files
    CHECKPOINT_MISSING = "checkpoint_missing"
    CHECKPOINT_CORRUPT = "checkpoint_corrupt"
    CHECKPOINT_BEYOND_END = "checkpoint_beyond_end"
    LOG_START_ABOVE_END = "log_start_above_end"
    LOG_START_LOST = "log_start_lost"
    LOCAL_LOG_LOST = "local_log_lost"
    METADATA_CORRUPT = "metadata_corrupt"
    METADATA_MISSING = "metadata_missing"
    METADATA_LOST = "metadata_lost"
    METADATA_SNAPSHOT_CORRUPT = "metadata_snapshot_corrupt"
    PROPERTIES_CORRUPT = "properties_corrupt"
    # names, kinds, owners
    ORPHAN_INDEX = "orphan_index"
    LEFTOVER_SWAP = "leftover_swap"
    LEFTOVER_COMPACTION = "leftover_compaction"
    LEFTOVER_CLEANED = "leftover_cleaned"
    LEFTOVER_DELETED = "leftover_deleted"
    LEFTOVER_PART = "leftover_part"
    BAD_NAME = "bad_name"
    ODD_NAME = "odd_name"
    UNKNOWN_DIRECTORY = "unknown_directory"
    LOST_AND_FOUND = "lost_and_found"
    DUPLICATE_PARTITION = "duplicate_partition"
    FOREIGN_OWNER = "foreign_owner"
    NOT_READABLE = "not_readable"
    SYMBOLIC_LINK = "symbolic_link"
    SPECIAL_FILE = "special_file"
    # what stops us
    UNSUPPORTED = "unsupported"
    READ_ERROR = "read_error"
    VANISHED = "vanished"

    @property
    def subject(self) -> Subject:
        """What it is about."""
        return _SUBJECTS[self]

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return _SEVERITIES.get(self, _SEVERITY_OF_SUBJECT[self.subject])


_NAMED: Final = {
    Damage.READ_ERROR: Subject.READ,
    Damage.UNSUPPORTED: Subject.FORMAT,
    Damage.VANISHED: Subject.VANISHED,
    Damage.INDEX_PREALLOCATED: Subject.PADDING,
    Damage.TIME_INDEX_PREALLOCATED: Subject.PADDING,
    Damage.ORPHAN_INDEX: Subject.LEFTOVER,
    Damage.SNAPSHOT_STRAY: Subject.LEFTOVER,
    Damage.LEFTOVER_CLEANED: Subject.NONE,
    Damage.LEFTOVER_COMPACTION: Subject.NONE,
    Damage.LEFTOVER_DELETED: Subject.NONE,
    Damage.LEFTOVER_PART: Subject.NONE,
    Damage.OFFSET_GAP: Subject.NONE,
    Damage.EPOCH_FALL: Subject.NONE,
    Damage.FUTURE_TIMESTAMP: Subject.NONE,
    Damage.LOG_MISSING: Subject.NONE,
    Damage.ODD_NAME: Subject.NONE,
    Damage.EPOCHS_LOST: Subject.BLOCKER,
    Damage.LOG_START_LOST: Subject.CHECKPOINT,
    Damage.METADATA_MISSING: Subject.SIDE,
    Damage.METADATA_LOST: Subject.BLOCKER,
    Damage.METADATA_SNAPSHOT_CORRUPT: Subject.BLOCKER,
    Damage.METADATA_CORRUPT: Subject.SIDE,
    Damage.INDEX_OVERFULL: Subject.BLOCKER,
    Damage.LOG_START_ABOVE_END: Subject.CHECKPOINT,
    Damage.RECORD_UNDECODABLE: Subject.NONE,
    Damage.OFFSET_OVERFLOW: Subject.LEFTOVER,
    Damage.BATCH_DOUBLED: Subject.LEFTOVER,
    Damage.BATCHES_SWAPPED: Subject.LEFTOVER,
}
_PREFIXES: Final = {
    ("torn_", "zero_", "garbage_", "batch_"): Subject.LOG,
    ("index_", "time_index_"): Subject.INDEX,
    ("txn_", "snapshot_", "epochs_"): Subject.SIDE,
    ("checkpoint_",): Subject.CHECKPOINT,
    ("leftover_",): Subject.LEFTOVER,
}


def _subject(kind: Damage) -> Subject:
    if kind in _NAMED:
        return _NAMED[kind]
    return next((subject for start, subject in _PREFIXES.items() if kind.value.startswith(start)), Subject.BLOCKER)


_SUBJECTS: Final = {kind: _subject(kind) for kind in Damage}
_SEVERITY_OF_SUBJECT: Final = {
    Subject.READ: Severity.BLOCKING,
    Subject.FORMAT: Severity.BLOCKING,
    Subject.LOG: Severity.DAMAGE,
    Subject.INDEX: Severity.REPAIRABLE,
    Subject.PADDING: Severity.NOTE,
    Subject.SIDE: Severity.REPAIRABLE,
    Subject.CHECKPOINT: Severity.REPAIRABLE,
    Subject.LEFTOVER: Severity.REPAIRABLE,
    Subject.VANISHED: Severity.NOTE,
    Subject.BLOCKER: Severity.BLOCKING,
    Subject.NONE: Severity.NOTE,
}
_SEVERITIES: Final = {Damage.LOG_MISSING: Severity.DAMAGE, Damage.RECORD_UNDECODABLE: Severity.DAMAGE}


class Finding(NamedTuple):
    """One thing that is wrong, where, and how we know.

    `position` and `size` are bytes of the file at `path`; `first_offset` and `last_offset` are the record offsets that
    are concerned as far as they can be known, both inclusive; `next_good_offset` is where reading can go on.
    """

    kind: Damage
    path: PurePath
    evidence: str
    position: int | None = None
    size: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    next_good_offset: int | None = None

    def __str__(self) -> str:
        place = "" if self.position is None else f" at {self.position}"
        return f"{printable(self.path)}{place}: {self.kind.value}: {printable(self.evidence)}"
