"""Reads a KRaft snapshot in the metadata log's directory: header first, footer last, every batch sound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from recovery.plan.findings import Damage, Finding
from storage.base.errors import BatchCorrupt, CorruptData, UnsupportedFormat
from storage.batch.batch import HEADER_V2, parse_header
from storage.batch.kraft import check_snapshot
from storage.disk.fs import ReadFile, ReadFs

_BATCH_LIMIT: Final = 64 << 20
"""Kafka writes batches of at most 8 MiB here."""


def check_metadata_snapshot(fs: ReadFs, path: PurePath, size: int) -> list[Finding]:
    """Return what is wrong with a snapshot of `size` bytes, of which one batch at a time is held in memory."""
    try:
        with fs.open_read(path) as file:
            faults = check_snapshot(_batches(file, size)).faults
    except UnsupportedFormat as error:
        return [Finding(Damage.UNSUPPORTED, path, error.reason, position=error.position)]
    except CorruptData as error:
        return [Finding(Damage.METADATA_SNAPSHOT_CORRUPT, path, error.reason, position=error.position)]
    return [Finding(Damage.METADATA_SNAPSHOT_CORRUPT, path, "; ".join(faults))] if faults else []


def _batches(file: ReadFile, size: int) -> Iterator[memoryview]:
    position = 0
    while position < size:
        start = memoryview(bytearray(min(HEADER_V2.size, size - position)))
        file.read_into(position, start)
        header = parse_header(start)
        if header.size > min(size - position, _BATCH_LIMIT):
            reason = f"a batch of {header.size} bytes, {size - position} are left in the file"
            raise BatchCorrupt(reason, position=position)
        batch = memoryview(bytearray(header.size))
        file.read_into(position, batch)
        yield batch
        position += header.size
