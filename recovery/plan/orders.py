"""How a plan is carried out: where copies go, and what the manifest says of the run."""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple


class Orders(NamedTuple):
    """How a plan is to be carried out; none of it changes what is done to the log.

    `quarantine_dir`: where copies go instead of beside the file they were taken from. `discard`: cut without a copy.
    """

    plan_id: str
    created_ms: int
    version: str
    quarantine_dir: PurePath | None = None
    discard: bool = False

    @property
    def keeps_beside(self) -> bool:
        """Tell whether what is kept stays in the directory that it came from."""
        return self.quarantine_dir is None and not self.discard
