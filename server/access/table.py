"""The table of checks: one for each kind of request that is served. A kind without an entry is not served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from daemon.service.access import Operation
from server.access import coordination, topics
from server.access.asking import Answers, Asking, Topics
from server.access.rights import Access
from server.api.dispatch import Call, Handler
from server.api.lookup import TopicIds
from server.api.versions import ApiKey
from server.api.views import ReadStore

Check = Callable[[Asking], Answers]


def _free(asking: Asking) -> Answers:
    return asking.go_on()


CHECKS: Final[Mapping[int, Check]] = {
    ApiKey.PRODUCE: topics.produce,
    ApiKey.FETCH: topics.fetch,
    ApiKey.LIST_OFFSETS: topics.of_each_topic(Operation.DESCRIBE, "topics", topics.offsets_not_listed),
    ApiKey.METADATA: topics.metadata,
    ApiKey.OFFSET_COMMIT: coordination.commit,
    ApiKey.OFFSET_FETCH: coordination.fetch_offsets,
    ApiKey.FIND_COORDINATOR: coordination.find_coordinator,
    ApiKey.JOIN_GROUP: coordination.join,
    ApiKey.HEARTBEAT: coordination.of_group(),
    ApiKey.LEAVE_GROUP: coordination.of_group(),
    ApiKey.SYNC_GROUP: coordination.of_group(assignment=b""),
    ApiKey.DESCRIBE_GROUPS: coordination.describe_groups,
    ApiKey.LIST_GROUPS: coordination.list_groups,
    ApiKey.SASL_HANDSHAKE: _free,
    ApiKey.API_VERSIONS: _free,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.DELETE_RECORDS: topics.of_each_topic(Operation.DELETE, "topics", topics.records_not_deleted),
    ApiKey.INIT_PRODUCER_ID: coordination.init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topics.epoch_ends,
    ApiKey.ADD_PARTITIONS_TO_TXN: coordination.add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: coordination.add_offsets,
    ApiKey.END_TXN: coordination.end_transaction,
    ApiKey.TXN_OFFSET_COMMIT: coordination.commit_in_transaction,
    ApiKey.DESCRIBE_CONFIGS: topics.describe_configs,
    ApiKey.ALTER_CONFIGS: topics.alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: topics.describe_log_dirs,
    ApiKey.SASL_AUTHENTICATE: _free,
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.DELETE_GROUPS: coordination.delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: topics.alter_configs,
    ApiKey.OFFSET_DELETE: coordination.delete_offsets,
    ApiKey.DESCRIBE_CLUSTER: topics.describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: topics.of_each_topic(Operation.READ, "topics", topics.producers_not_described),
    ApiKey.DESCRIBE_TRANSACTIONS: coordination.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: coordination.list_transactions,
}


def guarded(
    handlers: Mapping[int, Handler], access: Access | None, store: ReadStore, *, auto_create: bool = False
) -> dict[int, Handler]:
    """Return handlers that are asked only for what the rules allow; the same ones without rules.

    Raises `KeyError` for a kind of request that has no check, with or without rules.
    """
    checks = {key: CHECKS[key] for key in handlers}
    if access is None:
        return dict(handlers)
    known = Topics(store, TopicIds(store), auto_create)
    return {key: _guarded(check, handlers[key], access, known) for key, check in checks.items()}


def _guarded(check: Check, handler: Handler, access: Access, known: Topics) -> Handler:
    def checked(call: Call) -> Answers:
        return check(Asking(call, access.rights_of(call.principal), known, handler))

    return checked
