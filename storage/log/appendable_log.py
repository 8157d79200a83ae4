"""AppendableLog: the end of a log that grows, batch by batch, as long as there is room in its active segment.

What goes there, and what has to be done before and behind it, is for `storage.log.log` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from storage.base.config import LogConfig
from storage.base.refusals import LogUnusable
from storage.base.units import Offset
from storage.kernel.rows import CONTROL_NONE, Data, ProducerEvent
from storage.kernel.scan import lead_batch
from storage.log.log_types import Appended
from storage.log.readable_log import ReadableLog
from storage.producers.producers import Origin
from storage.segment.segment import LogSegment
from storage.segment.segment_types import EndNumbers, Terms


class AppendableLog(ReadableLog):
    """A log by its end; see the module."""

    def __init__(self, directory: PurePath, config: LogConfig) -> None:
        """A log without segments yet."""
        super().__init__()
        self.directory, self.config = directory, config
        self._end_reason: str | None = None
        self._terms = Terms.of(config)

    def flush(self, up_to: Offset | None = None) -> Offset:
        """Make it durable; see `Log.flush`."""
        raise NotImplementedError

    def _usable(self) -> None:
        if self._end_reason is not None:
            raise LogUnusable(f"{self.directory}: {self._end_reason}")

    def _append_as_it_is(self, data: Data, leader_epoch: int, now_ms: int) -> Appended | None:
        """Append a batch at which nobody has to look closely, as most are; the kernel says which.

        None, with nothing done, leaves it to those who look closely; what is refused here is refused there as well.
        """
        terms, first, active = self._terms, self.log_end, self.segments.all[-1]
        if terms.config is not self.config:
            terms = self._terms = Terms.of(self.config)
        if not terms.takes_plain:
            return None
        led = lead_batch(data, first, leader_epoch)
        if led is None or not terms.allow(led, now_ms):
            return None
        copy, count, _, largest, _, attributes, producer_id, producer_epoch, sequence = led
        last, size = first + count - 1, len(copy)
        if active.should_roll(size, last, largest, now_ms, max_bytes=terms.segment_bytes, max_ms=terms.segment_ms):
            return None
        events: tuple[ProducerEvent, ...] = ()
        if producer_id >= 0:
            event = ProducerEvent(first, last, attributes, largest, producer_id, producer_epoch, sequence, CONTROL_NONE)
            if self.producers.find_duplicate(event) is not None:
                return None
            self.producers.check(event, Origin.CLIENT)
            events = (event,)
        self._put(active, copy, ((last, largest, size),), last, events)
        return Appended(first, last, largest)

    def _put(
        self, active: LogSegment, data: Data, ends: Sequence[EndNumbers], last: int, events: Sequence[ProducerEvent]
    ) -> None:
        try:
            active.append(data, ends)
        except LogUnusable as fault:
            self._end_reason = str(fault)
            raise
        self._note(active, last, events)

    def _note(self, active: LogSegment, last: int, events: Sequence[ProducerEvent] = ()) -> None:
        self.log_end = Offset(last + 1)
        if events:
            for transaction in self.producers.apply(events):
                active.append_aborted(transaction)
        self.producers.state.map_end_offset = self.log_end
        if self.log_end - self.recovery_point >= self.config.flush_messages:
            self.flush()
