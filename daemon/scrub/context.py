"""What everything that scrubs or guards one log directory works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from daemon.ledger.disk import Disk
from daemon.ledger.ledger import Ledger
from daemon.scrub.device_health import DeviceHealth
from daemon.scrub.open_findings import OpenFindings
from daemon.scrub.verify_options import ScrubOptions
from daemon.status.model import Clock, Events
from storage.base.units import TopicPartition

FlushedUpTo = Callable[[TopicPartition], int | None]
"""The recovery point of a partition: everything below it is flushed. None while it is unknown."""


@dataclass(slots=True)
class ScrubContext:
    """One log directory with its ledger, disk, clock, events and open findings. A reload replaces `options`."""

    log_dir: PurePath
    ledger: Ledger
    disk: Disk
    clock: Clock
    events: Events
    findings: OpenFindings
    health: DeviceHealth
    flushed: FlushedUpTo
    options: ScrubOptions

    def tell(self, event: str, **fields: object) -> None:
        """Tell an event of this log directory."""
        self.events.tell(event, log_dir=self.log_dir, **fields)
