"""Lost epochs of a tiered partition come from a replica that must know them, or the reason is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

import pytest
from support.log_dirs import BASES, EPOCHS, TOP, Files, on_disk, place, plan_of
from unit.recovery.partition.test_tiering import tiered

from checkpoint.leader_epoch import EpochStart, decode_epochs
from recovery.heal.epochs import EpochHealing, plan_epoch_healing
from recovery.heal.replica import DirectorySource, Offer, ReplicaFacts, ReplicaUnusable
from storage.base.units import Epoch, Offset, TopicPartition

LOCAL_START = BASES[-1]
WHOLE = ((0, 0), (1, 5), (2, 12))
TORN = b"0\n3\n0 0\n1 5\n2 1"


def entries(*pairs: tuple[int, int]) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(Epoch(epoch), Offset(start)) for epoch, start in pairs)


GOOD = ReplicaFacts(0, high_watermark=LOCAL_START, clean_point=None, epochs=entries(*WHOLE), topic_id=None)


class Replica:
    """A replica that says this of itself."""

    bytes_read = 0

    def __init__(self, facts: ReplicaFacts | None, name: str = "replica") -> None:
        self.known, self.name = facts, name

    def facts(self, partition: TopicPartition) -> ReplicaFacts:
        if self.known is None:
            raise ReplicaUnusable(f"no {partition}")
        return self.known

    def batches(self, partition: TopicPartition, first: int, until: int, size: int) -> Iterator[Offer]:
        raise AssertionError((partition, first, until, size))


def healing(files: Files, *sources: Replica | DirectorySource) -> EpochHealing:
    fs = on_disk(files)
    return plan_epoch_healing(fs, plan_of(fs), sources)


def written(healed: EpochHealing) -> list[tuple[int, int]]:
    (data,) = healed.contents.values()
    return [(int(entry.epoch), int(entry.start_offset)) for entry in decode_epochs(data)]


@pytest.mark.parametrize("history", [TORN, None, b""])
def test_a_replica_that_knows_the_epochs_up_to_the_local_log_gives_them(history: bytes | None) -> None:
    healed = healing(tiered(history=history), Replica(GOOD))
    assert written(healed) == list(WHOLE)
    assert [(note.healed, note.first_offset, note.next_offset) for note in healed.notes] == [(True, 0, LOCAL_START)]
    (action,) = healed.plan.partitions[0].actions
    assert action.path == TOP / EPOCHS


def test_epochs_of_the_local_log_are_those_of_its_batches() -> None:
    theirs = replace(GOOD, epochs=entries(*WHOLE, (3, 25), (7, 90)), high_watermark=99)
    assert written(healing(tiered(history=None), Replica(theirs))) == list(WHOLE)


def test_a_replica_whose_log_began_earlier_is_cut_at_our_log_start() -> None:
    assert written(healing(tiered(7, history=None), Replica(GOOD))) == [(1, 7), (2, 12)]


@pytest.mark.parametrize("watermark", [LOCAL_START, LOCAL_START - 1, None])
def test_an_empty_local_log_takes_what_is_committed(watermark: int | None) -> None:
    files = {name: data for name, data in tiered(history=None).items() if not name.startswith("orders-0/0")}
    healed = healing(files | {place(LOCAL_START): b""}, Replica(replace(GOOD, high_watermark=watermark)))
    if watermark == LOCAL_START:
        assert written(healed) == list(WHOLE)
    else:
        assert f"committed up to {watermark or 0} only" in healed.notes[0].reason


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        (None, "no orders-0"),
        (replace(GOOD, epochs=()), "does not tell the epoch of offset 0"),
        (replace(GOOD, epochs=entries((1, 5), (2, 12))), "does not tell the epoch of offset 0"),
        (replace(GOOD, epochs=entries((0, 0), (1, 5), (3, 12))), "offset 20 is of epoch 2, it says 3"),
        (replace(GOOD, epochs=entries((0, 0), (2, 5))), "our file knows epoch 1 at offset 5"),
    ],
)
def test_a_replica_that_does_not_fit_is_refused_with_the_reason(theirs: ReplicaFacts | None, reason: str) -> None:
    healed = healing(tiered(history=TORN), Replica(theirs))
    assert healed.plan.is_empty
    (note,) = healed.notes
    assert reason in note.reason
    assert not note.healed


def test_a_topic_of_the_same_name_made_at_another_time_is_refused() -> None:
    metadata = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n"
    files = tiered(history=None) | {"orders-0/partition.metadata": metadata}
    (note,) = healing(files, Replica(replace(GOOD, topic_id=bytes(15) + b"\1"))).notes
    assert "topic id" in note.reason


def test_replicas_that_disagree_are_no_vote() -> None:
    other = replace(GOOD, epochs=entries((0, 0), (1, 6), (2, 12)))
    healed = healing(tiered(history=None), Replica(GOOD, "a"), Replica(GOOD, "b"), Replica(other, "c"))
    assert healed.plan.is_empty
    assert "a and c have other epochs" in healed.notes[0].reason


def test_a_replica_whose_own_file_is_torn_tells_nothing() -> None:
    fs = on_disk(tiered(history=TORN))
    with pytest.raises(ReplicaUnusable, match="not all there"):
        DirectorySource(fs, PurePath(TOP)).facts(TopicPartition("orders", 0))
