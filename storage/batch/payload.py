"""The records of a batch of magic 2 as bytes: decompressed within a bound, and the type of a control batch."""

from __future__ import annotations

from typing import Final

from storage.base.errors import BatchCorrupt
from storage.batch.batch import HEADER_V2, BatchHeader
from storage.batch.control import KEY as CONTROL_KEY
from storage.codec.compression import HELD_LIMIT, decompress
from storage.kernel.python.dedupe_python import fields_of
from storage.kernel.scan import check_records

MOST_DECOMPRESSED: Final = 8 * HELD_LIMIT
"""The most bytes that the records of one batch may decompress to; beyond it `UnsupportedFormat` is raised."""


def payload_of(header: BatchHeader, batch: memoryview) -> bytes:
    """Return the records of a batch of magic 2, decompressed.

    Raises `BatchCorrupt` if they do not parse, and what `storage.codec.compression.decompress` raises.
    """
    if not header.record_count:
        return b""
    records = batch[HEADER_V2.size :]
    payload = decompress(header.codec, records, magic=2, limit=MOST_DECOMPRESSED) if header.codec else bytes(records)
    if (fault := check_records(memoryview(payload), header.record_count)) >= 0:
        raise BatchCorrupt(f"byte {fault} of the records: not what {header.record_count} records should be")
    return payload


def control_kind(header: BatchHeader, batch: memoryview) -> int | None:
    """Return the type of the first record of a control batch, None if it has no record.

    Raises `BatchCorrupt` if that cannot be read, as a broker gives up on such a log.
    """
    if not header.record_count:
        return None
    key = next(fields_of(payload_of(header, batch), header.record_count)).key
    if key is None or len(key) < CONTROL_KEY.size:
        raise BatchCorrupt("a control record without a type")
    version, kind = CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise BatchCorrupt(f"version {version} of a control record's key")
    return int(kind)
