"""Waits for what gives no sign when it comes about: the one place where tests look again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], seconds: float = 180, *, say: Callable[[], object] = lambda: "") -> T:
    """Return the first answer of `look` that is true; after so many seconds fail with what `say` returns."""
    end = time.monotonic() + seconds
    while not (answer := look()):
        assert time.monotonic() < end, f"it did not come about within {seconds:g} s: {say()}"
        time.sleep(0.02)
    return answer
