"""The state of the service as a document for programs.

`to_document` is what `/status` and `logmend status --json` show, and the content of `status.json`. Fields are only ever
added under the same schema version. Names are as they are on the disk: a program that shows them must escape them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

from daemon.status.headline import headline_of
from daemon.status.model import DirState, LogDirStatus, PartitionCell, RecoveryProgress, ServiceStatus

SCHEMA_VERSION: Final = 1
CELL_FIELDS: Final = tuple(field.name for field in dataclasses.fields(PartitionCell))


def to_document(status: ServiceStatus, *, partitions: bool = True) -> dict[str, Any]:
    """Return the state as plain values; with each of them only if `partitions`."""
    level, text = headline_of(status)
    head = {
        "schema_version": SCHEMA_VERSION,
        "document": "status",
        "logmend": status.version,
        "verdict": {"level": level.value, "text": text},
    }
    dirs = [log_dir_document(log_dir, partitions=partitions) for log_dir in status.log_dirs]
    return head | _plain_fields(status, leave=("version", "log_dirs")) | {"log_dirs": dirs}


def log_dir_document(status: LogDirStatus, *, partitions: bool = True) -> dict[str, Any]:
    """Return one log directory, with the number of partitions of each verdict."""
    document = _plain_fields(status, leave=("partitions",))
    document["partition_counts"] = status.verdict_counts()
    if partitions:
        document["partitions"] = [dict(zip(CELL_FIELDS, cell_values(cell), strict=True)) for cell in status.partitions]
    return document


def cell_values(cell: PartitionCell) -> list[Any]:
    """Return the values of a cell in the order of `CELL_FIELDS`."""
    return [
        cell.topic,
        cell.partition,
        cell.segments,
        cell.size_bytes,
        cell.verified_ms,
        cell.verdict.value,
        cell.findings,
    ]


def recovery_of(document: Mapping[str, Any]) -> RecoveryProgress:
    """Return the progress of a recovery from its document, which another version of the service may have written."""
    names = {field.name for field in dataclasses.fields(RecoveryProgress)}
    return RecoveryProgress(**{name: value for name, value in document.items() if name in names})


def _plain_fields(value: Any, leave: Sequence[str] = ()) -> dict[str, Any]:
    names = (field.name for field in dataclasses.fields(value))
    return {name: _plain(getattr(value, name)) for name in names if name not in leave}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return _plain_fields(value)
    raise AssertionError(type(value))


def broker_state(status: ServiceStatus) -> dict[str, Any]:
    """Return the document in which the agent in Strimzi's Kafka image reports the state of its broker.

    Source: Strimzi's KafkaAgent, `GET /v1/broker-state`: `brokerState` is the number of Kafka's `BrokerState`, and
    `recoveryState` appears only during a recovery. The state of a broker that is only guarded is unknown: 127.
    """
    running = [log_dir.recovery for log_dir in status.log_dirs if log_dir.state is DirState.RECOVERING]
    if running:
        known = [progress for progress in running if progress is not None]
        return {
            "brokerState": 2,
            "recoveryState": {
                "remainingLogsToRecover": sum(
                    progress.partitions_total - progress.partitions_done for progress in known
                ),
                "remainingSegmentsToRecover": sum(progress.segments_remaining for progress in known),
            },
        }
    own = [log_dir for log_dir in status.log_dirs if log_dir.mode.value == "own"]
    if not own:
        return {"brokerState": 127}
    if status.stopping:
        return {"brokerState": 7}
    return {"brokerState": 1 if any(log_dir.state is DirState.STARTING for log_dir in own) else 3}
