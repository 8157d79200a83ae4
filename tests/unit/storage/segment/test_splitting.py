"""A segment with offsets beyond 31 bits becomes several, batch for batch as it was; Kafka cuts at the same places."""

from __future__ import annotations

import errno
from pathlib import PurePath

import pytest
from support.batches import TRANSACTIONAL, batch_v2, legacy, marker, record
from support.cleaning import segments_of, write_log
from support.memory_fs import FaultFs, MemoryFs

from storage.base.config import LogConfig
from storage.base.errors import BatchCorrupt, WriteFault
from storage.base.names import FileState
from storage.base.units import Offset
from storage.disk.fs import Fs
from storage.segment.segment import LogSegment
from storage.segment.splitting import split_overflowed

PLACE = PurePath("/far-0")
CONFIG = LogConfig(index_interval_bytes=0)
FAR = 2**31


def one(offset: int) -> bytes:
    return batch_v2(offset, [record(key=b"k")])


def first_segment(batches: list[bytes]) -> tuple[MemoryFs, LogSegment]:
    fs = MemoryFs({f"{PLACE}/": b""})
    write_log(fs, PLACE, [batches])
    return fs, segments_of(fs, PLACE, CONFIG)[0]


def split(fs: Fs, segment: LogSegment) -> list[LogSegment]:
    return split_overflowed(fs, PLACE, segment, 0)


def test_pieces_begin_at_their_first_batches_and_hold_what_the_segment_held() -> None:
    batches = [one(0), one(3), one(FAR), one(FAR + 2), one(2 * FAR + 9)]
    fs, segment = first_segment(batches)
    pieces = split(fs, segment)
    assert [piece.base_offset for piece in pieces] == [0, FAR, 2 * FAR + 9]
    assert all(piece.state is FileState.CLEANED for piece in pieces)
    logs = [fs.contents(str(PLACE))[f"{piece.base_offset:020d}.log.cleaned"] for piece in pieces]
    assert logs == [b"".join(batches[:2]), b"".join(batches[2:4]), batches[4]]
    assert [piece.find(Offset(FAR + 1)) is not None for piece in pieces] == [False, True, True]


def test_the_largest_offset_that_fits_stays() -> None:
    fs, segment = first_segment([one(0), one(FAR - 1), one(FAR)])
    assert [piece.base_offset for piece in split(fs, segment)] == [0, FAR]


def test_a_compressed_set_of_an_old_format_begins_as_low_as_its_offsets_allow() -> None:
    fs, segment = first_segment([one(0), legacy(FAR + 70, magic=1, attributes=1, value=b"x")])
    assert [piece.base_offset for piece in split(fs, segment)] == [0, 71]


def test_aborted_transactions_go_where_their_markers_are() -> None:
    batches = [
        batch_v2(0, [record()], producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL),
        marker(1, 7, commit=False),
        batch_v2(FAR, [record()], producer_id=7, producer_epoch=0, base_sequence=1, attributes=TRANSACTIONAL),
        marker(FAR + 1, 7, commit=False),
    ]
    fs, segment = first_segment(batches)
    assert [[txn.last_offset for txn in piece.indexes.transactions.all()] for piece in split(fs, segment)] == [
        [1],
        [FAR + 1],
    ]


def test_what_cannot_be_followed_to_the_end_is_not_split() -> None:
    fs, segment = first_segment([one(0), one(FAR)])
    with fs.open_append(PLACE / f"{0:020d}.log") as file:
        file.append(b"torn")
    segment = segments_of(fs, PLACE, CONFIG)[0]
    before = fs.contents(str(PLACE))
    with pytest.raises(BatchCorrupt, match="4 bytes"):
        split(fs, segment)
    assert fs.contents(str(PLACE)) == before


def test_a_disk_that_refuses_leaves_no_piece() -> None:
    fs, _ = first_segment([one(0), one(FAR)])
    before = fs.contents(str(PLACE))
    failing = FaultFs(fs, 2, errno.ENOSPC, only=["append"])
    with pytest.raises(WriteFault):
        split(failing, segments_of(failing, PLACE, CONFIG)[0])
    assert fs.contents(str(PLACE)) == before
