"""Options of the guard and the scrubber."""

from __future__ import annotations

from dataclasses import dataclass, field

from recovery.plan.plan import DEFAULT_INDEX_BYTES, DEFAULT_INDEX_INTERVAL

DAY: float = 86_400.0


@dataclass(frozen=True, slots=True)
class ScrubOptions:
    """Options of the scrubber of a log directory."""

    enabled: bool = True
    cycle_seconds: float = 14 * DAY
    """The promise: no closed segment waits longer for its next verification."""
    max_bytes_per_second: int = 64 << 20
    """Upper limit, whatever the promise needs."""
    hours: frozenset[int] | None = None
    """Hours of the local day, 0 to 23, in which it may read; None for all."""
    pressure_low: float = 10.0
    """Percent of `some avg10` of /proc/pressure/io above which it slows down."""
    pressure_high: float = 40.0
    """Percent at which it stops until the pressure falls."""
    sick_errors: int = 8
    """As many bad files of one device within `sick_seconds` mean a sick device: scrubbing it stops."""
    sick_seconds: float = 600.0
    census_seconds: float = 60.0
    """Interval between two checks of each partition directory for changes."""
    confirm_seconds: float = 5.0
    """Time until a bad segment is read again; a change that a broker was making is complete by then."""
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL
    segment_index_bytes: int = DEFAULT_INDEX_BYTES
    flags: tuple[str, ...] = ()
    """Words that a command of the operator needs to see the same: where these settings came from."""


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """Options of the guard of a broker's log directory."""

    scrub: ScrubOptions = field(default_factory=ScrubOptions)
    verify_within_seconds: float = 60.0
    """From a change of the checkpoint until what it declares flushed has been read."""
    max_bytes_per_second: int = 256 << 20
    """Upper limit, however much waits."""
    poll_seconds: float = 5.0
    """Interval between two looks at checkpoint and directory without an event."""
    broker_seconds: float = 5.0
    """Interval between two queries for the holder of the lock."""
    catch_up_bytes: int = 1 << 30
    """Bytes of a new partition that are verified as newly flushed; the scrubber reads the rest."""
    mark_within_seconds: float = 5.0
    """From an append until it is read and marked, so that a recovery need not read it; 0: no marks."""
    sync_within_seconds: float = 60.0
    """From a mark until what it covers is durable, so that it holds after a power cut as well; 0: no syncs."""
