"""Reads the metadata log of a KRaft broker offline: its newest snapshot, then what the log says after it.

Source: Apache Kafka 4.3.0, BatchFileReader, MetadataRecordSerde.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from storage.base.names import FileRole, FileState, parse_file_name
from storage.base.rows import BatchRows
from storage.batch.batch import split_batches
from storage.batch.kraft import MetadataRecord, decode_metadata_record
from storage.batch.record import records_of
from storage.disk.fs import ReadFs
from storage.reading.log_reader import LogReader

_CONTROL: Final = 0x20

Apply = Callable[[MetadataRecord], None]


def apply_metadata(fs: ReadFs, directory: PurePath, apply: Apply) -> None:
    """Call `apply` with each data record in a directory of `__cluster_metadata`, in order.

    Raises `ReadFault`, `FileVanished`, `CorruptData` and what `apply` raises.
    """
    files = [file for name in fs.entries(directory) if (file := parse_file_name(name)) is not None]
    live = [file for file in files if file.state is FileState.LIVE and file.base_offset is not None]
    snapshots = [file for file in live if file.role is FileRole.METADATA_SNAPSHOT]
    start = 0
    if snapshots:
        newest = max(snapshots, key=lambda file: (file.base_offset, file.epoch))
        _take_in(fs, directory / newest.name, 0, apply)
        start = newest.base_offset or 0
    for file in live:
        if file.role is FileRole.LOG:
            _take_in(fs, directory / file.name, start, apply)


def _take_in(fs: ReadFs, path: PurePath, start: int, apply: Apply) -> None:
    def on_rows(rows: BatchRows, count: int, window: memoryview, origin: int) -> None:
        for i in range(count):
            if rows.last_offset[i] >= start and not rows.attributes[i] & _CONTROL and window:
                place = rows.position[i] - origin
                for batch in split_batches(window[place : place + rows.size[i]]):
                    for record in records_of(batch):
                        apply(decode_metadata_record(record.value))

    size = fs.stat(path).size
    with fs.open_read(path) as file:
        LogReader().scan(file, path, size, 0, on_rows)
