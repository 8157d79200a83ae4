"""How guarding and scrubbing go about their work."""

from __future__ import annotations

from dataclasses import dataclass, field

from recovery.plan.plan import DEFAULT_INDEX_BYTES, DEFAULT_INDEX_INTERVAL

DAY: float = 86_400.0


@dataclass(frozen=True, slots=True)
class ScrubOptions:
    """How the old bytes of a log directory are read again and again."""

    enabled: bool = True
    cycle_seconds: float = 14 * DAY
    """The promise: no closed segment waits longer for its next verification."""
    max_bytes_per_second: int = 64 << 20
    """Never faster, whatever the promise asks for."""
    hours: frozenset[int] | None = None
    """Hours of the local day, 0 to 23, in which it may read; None for all."""
    pressure_low: float = 10.0
    """Percent of `some avg10` of /proc/pressure/io from which on it slows down."""
    pressure_high: float = 40.0
    """Percent at which it stops until the disks have room again."""
    sick_errors: int = 8
    """As many bad files of one device within `sick_seconds` mean a sick device: scrubbing it stops."""
    sick_seconds: float = 600.0
    census_seconds: float = 60.0
    """How often each partition directory is asked whether it has changed."""
    confirm_seconds: float = 5.0
    """How long a suspicion rests before it is read again; what a broker was just doing is done by then."""
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL
    segment_index_bytes: int = DEFAULT_INDEX_BYTES


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """How a log directory that a broker owns is followed."""

    scrub: ScrubOptions = field(default_factory=ScrubOptions)
    verify_within_seconds: float = 60.0
    """From a change of the checkpoint until what it declares flushed has been read."""
    max_bytes_per_second: int = 256 << 20
    """Never faster, whatever is waiting."""
    poll_seconds: float = 5.0
    """How often checkpoint and directory are looked at where no event comes."""
    broker_seconds: float = 5.0
    """How often the lock is asked for its holder."""
    catch_up_bytes: int = 1 << 30
    """Of a partition that is new here, up to so much is verified as newly flushed; the rest is left to the scrubber."""
