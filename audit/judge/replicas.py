"""The replicas of one partition as values, where their batches come from, and what each of them must hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica as it was read. `high_watermark` and `log_end` are exclusive; None where nothing tells.

    `unread`: ranges of offsets, both inclusive, of which nothing is known because they could not be read.
    """

    broker: str
    log_dir: str
    log_start: int
    log_end: int | None
    high_watermark: int | None
    unread: tuple[tuple[int, int], ...] = ()


class BlockState(NamedTuple):
    """What a replica holds of a block; offsets are inclusive."""

    digest: int
    first: int
    last: int
    max_epoch: int


class Batch(NamedTuple):
    """A batch of a replica: `place` means something to the `Fetch` that it came from."""

    base: int
    last: int
    crc: int
    epoch: int
    place: object = None

    @property
    def identity(self) -> tuple[int, int, int]:
        """Equal for equal batches of two replicas."""
        return self.base, self.last, self.crc


class Told(NamedTuple):
    """A record: digests over all that must agree, and over its key. Compaction lets some go without a trace."""

    offset: int
    content: bytes
    key: bytes | None
    may_go: bool = False


class Fetch(Protocol):
    """Where batches and records come from; raises `EnvironmentFault` where that fails."""

    def batches(self, replica: Replica, first: int, last: int) -> list[Batch]:
        """Return the sound batches with a base offset from `first` to `last`, and one that reaches into them."""

    def records(self, replica: Replica, batch: Batch) -> Iterator[Told]:
        """Return the records of a batch; raises `CorruptData` if they cannot be decoded."""

    def keys_behind(self, replica: Replica, wanted: Mapping[bytes, int]) -> set[bytes] | None:
        """Return which of the keys occur behind the offset given with each; None if that were too much to read."""


def until_of(replicas: Sequence[Replica]) -> list[int]:
    """Return for each replica the offset, exclusive, up to which it must agree with the others.

    Its high watermark; where that is not known the lowest known one, and without any the lowest log end.
    """
    known = [replica.high_watermark for replica in replicas if replica.high_watermark is not None]
    ends = [replica.log_end for replica in replicas if replica.log_end is not None]
    fallback = min(known) if known else min(ends, default=0)
    return [fallback if replica.high_watermark is None else replica.high_watermark for replica in replicas]


class Bounds:
    """What each replica must hold: offsets from its log start to its high watermark, but for those not read."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas
        self.until = until_of(replicas)

    def must_hold(self, n: int, first: int, last: int) -> bool:
        """Tell whether a replica must have all of a range of offsets."""
        replica = self._replicas[n]
        return replica.log_start <= first and last < self.until[n] and not meets(replica.unread, first, last)

    def must_hold_some(self, n: int, first: int, last: int) -> bool:
        """Tell whether a replica must have something of a range."""
        replica = self._replicas[n]
        start, end = max(first, replica.log_start), min(last, self.until[n] - 1)
        return start <= end and not meets(replica.unread, start, end)

    def decides(self, n: int, first: int, last: int) -> bool:
        """Tell whether a replica must have all of a range, or need not have any of it."""
        return self.must_hold(n, first, last) or not self.must_hold_some(n, first, last)


def meets(ranges: Iterable[tuple[int, int]], first: int, last: int) -> bool:
    """Tell whether offsets from `first` to `last` meet one of the ranges; all inclusive."""
    return any(start <= last and end >= first for start, end in ranges)
