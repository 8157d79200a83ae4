"""Mutated directories, recovered by Kafka's own loader and by us: the same, or different for a reason with a name.

Two hundred by default, any other number with LOGMEND_MUTATIONS=N. A seed that fails can be looked at alone:
PYTHONPATH=.:tests python -m interop.differential 1 --first SEED --out outcome.json
"""

from __future__ import annotations

import collections
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from interop.differences import RULES, Outcome, explain
from interop.differential import Sources, build, plant, run
from interop.kafka_lab import Oracle
from support.tiers import spread

MUTATIONS = int(os.environ.get("LOGMEND_MUTATIONS", "200"))
CHUNK = 25
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "differences.md"


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A directory in memory where there is one: every recovery syncs some twenty files."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def sources(memory: Path) -> Sources:
    """The goldens, unpacked once for a worker."""
    return Sources(memory / "goldens")


@pytest.mark.slow
@pytest.mark.parametrize("first", spread(range(0, MUTATIONS, CHUNK), 2))
def test_whatever_differs_from_what_kafka_makes_of_a_mutated_directory_is_meant(
    first: int, memory: Path, sources: Sources, oracle: Oracle
) -> None:
    """And Kafka opens our result with nothing to do, and restoring gives the mutated directory back bit for bit."""
    counts: collections.Counter[str] = collections.Counter()
    unexplained = []
    seeds = range(first, min(first + CHUNK, MUTATIONS))
    for seed in seeds:
        outcome = run(build(seed, sources, memory / "case"), oracle)
        names, left = explain(outcome)
        counts.update(names)
        if left:
            unexplained.append(
                f"seed {seed}: {', '.join(left)} after {outcome.damages} in {outcome.golden} {outcome.key}"
            )
    print(f"seeds {seeds.start} to {seeds.stop - 1}: {dict(counts.most_common())}")
    assert not unexplained, "\n".join(unexplained)


def stray_bytes_behind_a_closed_segment(partition: Path) -> None:
    with sorted(partition.glob("*.log"))[1].open("ab") as file:
        file.write(b"stray")


def log_start_above_the_end(partition: Path) -> None:
    topic, _, number = partition.name.rpartition("-")
    (partition.parent / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} {number} 1000000\n")


def transaction_index_of_other_offsets(partition: Path) -> None:
    path = min(partition.glob("*.txnindex"))
    path.write_bytes(path.read_bytes()[:-20])
    points = partition.parent / "recovery-point-offset-checkpoint"
    topic, _, number = partition.name.rpartition("-")
    points.write_text(f"0\n1\n{topic} {number} {int(max(partition.glob('*.log')).stem)}\n")


EXAMPLES: dict[str, int | tuple[Callable[[Path], None], str, str]] = {
    "held": 3,
    "stopped": 3154,
    "left_to_a_person": 20652,
    "kafka_would_not_start": 233,
    "log_start_above_the_end": (log_start_above_the_end, "kafka-2.8", "0/data/orders-0"),
    "kafka_empties_the_segment": 106,
    "keeps_contiguous_segments": (stray_bytes_behind_a_closed_segment, "kafka-2.8", "0/data/orders-0"),
    "log_end_at_the_base": 495,
    "no_hole_behind_a_cut": 974,
    "order_restored": 34,
    "topic_id_from_metadata": 5,
    "epochs_rebuilt": 579,
    "marker_removed": 47,
    "indexes_rebuilt": 26,
    "txn_index_rebuilt": (transaction_index_of_other_offsets, "transactions", "0/data/payments-0"),
    "snapshots_below_the_scan": 6815,
    "producers_rebuilt": 2918,
}
"""For each rule a seed, or a damage that support/mutate.py does not do with golden and partition."""


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_each_rule_has_an_example(rule: str, memory: Path, sources: Sources, oracle: Oracle) -> None:
    example = EXAMPLES[rule]
    if isinstance(example, int):
        case = build(example, sources, memory / "case")
    else:
        damage, name, key = example
        case = plant(damage, name, key, sources, memory / "case")
    names, left = explain(run(case, oracle))
    assert rule in names
    assert left == []


def test_every_rule_that_explains_a_difference_is_documented_and_no_other() -> None:
    headings = [line.removeprefix("### ") for line in DOCUMENT.read_text().splitlines() if line.startswith("### ")]
    assert headings == [f"`{rule.name}`" for rule in RULES]


def sound_outcome() -> Outcome:
    state = {
        "log_start": 0,
        "log_end": 20,
        "producers": [],
        "epochs": [],
        "segments": [{"base": 0, "size": 100}, {"base": 10, "size": 50}],
    }
    return Outcome(
        0,
        "any",
        "0/data/orders-0",
        [],
        {"clean": False, "recovery_point": 0},
        dict(state),
        dict(state),
        empty_again=True,
    )


def test_equal_results_need_no_rule() -> None:
    assert explain(sound_outcome()) == (["equal"], [])


def test_a_log_that_we_shorten_and_kafka_does_not_is_explained_by_batches_put_in_order_alone() -> None:
    outcome = sound_outcome()
    outcome.ours = outcome.ours | {"log_end": 15, "segments": [{"base": 0, "size": 100}, {"base": 10, "size": 20}]}
    assert explain(outcome) == (["unexplained"], ["log_end", "segments"])
    verdict = {"row": "d", "decision": "cut", "kind": "batch_crc", "file": "00.log", "position": 20, "offset": 15}
    outcome.verdicts = [verdict]
    assert explain(outcome) == (["unexplained"], ["log_end", "segments"])
    outcome.verdicts = [verdict | {"kind": "batch_order"}]
    assert explain(outcome) == (["unexplained"], ["log_end", "segments"])
    outcome.verdicts = [verdict | {"kind": "batch_doubled"}]
    assert explain(outcome) == (["order_restored"], [])


@pytest.mark.parametrize(
    "fault",
    [
        {"empty_again": False},
        {"not_restored": "orders-0/00000000000000000000.log"},
        {"changed": [["00000000000000000000.index", 8, 16]], "points": {"clean": False, "recovery_point": 10}},
        {"changed": [["00000000000000000000.txnindex", 34, 68]]},
        {"ours": {"error": "java.lang.IllegalStateException"}},
    ],
)
def test_no_rule_excuses_work_left_undone_or_bytes_lost(fault: dict[str, object]) -> None:
    outcome = sound_outcome()
    for name, value in fault.items():
        setattr(outcome, name, value)
    assert explain(outcome)[1]
