"""Parts: the store and the coordinators that all handlers share."""

from __future__ import annotations

from dataclasses import dataclass

from server.api.clock import Timers
from server.api.dispatch import ListenerInfo
from server.groups.coordinator import Groups
from server.store.producer_ids import ProducerIds
from server.store.store import Store
from server.txn.coordinator import Transactions


@dataclass(slots=True)
class Parts:
    """What handlers are made from. A read-only listener has no `transactions`."""

    store: Store
    info: ListenerInfo
    timers: Timers
    groups: Groups | None = None
    transactions: Transactions | None = None
    producer_ids: ProducerIds | None = None
