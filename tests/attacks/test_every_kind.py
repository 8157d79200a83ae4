"""Requests of every kind: no fault of ours comes of any, and none costs more than its size explains."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from attacks.every_kind import drawn
from attacks.victim import Asking, Victim

SEED = int(os.environ.get("LOGMEND_ATTACK_SEED", random.randrange(1 << 31)))
DRAWN = int(os.environ.get("LOGMEND_ATTACK_REQUESTS", "400"))
TOPIC = "attacked"
PATIENCE = 0.3
"""Seconds: some requests are answered when others have come, or after minutes."""


@pytest.mark.deep
@pytest.mark.slow
def test_requests_that_are_drawn_and_changed_meet_no_fault_of_ours(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    with Victim(tmp_path, "--flush", "none") as victim:
        victim.make_topic(TOPIC)
        for number in range(DRAWN):
            name, frame = drawn(draw)
            with Asking(victim.address) as connection:
                connection.patience(PATIENCE)
                connection.ask(frame)
            said = victim.listener.output.read_text(errors="replace")
            assert "client_failed" not in said, f"seed {SEED}, request {number}: {name}\n{said[-2000:]}"
        victim.listener.stop()
