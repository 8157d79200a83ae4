"""What the records of KRaft's metadata log add up to, as far as it is about topics: their ids, and settings; pure.

Source: Apache Kafka 4.3.0, TopicRecord (key 2), ConfigRecord (key 4) and RemoveTopicRecord (key 9), version 0 of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from storage.base.errors import BatchCorrupt
from storage.base.varint import read_uvarint
from storage.batch.kraft import MetadataRecord

_UUID_BYTES: Final = 16
_OF_TOPIC: Final = 2
_OF_BROKER: Final = 4

ALL_BROKERS: Final = ""
"""The name under which settings for every broker stand."""


@dataclass(slots=True)
class MetadataImage:
    """Topics by name; `broker_configs` by the number of the broker as text, or `ALL_BROKERS`."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)

    def apply(self, record: MetadataRecord) -> None:
        """Take in the next record; one of another kind changes nothing. Raises `BatchCorrupt` where it is cut short."""
        match record.api_key:
            case 2:  # TopicRecord
                name, place = _text(record.body, 0)
                self.topic_ids[name or ""] = _bytes(record.body, place, _UUID_BYTES)
            case 4:  # ConfigRecord
                self._apply_config(record.body)
            case 9:  # RemoveTopicRecord
                gone = _bytes(record.body, 0, _UUID_BYTES)
                for name in [name for name, topic_id in self.topic_ids.items() if topic_id == gone]:
                    del self.topic_ids[name]
                    self.topic_configs.pop(name, None)
            case _:
                pass

    def _apply_config(self, body: bytes) -> None:
        kind = _bytes(body, 0, 1)[0]
        resource, place = _text(body, 1)
        name, place = _text(body, place)
        value, _ = _text(body, place)
        known = {_OF_TOPIC: self.topic_configs, _OF_BROKER: self.broker_configs}.get(kind)
        if known is None or name is None:
            return
        settings = known.setdefault(resource or "", {})
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = value


def _bytes(body: bytes, place: int, size: int) -> bytes:
    if size > len(body) - place:
        raise BatchCorrupt(f"a metadata record of {len(body)} bytes, a field of {size} at {place}")
    return body[place : place + size]


def _text(body: bytes, place: int) -> tuple[str | None, int]:
    """Return a text, None for null, and the position behind it."""
    length, place = read_uvarint(body, place)
    if not length:
        return None, place
    return _bytes(body, place, length - 1).decode("utf-8", "replace"), place + length - 1
