"""KafkaListener: all that serves clients on one address, put together over an engine.

`start`, `status` and `stop` fulfil `daemon.own.engine.Listener`. Everything but these three runs in the loop's thread.
The coordinators begin to read their topics at once; until they are done they answer that they are loading.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final, TypeAlias

from daemon.own.engine import Engine
from daemon.status.model import GroupLag, ListenerStatus, RequestStatus
from engine.manager.manager import LogManager
from engine.settings.identity import FIRST_NODE, read_identity
from server.access.rights import Access
from server.access.table import guarded
from server.api.clock import LoopTimers, Timers
from server.api.dispatch import Dispatcher, Handler, ListenerInfo
from server.api.measuring import Latencies
from server.api.versions import ApiKey
from server.groups.coordinator import Groups
from server.groups.settings import CoordinatorSettings
from server.handlers.coordination import groups, offsets, transactions
from server.handlers.data import fetch, list_offsets, produce, records
from server.handlers.data import producer_ids as producer_id_handlers
from server.handlers.parts import Parts
from server.handlers.topics import configs, describe, describe_configs, metadata, read_only, topics
from server.handlers.topics.auto_create import creating
from server.handlers.topics.topics import TopicOptions
from server.net import sasl
from server.net.net import ServerOptions, WireServer
from server.store import producer_ids
from server.store.flushing import FlushSettings
from server.store.producer_ids import ProducerIds
from server.store.read_only import ReadOnlyStore
from server.store.store import Store
from server.txn.coordinator import Transactions
from server.txn.world import STATE_TOPIC, TransactionSettings
from storage.base.errors import CorruptData, LogmendError, printable
from storage.disk.fs import Fs, OsFs
from storage.disk.wrapped_fs import InheritingFs

_MakeHandlers: TypeAlias = Callable[[Parts], dict[int, Handler]]
_READS: Final[tuple[_MakeHandlers, ...]] = (
    describe.handlers, describe_configs.handlers, fetch.handlers, list_offsets.handlers, metadata.handlers,
)  # fmt: skip
_WRITES: Final[tuple[_MakeHandlers, ...]] = (
    configs.handlers, groups.handlers, offsets.handlers, produce.handlers, producer_id_handlers.handlers,
    records.handlers, transactions.handlers,
)  # fmt: skip
_READ_ONLY_GROUPS: Final = (
    ApiKey.DELETE_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.HEARTBEAT,
    ApiKey.JOIN_GROUP,
    ApiKey.LEAVE_GROUP,
    ApiKey.LIST_GROUPS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_DELETE,
    ApiKey.OFFSET_FETCH,
    ApiKey.SYNC_GROUP,
)
"""Requests on groups that a read-only listener takes. Joins and commits are refused with a reason: where they are not
offered at all, older clients try forever."""
_LAGS_MS: Final = 5_000
_MOST_LAGS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """Where to listen, and when an append counts."""

    server: ServerOptions = field(default_factory=ServerOptions)
    flush: FlushSettings = field(default_factory=FlushSettings)
    groups: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    topics: TopicOptions = field(default_factory=TopicOptions)
    auto_create: bool = False
    """Whether a request for a topic's metadata creates it."""
    is_read_only: bool = False
    access: Access | None = None
    """What users may do; None: every client may do everything."""
    report: Callable[[str, str], None] = lambda _kind, _reason: None
    """Receives faults and refused clients, by kind and in words; in the loop's thread."""


