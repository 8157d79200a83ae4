"""Which log directories were ours before: a mount that is missing must not be taken for a new, empty directory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from checkpoint.uuids import encode_uuid
from engine.settings.identity import read_identity
from storage.base.errors import CorruptData, EnvironmentFault, FileVanished, printable
from storage.disk.fs import FileKind, Fs, ReadFs, read_all, replace_atomically

FILE_NAME: Final = "own.json"
_LIMIT: Final = 1 << 20
LOCK: Final = ".lock"


def read_known(fs: ReadFs, state_dir: PurePath) -> dict[str, str]:
    """Return the ids of the log directories that were opened before; none where the list is gone or unreadable."""
    try:
        found = json.loads(read_all(fs, state_dir / FILE_NAME, _LIMIT))
    except (EnvironmentFault, ValueError, RecursionError):
        return {}
    known = found.get("log_dirs") if isinstance(found, dict) else None
    if not isinstance(known, dict):
        return {}
    return {path: each for path, each in known.items() if isinstance(each, str)}


def write_known(fs: Fs, state_dir: PurePath, known: Mapping[str, str]) -> None:
    """Note the ids, durably; raises `WriteFault`."""
    data = json.dumps({"schema_version": 1, "log_dirs": dict(sorted(known.items()))}, indent=2)
    replace_atomically(fs, state_dir / FILE_NAME, data.encode() + b"\n")


def id_of(fs: ReadFs, log_dir: PurePath) -> str | None:
    """Return the id of a log directory, None where it does not say or cannot be read."""
    with contextlib.suppress(CorruptData, EnvironmentFault):
        found = read_identity(fs, log_dir)
        return None if found is None or found.directory_id is None else encode_uuid(found.directory_id)
    return None


def reason_for_absence(fs: ReadFs, log_dir: PurePath, known: Mapping[str, str]) -> str:
    """Return why a log directory is not there; empty if it is, or if it may be made anew."""
    before = known.get(str(log_dir))
    try:
        if before is not None and fs.stat(log_dir).kind is FileKind.DIRECTORY and _is_bare(fs, log_dir):
            return f"empty, where directory {printable(before)} was: is its volume mounted?"
    except FileVanished:
        if before is not None:
            return f"gone, where directory {printable(before)} was: is its volume mounted?"
    except EnvironmentFault:
        return ""  # whoever opens it says what is wrong
    return ""


def _is_bare(fs: ReadFs, directory: PurePath) -> bool:
    return not [name for name in fs.entries(directory) if name not in ("lost+found", LOCK)]
