"""What a command that only reads must not change."""

from __future__ import annotations

import hashlib
from pathlib import Path


def contents(directory: Path) -> dict[str, tuple[str, int, int]]:
    """Return digest, size and time of change of every file below a directory."""
    return {
        str(path.relative_to(directory)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in sorted(directory.rglob("*"))
    }
