"""JSON that is safe wherever it is shown: ASCII alone, and no character that a terminal or a page acts upon."""

from __future__ import annotations

import json
from typing import Any


def dumps(told: Any, *, indent: int | None = None) -> str:
    """Return `told` as JSON.

    Whatever is not plain ASCII is escaped, DEL too; lone surrogates (bytes of a name that are not UTF-8) stay readable
    for a program that knows Python's or JavaScript's strings.
    """
    text = json.dumps(told, ensure_ascii=True, indent=indent, separators=None if indent else (",", ":"))
    return text.replace("\x7f", "\\u007f")
