"""Producers, their open transactions, and the snapshot file that keeps them across restarts.

A pure state machine over the batches that carry a producer id, and the codec of `<offset>.snapshot`.
Source: Apache Kafka 4.3.0, ProducerStateManager, ProducerAppendInfo, ProducerStateEntry, ProducerSnapshot.json.
"""

from __future__ import annotations

from typing import NamedTuple


class ProducerEvent(NamedTuple):
    """What one batch with a producer id tells the producer state; the values of its row in `BatchRows`.

    `control` is CONTROL_NONE (-1) for a data batch, CONTROL_EMPTY, CONTROL_UNREADABLE, or type << 32 | coordinator epoch.
    `base_sequence` is -1 where the batch has none; `max_timestamp` is milliseconds, -1 for none.
    """

    base_offset: int
    last_offset: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    control: int
