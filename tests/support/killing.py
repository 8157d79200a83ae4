"""Steps of an audit that kill the worker they run in, as a lack of memory does. They travel to the workers by value."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from audit.scan.tasks import Row
from audit.spark.steps import VerifySegments


class KillOnce(VerifySegments):
    """Kills the worker in the middle of its first task, once for each mark that is missing."""

    mark = ""

    def _verified(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, Iterable[Row]]]:
        for number, verified in enumerate(VerifySegments._verified(self, rows)):
            if number == 2 and not Path(self.mark).exists():
                Path(self.mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield verified


class KillAt(VerifySegments):
    """Kills the worker at one segment, each time."""

    base_offset = 0
    place = ""

    def _verified(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, Iterable[Row]]]:
        rows = list(rows)
        for row, verified in zip(rows, VerifySegments._verified(self, rows), strict=True):
            if row["base_offset"] == self.base_offset and self.place in f"{row['log_dir']}/{row['directory']}":
                os.kill(os.getpid(), signal.SIGKILL)
            yield verified
