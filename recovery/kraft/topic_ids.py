"""The ids and settings of topics, from the KRaft metadata log: what a lost `partition.metadata` is made of again."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final

from checkpoint.uuids import METADATA_TOPIC_ID
from recovery.kraft.metadata_log import apply_metadata
from storage.base.errors import CorruptData, FileVanished, ReadFault
from storage.base.names import METADATA_TOPIC
from storage.batch.kraft_image import MetadataImage
from storage.disk.fs import ReadFs

_DIRECTORY: Final = f"{METADATA_TOPIC}-0"
REMOTE_STORAGE: Final = "remote.storage.enable"


class TopicIds:
    """Names to ids, read on first use from the first of `log_dirs` that holds the metadata log; safe to share."""

    def __init__(self, fs: ReadFs, log_dirs: Sequence[PurePath]) -> None:
        self._fs, self._log_dirs = fs, tuple(log_dirs)
        self._known: MetadataImage | None = None
        self._turn = threading.Lock()

    def get(self, topic: str) -> bytes | None:
        """Return the id of a topic that exists, None where the metadata cannot be read or does not know it."""
        if topic == METADATA_TOPIC:
            return METADATA_TOPIC_ID
        return self._image().topic_ids.get(topic)

    def is_tiered(self, topic: str) -> bool | None:
        """Tell whether remote storage is enabled for a topic; None where `get` would return None."""
        if self.get(topic) is None:
            return None
        return self._image().topic_configs.get(topic, {}).get(REMOTE_STORAGE, "").lower() == "true"

    def _image(self) -> MetadataImage:
        with self._turn:
            if self._known is None:
                self._known = read_metadata(self._fs, self._log_dirs) or MetadataImage()
            return self._known


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
    image = MetadataImage()
    apply_metadata(fs, directory, image.apply)
    return image
