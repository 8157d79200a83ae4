"""Reads every closed segment of a log directory again within a promised time, least recently verified first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from daemon.disk import Disk
from daemon.ledger import Ledger
from daemon.snapshot import Clock, Events, OpenFinding, PartitionCell, ScrubState, ScrubStatus
from daemon.verify_options import ScrubOptions
from storage.units import TopicPartition

FlushedUpTo = Callable[[TopicPartition], int | None]
"""The recovery point of a partition: below it everything is flushed. None where it is not known."""
COMMANDS: Final = ("scrub-now", "scrub-pause", "scrub-resume")


class Scrubber:
    """Scrubs one log directory, guarded or owned. `start`, `step` and `close` on one thread, the rest on any.

    `draw` returns a random number from 0 up to below 1; `pressure` the percent of time in which something waited for
    a disk, None where the system does not say. No fault of a disk leaves it.
    """

    def __init__(
        self,
        log_dir: PurePath,
        ledger: Ledger,
        clock: Clock,
        events: Events,
        options: ScrubOptions,
        *,
        flushed: FlushedUpTo,
        disk: Disk | None = None,
        draw: Callable[[], float] | None = None,
        pressure: Callable[[], float | None] | None = None,
    ) -> None:
        self.log_dir, self._ledger, self._clock, self._events, self._options = log_dir, ledger, clock, events, options
        self._flushed, self._disk, self._draw, self._pressure = flushed, disk or Disk(), draw, pressure

    def start(self) -> None:
        """Take up where the ledger says the last one stopped; quick, whatever the size of the directory."""

    def step(self) -> float:
        """Read a piece, or look for changed directories, less than a second; return the seconds to the next call."""
        return 1.0

    def directories_changed(self) -> None:
        """Hear that partitions may have come or gone; they are listed with the next step."""

    def suspect(self, directory: str, base_offset: int) -> None:
        """Put a segment first in line."""

    def command(self, name: str, argument: str = "") -> str:
        """Take one of `COMMANDS`, answer in a sentence; `ValueError` for any other."""
        raise ValueError(name)

    def status(self) -> ScrubStatus:
        """Return where it is, at once."""
        return ScrubStatus(ScrubState.OFF, "", 0, 0, 0, 0, 0, 0, None, 0)

    def cells(self) -> tuple[PartitionCell, ...]:
        """Return what is known of each partition, at once."""
        return ()

    def findings(self) -> tuple[OpenFinding, ...]:
        """Return the open findings of this log directory, at once."""
        return ()

    def size_bytes(self) -> int:
        """Return the bytes of all `.log` files as they were last listed."""
        return 0

    def close(self) -> None:
        """Write down what is known."""
