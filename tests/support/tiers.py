"""Which of many like cases `make test` tries: the others are marked `deep`, and left to `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def deep(*values: Any, **more: Any) -> Any:
    """Return a case for `parametrize` that is left to `make test-all`; of several parameters all values."""
    return pytest.param(*values, marks=pytest.mark.deep, **more)


def spread(cases: Iterable[Any], count: int) -> list[Any]:
    """Return the cases for `parametrize`, all but `count` of them marked `deep`; those that stay are evenly spread."""
    every = list(cases)
    stay = {number * len(every) // count for number in range(count)}
    return [
        case if number in stay else deep(*case) if isinstance(case, tuple) else deep(case)
        for number, case in enumerate(every)
    ]
