"""Which logmend this is, and what it runs on."""

from __future__ import annotations

import sys
from typing import Any, Final

NAME: Final = "logmend"


def version() -> str:
    """Return the version of the installed distribution."""
    # Reading the metadata of distributions costs 20 ms at start-up, so only those who print it pay for it.
    from importlib.metadata import PackageNotFoundError  # noqa: PLC0415
    from importlib.metadata import version as installed  # noqa: PLC0415

    try:
        return installed(NAME)
    except PackageNotFoundError:
        return "unknown"


def facts() -> dict[str, Any]:
    """Return version, Python, and which scanner and checksum are in use."""
    from storage.scan import crc_name, kernel_name  # noqa: PLC0415

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
