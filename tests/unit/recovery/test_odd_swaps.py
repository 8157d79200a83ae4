"""Swap files whose name is a number and nothing else: a broker takes the suffix off, and so do we."""

from __future__ import annotations

import pytest
from support.log_dirs import OPTIONS, SOUND, TOP, live, on_disk, plan_of, recover


@pytest.mark.parametrize("name", ["5", "-0", "00000000000000000000"])
def test_a_swap_file_of_nothing_loses_its_suffix(name: str) -> None:
    fs = on_disk({**SOUND, f"orders-0/{name}.swap": b"x"})
    recover(fs, OPTIONS)
    assert live(fs.contents(str(TOP))) == {**SOUND, f"orders-0/{name}": b"x"}
    assert plan_of(fs).is_empty
