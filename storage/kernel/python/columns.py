"""Batches by columns, as the Python kernel finds and folds them: next to nothing is done batch by batch.

Where all is as usual, a column is cut out of the headers, which are copied one behind the other, by a slice with a step
for each of its bytes. What must hold between neighbours is asked of all of them at once: numbers of 8 bytes side by
side are one large int, and Python adds and subtracts such ints without a step for each. As long as every number is
neither negative nor leaves its 63 bits, nothing is carried from one into the next.
Source of the fields: Apache Kafka 4.3.0, DefaultRecordBatch.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from itertools import chain, pairwise, repeat
from operator import add, ge, gt, itemgetter
from typing import Final

from storage.base.units import INT64_MAX
from storage.kernel.python.records_python import control_of
from storage.kernel.rows import COLUMNS, CONTROL_NONE

V2_HEADER: Final = 61
CONTROL_BIT: Final = 0x20
_LEAST_V2: Final = V2_HEADER - 12
AT_ONCE: Final = 1024
"""Batches that make one set of columns at most: small ones with their columns still stay in a cache."""

_CHAIN: Final = struct.Struct(
    ">8x"
    "i"  # bytes after this field
    "4x"
    "b"  # magic
    "I"  # CRC-32C of all that follows
)
_HEADER: Final = struct.Struct("61s")
_EVENT: Final = struct.Struct(
    ">21x"
    "h"  # attributes
    "4x8x"
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
)
_DELTA: Final = (23, 4, "q")
"""Last offset delta; as `_FIELDS`."""
_FIELDS: Final = {
    "base_offset": (0, 8, "q"),
    "leader_epoch": (12, 4, "i"),
    "magic": (16, 1, "b"),
    "crc": (17, 4, "q"),
    "attributes": (21, 2, "h"),
    "max_timestamp": (35, 8, "q"),
    "producer_id": (43, 8, "q"),
    "producer_epoch": (51, 2, "h"),
    "base_sequence": (53, 4, "i"),
    "record_count": (57, 4, "i"),
}
"""Place in the header, bytes, and the type that takes them; they are filled up with zeroes where it is larger."""
_LOW_ATTRIBUTES: Final = 22
_SIZE: Final = (8, 4, "i")
_FEW: Final = 64
"""Fewer producers than this are searched for one by one."""
_ONES: Final = int.from_bytes((1).to_bytes(8, "little") * AT_ONCE, "little")
_SIGNS: Final = _ONES << 63

Event = tuple[int, int, int, int, int, int, int, int]
"""The fields of a `storage.producers.producer_state.ProducerEvent`."""


class Course(Enum):
    """How numbers go on: each is above the one before, none is below it, or one is."""

    RISES = auto()
    STAYS = auto()
    FALLS = auto()


class Columns:
    """Some batches, in the order of the log: one sequence a field, as `storage.kernel.rows.COLUMNS` names them."""

    position: Sequence[int]
    size: Sequence[int]
    base_offset: Sequence[int]
    last_offset: Sequence[int]
    magic: Sequence[int]
    attributes: Sequence[int]
    crc: Sequence[int]
    leader_epoch: Sequence[int]
    max_timestamp: Sequence[int]
    producer_id: Sequence[int]
    producer_epoch: Sequence[int]
    base_sequence: Sequence[int]
    record_count: Sequence[int]
    control: Sequence[int]

    count: int
    origin: int
    places: Sequence[int]
    """Where they begin, counted from `origin`."""

    def __init__(self, columns: Iterable[Sequence[int]]) -> None:
        for name, values in zip(COLUMNS, columns, strict=True):
            setattr(self, name, values)
        self.count, self.places, self.origin = len(self.position), self.position, 0

    def magics(self) -> set[int]:
        """Return which magics there are."""
        return set(self.magic)

    def kinds(self) -> set[int]:
        """Return which low bytes of attributes there are."""
        return {bits & 0xFF for bits in set(self.attributes)}

    def epochs(self) -> set[int]:
        """Return which leader epochs there are."""
        return set(self.leader_epoch)

    def records(self) -> int:
        """Return the number of their records, where one of magic 0 or 1 counts as one."""
        # The columns of magic 0 and 1 say -1: each is made up for.
        old = 0 if self.magics() == {2} else self.count - self.magic.count(2)
        return sum(self.record_count) + old

    def joined(self) -> bool:
        """Tell whether no offset is left out between them, if they are in order."""
        # They do not overlap, so that sums which meet leave no room for a gap anywhere between.
        return sum(self.base_offset[1:]) - sum(self.last_offset[:-1]) == self.count - 1

    def times(self) -> array[int]:
        """Return all timestamps."""
        return numbers_of(self.max_timestamp)

    def course_of_times(self, newest: int) -> Course:
        """Return how timestamps go on, from `newest` before the first to the last."""
        times = self.max_timestamp
        if times[0] > newest and all(map(gt, times[1:], times)):
            return Course.RISES
        return Course.STAYS if times[0] >= newest and all(map(ge, times[1:], times)) else Course.FALLS

    def offsets_above(self, base: int) -> array[int]:
        """Return the last offsets less `base`, if all fit 32 bits."""
        return array("i", [last - base for last in self.last_offset])

    def are_larger(self, size: int) -> bool:
        """Tell whether each of them has more bytes than that."""
        return min(self.size) > size

    def producer_ids(self) -> set[int]:
        """Return which producer ids there are."""
        return set(self.producer_id)

    def writers(self) -> set[tuple[int, int, int]]:
        """Return which producer ids, producer epochs and attributes there are together."""
        return set(zip(self.producer_id, self.producer_epoch, self.attributes, strict=True))

    def last_events(self, producers: set[int]) -> list[tuple[int, Event]]:
        """Return each of these producers with what its last batch, which has no `control` value, does to its state."""
        rows: Iterable[tuple[int, int]]
        if len(producers) < _FEW:
            backwards, behind = self.producer_id[::-1], self.count - 1
            rows = [(producer, behind - backwards.index(producer)) for producer in producers]
        else:  # a dictionary keeps the last number of each
            rows = dict(zip(self.producer_id, range(self.count), strict=True)).items()
        return [(producer, self.event(row)) for producer, row in rows if producer in producers]

    def event(self, row: int) -> Event:
        """Return what one of them, which has no `control` value, does to its producer's state."""
        return (self.base_offset[row], self.last_offset[row], self.attributes[row], self.max_timestamp[row],
                self.producer_id[row], self.producer_epoch[row], self.base_sequence[row], CONTROL_NONE)  # fmt: skip

    def has_controls(self) -> bool:
        """Tell whether one of them has a `control` value."""
        return set(self.control) != {CONTROL_NONE}


