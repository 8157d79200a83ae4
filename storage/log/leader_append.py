"""LeaderAppend: takes what clients and coordinators send, checks it, and gives it offsets and an epoch.

Source: Apache Kafka 4.3.0, UnifiedLog.appendAsLeader.
"""

from __future__ import annotations

from typing import Final

from storage.append.append_check import Leading, check_leader_append
from storage.base.rows import CONTROL_NONE, Data, ProducerEvent
from storage.kernel.scan import lead_batch
from storage.log.log_state import LogState
from storage.log.log_types import Appended
from storage.log.log_writer import LogWriter
from storage.producers.producers import Origin
from storage.segment.segment_types import Terms

_CLIENT: Final = Origin.CLIENT


class LeaderAppend:
    """Appends to one log as its leader."""

    def __init__(self, state: LogState, writer: LogWriter) -> None:
        self._state, self._writer = state, writer
        self._terms = Terms.of(state.config)

    def append(
        self, data: Data, leader_epoch: int, now_ms: int, origin: Origin, transaction_version: int
    ) -> Appended | None:
        """Append one batch; see `Log.append_as_leader`."""
        state = self._state
        if state.unusable_since is not None:
            state.ensure_usable()
        if origin is _CLIENT and leader_epoch == state.epochs.newest:
            done = self._append_as_it_is(data, leader_epoch, now_ms)
            if done is not None:
                return done
        leading = Leading(state.config, state.log_end, leader_epoch, now_ms, origin)
        with memoryview(data) as view:
            checked = check_leader_append(view, leading)
        if checked is None:
            return None
        rolled = self._writer.make_room(checked, now_ms)
        producers = state.producers
        for event in checked.events:
            if origin is _CLIENT and (seen := producers.find_duplicate(event)) is not None:
                return Appended(seen.first_offset, seen.last_offset, seen.timestamp, is_duplicate=True, rolled=rolled)
            producers.check(event, origin, transaction_version)
        return self._writer.write(checked, rolled)

    def _append_as_it_is(self, data: Data, leader_epoch: int, now_ms: int) -> Appended | None:
        """Append a batch that the kernel alone can judge, as most are; None, with nothing done, for all others.

        What is refused here is refused by the checks in Python as well.
        """
        state, terms = self._state, self._terms
        first, active = state.log_end, state.segments.all[-1]
        if terms.config is not state.config:
            terms = self._terms = Terms.of(state.config)
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
            if state.producers.find_duplicate(event) is not None:
                return None
            state.producers.check(event, _CLIENT)
            events = (event,)
        self._writer.put(active, copy, ((last, largest, size),), last, events)
        return Appended(first, last, largest)
