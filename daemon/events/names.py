"""Every event that the service tells of: its name, how loud it is, what it means, and its fields.

The name is for programs and never changes its meaning; docs/reference/events.md lists the same, and a test
holds the two together.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class EventKind(NamedTuple):
    """What is agreed on an event. `sums` are those of its fields that are added up as `<event>_<field>`."""

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
    "service_stopping": EventKind("info", "the service was told to stop", ("reason",)),
    "service_stopped": EventKind("info", "the service has ended in good order", ("status", "seconds")),
    "config_reloaded": EventKind(
        "info", "the configuration was read again and is in force", ("path", "changed", "waiting")
    ),
    "config_refused": EventKind("error", "the new configuration is wrong; the old one stays", ("path", "reason")),
    "worker_failed": EventKind("error", "a fault of logmend itself ended a worker", ("log_dir", "error", "traceback")),
    "listening": EventKind("info", "status, metrics and the page can be asked for", ("listen",)),
    "listen_failed": EventKind("error", "a socket cannot be served; the work goes on", ("listen", "reason")),
    "client_refused": EventKind(
        "info", "the connection of a Kafka client was ended for what it sent, or did not", ("kind", "reason")
    ),
    "client_failed": EventKind("error", "a fault of logmend itself while it answered a Kafka client", ("reason",)),
    "coordinator_failed": EventKind(
        "error", "groups or transactions of a partition are not answered: its log is not understood", ("reason",)
    ),
    "append_refused": EventKind("error", "a disk is full: producers are told to try again", ("reason",)),
    "listener_started": EventKind("info", "Kafka clients are served", ("listen",)),
    "listener_stopped": EventKind("info", "Kafka clients are served no more", ("listen",)),
    "answer_failed": EventKind("error", "a fault of logmend itself while it answered over HTTP", ("path", "error")),
    "status_not_written": EventKind("warning", "status.json cannot be written", ("path", "reason")),
    "notification_failed": EventKind("error", "the command to be run for an event failed", ("command", "reason", "id")),
    "event_unknown": EventKind("warning", "an event that this list does not hold; a fault of ours", ("name",)),
    "events_dropped": EventKind("warning", "whoever reads the log was too slow", ("count",), ("count",)),
    # log directories
    "log_dir_guarded": EventKind("info", "a broker's directory is followed and scrubbed", ("log_dir", "partitions")),
    "log_dir_opened": EventKind("info", "a directory is open, the engine runs on it", ("log_dir", "partitions")),
    "log_dir_closed": EventKind("info", "a directory was closed in good order", ("log_dir",)),
    "log_dir_offline": EventKind("error", "a directory is left aside; the others go on", ("log_dir", "reason")),
    "log_dir_absent": EventKind("warning", "a directory is not there, or not mounted", ("log_dir", "reason")),
    "log_dir_back": EventKind("info", "a directory that was absent or offline is there again", ("log_dir",)),
    "broker_appeared": EventKind("info", "somebody took the lock of a directory", ("log_dir", "pid")),
    "broker_gone": EventKind("info", "the lock of a directory was let go", ("log_dir",)),
    # recovery
    "recovery_started": EventKind("info", "a recovery begins", ("log_dir", "bytes", "partitions")),
    "recovery_planned": EventKind("info", "a plan was made", ("log_dir", "plan_id", "findings", "actions")),
    "recovery_finished": EventKind(
        "info", "a recovery has ended", ("log_dir", "plan_id", "seconds", "bytes", "actions", "result"), ("bytes",)
    ),
    "recovery_failed": EventKind("error", "a recovery did not get to its end", ("log_dir", "reason")),
    "plan_stored": EventKind(
        "info", "a plan lies ready for when the broker stops", ("log_dir", "plan_id", "path", "command")
    ),
    "plan_not_stored": EventKind("warning", "a plan could not be made or written down", ("log_dir", "path", "reason")),
    "log_truncated": EventKind("warning", "a log was cut", (*_PARTITION, "plan_id", "path", "position", "size")),
    "bytes_quarantined": EventKind(
        "info", "what is cut was kept", (*_PARTITION, "plan_id", "path", "position", "bytes"), ("bytes",)
    ),
    "index_rebuilt": EventKind("info", "an index was made anew from its log", (*_PARTITION, "plan_id", "path")),
    # verification of what was flushed
    "checkpoint_changed": EventKind("debug", "the recovery points of a broker moved", ("log_dir", "partitions")),
    "range_verified": EventKind("debug", "newly flushed bytes are sound", (*_RANGE, "bytes"), ("bytes",)),
    "segment_verified": EventKind(
        "debug", "a segment was read whole", (*_PARTITION, "base_offset", "bytes"), ("bytes",)
    ),
    "recovery_point_regressed": EventKind(
        "warning", "a recovery point moved backwards: flushed data was cut or replaced", (*_PARTITION, "old", "new")
    ),
    "verification_behind": EventKind(
        "warning", "flushed data waits too long for its look", ("log_dir", "seconds", "bytes")
    ),
    "partition_appeared": EventKind("debug", "a partition is new here", _PARTITION),
    "partition_vanished": EventKind("debug", "a partition was deleted, or moved elsewhere", _PARTITION),
    "read_transient": EventKind(
        "warning",
        "a second read, past the page cache, was sound where the first was not",
        (*_PARTITION, "path", "position"),
    ),
    "watch_degraded": EventKind(
        "warning", "no events come from a directory; changes are found by looking", ("log_dir", "reason")
    ),
    # findings
    "finding_opened": EventKind("error", "something is wrong with a log directory", _FINDING),
    "finding_closed": EventKind("info", "a finding is no more", (*_PARTITION, "id", "kind", "reason")),
    # scrub
    "scrub_started": EventKind("info", "the scrubber begins where it had stopped", ("log_dir", "segments", "bytes")),
    "scrub_paused": EventKind("info", "the scrubber was told to pause", ("log_dir",)),
    "scrub_resumed": EventKind("info", "the scrubber was told to go on", ("log_dir",)),
    "scrub_requested": EventKind("info", "somebody wants everything read now", ("log_dir",)),
    "scrub_pass_finished": EventKind(
        "info", "every segment was read once more", ("log_dir", "segments", "bytes", "seconds", "findings")
    ),
    "scrub_behind": EventKind(
        "warning", "at this pace the promised cycle will be broken", ("log_dir", "behind_seconds")
    ),
    "scrub_yielded": EventKind("debug", "the disks are under pressure; the scrubber waits", ("log_dir", "pressure")),
    "device_sick": EventKind(
        "error",
        "many errors on one device in a short time: it is scrubbed no further",
        ("device", "errors", "log_dirs"),
    ),
    "ledger_rebuilt": EventKind("warning", "the ledger was unusable and begins anew", ("path", "reason")),
    "ledger_not_written": EventKind("warning", "the ledger cannot be written; the work goes on", ("path", "reason")),
    # the engine's schedules
    "schedule_failed": EventKind("error", "a periodic task of the engine failed", ("log_dir", "task", "reason")),
}