class PlainBatches(Columns):
    """Whole batches of magic 2 in a window, one behind the other. A column is made when it is first asked for."""

    def __init__(self, window: memoryview, headers: bytes, places: list[int], behind: int, origin: int) -> None:
        self.count, self.places, self.behind, self.origin = len(places), places, behind, origin
        self.window, self.headers = window, headers
        self._kinds = set(headers[_LOW_ATTRIBUTES::V2_HEADER])
        self.is_joined = False
        self._times: array[int] | None = None
        self._producers: set[int] | None = None

    @classmethod
    def joining(cls, parts: Sequence[PlainBatches]) -> PlainBatches:
        """Return all of several that follow each other, were found in order and have no `control` values, as one.

        They need not have been found in one window, and none is looked at any more.
        """
        headers = b"".join([part.headers for part in parts])
        places = list(chain.from_iterable(part.position for part in parts))
        all_of_them = cls(memoryview(b""), headers, places, parts[-1].origin + parts[-1].behind, 0)
        bases, lasts = array("q"), array("q")
        for part in parts:
            bases += numbers_of(part.base_offset)
            lasts += numbers_of(part.last_offset)
        all_of_them.base_offset, all_of_them.last_offset = bases, lasts
        meet = all(first.last_offset[-1] + 1 == second.base_offset[0] for first, second in pairwise(parts))
        all_of_them.is_joined = meet and all(part.is_joined for part in parts)
        return all_of_them

    def first(self, count: int) -> PlainBatches:
        """Return the first of them."""
        behind = self.places[count] if count < self.count else self.behind
        headers = self.headers[: count * V2_HEADER]
        return PlainBatches(self.window, headers, list(self.places[:count]), behind, self.origin)

    def count_ordered(self, next_offset: int) -> int:
        """Return how many of them follow each other as they must, from the first on."""
        headers, count = self.headers, self.count
        bases = self.column(*_FIELDS["base_offset"])
        self.base_offset = bases
        if headers[0::V2_HEADER].isascii() and headers[_DELTA[0] :: V2_HEADER].isascii():  # none is negative
            base, last = _wide(bases), _wide(self.column(*_DELTA))
            last += base
            others = (1 << (count - 1) * 64) - 1
            if last + (_ONES & others) & others == base >> 64 and last >> (count - 1) * 64 < INT64_MAX:
                self.last_offset, self.is_joined = _narrow(last, count), True
                return count if bases[0] >= next_offset else 0
        lasts: Sequence[int] = self.last_offset
        fits = bases[0] >= next_offset and lasts[-1] < INT64_MAX
        if fits and all(map(ge, lasts, bases)) and all(map(gt, bases[1:], lasts)):
            return count
        return _count_ordered(bases, lasts, next_offset)

    def magics(self) -> set[int]:
        return {2}

    def kinds(self) -> set[int]:
        return self._kinds

    def epochs(self) -> set[int]:
        first = self._only("leader_epoch")
        return set(self.leader_epoch) if first is None else {first}

    def records(self) -> int:
        first = self._only("record_count")
        return sum(self.record_count) if first is None else first * self.count

    def joined(self) -> bool:
        return self.is_joined or super().joined()

    def times(self) -> array[int]:
        if self._times is None:
            self._times = self.max_timestamp = self.column(*_FIELDS["max_timestamp"])
        return self._times

    def course_of_times(self, newest: int) -> Course:
        times = self.times()
        if not self.headers[_FIELDS["max_timestamp"][0] :: V2_HEADER].isascii() or times[0] < newest:
            return Course.FALLS if times[0] < newest else super().course_of_times(newest)
        # The highest bit of each number is lent to its neighbour behind, and is gone where that is smaller.
        wide, others = _wide(times), (self.count - 1) * 64
        mask = (1 << others) - 1
        signs = _SIGNS & mask
        steps = (wide >> 64 | signs) - (wide & mask)
        if steps & signs != signs:
            return Course.FALLS
        return Course.RISES if times[0] > newest and steps - (_ONES & mask) & signs == signs else Course.STAYS

    def offsets_above(self, base: int) -> array[int]:
        if not self.is_joined:
            return super().offsets_above(base)
        wide = _wide(numbers_of(self.last_offset)) - base * (_ONES & (1 << self.count * 64) - 1)
        halves = array("i", wide.to_bytes(8 * self.count, "little"))
        if sys.byteorder == "big":
            halves.byteswap()
        return halves[::2]

    def are_larger(self, size: int) -> bool:
        return min(self.column(*_SIZE)) + 12 > size

    def producer_ids(self) -> set[int]:
        if self._producers is None:
            first = self._only("producer_id")
            if first is None:
                self.producer_id = self.column(*_FIELDS["producer_id"]).tolist()  # they are looked for one by one
            self._producers = set(self.producer_id) if first is None else {first}
        return self._producers

    def writers(self) -> set[tuple[int, int, int]]:
        epoch, attributes = self._only("producer_epoch"), self._only("attributes")
        if epoch is None or attributes is None:
            return super().writers()
        return {(producer, epoch, attributes) for producer in self.producer_ids()}

    def event(self, row: int) -> Event:
        fields = _EVENT.unpack_from(self.headers, row * V2_HEADER)
        return (self.base_offset[row], self.last_offset[row], *fields, CONTROL_NONE)

    def has_controls(self) -> bool:
        return any(bits & CONTROL_BIT for bits in self.kinds()) and super().has_controls()

    def __getattr__(self, name: str) -> Sequence[int]:
        values: Sequence[int]
        if name in _FIELDS:
            values = self.column(*_FIELDS[name])
        elif name in _MADE:
            values = _MADE[name](self)
        else:
            raise AttributeError(name)
        setattr(self, name, values)
        return values

    def column(self, place: int, width: int, code: str) -> array[int]:
        """Return the numbers of `width` bytes at a place of each header."""
        headers, numbers = self.headers, array(code)
        item = numbers.itemsize
        lanes = bytearray(item * self.count)
        for byte in range(width):
            at = width - 1 - byte if sys.byteorder == "little" else item - width + byte
            lanes[at::item] = headers[place + byte :: V2_HEADER]
        numbers.frombytes(lanes)
        return numbers

    def _only(self, name: str) -> int | None:
        """Return the value that all of them have in this field, None if they differ."""
        place, width, _ = _FIELDS[name]
        headers = self.headers
        for byte in range(place + width - 1, place - 1, -1):  # the lowest ones differ first
            if headers[byte::V2_HEADER].strip(headers[byte : byte + 1]):
                return None
        return int.from_bytes(headers[place : place + width], "big", signed=True)


