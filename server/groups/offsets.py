"""The committed offsets of one partition of `__consumer_offsets`, and those that wait for their transaction to end.

Pure: records in their order in, answers out. Source: Apache Kafka 4.3.0, OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from server.groups.format.records import NO_TOPIC_ID, OffsetKey, OffsetValue

Place: TypeAlias = tuple[str, int]
"""Topic and partition that a position is in."""


class Committed(NamedTuple):
    """A committed offset and where its record is in the log."""

    value: OffsetValue
    record_offset: int


class Offsets:
    """Offsets by group. An offset that is put must come from a later record than the one it replaces."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[Place, Committed]] = {}
        self._pending: dict[int, dict[OffsetKey, Committed]] = {}
        """By producer: what its open transaction has committed."""

    def put(self, key: OffsetKey, value: OffsetValue, record_offset: int, producer_id: int = -1) -> None:
        """Take a commit; with a producer it only counts once its transaction is committed."""
        committed = Committed(value, record_offset)
        if producer_id >= 0:
            self._pending.setdefault(producer_id, {})[key] = committed
        else:
            self._settle(key, committed)

    def forget(self, key: OffsetKey, record_offset: int) -> None:
        """Take the tombstone of an offset: it is gone, and so is what waits for a transaction."""
        places = self._committed.get(key.group, {})
        current = places.get((key.topic, key.partition))
        if current is not None and current.record_offset < record_offset:
            del places[key.topic, key.partition]
            if not places:
                del self._committed[key.group]
        for producer_id in [id_ for id_, keys in self._pending.items() if key in keys]:
            del self._pending[producer_id][key]

    def end(self, producer_id: int, *, is_committed: bool) -> None:
        """End a producer's transaction: what it committed counts now, or is dropped."""
        for key, committed in self._pending.pop(producer_id, {}).items():
            if is_committed:
                self._settle(key, committed)

    def get(self, group: str, place: Place, topic_id: bytes | None) -> OffsetValue | None:
        """Return the committed offset; None without one, or if it is of an earlier topic of that name."""
        current = self._committed.get(group, {}).get(place)
        if current is None or _are_different(current.value.topic_id, topic_id):
            return None
        return current.value

    def of_group(self, group: str) -> Mapping[Place, Committed]:
        """Return all offsets of a group: a view, not to be changed, and valid until the next change."""
        return self._committed.get(group, {})

    def has(self, group: str) -> bool:
        """Return whether a group has committed offsets, or is about to."""
        return group in self._committed or self.has_open_transactions(group)

    def positions(self) -> Iterator[tuple[str, Place, int]]:
        """Yield group, place and offset of all that is committed; nothing may change meanwhile."""
        for group, places in self._committed.items():
            for place, committed in places.items():
                yield group, place, committed.value.offset

    def groups(self) -> set[str]:
        """Return all groups that have committed offsets, or are about to."""
        waiting = {key.group for keys in self._pending.values() for key in keys}
        return waiting | self._committed.keys()

    def is_pending(self, group: str, place: Place) -> bool:
        """Return whether an open transaction may change a committed offset."""
        key = OffsetKey(group, *place)
        return any(key in keys for keys in self._pending.values())

    def has_open_transactions(self, group: str) -> bool:
        """Return whether any open transaction has offsets of a group."""
        return any(key.group == group for keys in self._pending.values() for key in keys)

    def keys_of(self, group: str) -> set[OffsetKey]:
        """Return the keys of all offsets of a group, waiting ones included: what its removal has to remove."""
        waiting = {key for keys in self._pending.values() for key in keys if key.group == group}
        return waiting | {OffsetKey(group, *place) for place in self._committed.get(group, {})}

    def keys_of_topic(self, topic: str, topic_id: bytes | None) -> Iterator[OffsetKey]:
        """Yield the keys of all offsets in a topic that is deleted; those of another topic of its name stay."""
        matches = set()
        for group, places in self._committed.items():
            for place, committed in places.items():
                if place[0] == topic and not _are_different(committed.value.topic_id, topic_id):
                    matches.add(OffsetKey(group, *place))
        for keys in self._pending.values():
            matches |= {key for key in keys if key.topic == topic}
        yield from matches

    def _settle(self, key: OffsetKey, committed: Committed) -> None:
        places = self._committed.setdefault(key.group, {})
        current = places.get((key.topic, key.partition))
        if current is None or current.record_offset < committed.record_offset:
            places[key.topic, key.partition] = committed


def _are_different(one: bytes, other: bytes | None) -> bool:
    return NO_TOPIC_ID not in (one, other or NO_TOPIC_ID) and one != other
