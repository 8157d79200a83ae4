"""The promise of a scrubber: every closed segment is read once a cycle. Sets the pace for it and reports a delay."""

from __future__ import annotations

from typing import Final

from daemon.ledger.page import Page
from daemon.scrub.context import ScrubContext
from daemon.scrub.pace import Need, Pace

_NEED_SECONDS: Final = 600.0
_JUMP_MS: Final = 60_000


class Promise:
    """Holds the pace of one log directory against its cycle. One thread."""

    def __init__(self, context: ScrubContext, pace: Pace) -> None:
        self._context, self._pace = context, pace
        self._is_behind = False
        self.start()

    def start(self) -> None:
        """Count from now on."""
        now = self._context.clock.monotonic()
        self._need = Need(0.0, 0.0)
        self._need_at = now
        self._has_changed = True
        """A segment was listed or read since the need was worked out."""
        self._wall_ahead_ms = self._context.clock.now_ms() - int(now * 1000)

    def restart(self) -> None:
        """Report a delay again: the log directory, or its ledger, starts over."""
        self._is_behind = False

    @property
    def behind_seconds(self) -> float:
        """By how much the promise will be broken at the fastest pace allowed; 0 where it will be kept."""
        return self._need.behind_seconds

    def note_change(self) -> None:
        """Note that a segment was listed or read."""
        self._has_changed = True

    def renew_now(self) -> None:
        """Work the need out with the next `renew`, where anything has changed."""
        self._need_at = self._context.clock.monotonic()

    def follow_clock(self, page: Page) -> None:
        """Bring due times back after the wall clock was set back, which would postpone them by as much."""
        clock = self._context.clock
        ahead_ms = clock.now_ms() - int(clock.monotonic() * 1000)
        if ahead_ms < self._wall_ahead_ms - _JUMP_MS:
            page.not_after(self._pace.latest_due_ms())
        self._wall_ahead_ms = ahead_ms

    def renew(self, page: Page, *, is_listed: bool) -> None:
        """Work out now and then how fast the scrubber has to be; report where the promise cannot be kept."""
        now, cycle = self._context.clock.monotonic(), self._context.options.cycle_seconds
        if now < self._need_at or not self._has_changed:
            return
        # With more segments the sums take longer, and a single one changes them less.
        self._need_at = now + min(_NEED_SECONDS, max(cycle / 2000, 0.2))
        self._has_changed = False
        bucket_ms = max(int(cycle * 1000 / 64), 1)
        self._need = self._pace.need(page.demand(self._context.clock.now_ms(), bucket_ms))
        self._pace.set_rate(self._need.rate)
        was_behind, self._is_behind = self._is_behind, self._need.behind_seconds > 0
        if self._is_behind and not was_behind:
            self._context.tell("scrub_behind", behind_seconds=int(self._need.behind_seconds))
        if is_listed:
            self._end_pass(page)

    def _end_pass(self, page: Page) -> None:
        started, now_ms = page.pass_started_ms, self._context.clock.now_ms()
        if started is None:
            page.begin_pass(now_ms)
            return
        if page.left_since(started):
            return
        totals = page.totals(started)
        if totals.segments:
            self._context.tell(
                "scrub_pass_finished", segments=totals.segments, bytes=totals.bytes,
                seconds=(now_ms - started) // 1000, findings=len(self._context.findings.open()),
            )  # fmt: skip
        page.begin_pass(now_ms + 1)
