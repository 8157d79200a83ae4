"""A live broker as a source of batches: what it refuses before it is asked."""

from __future__ import annotations

import pytest

from cli.heal.broker_source import BrokerSource
from recovery.heal.replica import ReplicaUnusable
from storage.base.units import TopicPartition


def test_the_metadata_log_is_not_asked_of_a_broker_and_the_reason_names_the_way_out() -> None:
    source = BrokerSource("127.0.0.1", 1, {})  # nothing listens there
    with pytest.raises(ReplicaUnusable, match="name the directory of another controller"):
        source.facts(TopicPartition("__cluster_metadata", 0))
