"""Which requests are served, in which versions.

Produce is shown from 0 on and served from 3: an older librdkafka stops compressing, without a word, where 0 is not
offered. What changes the meaning of transactions (Produce 12, EndTxn 4) or speaks of topics by id alone in writing
(Produce 13, OffsetCommit 10, OffsetFetch 10) is left out, and so are requests between brokers.
Source: Apache Kafka 4.3.0, ApiKeys and the message schemas; KAFKA-18659 for Produce.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class ApiKey(IntEnum):
    """The requests that may be served."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


class Versions(NamedTuple):
    """From `lowest` to `highest`; `shown` is the lowest one in the answer to ApiVersions."""

    lowest: int
    highest: int
    shown: int


def _range(lowest: int, highest: int, shown: int | None = None) -> Versions:
    return Versions(lowest, highest, lowest if shown is None else shown)


VERSIONS: Final[Mapping[int, Versions]] = MappingProxyType({
    ApiKey.PRODUCE: _range(3, 11, 0),
    ApiKey.FETCH: _range(4, 17),
    ApiKey.LIST_OFFSETS: _range(1, 9),
    ApiKey.METADATA: _range(0, 12),
    ApiKey.OFFSET_COMMIT: _range(2, 9),
    ApiKey.OFFSET_FETCH: _range(1, 9),
    ApiKey.FIND_COORDINATOR: _range(0, 5),
    ApiKey.JOIN_GROUP: _range(0, 9),
    ApiKey.HEARTBEAT: _range(0, 4),
    ApiKey.LEAVE_GROUP: _range(0, 5),
    ApiKey.SYNC_GROUP: _range(0, 5),
    ApiKey.DESCRIBE_GROUPS: _range(0, 5),
    ApiKey.LIST_GROUPS: _range(0, 5),
    ApiKey.SASL_HANDSHAKE: _range(0, 1),
    ApiKey.API_VERSIONS: _range(0, 4),
    ApiKey.CREATE_TOPICS: _range(2, 7),
    ApiKey.DELETE_TOPICS: _range(1, 6),
    ApiKey.DELETE_RECORDS: _range(0, 2),
    ApiKey.INIT_PRODUCER_ID: _range(0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _range(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: _range(0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: _range(0, 3),
    ApiKey.END_TXN: _range(0, 3),
    ApiKey.TXN_OFFSET_COMMIT: _range(0, 3),
    ApiKey.DESCRIBE_CONFIGS: _range(1, 4),
    ApiKey.ALTER_CONFIGS: _range(0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: _range(1, 4),
    ApiKey.SASL_AUTHENTICATE: _range(0, 2),
    ApiKey.CREATE_PARTITIONS: _range(0, 3),
    ApiKey.DELETE_GROUPS: _range(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _range(0, 1),
    ApiKey.OFFSET_DELETE: _range(0, 0),
    ApiKey.DESCRIBE_CLUSTER: _range(0, 1),
    ApiKey.DESCRIBE_PRODUCERS: _range(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: _range(0, 0),
    ApiKey.LIST_TRANSACTIONS: _range(0, 1),
})  # fmt: skip


def serves(api_key: int, version: int) -> bool:
    """Return whether a request of this version may be decoded and answered."""
    found = VERSIONS.get(api_key)
    return found is not None and found.lowest <= version <= found.highest


def advertised(keys: Collection[int]) -> list[dict[str, object]]:
    """Return what ApiVersions says of these keys, in their order."""
    return [
        {"api_key": key, "min_version": VERSIONS[key].shown, "max_version": VERSIONS[key].highest}
        for key in sorted(keys)
    ]
