"""Which segments retention may delete, and why: pure, from what is known of the segments and the policy.

Three rules, each walking from the oldest segment and stopping at the first that does not qualify, on what the rules
before it have left: log start offset, size, time. Without `delete` in the policy there is only the first.
Source: Apache Kafka 4.3.0, UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from storage.base.config import DELETE, LogConfig
from storage.base.units import Offset


class Reason(Enum):
    """The rule by which a segment is deleted; the value is its text for people."""

    LOG_START = "all of it lies below the log start offset"
    SIZE = "the log is larger than retention.bytes without it"
    TIME = "its largest timestamp is older than retention.ms"


class RetainedSegment(NamedTuple):
    """A segment as retention sees it: bytes of the `.log`, ms, and where the next segment begins.

    `largest_timestamp` is that of the batches; where none has one, the modification time of the `.log`.
    `next_base` is None for the last segment, the active one.
    """

    base_offset: Offset
    size: int
    largest_timestamp: int
    next_base: Offset | None


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What a log keeps: bytes and ms, None for without limit. Without `deletes` only the log start offset counts."""

    deletes: bool = True
    retention_bytes: int | None = None
    retention_ms: int | None = None

    @classmethod
    def of(cls, config: LogConfig) -> RetentionPolicy:
        """Return the policy that these settings make; a negative limit is none."""
        size, age = config.retention_bytes, config.retention_ms
        return cls(DELETE in config.cleanup_policy, None if size < 0 else size, None if age < 0 else age)


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Where a log begins and ends, and up to where it is replicated, exclusive."""

    log_start: Offset
    log_end: Offset
    high_watermark: Offset


class Check(NamedTuple):
    """One condition that was checked for a segment, with the numbers that were compared, in words."""

    holds: bool
    text: str


class Verdict(NamedTuple):
    """What becomes of one segment, and every condition that was checked until that was clear, in order."""

    segment: RetainedSegment
    reason: Reason | None
    """None: it stays."""
    checks: tuple[Check, ...]


class Retention(NamedTuple):
    """The verdicts on all segments, oldest first; those that go come before those that stay.

    With `needs_roll` all of them go, and a new segment must be begun at the log end first. `log_start` is the log start
    offset afterwards.
    """

    verdicts: tuple[Verdict, ...]
    log_start: Offset
    needs_roll: bool

    @property
    def deletable(self) -> tuple[Verdict, ...]:
        """The verdicts on the segments that may go."""
        return tuple(verdict for verdict in self.verdicts if verdict.reason is not None)


_Rule = Callable[[RetainedSegment], tuple[bool, str]]
_Maker = Callable[[Sequence[RetainedSegment]], _Rule]
"""Makes a rule for the segments that the rules before it have left."""


def retain(segments: Sequence[RetainedSegment], policy: RetentionPolicy, ends: LogEnds, now_ms: int) -> Retention:
    """Decide on `segments`, all of a log from the oldest to the active one, at the time `now_ms`."""
    checks: list[list[Check]] = [[] for _ in segments]
    reasons: list[Reason | None] = [None] * len(segments)
    gone = 0
    for reason, make in _rules(policy, ends, now_ms):
        rule = make(segments[gone:])
        while gone < len(segments) and _qualifies(segments[gone], ends, rule, checks[gone]):
            reasons[gone] = reason
            gone += 1
    verdicts = tuple(
        Verdict(segment, reason, tuple(found)) for segment, reason, found in zip(segments, reasons, checks, strict=True)
    )
    first = segments[gone].base_offset if gone < len(segments) else ends.log_end
    log_start = max(ends.log_start, first) if gone else ends.log_start
    return Retention(verdicts, log_start, needs_roll=0 < gone == len(segments))


def _rules(policy: RetentionPolicy, ends: LogEnds, now_ms: int) -> Iterator[tuple[Reason, _Maker]]:
    yield Reason.LOG_START, lambda _: _log_start_rule(ends.log_start)
    size, age = policy.retention_bytes, policy.retention_ms
    if policy.deletes and size is not None:
        yield Reason.SIZE, lambda left: _size_rule(sum(segment.size for segment in left), size)
    if policy.deletes and age is not None:
        yield Reason.TIME, lambda _: _time_rule(age, now_ms)


def _log_start_rule(log_start: Offset) -> _Rule:
    def rule(segment: RetainedSegment) -> tuple[bool, str]:
        if segment.next_base is None:
            return False, "it is the active segment, which the log start offset never takes away"
        holds = segment.next_base <= log_start
        compared = "at or below" if holds else "above"
        return holds, f"its next segment begins at {segment.next_base}, {compared} the log start offset {log_start}"

    return rule


def _size_rule(log_size: int, limit: int) -> _Rule:
    excess = log_size - limit

    def rule(segment: RetainedSegment) -> tuple[bool, str]:
        nonlocal excess
        before = excess
        if before < 0:
            return False, f"the log has {limit + before} bytes, fewer than retention.bytes {limit}"
        if before < segment.size:
            return False, f"the log is {before} bytes above retention.bytes {limit}, the segment has {segment.size}"
        excess -= segment.size
        return True, f"the log is {before} bytes above retention.bytes {limit}, the segment has only {segment.size}"

    return rule


def _time_rule(limit: int, now_ms: int) -> _Rule:
    def rule(segment: RetainedSegment) -> tuple[bool, str]:
        age = now_ms - segment.largest_timestamp
        if age < 0:
            return False, f"its largest timestamp {segment.largest_timestamp} lies {-age} ms in the future"
        compared = "more than" if age > limit else "not more than"
        text = f"its largest timestamp {segment.largest_timestamp} is {age} ms old, {compared} retention.ms {limit}"
        return age > limit, text

    return rule


_EMPTY: Final = Check(holds=False, text="it is the active segment and empty")


def _qualifies(segment: RetainedSegment, ends: LogEnds, rule: _Rule, checks: list[Check]) -> bool:
    """Tell whether the segment may be deleted by this rule, and note what was checked."""
    if segment.next_base is None and not segment.size:
        if _EMPTY not in checks:
            checks.append(_EMPTY)
        return False
    end = ends.log_end if segment.next_base is None else segment.next_base
    if end > ends.high_watermark:
        replicated = Check(holds=False, text=f"it ends at {end}, above the high watermark {ends.high_watermark}")
        if replicated not in checks:
            checks.append(replicated)
        return False
    holds, text = rule(segment)
    checks.append(Check(holds, text))
    return holds
