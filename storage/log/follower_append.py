"""FollowerAppend: takes batches as a leader has them, with their offsets and times.

Source: Apache Kafka 4.3.0, UnifiedLog.appendAsFollower.
"""

from __future__ import annotations

from typing import Final

from storage.append.append_check import check_follower_append
from storage.base.refusals import UnexpectedOffset
from storage.base.rows import BatchRows, Data
from storage.log.log_state import LogState
from storage.log.log_types import Appended
from storage.log.log_writer import LogWriter

_ROWS: Final = 1024


class FollowerAppend:
    """Appends to one log as a follower of its leader."""

    def __init__(self, state: LogState, writer: LogWriter) -> None:
        self._state, self._writer = state, writer
        self._rows: BatchRows | None = None

    def append(self, data: Data, leader_epoch: int, now_ms: int) -> Appended | None:
        """Append batches; see `Log.append_as_follower`."""
        state = self._state
        state.ensure_usable()
        if self._rows is None:
            self._rows = BatchRows(_ROWS)
        with memoryview(data) as view:
            checked = check_follower_append(view, self._rows, leader_epoch)
            if checked is None:
                return None
            if checked.first_offset < state.log_end:
                raise UnexpectedOffset(checked.first_offset, checked.last_offset, state.log_end)
            state.producers.check_replicated(checked.events)
            rolled = self._writer.make_room(checked, now_ms)
            return self._writer.write(checked, rolled)
