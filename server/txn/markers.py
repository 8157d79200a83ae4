"""The markers that end a transaction in each of its partitions.

A marker carries a coordinator epoch, by which brokers refuse those of a coordinator that was replaced. There is one
coordinator here, and a broker that takes the directory back counts its own epochs on: so each marker has the epoch that
is known of its producer in that partition, never a higher one, and no broker's later marker is refused because of ours.
Source: Apache Kafka 4.3.0, TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from engine.settings.refusals import UnknownTopic
from server.txn.records import Facts, State
from server.txn.world import OFFSETS_TOPIC, OffsetCommits, StateStore
from storage.base.errors import LogmendError
from storage.base.refusals import InvalidProducerEpoch
from storage.base.units import TopicPartition
from storage.batch.control import ControlType, EndTxnMarker, encode_control_batch
from storage.producers.producers import Origin


async def write_markers(
    store: StateStore, commits: OffsetCommits, facts: Facts, names: Iterable[TopicPartition], now_ms: int
) -> list[TopicPartition]:
    """End a decided transaction in these partitions; return those where the disk refused the marker."""
    ordered = list(names)
    done = await asyncio.gather(*(_write_marker(store, commits, facts, name, now_ms) for name in ordered))
    return [name for name, is_done in zip(ordered, done, strict=True) if not is_done]


async def _write_marker(
    store: StateStore, commits: OffsetCommits, facts: Facts, name: TopicPartition, now_ms: int
) -> bool:
    """Return whether the partition is done: the marker counts, or there is no transaction that it could end."""
    assert facts.state.is_prepared, facts
    is_committed = facts.state is State.PREPARE_COMMIT
    try:
        batch = encode_marker(facts, _coordinator_epoch(store, name, facts.producer_id), now_ms)
        await store.append(name, batch, origin=Origin.COORDINATOR)
    except (UnknownTopic, InvalidProducerEpoch):
        # The topic was deleted; or the producer is at a later epoch there, whose transaction this marker must not end.
        return True
    except LogmendError:
        return False
    if name.topic == OFFSETS_TOPIC:
        commits.end_transaction(name.partition, facts.producer_id, facts.epoch, is_committed)
    return True


def encode_marker(facts: Facts, coordinator_epoch: int, now_ms: int) -> bytes:
    """Return the control batch that ends a decided transaction in one partition."""
    kind = ControlType.COMMIT if facts.state is State.PREPARE_COMMIT else ControlType.ABORT
    return encode_control_batch(
        [EndTxnMarker(kind, coordinator_epoch)], base_offset=0, timestamp=now_ms, leader_epoch=-1,
        producer_id=facts.producer_id, producer_epoch=facts.epoch,
    )  # fmt: skip


def _coordinator_epoch(store: StateStore, name: TopicPartition, producer_id: int) -> int:
    entry = store.log(name).producers.state.entries.get(producer_id)
    return 0 if entry is None else max(entry.coordinator_epoch, 0)
