"""Splits a closed segment whose offsets do not fit 31 bits above its base; only old brokers wrote such segments.

Recovery splits those that it looks at; this is for a log that is open. Batches are copied byte for byte, nothing is
judged: rot stays as visible as it was. Source: Apache Kafka 4.3.0, LocalLog.splitOverflowedSegment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Final

from storage.base.errors import BatchCorrupt, LogmendError
from storage.base.names import FileRole, FileState
from storage.base.units import INT32_MAX, Offset
from storage.batch.batch import CODEC_MASK
from storage.disk.fs import Fs
from storage.reading.segment_walk import BatchPlace
from storage.segment.segment import LogSegment
from storage.segment.segment_types import BatchEnd
from storage.segment.swapping import remove_cleaned

_PIECE_BYTES: Final = 1 << 20
_ATTRIBUTES: Final = 17  # of magic 0 and 1


def split_overflowed(fs: Fs, directory: PurePath, segment: LogSegment, now_ms: int) -> list[LogSegment]:
    """Return `.cleaned` segments, durable and closed, that hold the batches of `segment` between them, in order.

    Each begins at the base offset of its first batch and is as long as its offsets allow. Aborted transactions go where
    their markers are. Raises `BatchCorrupt` with the position where batches cannot be followed to the end, `ReadFault`
    and `WriteFault`; nothing is left of it then.
    """
    pieces: list[LogSegment] = []
    try:
        for base, batches in _pieces(segment):
            remove_cleaned(fs, directory, base)
            pieces.append(LogSegment.create(fs, directory, base, segment.limits, now_ms, state=FileState.CLEANED))
            _copy(segment, pieces[-1], batches)
        _hand_out_transactions(segment, pieces)
        mtime_ns = fs.stat(segment.path(FileRole.LOG)).mtime_ns // 1_000_000 * 1_000_000
        for piece in pieces:
            _finish(fs, piece, mtime_ns)
    except LogmendError:
        for piece in pieces:
            piece.close()
            with contextlib.suppress(LogmendError):  # the next load removes what is left
                remove_cleaned(fs, directory, piece.base_offset)
        raise
    return pieces


def _pieces(segment: LogSegment) -> Iterator[tuple[Offset, list[BatchPlace]]]:
    batches: list[BatchPlace] = []
    base = next_offset = int(segment.base_offset)
    end = 0
    for place in segment.batches():
        if not batches or place.last_offset - base > INT32_MAX:
            if batches:
                yield Offset(base), batches
            base, batches = _lowest_offset(segment, place, next_offset), []
        batches.append(place)
        next_offset, end = place.last_offset + 1, place.position + place.size
    if end < segment.size:
        reason = f"{segment.size - end} bytes that are no whole batch"
        raise BatchCorrupt(reason, path=segment.path(FileRole.LOG), position=end)
    if batches:
        yield Offset(base), batches


def _lowest_offset(segment: LogSegment, place: BatchPlace, next_offset: int) -> int:
    """Return where a piece with this first batch begins: a compressed set of magic 0 or 1 does not tell its first."""
    if place.magic < 2:
        attributes = memoryview(bytearray(1))
        segment.reader().read_into(place.position + _ATTRIBUTES, attributes)
        if attributes[0] & CODEC_MASK:
            return max(next_offset, place.last_offset - INT32_MAX)
    return place.base_offset


def _copy(source: LogSegment, target: LogSegment, batches: Iterable[BatchPlace]) -> None:
    """Append the batches, which are adjacent, in pieces of about a MiB."""
    waiting: list[BatchPlace] = []
    for place in batches:
        if waiting and place.position + place.size - waiting[0].position > _PIECE_BYTES:
            _write(source, target, waiting)
            waiting = []
        waiting.append(place)
    _write(source, target, waiting)


def _write(source: LogSegment, target: LogSegment, batches: list[BatchPlace]) -> None:
    first, last = batches[0].position, batches[-1]
    data = memoryview(bytearray(last.position + last.size - first))
    if source.reader().read_into(first, data) < len(data):
        raise BatchCorrupt("the file ends before", path=source.path(FileRole.LOG), position=last.position)
    target.append(data, [BatchEnd(place.last_offset, place.max_timestamp, place.size) for place in batches])


def _hand_out_transactions(segment: LogSegment, pieces: list[LogSegment]) -> None:
    for transaction in segment.indexes.transactions.all():
        holding = [piece for piece in pieces if piece.base_offset <= transaction.last_offset]
        holding[-1].append_aborted(transaction)


def _finish(fs: Fs, piece: LogSegment, mtime_ns: int) -> None:
    piece.seal()
    piece.indexes.write()
    for role in (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX):
        fs.set_mtime(piece.path(role), mtime_ns)
    piece.flush()
    piece.close()
