"""The metrics of Kafka clients: connections, requests and their times, and the lag of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import HistogramMetricFamily

from daemon.status.model import LATENCY_BOUNDS, ListenerStatus, ServiceStatus
from storage.base.errors import printable

Sample = tuple[tuple[str, ...], float]
Histogram = tuple[tuple[str, ...], tuple[int, ...], float]
"""Values of the labels, how many are in each bucket, and the sum."""


def listener_samples(status: ServiceStatus) -> Iterator[tuple[str, list[Sample]]]:
    """Yield each metric of the listeners with its samples."""
    for name, of in _PLAIN.items():
        yield name, [((listener.listen,), of(listener)) for listener in status.listeners]
    yield (
        "logmend_listener_ended_total",
        [
            ((listener.listen, kind), count)
            for listener in status.listeners
            for kind, count in sorted(listener.ended.items())
        ],
    )
    yield (
        "logmend_listener_requests_total",
        [
            ((listener.listen, request.kind), request.count)
            for listener in status.listeners
            for request in listener.requests
        ],
    )
    yield (
        "logmend_group_lag_records",
        [((lag.group, lag.topic), lag.records) for listener in status.listeners for lag in listener.lags],
    )


_PLAIN: Final[dict[str, Callable[[ListenerStatus], float]]] = {
    "logmend_listener_up": lambda each: float(not each.reason),
    "logmend_listener_connections": lambda each: each.connections,
    "logmend_listener_connections_total": lambda each: each.accepted,
    "logmend_listener_received_bytes_total": lambda each: each.received_bytes,
    "logmend_listener_sent_bytes_total": lambda each: each.sent_bytes,
    "logmend_listener_waiting_bytes": lambda each: each.waiting_bytes,
}


def _request_times(status: ServiceStatus) -> Iterator[Histogram]:
    for each in status.listeners:
        for request in each.requests:
            if request.buckets:
                yield (each.listen, request.kind), request.buckets, request.seconds


HISTOGRAMS: Final[dict[str, Callable[[ServiceStatus], Iterator[Histogram]]]] = {
    "logmend_listener_request_seconds": _request_times,
}


def histogram(name: str, meaning: str, labels: tuple[str, ...], found: Iterator[Histogram]) -> HistogramMetricFamily:
    """Return a metric with cumulative buckets."""
    family = HistogramMetricFamily(name, meaning, labels=labels)
    for values, counts, total in found:
        so_far, buckets = 0, []
        for bound, count in zip([*map(str, LATENCY_BOUNDS), "+Inf"], counts, strict=True):
            so_far += count
            buckets.append((bound, so_far))
        family.add_metric([printable(value) for value in values], buckets, total)
    return family
