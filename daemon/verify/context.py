"""What everything that scrubs or guards one log directory works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from daemon.ledger.disk import Disk
from daemon.ledger.ledger import Ledger
from daemon.ledger.page import PartitionRow
from daemon.status.model import Clock, Events
from daemon.verify.device_health import DeviceHealth
from daemon.verify.open_findings import OpenFindings
from daemon.verify.options import ScrubOptions
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset, TopicPartition

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

    def log_of(self, row: PartitionRow, base: int) -> PurePath:
        """Return the path of the log of a segment."""
        return self.log_dir / row.directory / segment_file_name(Offset(base), FileRole.LOG)

    def tell(self, event: str, **fields: object) -> None:
        """Tell an event of this log directory."""
        self.events.tell(event, log_dir=self.log_dir, **fields)
