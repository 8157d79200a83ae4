"""Walking over a log that is damaged in many places: everything is told, and no byte is read again and again."""

from __future__ import annotations

from typing import Self

from support.batches import batch_v2

from storage.reading.log_walk import Batch, Fault, walk


class CountingFile:
    """A file in memory that counts the bytes it gives out."""

    def __init__(self, data: bytes) -> None:
        self.data, self.given = data, 0

    def read_into(self, position: int, target: memoryview) -> int:
        piece = self.data[position : position + len(target)]
        target[: len(piece)] = piece
        self.given += len(piece)
        return len(piece)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


def test_it_begins_where_it_is_told_and_knows_what_offset_may_come() -> None:
    parts = [batch_v2(offset, 2) for offset in (0, 2, 4)]
    data = b"".join(parts)
    found = list(walk(CountingFile(data), len(data), start=len(parts[0]), next_offset=3))
    assert [type(each) for each in found] == [Fault, Batch, Batch]
    assert [each.position for each in found] == [len(parts[0]), len(parts[0]), len(parts[0]) + len(parts[1])]


def test_each_of_many_faults_is_told_with_what_lies_behind_it() -> None:
    data = b"".join(batch_v2(offset) + b"\xff" * 30 for offset in range(50))
    found = list(walk(CountingFile(data), len(data)))
    assert [each.header.base_offset for each in found if isinstance(each, Batch)] == list(range(50))
    assert [each.size for each in found if isinstance(each, Fault)] == [30] * 50


def test_many_faults_cost_no_more_reading_than_a_few_times_the_file() -> None:
    data = b"".join(batch_v2(30 * number, 30) + b"\xff" * 300 for number in range(6000))
    file = CountingFile(data)
    assert sum(isinstance(each, Fault) for each in walk(file, len(data))) == 6000
    assert file.given < 4 * len(data), f"{file.given / len(data):.1f} times"
