"""What came of handing a log directory over, and of keeping its log ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Rise(NamedTuple):
    """The recovery point of one partition, as it was (None: no entry) and as it becomes: the log end."""

    partition: str
    old: int | None
    new: int


class Rolled(NamedTuple):
    """The active segment of one partition, of `size` bytes, was ended; an empty one begins at `base_offset`."""

    partition: str
    base_offset: int
    size: int


class HandedOver(NamedTuple):
    """What was done. `broker_scans`: bytes that a broker will read again; `refused`: why there is no marker."""

    rises: tuple[Rise, ...]
    synced_files: int
    broker_scans: int
    marker: bool = False
    refused: str = ""
    rolls: tuple[Rolled, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptTails:
    """What was kept: partitions, bytes; those for which there was no room; bytes of old copies removed."""

    partitions: int
    bytes: int
    left_out: tuple[str, ...]
    expired_bytes: int
