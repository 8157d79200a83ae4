"""Every metric: its name, type, labels and meaning, and how it follows from the state of the service.

docs/reference/metrics.md is generated from this. Labels are bounded: log directories, and words of this program. Names
of partitions come in only where they were asked for. What stands in a label is made printable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from daemon.http.listener_metrics import HISTOGRAMS, histogram, listener_samples
from daemon.status.model import (
    DirState,
    Exposure,
    LogDirStatus,
    QuarantineStatus,
    RecoveryProgress,
    ScrubState,
    ScrubStatus,
    ServiceStatus,
    VerificationLag,
)
from storage.base.errors import printable

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[tuple[str, ...], float]
"""Values of the labels, and the value."""


class MetricKind(NamedTuple):
    """One metric. `option` names the setting that it needs."""

    type: str
    labels: tuple[str, ...]
    meaning: str
    option: str = ""


_DIR: Final = ("dir",)
_LISTEN: Final = ("listen",)
METRICS: Final[dict[str, MetricKind]] = {
    "logmend_build_info": MetricKind("gauge", ("version", "kernel"), "Always 1; the version and the kernel that run."),
    "logmend_start_time_seconds": MetricKind("gauge", (), "Start of the service, seconds since 1970."),
    "logmend_ready": MetricKind("gauge", (), "1 when every log directory is served, guarded, or known to be offline."),
    "logmend_log_dir_state": MetricKind("gauge", ("dir", "mode", "state"), "1 for the present state of the directory."),
    "logmend_log_dir_since_timestamp_seconds": MetricKind("gauge", _DIR, "Start of that state, seconds since 1970."),
    "logmend_log_dir_broker_present": MetricKind("gauge", _DIR, "1 while another process holds its lock."),
    "logmend_log_dir_size_bytes": MetricKind("gauge", _DIR, "Bytes of its logs."),
    "logmend_log_dir_free_bytes": MetricKind("gauge", _DIR, "Bytes free on its file system."),
    "logmend_partitions": MetricKind("gauge", ("dir", "verdict"), "Partitions by verdict."),
    "logmend_recovery_active": MetricKind("gauge", _DIR, "1 while a recovery runs."),
    "logmend_recovery_bytes": MetricKind("gauge", _DIR, "Bytes that the recovery reads in all."),
    "logmend_recovery_remaining_bytes": MetricKind("gauge", _DIR, "Bytes that the recovery has not read yet."),
    "logmend_recovery_remaining_logs": MetricKind("gauge", _DIR, "Partitions that the recovery has not finished."),
    "logmend_recovery_remaining_segments": MetricKind("gauge", _DIR, "Segments that the recovery has not finished."),
    "logmend_recovery_rate_bytes_per_second": MetricKind("gauge", _DIR, "Bytes that the recovery reads a second."),
    "logmend_recovery_eta_seconds": MetricKind("gauge", _DIR, "Seconds until the recovery ends; absent while unknown."),
    "logmend_recovery_finished_timestamp_seconds": MetricKind(
        "gauge", _DIR, "End of the last recovery, seconds since 1970."
    ),
    "logmend_verify_lag_seconds": MetricKind("gauge", _DIR, "Age of the oldest flush that is not verified."),
    "logmend_verify_lag_bytes": MetricKind("gauge", _DIR, "Bytes that are flushed and not verified."),
    "logmend_verify_lag_partitions": MetricKind("gauge", _DIR, "Partitions with flushed bytes that are not verified."),
    "logmend_exposure_bytes": MetricKind(
        "gauge", _DIR, "Bytes that a recovery would read if the broker were killed now: no mark covers them."
    ),
    "logmend_exposure_power_bytes": MetricKind(
        "gauge", _DIR, "Bytes that a recovery would read after a power cut: no durable mark covers them."
    ),
    "logmend_exposure_marked_bytes": MetricKind(
        "gauge", _DIR, "Bytes above the recovery points that are marked: a recovery does not read them."
    ),
    "logmend_exposure_partitions": MetricKind("gauge", _DIR, "Partitions with bytes that no mark covers."),
    "logmend_scrub_state": MetricKind("gauge", ("dir", "state"), "1 for the present state of the scrubber."),
    "logmend_scrub_cycle_seconds": MetricKind("gauge", _DIR, "The promise: every segment is read once in this time."),
    "logmend_scrub_bytes": MetricKind("gauge", _DIR, "Bytes that the promise covers."),
    "logmend_scrub_segments": MetricKind("gauge", _DIR, "Segments that the promise covers."),
    "logmend_scrub_due_bytes": MetricKind("gauge", _DIR, "Bytes that were not verified within the last cycle."),
    "logmend_scrub_read_bytes_total": MetricKind("counter", _DIR, "Bytes that the scrubber has read."),
    "logmend_scrub_rate_bytes_per_second": MetricKind("gauge", _DIR, "Bytes that the scrubber reads a second."),
    "logmend_scrub_oldest_verified_timestamp_seconds": MetricKind(
        "gauge",
        _DIR,
        "Verification of the segment that waits longest, seconds since 1970; absent while one was never verified.",
    ),
    "logmend_scrub_behind_seconds": MetricKind(
        "gauge", _DIR, "By how much the scrubber will break its promise at the rate allowed."
    ),
    "logmend_findings": MetricKind("gauge", ("dir", "severity", "kind"), "Open findings."),
    "logmend_quarantine_items": MetricKind("gauge", _DIR, "Items in quarantine."),
    "logmend_quarantine_bytes": MetricKind("gauge", _DIR, "Bytes in quarantine."),
    "logmend_quarantine_oldest_timestamp_seconds": MetricKind(
        "gauge", _DIR, "Time of the oldest item in quarantine, seconds since 1970."
    ),
    "logmend_verified_bytes_total": MetricKind("counter", ("kind",), "Bytes verified: tail, scrub, recovery."),
    "logmend_listener_up": MetricKind("gauge", _LISTEN, "1 while Kafka clients are served at this address."),
    "logmend_listener_connections": MetricKind("gauge", _LISTEN, "Open connections of Kafka clients."),
    "logmend_listener_connections_total": MetricKind("counter", _LISTEN, "Connections that were accepted."),
    "logmend_listener_ended_total": MetricKind(
        "counter", ("listen", "kind"), "Connections that the service ended, by kind of reason."
    ),
    "logmend_listener_received_bytes_total": MetricKind("counter", _LISTEN, "Bytes that clients sent."),
    "logmend_listener_sent_bytes_total": MetricKind("counter", _LISTEN, "Bytes sent to clients."),
    "logmend_listener_waiting_bytes": MetricKind("gauge", _LISTEN, "Bytes of appends that wait for their answer."),
    "logmend_listener_requests_total": MetricKind("counter", ("listen", "request"), "Requests, by Kafka's names."),
    "logmend_listener_request_seconds": MetricKind(
        "histogram", ("listen", "request"), "Time from a request to its answer; a Fetch may wait for data."
    ),
    "logmend_group_lag_records": MetricKind(
        "gauge", ("group", "topic"), "Records that a consumer group has not committed; the thousand largest lags."
    ),
    "logmend_events_total": MetricKind("counter", ("event",), "Events by name: docs/reference/events.md."),
    "logmend_partition_verified_timestamp_seconds": MetricKind(
        "gauge",
        ("dir", "topic", "partition"),
        "Verification of the segment that waits longest in the partition, seconds since 1970.",
        "partition_labels",
    ),
    "logmend_partition_findings": MetricKind(
        "gauge", ("dir", "topic", "partition"), "Open findings of the partition.", "partition_labels"
    ),
    "kafka_log_logmanager_remaininglogstorecover": MetricKind(
        "gauge", _DIR, "Kafka's own name for partitions to recover; present while a recovery runs.", "kafka_names"
    ),
    "kafka_log_logmanager_remainingsegmentstorecover": MetricKind(
        "gauge",
        ("dir", "threadnum"),
        "Kafka's own name for segments to recover; present while a recovery runs.",
        "kafka_names",
    ),
}
_WORK: Final = {
    "tail": "range_verified_bytes",
    "scrub": "segment_verified_bytes",
    "recovery": "recovery_finished_bytes",
}


def exposition(
    status: ServiceStatus, events: Iterable[str], *, partition_labels: bool = False, kafka_names: bool = False
) -> bytes:
    """Return all metrics as text in Prometheus' format; `events` are the names of all events."""
    wanted = {"": True, "partition_labels": partition_labels, "kafka_names": kafka_names}
    families = [
        _family(name, METRICS[name], samples)
        for name, samples in _samples(status, tuple(events))
        if wanted[METRICS[name].option]
    ]
    families += [
        histogram(name, METRICS[name].meaning, METRICS[name].labels, of(status)) for name, of in HISTOGRAMS.items()
    ]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Made(families))
    return generate_latest(registry)


