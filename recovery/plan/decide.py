"""The decision table: what is done about a finding, given where it was found.

The rows carry the letters of the table in docs/understand/damage-table.md. They are data: a test walks every
combination of the conditions and demands that exactly one row fits.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from recovery.plan.findings import Finding, Subject
from recovery.plan.plan import Verdict


class Flushed(Enum):
    """Whether the bytes at a place were ever known to be durable."""

    YES = "yes"  # below the recovery point, or the broker had shut down cleanly
    NO = "no"  # at or above the recovery point
    UNKNOWN = "unknown"  # the recovery point itself is lost


class Decision(Enum):
    """What to do about a finding."""

    STOP = "stop"  # touch nothing in this log directory
    CUT = "cut"  # keep a copy, cut the log there
    HOLD = "hold"  # leave the partition as it is, report, wait for a replica or a person
    REBUILD = "rebuild"  # rebuild the derived file from the log
    TRIM = "trim"  # cut preallocated zeroes off an index
    REWRITE = "rewrite"  # rewrite a checkpoint, last of all
    TIDY = "tidy"  # finish or abandon interrupted work by Kafka's rules; keep the files
    NOTHING = "nothing"


class Where(NamedTuple):
    """The circumstances of a finding."""

    flushed: Flushed
    valid_after: bool
    """A sound batch was found behind the damage, in the same segment or a later one."""
    accept_loss: bool
    log_open: bool
    """The log of this partition is, or will be after this plan, sound: nothing in it is held."""
    trims_padding: bool
    """A broker would take zero bytes behind index entries for entries: beside a marker, or before 0.11."""


class Row(NamedTuple):
    """One row: the subject, the conditions that count (None: whichever), the decision."""

    letter: str
    subject: Subject
    decision: Decision
    flushed: frozenset[Flushed] | None = None
    valid_after: bool | None = None
    accept_loss: bool | None = None
    log_open: bool | None = None
    trims_padding: bool | None = None

    def fits(self, subject: Subject, where: Where) -> bool:
        """Tell whether this row speaks of `subject` in those circumstances."""
        return (
            self.subject is subject
            and (self.flushed is None or where.flushed in self.flushed)
            and all(
                wanted is None or wanted is found
                for wanted, found in (
                    (self.valid_after, where.valid_after),
                    (self.accept_loss, where.accept_loss),
                    (self.log_open, where.log_open),
                    (self.trims_padding, where.trims_padding),
                )
            )
        )


_NO: Final = frozenset({Flushed.NO})
_YES: Final = frozenset({Flushed.YES})
_UNKNOWN: Final = frozenset({Flushed.UNKNOWN})

TABLE: Final = (
    Row("a", Subject.READ, Decision.STOP),
    Row("b", Subject.FORMAT, Decision.STOP),
    Row("c", Subject.LOG, Decision.CUT, flushed=_NO, valid_after=False),
    Row("d", Subject.LOG, Decision.CUT, flushed=_NO, valid_after=True),
    # Without a recovery point nothing says what was flushed. A tail with nothing behind it is what a crash leaves;
    # damage with sound batches behind it may as well be rot, and a lost checkpoint must not turn rot into a cut.
    Row("c?", Subject.LOG, Decision.CUT, flushed=_UNKNOWN, valid_after=False),
    Row("f?", Subject.LOG, Decision.HOLD, flushed=_UNKNOWN, valid_after=True, accept_loss=False),
    Row("f? accepted", Subject.LOG, Decision.CUT, flushed=_UNKNOWN, valid_after=True, accept_loss=True),
    Row("f", Subject.LOG, Decision.HOLD, flushed=_YES, accept_loss=False),
    Row("f accepted", Subject.LOG, Decision.CUT, flushed=_YES, accept_loss=True),
    Row("g", Subject.INDEX, Decision.REBUILD, log_open=True),
    Row("g held", Subject.INDEX, Decision.NOTHING, log_open=False),
    Row("h", Subject.PADDING, Decision.NOTHING, trims_padding=False),
    Row("h marked", Subject.PADDING, Decision.TRIM, trims_padding=True, log_open=True),
    Row("h held", Subject.PADDING, Decision.NOTHING, trims_padding=True, log_open=False),
    Row("i", Subject.SIDE, Decision.REBUILD, log_open=True),
    Row("i held", Subject.SIDE, Decision.NOTHING, log_open=False),
    Row("j", Subject.CHECKPOINT, Decision.REWRITE),
    Row("k", Subject.LEFTOVER, Decision.TIDY, log_open=True),
    Row("k held", Subject.LEFTOVER, Decision.NOTHING, log_open=False),
    Row("l", Subject.VANISHED, Decision.NOTHING),
    Row("m", Subject.BLOCKER, Decision.HOLD),
    Row("n", Subject.NONE, Decision.NOTHING),
)


def matching_rows(subject: Subject, where: Where) -> tuple[Row, ...]:
    """Return every row that fits; the test demands one."""
    return tuple(row for row in TABLE if row.fits(subject, where))


def decide(subject: Subject, where: Where) -> Row:
    """Return the one row that says what to do about a finding on `subject`."""
    (row,) = matching_rows(subject, where)
    return row


def judge(finding: Finding, where: Where) -> Verdict:
    """Return the verdict on one finding."""
    row = decide(finding.kind.subject, where)
    return Verdict(finding, row.letter, row.decision.value)
