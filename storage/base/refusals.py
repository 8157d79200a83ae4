"""What the log engine refuses, each refusal by a class of its own: nothing was written, and the log goes on.

Corrupt bytes are `BatchCorrupt` as everywhere, and what the disk refuses is an `EnvironmentFault`.
Source: Apache Kafka 4.3.0, the exceptions that UnifiedLog, LogValidator and ProducerAppendInfo raise.
"""

from __future__ import annotations

from storage.base.errors import ExitStatus, LogmendError


class Refused(LogmendError):
    """An append, a read or a change of the log that its rules do not allow."""

    status = ExitStatus.USAGE


class RecordTooLarge(Refused):
    """A batch of more bytes than `max.message.bytes`."""


class AppendTooLarge(Refused):
    """One append of more bytes than a segment may have."""


class InvalidRecord(Refused):
    """A batch, or a record in it, that a leader does not take though its checksum holds."""


class InvalidTimestamp(InvalidRecord):
    """A record whose timestamp is too far from the clock."""


class OffsetsOutOfOrder(Refused):
    """An append whose batches do not follow one another."""


class UnexpectedOffset(Refused):
    """A follower's append that begins below the end of the log; `first` and `last` are its offsets."""

    def __init__(self, first: int, last: int, log_end: int) -> None:
        super().__init__(f"append of the offsets {first} to {last}; the log ends at {log_end}")
        self.first, self.last, self.log_end = first, last, log_end


class OutOfOrderSequence(Refused):
    """A producer's batch that does not follow the last one known of that producer."""


class InvalidProducerEpoch(Refused):
    """A producer epoch below the one known: a fenced producer."""


class InvalidTransaction(Refused):
    """Data without transaction while one of the same producer is open."""


class CoordinatorFenced(Refused):
    """A transaction marker of a coordinator epoch below the one known."""


class OffsetOutOfRange(Refused):
    """An offset that the log does not hold, or no longer."""


class LogUnusable(LogmendError):
    """The log is closed, or a sync of it failed: nothing more may be written or promised until it is opened again."""

    status = ExitStatus.ENVIRONMENT
