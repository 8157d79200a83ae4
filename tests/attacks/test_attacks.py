"""What a few hostile clients can cost: each attack has bounds, and nothing that was acknowledged is lost under it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attacks.hostile import (
    FIND_COORDINATOR,
    join_of,
    large_records,
    many_records,
    metadata_of,
    produce,
    request,
)
from attacks.victim import (
    FRAMES_BYTES,
    MIB,
    PROCESS_BYTES,
    ROUNDS,
    SLOW_SECONDS,
    Asking,
    Victim,
    honest_under,
    percentile,
)
from support.waiting import until

pytestmark = pytest.mark.timeout(1800 * ROUNDS)
TOPIC = "attacked"
HOSTILE = 8
TURNS = 60
STOP_SECONDS = 120.0
"""What SIGTERM takes at most: 5 s for requests, 10 s for appends, and what a busy machine adds."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Victim, Victim]]:
    """Give a listener to attack, and one that is left alone."""
    with Victim(tmp_path / "attacked") as victim, Victim(tmp_path / "quiet") as quiet:
        victim.make_topic(TOPIC, 4)
        yield victim, quiet


ATTACKS: dict[str, Callable[[], bytes]] = {
    "millions of records": lambda: produce(TOPIC, [many_records()] * 2, partitions=4),
    "large records": lambda: produce(TOPIC, [large_records()] * 2, partitions=4),
    "unknown topics": lambda: metadata_of(30_000),
}


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_an_honest_client_is_served_while_eight_hostile_ones_do_their_worst(
    pair: tuple[Victim, Victim], name: str
) -> None:
    victim, quiet = pair
    frame = ATTACKS[name]()
    attacked, beside, acknowledged = honest_under(victim, quiet, frame, HOSTILE, TURNS * ROUNDS)
    limit = SLOW_SECONDS + 10 * max(beside)
    slow = percentile(attacked, 95)
    assert slow < limit, f"95 of 100 turns took up to {slow:.3f} s; {max(beside):.3f} s at most at a quiet listener"
    assert victim.peak_bytes < PROCESS_BYTES + FRAMES_BYTES, f"{victim.peak_bytes / MIB:.0f} MiB"
    victim.stopped(acknowledged)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("batch", [many_records, large_records])
def test_a_small_batch_that_unpacks_to_much_costs_little_memory_and_one_walk(
    pair: tuple[Victim, Victim], batch: Callable[[], bytes]
) -> None:
    victim, _ = pair
    before = victim.peak_bytes
    cost = victim.asked(produce(TOPIC, [batch()]))
    assert cost.bytes_out < 1000
    assert cost.peak_bytes < before + 192 * MIB, f"{cost.peak_bytes / MIB:.0f} MiB"
    assert cost.processor_seconds < 8, "256 MiB are unpacked and walked once"


@pytest.mark.deep
@pytest.mark.slow
def test_sigterm_ends_the_process_in_time_while_batches_are_walked_that_take_minutes(
    pair: tuple[Victim, Victim],
) -> None:
    victim, _ = pair
    process = victim.listener.process
    assert process is not None
    with ExitStack() as stack:
        connection = stack.enter_context(Asking(victim.address))
        begun = victim.processor_seconds
        connection.send(produce(TOPIC, [many_records()] * 600, partitions=4))
        until(lambda: victim.processor_seconds > begun + 1)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
    assert time.monotonic() - began < STOP_SECONDS


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("size", [(4 << 20) - 1024, 1_900_000], ids=["4 MB each", "1.9 MB each"])
def test_what_members_of_groups_say_of_themselves_takes_bounded_memory(tmp_path: Path, size: int) -> None:
    with Victim(tmp_path) as victim:
        with Asking(victim.address) as connection:
            connection.ask(request(FIND_COORDINATOR, 0, coordinator_key="g"))
            until(lambda: (connection.ask(join_of("first", 1000)) or 0) > 1000)
        before = victim.resident_bytes
        for first in range(0, 80, 16):
            with ExitStack() as stack:
                connections = [stack.enter_context(Asking(victim.address)) for _ in range(16)]
                for number, connection in enumerate(connections, first):
                    connection.send(join_of(f"g{number}", size))
                for connection in connections:
                    connection.answer_bytes()
        grown = victim.resident_bytes - before
        assert grown < 64 * MIB + 64 * MIB, f"{grown / MIB:.0f} MiB"
        victim.stopped(0)
