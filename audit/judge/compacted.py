"""Compares replicas of a compacted topic, which each broker cleans in its own time.

What two replicas both still have at an offset must be equal, and what one lacks must have been superseded: a later
record of the same key must be in that replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.judge.differences import Notes
from audit.judge.replicas import Bounds, Fetch, Replica, Told
from audit.tables.kinds import AuditKind


class CompactedBlocks:
    """Compares block by block; `finish` looks for the keys that some replicas lack."""

    def __init__(self, replicas: Sequence[Replica], fetch: Fetch, bounds: Bounds, notes: Notes) -> None:
        self._replicas, self._fetch, self._bounds, self._notes = replicas, fetch, bounds, notes
        self._absent: dict[int, dict[bytes, int]] = {}
        """Replica to key to the last offset it lacks."""

    def block(self, first: int, last: int) -> None:
        """Compare records at equal offsets; keep in mind the keys that a replica has no record of any more."""
        held: list[dict[int, Told]] = []
        epochs = {}
        for n, replica in enumerate(self._replicas):
            batches = self._fetch.batches(replica, first, last)
            records_of_all = (record for batch in batches for record in self._fetch.records(replica, batch))
            held.append({record.offset: record for record in records_of_all if first <= record.offset <= last})
            epochs[n] = max((batch.epoch for batch in batches), default=-1)
        for offset in sorted({offset for records in held for offset in records}):
            versions: dict[bytes, list[int]] = {}
            for n, records in enumerate(held):
                if offset in records and self._bounds.must_hold(n, offset, offset):
                    versions.setdefault(records[offset].content, []).append(n)
            if len(versions) > 1:
                self._notes.blame(list(versions.values()), offset, offset, "other records at the same offsets", epochs)
            told = next((held[n][offset] for n in range(len(held)) if self._vouches(n, held[n], offset)), None)
            key = None if told is None or told.may_go else told.key
            for n, records in enumerate(held):
                if key is not None and offset not in records and self._bounds.must_hold(n, offset, offset):
                    self._absent.setdefault(n, {})[key] = offset

    def _vouches(self, n: int, records: Mapping[int, Told], offset: int) -> bool:
        return offset in records and self._bounds.must_hold(n, offset, offset)

    def finish(self) -> None:
        """Tell apart what compaction removed and what was lost."""
        for n, keys in self._absent.items():
            later = self._fetch.keys_behind(self._replicas[n], keys)
            if later is None:
                evidence = f"{len(keys)} keys were not looked for: too much would have to be read"
                self._notes.add(AuditKind.NOT_COMPARED, n, min(keys.values()), max(keys.values()), evidence)
                continue
            for offset in sorted(offset for key, offset in keys.items() if key not in later):
                self._notes.lacks(n, offset, offset, "others hold the last record of a key here")
                self._notes.count([other for other in range(len(self._replicas)) if other != n], offset, offset)
