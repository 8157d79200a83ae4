"""Transactional ids by the records of one partition of `__transaction_state`; pure, for a thread beside the loop."""

from __future__ import annotations

from collections.abc import Iterable

from server.txn.records import Facts, State, decode_key, decode_value, partition_of
from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.batch.batch import CONTROL_BIT, parse_header, split_batches
from storage.batch.record import records_of

_NEVER_STORED = frozenset((State.DEAD, State.PREPARE_EPOCH_FENCE))


def fold(pieces: Iterable[memoryview]) -> dict[str, Facts]:
    """Return the newest facts of each transactional id in whole batches, in the order of the log.

    Raises `BatchCorrupt` and `UnsupportedFormat` for a record that cannot be understood: a guess could end a
    transaction the wrong way.
    """
    found: dict[str, Facts] = {}
    for piece in pieces:
        for batch in split_batches(piece):
            if not parse_header(batch).attributes & CONTROL_BIT:
                _fold_batch(batch, found)
    return found


def _fold_batch(batch: memoryview, found: dict[str, Facts]) -> None:
    for record in records_of(batch):
        try:
            _fold_record(record.key, record.value, found)
        except (BatchCorrupt, UnsupportedFormat) as error:
            raise type(error)(f"offset {record.offset}: {error.reason}") from None


def _fold_record(key: bytes | None, value: bytes | None, found: dict[str, Facts]) -> None:
    transactional_id = decode_key(key)
    if transactional_id is None:
        return
    if value is None:
        found.pop(transactional_id, None)
        return
    facts = decode_value(value)
    if facts.state in _NEVER_STORED:
        raise BatchCorrupt(f"a transaction in state {facts.state.title}, which is never stored")
    found[transactional_id] = facts


def find_stranger(ids: Iterable[str], number: int, partitions: int) -> str | None:
    """Return an id that does not belong into partition `number` of so many, None if all do.

    One that does not shows that partitions are missing: the newest record of an id may be in one of those.
    """
    return next((each for each in ids if partition_of(each, partitions) != number), None)
