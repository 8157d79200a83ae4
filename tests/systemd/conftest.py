"""Machines for the tests that boot some."""

from __future__ import annotations

import pytest
from support.machine import need_machines


@pytest.fixture(scope="session")
def machines() -> None:
    """Skip the tests where no machine can be booted."""
    need_machines()