def _positions(batches: PlainBatches) -> Sequence[int]:
    origin = batches.origin
    return [origin + place for place in batches.places] if origin else batches.places


def _sizes(batches: PlainBatches) -> list[int]:
    return [behind - place for place, behind in zip(batches.places, [*batches.places[1:], batches.behind], strict=True)]


def _last_offsets(batches: PlainBatches) -> list[int]:
    return list(map(add, batches.base_offset, batches.column(_DELTA[0], 4, "i")))


def _controls(batches: PlainBatches) -> Sequence[int]:
    if not any(bits & CONTROL_BIT for bits in batches.kinds()):
        return (CONTROL_NONE,) * batches.count
    wanted = (batches.places, batches.size, batches.attributes, batches.record_count, batches.producer_id)
    return [
        control_of(batches.window[place + V2_HEADER : place + size], bits, count)
        if bits & CONTROL_BIT and producer > -1
        else CONTROL_NONE
        for place, size, bits, count, producer in zip(*wanted, strict=True)
    ]


_MADE: Final[dict[str, Callable[[PlainBatches], Sequence[int]]]] = {
    "position": _positions,
    "size": _sizes,
    "last_offset": _last_offsets,
    "control": _controls,
}


def _sound(window: memoryview, place: int, most: int, sum_of: Callable[..., int]) -> tuple[list[int], int]:
    """Return where whole batches of magic 2 with a sound checksum begin from `place` on, and where the last one ends.

    Calls and steps of Python are what this loop spends its time on: all that can be done to columns is done later.
    """
    end, places = len(window), list[int]()
    note, unpack = places.append, _CHAIN.unpack_from
    with suppress(struct.error):  # there are fewer bytes than these fields take
        for _ in repeat(None, most):
            size, magic, crc = unpack(window, place)
            behind = place + size + 12
            if behind > end or size < _LEAST_V2 or magic != 2 or sum_of(window[place + 21 : behind]) != crc:
                break
            note(place)
            place = behind
    return places, place


