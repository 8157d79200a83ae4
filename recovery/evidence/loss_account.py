"""The account of what a log has lost: which records, where their bytes are now, and who cut them.

It is made from the manifests of what was set aside, so it knows every cut of ours; and, where the tails of logs were
kept before a broker started, every record that the broker then truncated. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from recovery.evidence.kept import Kept
from recovery.evidence.manifest import Item
from recovery.heal.replica import DirectorySource, ReplicaSource, ReplicaUnusable
from recovery.segment.losses import BEHIND_A_CUT, BELOW_THE_START
from storage.base.errors import CorruptData, EnvironmentFault, FileVanished
from storage.base.names import FileRole, FileState, parse_directory_name, parse_file_name
from storage.base.rows import BatchRows
from storage.base.units import TopicPartition
from storage.batch.batch import BatchHeader, parse_header
from storage.disk.fs import ReadFile, ReadFs
from storage.reading.log_reader import LogReader, find_sound_batch


class LostBatch(NamedTuple):
    """A whole, sound batch among the bytes that were taken out of a log."""

    position: int
    header: BatchHeader


@dataclass(frozen=True, slots=True)
class Loss:
    """What one cut took out of a log, or a broker's truncation that a kept tail shows.

    Offsets are inclusive; they and the epochs are those of the whole batches in the bytes, with the first offset as the
    manifest has it where that is lower. `kept`: the file that holds the bytes, None where nothing does. `torn_bytes`:
    how many of them are no whole batches. `held_by`: replicas that were asked and have all of it.
    """

    when_ms: int
    by: str
    plan_id: str
    directory: PurePath
    partition: str
    segment: str
    reason: str
    first_offset: int | None
    last_offset: int | None
    batches: int
    records: int
    epochs: tuple[int, ...]
    size: int
    torn_bytes: int
    kept: PurePath | None
    held_by: tuple[str, ...] = ()


def account(fs: ReadFs, kept: Sequence[Kept], sources: Sequence[ReplicaSource] = ()) -> Iterator[Loss]:
    """Yield every loss that the manifests tell of, oldest first. Raises `ReadFault`."""
    for one in kept:
        for item in one.manifest.items:
            if is_loss(item):
                loss = _loss(fs, one, item)
                if loss is not None:
                    yield _asked(loss, sources)


def is_loss(item: Item) -> bool:
    """Tell whether records went with an item, or may have gone: not so for files that something took the place of."""
    parsed = parse_file_name(item.name)
    if parsed is None or parsed.role is not FileRole.LOG or parsed.state not in (FileState.LIVE, FileState.SWAP):
        return False
    if item.step == "aside":
        return item.reason.startswith((BEHIND_A_CUT, BELOW_THE_START))
    return item.step in ("cut", "copied") and not item.zeroes


def place_of(one: Kept, item: Item) -> PurePath | None:
    """Return where the bytes of an item are kept."""
    if not item.kept:
        return None
    return one.place_of(item)


def _loss(fs: ReadFs, one: Kept, item: Item) -> Loss | None:
    place = place_of(one, item)
    batches: list[LostBatch] = []
    if place is not None:
        try:
            batches = list(batches_in(fs, place, item.size))
        except FileVanished:
            place = None
    if item.step == "copied":
        batches = [batch for batch in batches if not _is_in_log(fs, one.directory, batch.header)]
        if not batches:
            return None
    headers = [batch.header for batch in batches]
    first = min((header.base_offset for header in headers), default=None)
    if item.step != "copied" and item.first_offset is not None:  # of a copy, most may still be in the log
        first = item.first_offset if first is None else min(first, item.first_offset)
    whole = sum(header.size for header in headers)
    return Loss(
        when_ms=one.manifest.created_ms,
        by="broker" if item.step == "copied" else "logmend",
        plan_id=one.manifest.plan_id,
        directory=one.directory,
        partition=one.directory.name,
        segment=item.name,
        reason=item.reason,
        first_offset=first,
        last_offset=max((h.last_offset for h in headers), default=None),
        batches=len(headers),
        records=sum(max(h.record_count, 0) for h in headers),
        epochs=tuple(sorted({h.leader_epoch for h in headers if h.leader_epoch >= 0})),
        size=whole if item.step == "copied" else item.size,
        torn_bytes=0 if item.step == "copied" or place is None else item.size - whole,
        kept=place,
    )


def batches_in(fs: ReadFs, path: PurePath, size: int) -> Iterator[LostBatch]:
    """Yield the whole, sound batches in a file of kept bytes, wherever they begin; raises `ReadFault`."""
    reader = LogReader()
    with fs.open_read(path) as file:
        size = min(size, fs.stat(path).size)
        start: int | None = 0 if _begins(file, size) else find_sound_batch(file, size, 1, 0)
        while start is not None:
            places: list[int] = []

            def on_rows(rows: BatchRows, count: int, _: memoryview, __: int, places: list[int] = places) -> None:
                places.extend(rows.position[:count])

            scan = reader.scan(file, path, size, 0, on_rows, start=start)
            for position in places:
                yield LostBatch(position, _header(file, position))
            start = None if scan.valid_size >= size else find_sound_batch(file, size, scan.valid_size + 1, 0)


def _begins(file: ReadFile, size: int) -> bool:
    return find_sound_batch(file, size, 0, 0) == 0


def _header(file: ReadFile, position: int) -> BatchHeader:
    head = bytearray(61)
    count = file.read_into(position, memoryview(head))
    return parse_header(bytes(head[:count]).ljust(61, b"\0"))


def _is_in_log(fs: ReadFs, directory: PurePath, header: BatchHeader) -> bool:
    """Tell whether the log still has this very batch."""
    source = DirectorySource(fs, directory.parent)
    try:
        name = parse_directory_name(directory.name).partition
        found = next(iter(source.batches(name, header.base_offset, header.last_offset + 1)), None)
    except (ReplicaUnusable, CorruptData, EnvironmentFault):
        return False
    return found is not None and (found.header.base_offset, found.header.crc) == (header.base_offset, header.crc)


def _asked(loss: Loss, sources: Sequence[ReplicaSource]) -> Loss:
    """Ask the replicas which of them still have all of it."""
    if loss.first_offset is None or loss.last_offset is None or not sources:
        return loss
    name = parse_directory_name(loss.partition).partition
    held = tuple(source.name for source in sources if _has(source, name, loss.first_offset, loss.last_offset))
    return Loss(**{field: getattr(loss, field) for field in loss.__slots__ if field != "held_by"}, held_by=held)


def _has(source: ReplicaSource, name: TopicPartition, first: int, last: int) -> bool:
    expected = first
    try:
        for offer in source.batches(name, first, last + 1, 0):
            if offer.header.base_offset > expected:
                return False
            expected = offer.header.last_offset + 1
    except ReplicaUnusable:
        return False
    return expected > last
