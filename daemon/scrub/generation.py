"""What hangs on one generation of the ledger: the page of a log directory, and its listing, reading and judging."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.ledger.page import Page
from daemon.scrub.census import Census
from daemon.scrub.context import ScrubContext
from daemon.scrub.follow_up import FollowUp
from daemon.scrub.pace import Pace
from daemon.scrub.reading import SegmentReadings
from daemon.scrub.stored_plans import StoredPlans
from storage.base.errors import ReadFault


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """Made again when the ledger starts over, or when the log directory comes back. Compared by identity."""

    page: Page
    census: Census
    follow_up: FollowUp
    readings: SegmentReadings

    @classmethod
    def begin(cls, context: ScrubContext, pace: Pace) -> Generation:
        """Take up what the ledger holds of the log directory."""
        page = Page(context.ledger, context.log_dir)
        try:
            device = context.disk.stat(context.log_dir).device
            if device != page.device:
                page.set_device(device)
        except ReadFault:
            pass  # the directory is absent: the guard or the owner reports that
        census = Census(context, page, pace.first_due_ms)
        plans = StoredPlans(context.ledger.state_dir, context.log_dir, context.events, context.ledger.version)
        follow_up = FollowUp(context, page, plans)
        return cls(page, census, follow_up, SegmentReadings(context, page, census, follow_up, pace))
