"""Takes the segments of a log directory one at a time, in the order of the ledger, and reads them at the pace."""

from __future__ import annotations

from typing import Final

from daemon.scrub.board import Throughput
from daemon.scrub.context import ScrubContext
from daemon.scrub.generation import Generation
from daemon.scrub.orders import Orders
from daemon.scrub.pace import LONGEST_REST, Hold, Pace
from daemon.scrub.promise import Promise
from daemon.status.model import ScrubState

_MANY_EMPTY: Final = 1000


class SegmentQueue:
    """Reads the segment that is due next, a piece a step. One thread."""

    def __init__(
        self, context: ScrubContext, pace: Pace, promise: Promise, orders: Orders, throughput: Throughput
    ) -> None:
        self._context, self._pace, self._promise, self._orders = context, pace, promise, orders
        self._throughput = throughput
        self._is_requested, self._size = False, 0
        """Of the segment that is being read: whether it jumped the queue, and the bytes read of it."""
        self._empty = 0
        """Consecutive segments of which nothing was flushed."""

    def step(self, generation: Generation) -> tuple[Hold | None, float]:
        """Read a piece; return why nothing is read now, if so, and the seconds to the next step."""
        hold = self._hold(generation)
        if hold is not None:
            return hold, min(hold.seconds, LONGEST_REST)
        if (rest := self._pace.rest_seconds()) > 0:  # a wake-up is no reason to read faster
            return None, rest
        if generation.readings.look_again():
            return None, 0.0
        if generation.readings.is_reading:
            return None, self._read_on(generation)
        self._promise.renew(generation.page, is_listed=generation.census.is_complete)
        return self._begin_next(generation)

    def _hold(self, generation: Generation) -> Hold | None:
        options, page = self._context.options, generation.page
        if not options.enabled or options.cycle_seconds <= 0:
            return Hold(ScrubState.OFF, "switched off", LONGEST_REST)
        if page.is_paused:
            return Hold(ScrubState.PAUSED, "paused until scrub-resume", LONGEST_REST)
        if page.device is not None and self._context.health.is_sick(page.device):
            reason = (
                f"{options.sick_errors} bad files within {options.sick_seconds:.0f} s: "
                "the device is left alone until scrub-resume"
            )
            return Hold(ScrubState.SICK_DEVICE, reason, LONGEST_REST)
        return self._pace.hold()

    def _begin_next(self, generation: Generation) -> tuple[Hold | None, float]:
        page = generation.page
        row = page.next_due()
        if row is None:
            return Hold(ScrubState.WAITING, "there is nothing to read yet", LONGEST_REST), LONGEST_REST
        if not row.suspect:
            self._orders.all_read()
        wait = 0.0 if row.suspect else self._pace.wait_seconds()
        if wait > 0:
            return Hold(ScrubState.WAITING, "ahead of its pace", wait), wait
        partition = generation.census.partitions.get(row.directory)
        if partition is None or partition.id != row.partition_id:
            page.forget_partition(row.partition_id)
            return None, 0.0
        self._is_requested, self._size = bool(row.suspect), 0
        generation.readings.begin(partition, row)
        self._promise.note_change()
        if generation.readings.is_reading or row.suspect:
            self._empty = 0
            return None, 0.0
        # Nothing of it is flushed. An empty segment costs no pace: in a directory of empty ones it would never rest.
        self._empty += 1
        are_all_empty = row.verified_ms is not None or self._empty > _MANY_EMPTY
        return None, LONGEST_REST if are_all_empty else 0.0

    def _read_on(self, generation: Generation) -> float:
        size, is_over = generation.readings.advance()
        self._throughput.bytes_read += size
        self._size += size
        if is_over and not self._is_requested:
            self._pace.spend(self._size)
        return self._pace.rest_after(size)
