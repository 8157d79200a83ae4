"""Makes the plan that follows from a finding, and stores it in the state directory for the operator.

It is made from a live directory, by reading alone, while a broker may append: it is to be read, not applied. The
command beside it plans again, once the broker is stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

from daemon.ledger.ledger import as_text
from daemon.status.model import Events
from recovery.logdir.log_dir import read_log_dir
from recovery.partition.partition import Survey
from recovery.partition.partition_plan import plan_partition
from recovery.partition.points import Points
from recovery.plan.plan import LogDirPlan, PlanOptions
from recovery.report.documents import plan_document
from recovery.segment.memory import Job
from storage.base.errors import EnvironmentFault, FileVanished, LogmendError
from storage.base.names import parse_directory_name
from storage.disk.fs import OsFs, ReadFs, replace_atomically
from storage.reading.log_reader import LogReader

FOLDER: Final = "plans"
MOST: Final = 100
"""Plans kept; the oldest are removed first."""


def plan_of(fs: ReadFs, directory: PurePath, bases: Iterable[int], options: PlanOptions) -> LogDirPlan:
    """Return the plan of one partition, for which its end and the segments `bases` are read, and no others.

    Raises `ReadFault`, and `CorruptData` for the name of the directory.
    """
    state = read_log_dir(fs, directory.parent, options.user, only=directory.name)
    points = next((state.points_of(d) for d in state.partitions if d.name == directory.name), Points(None, 0))
    survey = Survey(fs, directory, directory.name, points, options)
    reader, wanted = LogReader(), set(bases)
    survey.prepare(reader)
    wanted -= {job.files.base_offset for job in survey.jobs}
    survey.jobs += [
        Job(files, canonical=False, active=False) for files in survey.resolved.segments if files.base_offset in wanted
    ]
    reports = {job.files.base_offset: survey.run(job, reader, lambda _: None) for job in survey.jobs}
    planned = plan_partition(survey, reports, reader)
    options = options._replace(topics=(parse_directory_name(directory.name).partition.topic,))
    return LogDirPlan(
        directory.parent, options, verdicts=(), stopped=False, before=(), partitions=(planned.plan,), after=(),
        preconditions=(),
    )  # fmt: skip


class StoredPlans:
    """The plans of one log directory. A plan that cannot be stored is reported, and the work goes on."""

    def __init__(self, state_dir: PurePath, log_dir: PurePath, events: Events, version: str) -> None:
        self._folder, self._log_dir, self._events, self._version = state_dir / FOLDER, log_dir, events, version

    def path_of(self, directory: str) -> PurePath:
        """Return the path of the plan of a partition directory."""
        mark = hashlib.blake2b(as_text(self._log_dir).encode(), digest_size=4).hexdigest()
        return self._folder / f"{mark}-{directory}.json"

    def store(
        self, fs: ReadFs, directory: str, bases: Iterable[int], options: PlanOptions, command: str
    ) -> PurePath | None:
        """Store the plan of a partition over an earlier one; return its path, None if it failed."""
        path = self.path_of(directory)
        try:
            plan = plan_of(fs, self._log_dir / directory, bases, options)
            document = plan_document([plan], self._version) | {"command": command}
            out = OsFs()
            with contextlib.suppress(EnvironmentFault):
                out.make_dir(self._folder)
            replace_atomically(out, path, (json.dumps(document, indent=1) + "\n").encode())
            self._drop_oldest(out)
        except FileVanished:
            return None  # the partition has changed; its next look decides
        except LogmendError as error:
            self._events.tell("plan_not_stored", log_dir=self._log_dir, path=path, reason=str(error))
            return None
        self._events.tell("plan_stored", log_dir=self._log_dir, plan_id=plan.plan_id, path=path, command=command)
        return path

    def drop(self, directory: str) -> None:
        """Remove the plan of a partition without findings."""
        with contextlib.suppress(EnvironmentFault):
            OsFs().remove(self.path_of(directory))

    def _drop_oldest(self, out: OsFs) -> None:
        kept = sorted((stat.mtime_ns, name) for name, stat in out.entries(self._folder).items())
        for _, name in kept[: max(len(kept) - MOST, 0)]:
            out.remove(self._folder / name)