class _Made(Collector):
    """Families that are already complete."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _family(name: str, kind: MetricKind, samples: Iterable[Sample]) -> Metric:
    make = CounterMetricFamily if kind.type == "counter" else GaugeMetricFamily
    family = make(name.removesuffix("_total"), kind.meaning, labels=kind.labels)
    for labels, value in samples:
        family.add_metric([printable(label) for label in labels], value)
    return family


def _samples(status: ServiceStatus, events: tuple[str, ...]) -> Iterator[tuple[str, list[Sample]]]:
    yield "logmend_build_info", [((status.version, status.kernel), 1)]
    yield "logmend_start_time_seconds", [((), status.started_ms / 1000)]
    yield "logmend_ready", [((), float(status.ready))]
    counters = status.counters
    yield "logmend_verified_bytes_total", [((kind,), counters.get(name, 0)) for kind, name in _WORK.items()]
    yield "logmend_events_total", [((event,), counters.get(event, 0)) for event in events]
    yield from listener_samples(status)
    for name, of in _BY_DIR.items():
        yield name, [sample for each in status.log_dirs for sample in of(each)]


def _one(each: LogDirStatus, value: float | None) -> Iterator[Sample]:
    if value is not None:
        yield (str(each.path),), float(value)


def _seconds(at_ms: int | None) -> float | None:
    return None if at_ms is None else at_ms / 1000


def _of(read: Callable[[LogDirStatus], float | None]) -> Callable[[LogDirStatus], Iterator[Sample]]:
    return lambda each: _one(each, read(each))


def _recovery(read: Callable[[RecoveryProgress], float | None]) -> Callable[[LogDirStatus], Iterator[Sample]]:
    return lambda each: _one(each, None if each.recovery is None else read(each.recovery))


def _lag(read: Callable[[VerificationLag], float | None]) -> Callable[[LogDirStatus], Iterator[Sample]]:
    return lambda each: _one(each, None if each.lag is None else read(each.lag))


def _exposure(read: Callable[[Exposure], float | None]) -> Callable[[LogDirStatus], Iterator[Sample]]:
    return lambda each: _one(each, None if each.exposure is None else read(each.exposure))


def _scrub(read: Callable[[ScrubStatus], float | None]) -> Callable[[LogDirStatus], Iterator[Sample]]:
    return lambda each: _one(each, None if each.scrub is None else read(each.scrub))


def _kept(read: Callable[[QuarantineStatus], float | None]) -> Callable[[LogDirStatus], Iterator[Sample]]:
    return lambda each: _one(each, None if each.quarantine is None else read(each.quarantine))


def _states(each: LogDirStatus) -> Iterator[Sample]:
    for state in DirState:
        yield (str(each.path), each.mode.value, state.value), float(each.state is state)


def _scrub_states(each: LogDirStatus) -> Iterator[Sample]:
    if each.scrub is not None:
        for state in ScrubState:
            yield (str(each.path), state.value), float(each.scrub.state is state)


def _partitions(each: LogDirStatus) -> Iterator[Sample]:
    for verdict, number in each.verdict_counts().items():
        yield (str(each.path), verdict), number


def _findings(each: LogDirStatus) -> Iterator[Sample]:
    found = Counter((finding.severity, finding.kind) for finding in each.findings)
    for severity in ("damage", "blocking", "repairable"):  # present from the start, so that a rise from none shows
        if not any(key[0] == severity for key in found):
            yield (str(each.path), severity, "any"), 0
    for (severity, kind), number in sorted(found.items()):
        yield (str(each.path), severity, kind), number


def _is_recovering(each: LogDirStatus) -> bool:
    return each.state is DirState.RECOVERING and each.recovery is not None


def _kafka_segments(each: LogDirStatus) -> Iterator[Sample]:
    if each.recovery is not None and _is_recovering(each):
        yield (str(each.path), "0"), each.recovery.segments_remaining


def _partition_verified(each: LogDirStatus) -> Iterator[Sample]:
    for cell in each.partitions:
        if cell.verified_ms is not None:
            yield (str(each.path), cell.topic, str(cell.partition)), cell.verified_ms / 1000


def _partition_findings(each: LogDirStatus) -> Iterator[Sample]:
    for cell in each.partitions:
        yield (str(each.path), cell.topic, str(cell.partition)), cell.findings


_BY_DIR: Final[dict[str, Callable[[LogDirStatus], Iterator[Sample]]]] = {
    "logmend_log_dir_state": _states,
    "logmend_log_dir_since_timestamp_seconds": _of(lambda d: d.since_ms / 1000),
    "logmend_log_dir_broker_present": _of(lambda d: d.broker_pid is not None),
    "logmend_log_dir_size_bytes": _of(lambda d: d.size_bytes),
    "logmend_log_dir_free_bytes": _of(lambda d: d.free_bytes),
    "logmend_partitions": _partitions,
    "logmend_recovery_active": _of(_is_recovering),
    "logmend_recovery_bytes": _recovery(lambda r: r.total_bytes),
    "logmend_recovery_remaining_bytes": _recovery(lambda r: max(r.total_bytes - r.done_bytes, 0)),
    "logmend_recovery_remaining_logs": _recovery(lambda r: r.partitions_total - r.partitions_done),
    "logmend_recovery_remaining_segments": _recovery(lambda r: r.segments_remaining),
    "logmend_recovery_rate_bytes_per_second": _recovery(lambda r: r.bytes_per_second),
    "logmend_recovery_eta_seconds": _recovery(lambda r: r.eta_seconds),
    "logmend_recovery_finished_timestamp_seconds": _recovery(lambda r: _seconds(r.finished_ms)),
    "logmend_verify_lag_seconds": _lag(lambda r: r.seconds),
    "logmend_verify_lag_bytes": _lag(lambda r: r.bytes),
    "logmend_verify_lag_partitions": _lag(lambda r: r.partitions),
    "logmend_exposure_bytes": _exposure(lambda e: e.bytes),
    "logmend_exposure_power_bytes": _exposure(lambda e: e.power_bytes),
    "logmend_exposure_marked_bytes": _exposure(lambda e: e.marked_bytes),
    "logmend_exposure_partitions": _exposure(lambda e: e.partitions),
    "logmend_scrub_state": _scrub_states,
    "logmend_scrub_cycle_seconds": _scrub(lambda r: r.cycle_seconds),
    "logmend_scrub_bytes": _scrub(lambda r: r.bytes_total),
    "logmend_scrub_segments": _scrub(lambda r: r.segments_total),
    "logmend_scrub_due_bytes": _scrub(lambda r: r.bytes_due),
    "logmend_scrub_read_bytes_total": _scrub(lambda r: r.bytes_read),
    "logmend_scrub_rate_bytes_per_second": _scrub(lambda r: r.bytes_per_second),
    "logmend_scrub_oldest_verified_timestamp_seconds": _scrub(lambda r: _seconds(r.oldest_verified_ms)),
    "logmend_scrub_behind_seconds": _scrub(lambda r: r.behind_seconds),
    "logmend_findings": _findings,
    "logmend_quarantine_items": _kept(lambda r: r.items),
    "logmend_quarantine_bytes": _kept(lambda r: r.bytes),
    "logmend_quarantine_oldest_timestamp_seconds": _kept(lambda r: _seconds(r.oldest_ms)),
    "logmend_partition_verified_timestamp_seconds": _partition_verified,
    "logmend_partition_findings": _partition_findings,
    "kafka_log_logmanager_remaininglogstorecover": _of(
        lambda d: d.recovery.partitions_total - d.recovery.partitions_done if d.recovery and _is_recovering(d) else None
    ),
    "kafka_log_logmanager_remainingsegmentstorecover": _kafka_segments,
}