class KafkaListener:
    """Sockets, handlers and store of one listener; it is started once."""

    def __init__(self, options: ListenerOptions) -> None:
        self._options = options
        self._server: WireServer | None = None
        self._store: Store | None = None
        self.parts: Parts | None = None
        self._latencies = Latencies()
        self._lags: tuple[GroupLag, ...] = ()

    # ---- daemon.own.engine.Listener

    def start(self, engine: Engine) -> None:
        """Listen and serve; raises `ListenFailed`, and what opening the store raises."""
        node_id, cluster_id, paths = engine.run(_identity)
        options = replace(self._options.server, node_id=node_id, cluster_id=cluster_id)
        fs = InheritingFs(OsFs(), paths)
        self._server = WireServer(options, lambda info, timers: self._assemble(engine, fs, info, timers))
        self._server.tally.report = self._options.report
        self._server.start()

    def status(self) -> ListenerStatus:
        """Return the state of the listener; from any thread."""
        options, server, store = self._options, self._server, self._store
        flush = options.flush.policy.value
        if server is None or store is None:
            address = f"{options.server.host}:{options.server.port}"
            return ListenerStatus(address, "it is not started, or has stopped", flush)
        tally = server.tally
        return ListenerStatus(
            listen=f"{options.server.host}:{server.port}",
            reason=printable(store.fault),
            flush=flush,
            connections=server.connections,
            accepted=tally.accepted,
            received_bytes=tally.received,
            sent_bytes=tally.sent,
            waiting_bytes=store.backlog_bytes,
            requests=tuple(self._request(key, count) for key, count in sorted(tally.requests.copy().items())),
            ended=dict(tally.closed.copy()),
            lags=self._lags,
        )

    def _request(self, key: int, count: int) -> RequestStatus:
        name = "".join(part.capitalize() for part in ApiKey(key).name.split("_"))
        buckets = tuple(self._latencies.counts.get(key, ()))
        return RequestStatus(name, count, self._latencies.seconds.get(key, 0.0), buckets)

    def stop(self) -> None:
        """Take no more connections, finish requests within a bounded time, and close everything."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        store, self._store = self._store, None
        if store is not None:
            store.stop()

    @property
    def port(self) -> int:
        """The port of the listener, 0 before it is started."""
        return 0 if self._server is None else self._server.port

    # ---- in the loop's thread

    def _assemble(self, engine: Engine, fs: Fs, info: ListenerInfo, timers: LoopTimers) -> Dispatcher:
        options, report = self._options, self._options.report
        kind = ReadOnlyStore if options.is_read_only else Store
        store = self._store = kind(engine, timers.loop, timers.now_ms, options.flush, report)
        store.start()
        all_groups = Groups(store, timers, options.groups)
        all_groups.partitions.report = report
        parts = self.parts = Parts(store, info, timers, all_groups)
        if options.is_read_only:
            parts.producer_ids = producer_ids.unstored(engine.run(producer_ids.highest_known))
        else:
            ids = parts.producer_ids = ProducerIds(lambda least: store.run(lambda m: _reserved(fs, m, least)))
            parts.transactions = Transactions(store, all_groups.commits, ids, timers, options.transactions)
        self._latencies = Latencies()
        handlers = guarded(_handlers(parts, options), options.access, store, auto_create=options.auto_create)
        handlers = self._latencies.timed(handlers, timers.loop.time)
        dispatcher = Dispatcher(handlers, info, timers.now_ms)
        if not options.is_read_only:
            dispatcher.preparing[ApiKey.PRODUCE] = produce.preparation(store)
        dispatcher.ending.append(store.checker.stop)
        all_groups.start()
        self._note_lags(all_groups, timers)
        dispatcher.ending.append(all_groups.stop)
        if (transactions := parts.transactions) is not None:
            loaded = transactions.start()
            loaded.add_done_callback(lambda _: _report_faults(loaded, transactions, report))
            dispatcher.ended.append(transactions.stop)
        return dispatcher

    def _note_lags(
        self, all_groups: Groups, timers: Timers, number: int = 0, sums: Counter[tuple[str, str]] | None = None
    ) -> None:
        """Note at intervals how far groups are behind, the largest lags first, for `status` in another thread.

        One partition of `__consumer_offsets` after another: all at once could keep clients waiting.
        """
        count = len(all_groups.partitions.shards)
        sums = Counter() if sums is None or not number else sums
        for lag in all_groups.lags(number):
            sums[lag.group_id, lag.topic] += lag.lag or 0
        if number >= count - 1:
            self._lags = tuple(GroupLag(*name, records) for name, records in sorted(sums.most_common(_MOST_LAGS)))
        following = (number + 1) % max(count, 1)
        timers.call_later(_LAGS_MS // max(count, 1), lambda: self._note_lags(all_groups, timers, following, sums))


def _report_faults(
    loaded: asyncio.Future[None], transactions: Transactions, report: Callable[[str, str], None]
) -> None:
    for number, reason in () if loaded.cancelled() else transactions.shards.faults.items():
        report("coordinator", f"{STATE_TOPIC}-{number}: {reason}")


def _handlers(parts: Parts, options: ListenerOptions) -> dict[int, Handler]:
    """Return all handlers for this store."""
    handlers = {key: handler for make in _READS for key, handler in make(parts).items()}
    if options.is_read_only:
        of_groups = groups.handlers(parts) | offsets.handlers(parts)
        handlers |= {key: handler for key, handler in of_groups.items() if key in _READ_ONLY_GROUPS}
        handlers |= read_only.handlers() | producer_id_handlers.handlers(parts)
    else:
        changes = topics.TopicChanges(parts, options.topics)
        handlers |= {key: handler for make in _WRITES for key, handler in make(parts).items()}
        handlers |= topics.handlers(parts, changes)
        if options.auto_create:
            handlers = creating(handlers, parts.store, changes.auto_create)
    if options.server.make_login is not None:
        handlers |= sasl.handlers()
    return handlers


def _reserved(fs: Fs, manager: LogManager, least: int) -> range:
    return producer_ids.reserve_block(fs, manager, least)


def _identity(manager: LogManager) -> tuple[int, str, tuple[PurePath, ...]]:
    """Return node and cluster by the first log directory that names them, and the paths of the log directories."""
    paths = tuple(log_dir.path for log_dir in manager.log_dirs)
    for log_dir in manager.log_dirs:
        if log_dir.offline is None:
            try:
                identity = read_identity(manager.fs, log_dir.path)
            except (LogmendError, CorruptData):
                continue
            if identity is not None and identity.node_id is not None:
                return identity.node_id, identity.cluster_id or "", paths
    return FIRST_NODE, "", paths
