"""The ids of topics, from the KRaft metadata log: what a lost `partition.metadata` is written anew from.

Source: Apache Kafka 4.3.0, TopicRecord (key 2) and RemoveTopicRecord (key 9), version 0 of each.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from checkpoint.uuids import METADATA_TOPIC_ID
from storage.batch import split_batches
from storage.errors import CorruptData, FileVanished, ReadFault
from storage.fs import ReadFs
from storage.kraft import MetadataRecord, decode_metadata_record
from storage.log_reader import LogReader
from storage.names import METADATA_TOPIC, FileRole, FileState, parse_file_name
from storage.record import records_of
from storage.rows import BatchRows
from storage.varint import read_uvarint

_DIRECTORY: Final = f"{METADATA_TOPIC}-0"
_TOPIC_RECORD: Final = 2
_REMOVE_TOPIC_RECORD: Final = 9
_UUID_BYTES: Final = 16
_CONTROL: Final = 0x20


class TopicIds:
    """Names to ids, read on first use from the first of `log_dirs` that holds the metadata log; safe to share."""

    def __init__(self, fs: ReadFs, log_dirs: Sequence[PurePath]) -> None:
        self._fs, self._log_dirs = fs, tuple(log_dirs)
        self._known: dict[str, bytes] | None = None
        self._turn = threading.Lock()

    def get(self, topic: str) -> bytes | None:
        """Return the id of a topic that exists, None where the metadata cannot be read or does not know it."""
        if topic == METADATA_TOPIC:
            return METADATA_TOPIC_ID
        with self._turn:
            if self._known is None:
                self._known = self._read()
        return self._known.get(topic)

    def _read(self) -> dict[str, bytes]:
        for log_dir in self._log_dirs:
            try:
                return _read_directory(self._fs, log_dir / _DIRECTORY)
            except FileVanished:
                continue
            except (CorruptData, ReadFault):
                return {}
        return {}


def _read_directory(fs: ReadFs, directory: PurePath) -> dict[str, bytes]:
    names = [file for name in fs.entries(directory) if (file := parse_file_name(name)) is not None]
    live = [file for file in names if file.state is FileState.LIVE and file.base_offset is not None]
    snapshots = [file for file in live if file.role is FileRole.METADATA_SNAPSHOT]
    ids: dict[str, bytes] = {}
    start = 0
    if snapshots:
        newest = max(snapshots, key=lambda file: (file.base_offset, file.epoch))
        _take_in(fs, directory / newest.name, 0, ids)
        start = newest.base_offset or 0
    for file in live:
        if file.role is FileRole.LOG:
            _take_in(fs, directory / file.name, start, ids)
    return ids


def _take_in(fs: ReadFs, path: PurePath, start: int, ids: dict[str, bytes]) -> None:
    def on_rows(rows: BatchRows, count: int, window: memoryview, origin: int) -> None:
        for i in range(count):
            if rows.last_offset[i] >= start and not rows.attributes[i] & _CONTROL and window:
                place = rows.position[i] - origin
                for batch in split_batches(window[place : place + rows.size[i]]):
                    for record in records_of(batch):
                        _apply(decode_metadata_record(record.value), ids)

    with fs.open_read(path) as file:
        LogReader().scan(file, path, fs.stat(path).size, 0, on_rows)


def _apply(record: MetadataRecord, ids: dict[str, bytes]) -> None:
    body = record.body
    if record.api_key == _TOPIC_RECORD:
        length, position = read_uvarint(body, 0)
        end = position + length - 1
        if length > 0 and end + _UUID_BYTES <= len(body):
            ids[body[position:end].decode("utf-8", "replace")] = body[end : end + _UUID_BYTES]
    elif record.api_key == _REMOVE_TOPIC_RECORD:
        gone = body[:_UUID_BYTES]
        for name in [name for name, topic_id in ids.items() if topic_id == gone]:
            del ids[name]