def _shaped(window: memoryview, place: int, most: int) -> tuple[list[int], int]:
    """Return the same, whether the checksums are sound or not."""
    end, places = len(window), list[int]()
    with suppress(struct.error):
        for _ in repeat(None, most):
            size, magic, _crc = _CHAIN.unpack_from(window, place)
            behind = place + size + 12
            if behind > end or size < _LEAST_V2 or magic != 2:
                break
            places.append(place)
            place = behind
    return places, place


def plain_batches(
    window: memoryview, place: int, most: int, origin: int, sum_of: Callable[..., int] | None
) -> PlainBatches | None:
    """Return up to `most` whole batches of magic 2 from `place` in the window on whose sums hold; None without any.

    `origin` is the position of the window in its file; `sum_of` the CRC-32C, None for headers only.
    """
    most = min(most, AT_ONCE)
    places, behind = _shaped(window, place, most) if sum_of is None else _sound(window, place, most, sum_of)
    if not places:
        return None
    headers = b"".join(map(itemgetter(0), map(_HEADER.unpack_from, repeat(window), places)))
    return PlainBatches(window, headers, places, behind, origin)


def numbers_of(values: Sequence[int]) -> array[int]:
    """Return them as an array of int64: themselves, if they are one."""
    return values if isinstance(values, array) and values.typecode == "q" else array("q", values)


def _wide(numbers: array[int]) -> int:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return int.from_bytes(numbers, "little")


def _narrow(wide: int, count: int) -> array[int]:
    numbers = array("q", wide.to_bytes(8 * count, "little"))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _count_ordered(base: Sequence[int], last: Sequence[int], next_offset: int) -> int:
    for number, (first, behind) in enumerate(zip(base, last, strict=True)):
        if first < next_offset or behind < first or behind >= INT64_MAX:
            return number
        next_offset = behind + 1
    return len(base)
