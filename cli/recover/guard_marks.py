"""What a guard has left for `plan` and `recover`: marks, up to which it has verified logs."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from pathlib import PurePath

from cli.settings.arguments import file_flags
from cli.settings.state_dir import named_state_dir
from recovery.plan.plan import PlanOptions
from recovery.segment.marks import FILE_NAME
from recovery.segment.memory import Guarded
from storage.base.errors import ConfigInvalid
from storage.disk.boot import read_boot_id

FindMarks = Callable[[PurePath], Guarded | None]
"""Returns the marks of a log directory, None where there are none."""


def no_marks(_: PurePath) -> Guarded | None:
    """Return None: everything is to be read."""
    return None


def add_marks(parser: argparse.ArgumentParser) -> None:
    """Add where the marks are, and that they are left alone."""
    group = parser.add_argument_group("marks of the guard")
    group.add_argument("--state-dir", metavar="DIR", help="state directory of the service (/var/lib/logmend)")
    group.add_argument("--no-marks", action="store_true", help="read what the guard has verified as well")


def marks_of(arguments: argparse.Namespace, options: PlanOptions, environment: Mapping[str, str]) -> FindMarks:
    """Return how marks are found: where `run` keeps them, and none where everything is to be read."""
    is_asked_for = options.depth != "quick" or options.accept_loss or options.clean_marker
    if arguments.no_marks or is_asked_for or arguments.heal_from:
        return no_marks
    try:
        state_dir = named_state_dir(file_flags(arguments), arguments.state_dir, environment)
    except ConfigInvalid:
        return no_marks

    def find(log_dir: PurePath) -> Guarded | None:
        if not os.access(state_dir / FILE_NAME, os.R_OK):
            return None
        from recovery.segment.mark_store import read_marks  # noqa: PLC0415 (SQLite takes time to import)

        found = read_marks(state_dir, log_dir)
        return Guarded(found.marks, read_boot_id(), time.time_ns() // 1_000_000) if found.marks else None

    return find
