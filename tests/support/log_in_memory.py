"""A log of the engine in memory, with its epochs, for tests that look at what it does."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from support.batches import TS, batch_v2, record
from support.memory_fs import MemoryFs

from checkpoint import leader_epoch
from checkpoint.leader_epoch import EpochStart
from storage.base.config import LogConfig
from storage.base.units import Epoch, Offset
from storage.batch.batch import parse_header
from storage.disk.fs import Fs
from storage.log.log import Log
from storage.log.log_types import Appended, LogSetup

TOP = PurePath("/data")
PLACE = TOP / "orders-0"
NOW = TS + 1000


class MemoryEpochs:
    """The epochs of a log, in memory and, given an `Fs`, in the file as well."""

    def __init__(self, fs: Fs | None = None, directory: PurePath = PLACE) -> None:
        self.entries: list[EpochStart] = []
        self._fs, self._path = fs, directory / leader_epoch.FILE_NAME
        if fs is not None and leader_epoch.FILE_NAME in fs.entries(directory):
            self.entries = leader_epoch.read_epochs(fs, self._path)

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        self._keep(leader_epoch.assign(self.entries, epoch, start_offset))

    def truncate_from_end(self, end_offset: Offset) -> None:
        self._keep(leader_epoch.truncate_from_end(self.entries, end_offset))

    def truncate_from_start(self, start_offset: Offset) -> None:
        self._keep(leader_epoch.truncate_from_start(self.entries, start_offset))

    def clear(self) -> None:
        self._keep([])

    def _keep(self, entries: list[EpochStart]) -> None:
        if entries != self.entries and self._fs is not None:
            leader_epoch.write_epochs(self._fs, self._path, entries)
        self.entries = entries


def disk(**more: Any) -> MemoryFs:
    """Return a disk with an empty partition directory."""
    return MemoryFs({f"{PLACE}/": b""}, **more)


def opened(fs: Fs, epochs: MemoryEpochs | None = None, **settings: Any) -> Log:
    """Open the log with these settings; those that `Log.open` takes go there."""
    how = {key: settings.pop(key) for key in ("log_start", "recovery_point", "is_clean") if key in settings}
    setup = LogSetup(epochs or MemoryEpochs())
    return Log.open(fs, PLACE, LogConfig(**settings), setup, now_ms=NOW, **how)


def batch(records: int = 1, *, size: int = 1, **fields: Any) -> bytes:
    """Return what a client sends: records with a value of `size` bytes, from offset 0 on."""
    made = [record(n, timestamp_delta=n, value=b"v" * size) for n in range(records)]
    return batch_v2(0, made, **fields)


def add(log: Log, records: int = 1, *, leader_epoch: int = 0, now_ms: int = NOW, **fields: Any) -> Appended:
    """Append as leader what a client sends."""
    answer = log.append_as_leader(batch(records, **fields), leader_epoch=leader_epoch, now_ms=now_ms)
    assert answer is not None
    return answer


def from_producer(
    log: Log, sequence: int, records: int = 1, epoch: int = 0, producer_id: int = 7, **more: Any
) -> Appended:
    """Append what an idempotent producer sends."""
    return add(log, records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)


def stored(log: Log) -> list[bytes]:
    """Return every batch of the log."""
    found = []
    for segment in log.segments:
        data = bytearray(segment.size)
        segment.reader().read_into(0, memoryview(data))
        position = 0
        while position < len(data):
            size = parse_header(data, position).size
            found.append(bytes(data[position : position + size]))
            position += size
    return found
