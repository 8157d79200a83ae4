"""Which log directories were ours before: a missing mount must not be taken for a new, empty directory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Final

from checkpoint.uuids import encode_uuid
from daemon.status.model import Events
from engine.manager.catalog import FILE_NAME as TOPICS
from engine.settings.identity import is_absent, read_identity
from storage.base.errors import CorruptData, EnvironmentFault, FileVanished, printable
from storage.disk.fs import FileKind, Fs, ReadFs, read_all, replace_atomically

FILE_NAME: Final = "own.json"
_LIMIT: Final = 1 << 20
LOCK: Final = ".lock"


class KnownDirs:
    """The ids of the log directories that were opened before, in the state directory; without one, nothing is kept."""

    def __init__(self, fs: Fs, state_dir: PurePath | None, events: Events) -> None:
        self._fs, self._state_dir, self._events = fs, state_dir, events
        self._ids: Mapping[str, str] = {}

    def load(self) -> None:
        """Read the ids again."""
        if self._state_dir is not None:
            self._ids = read_known(self._fs, self._state_dir)

    def remember(self, paths: Iterable[PurePath]) -> None:
        """Add log directories that are open, durably; a disk that fails is reported."""
        if self._state_dir is None:
            return
        ids = {str(path): number for path in paths if (number := _id_of(self._fs, path)) is not None}
        if all(self._ids.get(path) == number for path, number in ids.items()):
            return
        self._ids = {**self._ids, **ids}
        data = json.dumps({"schema_version": 1, "log_dirs": dict(sorted(self._ids.items()))}, indent=2)
        try:
            replace_atomically(self._fs, self._state_dir / FILE_NAME, data.encode() + b"\n")
        except EnvironmentFault as fault:
            self._events.tell("status_not_written", path=self._state_dir, reason=str(fault))

    def reason_for_absence(self, log_dir: PurePath) -> str:
        """Return why a log directory is absent; empty if it is present, or if it may be created."""
        before = self._ids.get(str(log_dir))
        try:
            if before is not None and self._fs.stat(log_dir).kind is FileKind.DIRECTORY and _is_bare(self._fs, log_dir):
                return f"empty, where directory {printable(before)} was: is its volume mounted?"
        except FileVanished:
            if before is not None:
                return f"gone, where directory {printable(before)} was: is its volume mounted?"
        except EnvironmentFault:
            return ""  # opening it fails as well, and reports the fault
        now = None if before is None else _id_of(self._fs, log_dir)
        if now not in (None, before) and is_absent(self._fs, log_dir / TOPICS):
            return f"directory {now} of a broker, where directory {printable(before)} was: restart with --take-over"
        return ""


def read_known(fs: ReadFs, state_dir: PurePath) -> dict[str, str]:
    """Return the ids by path; none where the list is gone or unreadable."""
    try:
        document = json.loads(read_all(fs, state_dir / FILE_NAME, _LIMIT))
    except (EnvironmentFault, ValueError, RecursionError):
        return {}
    ids = document.get("log_dirs") if isinstance(document, dict) else None
    if not isinstance(ids, dict):
        return {}
    return {path: number for path, number in ids.items() if isinstance(number, str)}


def _id_of(fs: ReadFs, log_dir: PurePath) -> str | None:
    """Return the id of a log directory, None where it has none or cannot be read."""
    with contextlib.suppress(CorruptData, EnvironmentFault):
        identity = read_identity(fs, log_dir)
        return None if identity is None or identity.directory_id is None else encode_uuid(identity.directory_id)
    return None


def _is_bare(fs: ReadFs, directory: PurePath) -> bool:
    return not [name for name in fs.entries(directory) if name not in ("lost+found", LOCK)]
