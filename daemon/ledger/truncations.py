"""What a ledger knows of truncations by brokers, for commands that run beside the service or without it."""

from __future__ import annotations

import sqlite3
from pathlib import PurePath
from typing import NamedTuple
from urllib.parse import quote

from daemon.ledger.ledger import FILE_NAME, as_text


class Truncation(NamedTuple):
    """Verified data of a partition that its broker has cut; offsets are inclusive, times milliseconds since 1970."""

    log_dir: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    noticed_ms: int


def read_truncations(state_dir: PurePath, log_dirs: list[PurePath]) -> list[Truncation]:
    """Return those of these log directories, the oldest first; none where there is no ledger that can be read."""
    path = f"file:{quote(str(state_dir / FILE_NAME))}?mode=ro"
    wanted = {as_text(log_dir) for log_dir in log_dirs}
    try:
        with sqlite3.connect(path, uri=True, timeout=1.0) as db:
            rows = db.execute(f"SELECT {', '.join(Truncation._fields)} FROM truncations ORDER BY rowid").fetchall()  # noqa: S608 (names of our own fields)
    except sqlite3.Error:
        return []
    return [found for row in rows if (found := Truncation(*row)).log_dir in wanted]
