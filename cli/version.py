"""Which logmend this is, and what it runs on."""

from __future__ import annotations

import sys
from typing import Any, Final

from storage.kernel.scan import crc_name, kernel_name

VERSION: Final = "0.1.0"
"""The one place where it stands; the distribution takes it from here."""


def version() -> str:
    """Return the version of this source; to ask what is installed costs 20 ms at start-up."""
    return VERSION


def facts() -> dict[str, Any]:
    """Return version, Python, and which scanner and checksum are in use."""
    return {
        "schema_version": 1,
        "document": "version",
        "logmend": version(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "kernel": kernel_name(),
        "crc": crc_name(),
    }


def version_line(told: dict[str, Any]) -> str:
    """Return the facts in one line."""
    return "{logmend} (Python {python}, scanner {kernel}, CRC-32C {crc})".format_map(told)
