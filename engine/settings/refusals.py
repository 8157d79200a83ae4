"""What the log manager refuses, each by a class of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from storage.base.errors import ExitStatus, LogmendError, printable
from storage.base.units import TopicPartition


class TopicExists(LogmendError):
    """A topic of that name is there already."""

    status = ExitStatus.USAGE

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {printable(topic)} exists")
        self.topic = topic


class UnknownTopic(LogmendError):
    """There is no such topic, or no such partition of it."""

    status = ExitStatus.USAGE

    def __init__(self, topic: str, partition: int | None = None) -> None:
        what = f"topic {printable(topic)}" if partition is None else f"partition {printable(topic)}-{partition}"
        super().__init__(f"{what} does not exist")
        self.topic, self.partition = topic, partition


class PartitionOffline(LogmendError):
    """The partition lies in a log directory that failed, or that was not opened."""

    status = ExitStatus.ENVIRONMENT

    def __init__(self, partition: TopicPartition, reason: str) -> None:
        super().__init__(f"partition {printable(partition)} is offline: {reason}")
        self.partition = partition


class LogDirHeld(LogmendError):
    """Damage in flushed data waits for a replica or a person: the log directory is not opened."""

    status = ExitStatus.HELD

    def __init__(self, log_dir: PurePath, evidence: str) -> None:
        super().__init__(f"{printable(log_dir)}: {evidence}; `logmend plan` shows what is held")
        self.log_dir = log_dir


class LogDirStopped(LogmendError):
    """Recovery must not touch the log directory: a read failed, or a format is not known."""

    def __init__(self, log_dir: PurePath, evidence: str, status: ExitStatus) -> None:
        super().__init__(f"{printable(log_dir)}: {evidence}; `logmend plan` shows why it stops")
        self.log_dir, self.status = log_dir, status


class LogDirTiered(LogDirStopped):
    """A partition has segments in a remote tier: opened here it loses their epochs, and a broker then deletes them."""

    def __init__(self, log_dir: PurePath, partition: TopicPartition) -> None:
        evidence = f"{printable(partition)} has segments in a remote tier, which only a broker reads"
        super().__init__(log_dir, evidence, ExitStatus.UNSUPPORTED)


class NoLogDir(LogmendError):
    """Every log directory is offline; `refused` says for what each is."""

    status = ExitStatus.ENVIRONMENT

    def __init__(self, refused: Mapping[PurePath, tuple[str, ExitStatus]]) -> None:
        super().__init__("; ".join(reason for reason, _ in refused.values()) or "no log directory")
        self.refused = refused
