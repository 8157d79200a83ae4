"""What `dump` prints: one item for everything in a file, with the names that an operator knows from kafka-dump-log."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from storage.base.errors import CorruptData, ExitStatus, UnsupportedFormat, printable
from storage.batch.batch import BatchHeader, TimestampType
from storage.batch.control import EndTxnMarker, decode_control
from storage.batch.kraft import decode_metadata_record
from storage.batch.record import Record, records_of
from storage.codec.compression import HELD_LIMIT, Codec
from storage.reading.log_walk import Batch, Fault, Window

_TIMES: Final = {
    TimestampType.NONE: "NoTimestampType",
    TimestampType.CREATE: "CreateTime",
    TimestampType.LOG_APPEND: "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a dump: `kind` is its name in JSON, `fields` its columns in order; `status` is not 0 for damage."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    status: ExitStatus = ExitStatus.CLEAN

    def as_text(self) -> str:
        """Return the line for people."""
        if self.kind in ("damage", "note"):
            at = "" if self.fields.get("position") is None else f" at {self.fields['position']}"
            size = "" if self.fields.get("size") is None else f" ({self.fields['size']} B)"
            return f"{self.kind}{at}: {self.fields['reason']}{size}"
        prefix = "| " if self.kind == "record" else ""
        return prefix + " ".join(f"{name}: {_shown(value)}" for name, value in self.fields.items())

    def as_json(self) -> dict[str, Any]:
        """Return the object for programs."""
        return {"item": self.kind, **self.fields}


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(printable(each) for each in value) + "]"
    return "none" if value is None else printable(value)


def damage(reason: str, position: int | None = None, size: int | None = None) -> Item:
    """Return the item for bytes that are not what they should be."""
    return Item("damage", {"position": position, "size": size, "reason": printable(reason)}, ExitStatus.FINDINGS)


def note(reason: str, position: int | None = None, size: int | None = None) -> Item:
    """Return the item for something worth knowing that is no damage."""
    return Item("note", {"position": position, "size": size, "reason": printable(reason)})


def damage_of(error: CorruptData) -> Item:
    """Return the item for what a codec refused; its status tells an unknown version from damage."""
    fields = {"position": error.position, "size": None, "reason": printable(error.reason)}
    return Item("damage", fields, error.status)


def fault_item(fault: Fault) -> Item:
    """Return the item for a fault in the chain of batches."""
    return damage(fault.reason, fault.position, fault.size)


def codec_name(number: int) -> str:
    """Return the codec's name as the broker's own tools print it."""
    return Codec(number).name.lower() if number in list(Codec) else f"unknown({number})"


def batch_item(batch: Batch) -> Item:
    """Return the item for a batch; one with a checksum that does not hold is damage, an unknown magic is not."""
    header = batch.header
    status = ExitStatus.CLEAN if batch.is_sound else ExitStatus.FINDINGS
    if batch.checksum_holds and header.magic > 2:
        status = ExitStatus.UNSUPPORTED
    own = _columns(header) if header.magic >= 2 else {"offset": header.base_offset}
    common = {
        "position": batch.position,
        _TIMES[header.timestamp_type]: header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": codec_name(header.codec),
        "crc": header.crc,
        "isvalid": batch.is_sound,
    }
    return Item("batch", own | common, status)


def _columns(header: BatchHeader) -> dict[str, Any]:
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
    }


def record_items(window: Window, batch: Batch, *, with_data: bool, is_metadata: bool) -> Iterator[Item]:
    """Yield the records of a batch; what does not decode ends them with an item that says why.

    `with_data`: keys and values too. `is_metadata`: it is of KRaft's log, whose values name their structure.
    """
    if batch.header.size > HELD_LIMIT:
        yield note(f"larger than {HELD_LIMIT} bytes: records are not shown", batch.position, batch.header.size)
        return
    data = memoryview(window.read(batch.position, batch.header.size))
    try:
        for record in records_of(data):
            fields = _record_fields(record)
            if batch.header.is_control:
                fields |= _control_fields(record)
            elif is_metadata:
                told = decode_metadata_record(record.value)
                fields |= {"apiKey": told.api_key, "apiVersion": told.version}
            yield Item("record", fields | (_data_fields(record) if with_data else {}))
    except UnsupportedFormat as error:
        yield Item("damage", damage(error.reason, batch.position, batch.header.size).fields, ExitStatus.UNSUPPORTED)
    except CorruptData as error:
        yield damage(f"records: {error.reason}", batch.position, batch.header.size)


def _record_fields(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        _TIMES[record.timestamp_type]: record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": record.sequence,
        "headerKeys": [name for name, _ in record.headers],
    }


def _control_fields(record: Record) -> dict[str, Any]:
    told = decode_control(record.key, record.value)
    if isinstance(told, EndTxnMarker):
        return {"endTxnMarker": told.type.name, "coordinatorEpoch": told.coordinator_epoch}
    plain = {name: _plain(value) for name, value in told._asdict().items()}
    return {"control": type(told).__name__, **{f"control.{name}": value for name, value in plain.items()}}


def _plain(value: object) -> Any:
    """Return a part of a control record as what JSON knows."""
    if isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is None:
            return [_plain(each) for each in value]
        return {name: _plain(each) for name, each in zip(names, value, strict=True)}
    return value


def _data_fields(record: Record) -> dict[str, Any]:
    named = (("key", record.key), ("payload", record.value))
    return {name if text else f"{name}Base64": value for name, data in named for text, value in [_content(data)]}


def _content(data: bytes | None) -> tuple[bool, str | None]:
    """Return whether bytes are text, and the text, else their base64."""
    if data is None:
        return True, None
    try:
        return True, data.decode()
    except UnicodeDecodeError:
        return False, base64.b64encode(data).decode()
