"""Decompresses and parses every record of the batches that a scan hands on: what checksums cannot show."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from recovery.findings import Damage, Finding
from storage.batch import HEADER_V2, parse_header
from storage.compression import decompress
from storage.errors import CorruptData
from storage.fs import ReadFile
from storage.legacy import decode_messages
from storage.rows import BatchRows
from storage.scan import check_records

_FINDINGS_LIMIT: Final = 100
_HELD_LIMIT: Final = 64 << 20


class RecordsCheck:
    """Fed with rows and the bytes behind them; `findings` has one entry a batch that does not decode.

    After a hundred of them it only counts on. A batch that is larger than the scanner's window is read again, up to
    64 MiB of it; a larger one is reported as not looked into.
    """

    def __init__(self, file: ReadFile, path: PurePath) -> None:
        self._file, self._path = file, path
        self.findings: list[Finding] = []

    def feed(self, rows: BatchRows, count: int, window: memoryview, origin: int) -> None:
        """Look into every batch of the rows."""
        for i in range(count):
            position, size = rows.position[i], rows.size[i]
            batch = window[position - origin : position - origin + size] if window else self._read(position, size)
            reason = "larger than 64 MiB: its records were not looked into" if batch is None else _fault(batch)
            if reason is not None and len(self.findings) < _FINDINGS_LIMIT:
                self.findings.append(
                    Finding(
                        Damage.RECORD_UNDECODABLE,
                        self._path,
                        f"the checksum holds, but the records do not decode: {reason}",
                        position=position,
                        size=size,
                        first_offset=rows.base_offset[i],
                        last_offset=rows.last_offset[i],
                        next_good_offset=rows.last_offset[i] + 1,
                    )
                )

    def _read(self, position: int, size: int) -> memoryview | None:
        if size > _HELD_LIMIT:
            return None
        batch = memoryview(bytearray(size))
        self._file.read_into(position, batch)
        return batch


def _fault(batch: memoryview) -> str | None:
    header = parse_header(batch)
    try:
        if header.magic < 2:
            for _ in decode_messages(batch):
                pass
            return None
        payload = batch[HEADER_V2.size :]
        if header.codec:
            payload = memoryview(decompress(header.codec, payload, magic=2, limit=_HELD_LIMIT))
    except CorruptData as error:
        return error.reason
    position = -1 if header.record_count == 0 else check_records(payload, header.record_count)
    return None if position < 0 else f"the record at byte {position} of the decompressed records"
