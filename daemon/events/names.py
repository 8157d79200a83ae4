"""Every event of the service: its name, level, meaning and fields.

A name is for programs and never changes its meaning. A test compares this register with docs/reference/events.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class EventKind(NamedTuple):
    """The contract of an event. `sums` are the fields that are added up as `<event>_<field>`."""

    level: str
    """`debug`, `info`, `warning` or `error`."""
    meaning: str
    fields: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()


_PARTITION: Final = ("log_dir", "topic", "partition")
_RANGE: Final = (*_PARTITION, "first_offset", "next_offset")
_FINDING: Final = (
    *_PARTITION,
    "id",
    "kind",
    "severity",
    "path",
    "position",
    "size",
    "first_offset",
    "last_offset",
    "next_good_offset",
    "evidence",
    "verdict",
    "command",
)

EVENTS: Final[dict[str, EventKind]] = {
    # the service
    "service_started": EventKind("info", "the service begins", ("version", "kernel", "pid", "log_dirs")),
    "service_ready": EventKind(
        "info", "every log directory is served or guarded, or known to be offline", ("seconds",)
    ),
    "service_stopping": EventKind("info", "the service received an order to stop", ("reason",)),
    "service_stopped": EventKind("info", "the service has stopped cleanly", ("status", "seconds")),
    "config_reloaded": EventKind(
        "info", "the service has read its configuration again and put it in force", ("path", "changed", "waiting")
    ),
    "config_refused": EventKind(
        "error", "the new configuration is wrong; the old one stays in force", ("path", "reason")
    ),
    "worker_failed": EventKind("error", "a fault of logmend itself ended a worker", ("log_dir", "error", "traceback")),
    "listening": EventKind("info", "status, metrics and the page are served", ("listen",)),
    "listen_failed": EventKind(
        "error", "an address cannot be served; at the start that ends the service", ("listen", "reason")
    ),
    "client_refused": EventKind(
        "info",
        "the service ended the connection of a Kafka client for what it sent, or failed to send",
        ("kind", "reason"),
    ),
    "client_failed": EventKind("error", "a fault of logmend itself in the answer to a Kafka client", ("reason",)),
    "coordinator_failed": EventKind(
        "error", "groups or transactions of a partition get no answers: logmend cannot read its log", ("reason",)
    ),
    "append_refused": EventKind("error", "a disk is full: the service tells producers to retry", ("reason",)),
    "listener_started": EventKind("info", "Kafka clients are served", ("listen",)),
    "listener_stopped": EventKind("info", "Kafka clients are no longer served", ("listen",)),
    "answer_failed": EventKind("error", "a fault of logmend itself in an answer over HTTP", ("path", "error")),
    "status_not_written": EventKind("warning", "status.json cannot be written", ("path", "reason")),
    "notification_failed": EventKind("error", "the command for an event failed", ("command", "reason", "id")),
    "event_unknown": EventKind(
        "warning", "an event that is not in this register; a fault of logmend itself", ("name",)
    ),
    "events_dropped": EventKind(
        "warning", "the reader of the log was too slow; events were dropped", ("count",), ("count",)
    ),
    # log directories
    "log_dir_guarded": EventKind(
        "info", "the service guards and scrubs the directory of a broker", ("log_dir", "partitions")
    ),
    "log_dir_opened": EventKind("info", "a directory is open and the engine runs on it", ("log_dir", "partitions")),
    "log_dir_closed": EventKind("info", "a directory was closed cleanly", ("log_dir",)),
    "log_dir_offline": EventKind("error", "a directory is offline; the others go on", ("log_dir", "reason")),
    "log_dir_absent": EventKind(
        "warning", "a directory is missing, or its volume is not mounted", ("log_dir", "reason")
    ),
    "log_dir_back": EventKind("info", "a directory that was absent or offline is back", ("log_dir",)),
    "broker_appeared": EventKind("info", "a process holds the lock of a directory", ("log_dir", "pid")),
    "broker_gone": EventKind("info", "the lock of a directory was released", ("log_dir",)),
    # recovery
    "recovery_started": EventKind("info", "a recovery begins", ("log_dir", "bytes", "partitions")),
    "recovery_planned": EventKind("info", "a plan was made", ("log_dir", "plan_id", "findings", "actions")),
    "recovery_finished": EventKind(
        "info", "a recovery has ended", ("log_dir", "plan_id", "seconds", "bytes", "actions", "result"), ("bytes",)
    ),
    "recovery_failed": EventKind("error", "a recovery failed", ("log_dir", "reason")),
    "plan_stored": EventKind(
        "info", "a plan is stored, to be applied once the broker is stopped", ("log_dir", "plan_id", "path", "command")
    ),
    "plan_not_stored": EventKind("warning", "a plan could not be made or stored", ("log_dir", "path", "reason")),
    "log_truncated": EventKind("warning", "a log was truncated", (*_PARTITION, "plan_id", "path", "position", "size")),
    "bytes_quarantined": EventKind(
        "info", "truncated bytes were quarantined", (*_PARTITION, "plan_id", "path", "position", "bytes"), ("bytes",)
    ),
    "index_rebuilt": EventKind("info", "an index was rebuilt from its log", (*_PARTITION, "plan_id", "path")),
    # verification of what was flushed
    "checkpoint_changed": EventKind("debug", "the recovery points of a broker moved", ("log_dir", "partitions")),
    "range_verified": EventKind(
        "debug", "newly flushed bytes were verified and are sound", (*_RANGE, "bytes"), ("bytes",)
    ),
    "segment_verified": EventKind(
        "debug", "a whole segment was verified and is sound", (*_PARTITION, "base_offset", "bytes"), ("bytes",)
    ),
    "recovery_point_regressed": EventKind(
        "warning",
        "a recovery point moved backwards: flushed data was truncated or replaced",
        (*_PARTITION, "old", "new"),
    ),
    "verification_behind": EventKind(
        "warning", "flushed data waits too long for its verification", ("log_dir", "seconds", "bytes")
    ),
    "mark_dropped": EventKind(
        "debug",
        "a log changed below its mark, as after a truncation by its broker: it is read again, or from an older mark on",
        (*_PARTITION, "base_offset", "reason"),
    ),
    "marks_not_written": EventKind(
        "warning",
        "marks cannot be written: a recovery would read what the guard has read since; the guard tries on",
        ("log_dir", "reason"),
    ),
    "sync_failed": EventKind(
        "error", "a log could not be synced: its disk refuses writes", ("log_dir", "path", "reason")
    ),
    "partition_appeared": EventKind("debug", "a partition is new in a directory", _PARTITION),
    "partition_vanished": EventKind("debug", "a partition was deleted or moved to another directory", _PARTITION),
    "read_transient": EventKind(
        "warning",
        "a second read, past the page cache, was sound where the first was not",
        (*_PARTITION, "path", "position"),
    ),
    "watch_degraded": EventKind(
        "warning", "a directory cannot be watched; the guard polls it for changes", ("log_dir", "reason")
    ),
    # findings
    "finding_opened": EventKind("error", "a finding on a log directory is open", _FINDING),
    "finding_closed": EventKind("info", "a finding is closed", (*_PARTITION, "id", "kind", "reason")),
    # scrub
    "scrub_started": EventKind("info", "the scrubber starts where it stopped before", ("log_dir", "segments", "bytes")),
    "scrub_paused": EventKind("info", "the scrubber pauses on request", ("log_dir",)),
    "scrub_resumed": EventKind("info", "the scrubber goes on after a pause", ("log_dir",)),
    "scrub_requested": EventKind(
        "info", "an operator requested a scrub of everything, or of a topic, now", ("log_dir",)
    ),
    "scrub_pass_finished": EventKind(
        "info", "every segment was verified once in this pass", ("log_dir", "segments", "bytes", "seconds", "findings")
    ),
    "scrub_behind": EventKind(
        "warning", "the scrubber cannot keep the promised cycle at the rate allowed", ("log_dir", "behind_seconds")
    ),
    "scrub_yielded": EventKind("debug", "the disks are under pressure; the scrubber waits", ("log_dir", "pressure")),
    "device_sick": EventKind(
        "error",
        "many bad files on one device in a short time: the scrubber leaves the device alone",
        ("device", "errors", "log_dirs"),
    ),
    "ledger_rebuilt": EventKind("warning", "the ledger was unusable and starts over", ("path", "reason")),
    "ledger_not_written": EventKind(
        "warning", "the ledger cannot be written; the work goes on in memory", ("path", "reason")
    ),
    # the engine's schedules
    "schedule_failed": EventKind("error", "a periodic task of the engine failed", ("log_dir", "task", "reason")),
}
