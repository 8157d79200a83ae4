"""Requests of every kind: no fault of ours comes of any, and none costs more than its size explains."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from attacks.every_kind import SERVED, SHAPES, drawn, large
from attacks.hostile import request
from attacks.victim import MIB, PROCESS_BYTES, ROUNDS, Asking, Victim

from server.api.versions import ApiKey

SEED = int(os.environ.get("LOGMEND_ATTACK_SEED", random.randrange(1 << 31)))
DRAWN = int(os.environ.get("LOGMEND_ATTACK_REQUESTS", "400"))
pytestmark = pytest.mark.timeout(1800 * ROUNDS)
TOPIC = "attacked"
ELEMENTS = 5000
PROCESSOR_SECONDS = 1.5
"""For so many elements; on a quiet machine none takes 0.4 s."""
MAKES_MUCH = (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS)
"""They make partitions, up to a bound of their own."""
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


@pytest.mark.deep
@pytest.mark.slow
def test_requests_of_every_kind_cost_what_their_size_explains(tmp_path: Path) -> None:
    """Names that are repeated, that are unknown, at the top of a request and within its only element."""
    with Victim(tmp_path, "--flush", "none") as victim:
        victim.make_topic(TOPIC, 100)
        for kind in (0, 1):  # the coordinators' topics are made by the first who asks
            victim.asked(request(ApiKey.FIND_COORDINATOR, 3, key="group", key_type=kind))
        for key in SERVED:
            for shape in SHAPES if key not in MAKES_MUCH else ():
                frame = large(key, shape, ELEMENTS, TOPIC)
                cost = victim.asked(frame)
                what = f"{key.name}, {shape}: {cost}"
                assert cost.bytes_out < 20 * cost.bytes_in + MIB, what
                assert cost.processor_seconds < PROCESSOR_SECONDS, what
                assert cost.peak_bytes < PROCESS_BYTES, what
        victim.listener.stop()
