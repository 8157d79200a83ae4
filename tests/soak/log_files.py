"""What lies in the files of a log directory, read without the engine; and the tearing of what nobody made durable."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

from soak.contents import is_sound

from storage.batch.batch import BatchHeader, checksum, parse_header, split_batches
from storage.batch.record import Record, records_of

_FIRST = struct.Struct(">qi")


@dataclass
class Found:
    """A partition by its files: records by their offsets, transactions that ended, faults."""

    records: dict[int, Record] = field(default_factory=dict)
    markers: list[BatchHeader] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    holes: int = 0
    end: int = -1
    size: int = 0


def look(directory: Path) -> Found:
    """Read all segments of a partition directory."""
    found = Found()
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        found.size += len(data)
        found.end = max(found.end, int(path.stem))
        for batch in split_batches(data):
            header = parse_header(batch)
            if header.base_offset < found.end:
                found.faults.append(f"{path.name}: batch of {header.base_offset} behind {found.end}")
            found.holes += header.base_offset > found.end
            found.end = header.last_offset + 1
            if checksum(batch) != header.crc:
                found.faults.append(f"{path.name}: checksum of the batch of {header.base_offset}")
            elif header.is_control:
                found.markers.append(header)
            else:
                _take(found, path.name, batch)
    return found


def _take(found: Found, name: str, batch: memoryview) -> None:
    for record in records_of(batch):
        if record.offset in found.records:
            found.faults.append(f"{name}: offset {record.offset} again")
        if not is_sound(record):
            found.faults.append(f"{name}: the record of {record.offset} is none that was sent")
        found.records[record.offset] = record


def points(log_dir: Path) -> dict[str, int]:
    """Return the recovery points of the checkpoint."""
    path = log_dir / "recovery-point-offset-checkpoint"
    if not path.exists():
        return {}
    lines = [line.split() for line in path.read_text().splitlines()[2:]]
    return {f"{topic}-{number}": int(point) for topic, number, point in lines}


def tear(directory: Path, durable: int, rng: random.Random) -> int:
    """Take away from the end of a log what is not below offset `durable`, as a power cut may; return the bytes.

    Cut at any byte, or its pages never written: zeros in their place. Only the newest segment is torn.
    """
    logs = sorted(directory.glob("*.log"))
    if not logs:
        return 0
    data = logs[-1].read_bytes()
    position = 0
    while len(data) - position >= 61:
        base, size = _FIRST.unpack_from(data, position)
        if base + int.from_bytes(data[position + 23 : position + 27], "big") >= durable:
            break
        position += size + 12
    if position >= len(data):
        return 0
    place = rng.randint(position, len(data) - 1)
    with logs[-1].open("r+b") as file:
        file.truncate(place)
        if rng.random() < 0.3:
            file.truncate(len(data))
    return len(data) - place
