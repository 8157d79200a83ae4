"""Which start of the system this is."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from storage.base.errors import ReadFault
from storage.disk.fs import OsFs

_BOOT_ID: Final = PurePath("/proc/sys/kernel/random/boot_id")
_LONGEST: Final = 64


def read_boot_id() -> str:
    """Return the id of the running system's start, empty where it is not told."""
    found = bytearray(_LONGEST)
    try:
        with OsFs().open_read(_BOOT_ID) as file:
            size = file.read_into(0, memoryview(found))
    except ReadFault:
        return ""
    return found[:size].decode("ascii", "replace").strip()
