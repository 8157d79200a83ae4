"""How far an audit is: a thread on the driver counts the results of tasks and reports them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final, Protocol, Self

from audit.spark.steps import Staging
from storage.base.errors import EnvironmentFault

_POLL_SECONDS: Final = 1.0


class Progress(Protocol):
    """Receives the progress of an audit. Calls come from two threads, never at the same time for one phase."""

    def phase(self, name: str) -> None:
        """Tell what is done from now on: listing, verifying, comparing, writing."""

    def verified(self, done_bytes: int, total_bytes: int, done_tasks: int, total_tasks: int) -> None:
        """Tell how much of the logs has been read."""


class SilentProgress:
    """Follows nothing."""

    def phase(self, name: str) -> None: ...

    def verified(self, done_bytes: int, total_bytes: int, done_tasks: int, total_tasks: int) -> None: ...


class Watch:
    """Tells every second how many tasks have a result; `sizes`: task to bytes. A context."""

    def __init__(self, staging: Staging, sizes: Mapping[int, int], progress: Progress) -> None:
        self._staging, self._sizes, self._progress = staging, sizes, progress
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit-progress", daemon=True)

    def __enter__(self) -> Self:
        self._progress.phase("verifying")
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._tell()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            self._tell()

    def _tell(self) -> None:
        try:
            done = self._staging.done() & self._sizes.keys()
        except (EnvironmentFault, OSError):  # progress is no reason to stop
            return
        size = sum(self._sizes[task] for task in done)
        self._progress.verified(size, sum(self._sizes.values()), len(done), len(self._sizes))
