"""Decompresses and parses every record of the batches that a scan hands on: what checksums cannot show."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from recovery.plan.findings import Damage, Finding
from storage.base.errors import CorruptData
from storage.base.rows import BatchRows
from storage.batch.batch import HEADER_V2
from storage.batch.legacy import decode_messages
from storage.codec.compression import decompress
from storage.disk.fs import ReadFile
from storage.kernel.scan import check_records

_FINDINGS_LIMIT: Final = 100
_HELD_LIMIT: Final = 64 << 20
_CODEC_BITS: Final = 0x07


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
        positions, sizes, magics, attributes, counts = (
            column[:count].tolist()
            for column in (rows.position, rows.size, rows.magic, rows.attributes, rows.record_count)
        )
        for i in range(count):
            at = positions[i] - origin
            batch = window[at : at + sizes[i]] if window else self._read(positions[i], sizes[i])
            if batch is None:
                reason: str | None = "larger than 64 MiB: its records were not looked into"
            elif magics[i] == 2:
                reason = _fault(batch, attributes[i] & _CODEC_BITS, counts[i])
            else:
                reason = _legacy_fault(batch)
            if reason is not None:
                self._note(rows, i, reason)

    def _note(self, rows: BatchRows, i: int, reason: str) -> None:
        if len(self.findings) == _FINDINGS_LIMIT:
            return
        self.findings.append(
            Finding(
                Damage.RECORD_UNDECODABLE,
                self._path,
                f"the checksum holds, but the records do not decode: {reason}",
                position=rows.position[i],
                size=rows.size[i],
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


def _legacy_fault(batch: memoryview) -> str | None:
    try:
        for _ in decode_messages(batch):
            pass
    except CorruptData as error:
        return error.reason
    return None


def _fault(batch: memoryview, codec: int, count: int) -> str | None:
    payload = batch[HEADER_V2.size :]
    if codec:
        try:
            payload = memoryview(decompress(codec, payload, magic=2, limit=_HELD_LIMIT))
        except CorruptData as error:
            return error.reason
    position = check_records(payload, count) if count else -1
    return None if position < 0 else f"the record at byte {position} of the decompressed records"
