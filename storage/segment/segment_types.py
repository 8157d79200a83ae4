"""What a segment is told: its limits, the batches that are appended to it, and which of them need no closer look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from storage.base.config import PRODUCER, LogConfig
from storage.base.rows import Led
from storage.index.indexes import OFFSET_ENTRY, TIME_ENTRY

_AGE: Final = 1 << 62
"""Ms; times beyond it need a closer look, and sums with it stay within an int64."""
_PLAIN: Final = (PRODUCER, "uncompressed")
EndNumbers = tuple[int, int, int]
"""What a `BatchEnd` holds, without its names."""


class BatchEnd(NamedTuple):
    """What a segment must know of a batch that is appended: its last offset, largest timestamp (-1: none) and bytes."""

    last_offset: int
    max_timestamp: int
    size: int


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """How large a segment and its indexes get; bytes, and ms."""

    index_interval_bytes: int = 4096
    max_index_bytes: int = 10 << 20

    @property
    def offset_entries(self) -> int:
        """An offset index is full with so many entries."""
        return self.max_index_bytes // OFFSET_ENTRY.size

    @property
    def time_entries(self) -> int:
        """A time index is full with so many: one more place is kept for the entry that closes it."""
        return self.max_index_bytes // TIME_ENTRY.size - 1


class Terms(NamedTuple):
    """What a topic asks of a batch without codec that needs no closer look; taken from its settings once.

    A batch of up to `message_bytes`, with timestamps up to so many ms before and after now, with keys in all records if
    it `needs_keys`; it goes into the log as it is if that `takes_plain`.
    """

    config: LogConfig
    message_bytes: int
    before_ms: int
    after_ms: int
    needs_keys: bool
    takes_plain: bool
    segment_bytes: int
    segment_ms: int

    @classmethod
    def of(cls, config: LogConfig) -> Terms:
        """Return the terms of these settings."""
        takes_plain = config.compression_type in _PLAIN and not config.uses_append_time
        before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        room = config.max_segment_bytes
        return cls(
            config, min(config.max_message_bytes, room), min(before_ms, _AGE), min(after_ms, _AGE), config.is_compacted,
            takes_plain, room, min(config.max_segment_ms, _AGE),
        )  # fmt: skip

    def allow(self, led: Led, now_ms: int) -> bool:
        """Tell whether a batch that a leader may take is one of these."""
        copy, _, least, largest, lacks_key, *_ = led
        return (
            largest - now_ms <= self.after_ms
            and now_ms - least <= self.before_ms
            and len(copy) <= self.message_bytes
            and not (lacks_key and self.needs_keys)
        )
