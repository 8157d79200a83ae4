"""The passes of compaction over the records of one batch: in C where that was built, else in Python.

Both have the same three functions, described in `storage.kernel.python.dedupe_python`, and work on the very same offset
map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from storage.kernel.python import dedupe_python


class Passes(NamedTuple):
    """One kernel, by its name, `c` or `python`."""

    name: str
    put_keys: Callable[[bytearray, int, bytes, int, int, int, int, int], tuple[int, int, bool]]
    mark_kept: Callable[[bytearray, int, bytes, int, int, int, bool, bytearray], tuple[int, int, int]]
    move_records: Callable[[bytes, bytes | bytearray, int, int, bool, int, bool, int], tuple[bytes, int, int]]


PYTHON = Passes("python", dedupe_python.put_keys, dedupe_python.mark_kept, dedupe_python.move_records)


def _choose() -> Passes:
    try:
        from storage.kernel import _dedupe  # noqa: PLC0415 (may not have been built)
    except ImportError:
        return PYTHON
    return Passes("c", _dedupe.put_keys, _dedupe.mark_kept, _dedupe.move_records)


FASTEST = _choose()
"""The kernel in use."""
