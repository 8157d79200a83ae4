"""The ids and settings of topics, from the KRaft metadata log: what a lost `partition.metadata` is made of again."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final

from checkpoint.uuids import METADATA_TOPIC_ID
from storage.batch import split_batches
from storage.errors import CorruptData, FileVanished, ReadFault
from storage.fs import ReadFs
from storage.kraft import decode_metadata_record
from storage.kraft_image import MetadataImage
from storage.log_reader import LogReader
from storage.names import METADATA_TOPIC, FileRole, FileState, parse_file_name
from storage.record import records_of
from storage.rows import BatchRows

_DIRECTORY: Final = f"{METADATA_TOPIC}-0"
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
        found = read_metadata(self._fs, self._log_dirs)
        return {} if found is None else found.topic_ids


def read_metadata(fs: ReadFs, log_dirs: Iterable[PurePath]) -> MetadataImage | None:
    """Return what the first metadata log in `log_dirs` says, None if there is none that can be read."""
    for log_dir in log_dirs:
        try:
            return _read_directory(fs, log_dir / _DIRECTORY)
        except FileVanished:
            continue
        except (CorruptData, ReadFault):
            return None
    return None


def _read_directory(fs: ReadFs, directory: PurePath) -> MetadataImage:
    names = [file for name in fs.entries(directory) if (file := parse_file_name(name)) is not None]
    live = [file for file in names if file.state is FileState.LIVE and file.base_offset is not None]
    snapshots = [file for file in live if file.role is FileRole.METADATA_SNAPSHOT]
    image = MetadataImage()
    start = 0
    if snapshots:
        newest = max(snapshots, key=lambda file: (file.base_offset, file.epoch))
        _take_in(fs, directory / newest.name, 0, image)
        start = newest.base_offset or 0
    for file in live:
        if file.role is FileRole.LOG:
            _take_in(fs, directory / file.name, start, image)
    return image


def _take_in(fs: ReadFs, path: PurePath, start: int, image: MetadataImage) -> None:
    def on_rows(rows: BatchRows, count: int, window: memoryview, origin: int) -> None:
        for i in range(count):
            if rows.last_offset[i] >= start and not rows.attributes[i] & _CONTROL and window:
                place = rows.position[i] - origin
                for batch in split_batches(window[place : place + rows.size[i]]):
                    for record in records_of(batch):
                        image.apply(decode_metadata_record(record.value))

    with fs.open_read(path) as file:
        LogReader().scan(file, path, fs.stat(path).size, 0, on_rows)
