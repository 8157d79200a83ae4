"""The newest offset of each key, in a fixed amount of memory: what compaction decides by.

A key is its MD5, 16 bytes, and takes 24 with its offset, as in a broker, so that the same memory holds as many keys as
there. A dictionary of digests takes 138 bytes a key (measured at a million keys), which would make the setting a lie.
The table is one block of memory with open addressing; what was never used of it costs no memory.
Source: Apache Kafka 4.3.0, SkimpyOffsetMap, Cleaner.
"""

from __future__ import annotations

from storage.base.errors import ConfigInvalid
from storage.kernel.python.dedupe_python import SLOT_BYTES, digest_of, find_slot
from storage.kernel.scan import KERNEL, Kernel


class OffsetMap:
    """Keys to offsets, int64 from 0 on. Keys whose MD5 is equal are one key. One thread at a time.

    `latest` is the offset up to which the log was put into it, inclusive; -1 if none of it was.
    """

    __slots__ = ("_block", "_kernel", "_table", "_words", "latest", "limit", "size", "slots")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9, kernel: Kernel = KERNEL) -> None:
        """Take up to `memory_bytes` (and a few slots), and as many keys as fill it to the `load_factor`.

        Raises `ConfigInvalid` if that is not even two keys: compaction would never get on.
        """
        self.slots = memory_bytes // SLOT_BYTES
        self.limit = min(int(self.slots * load_factor), self.slots)
        if self.limit <= 1:
            raise ConfigInvalid(
                f"log.cleaner.dedupe.buffer.size: {memory_bytes} bytes hold {self.limit} keys; two are the least"
            )
        self._table, self._kernel = _prime_above(self.slots), kernel
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._block = bytearray(self._table * SLOT_BYTES)  # zeros that take up no memory before they are written to
        self._words = memoryview(self._block).cast("Q")
        self.size = 0
        self.latest = -1

    @property
    def is_full(self) -> bool:
        """Whether no further key may be put in, not even a known one."""
        return self.size >= self.limit

    def put(self, key: bytes, offset: int) -> None:
        """Note that `key` stands at `offset`, which takes the place of the one before. The map must not be full."""
        assert self.size < self.limit
        low, high = digest_of(key)
        place = find_slot(self._words, self._table, low, high)
        words = self._words
        if not words[place + 2]:
            words[place], words[place + 1] = low, high
            self.size += 1
        words[place + 2] = offset + 1
        self.latest = offset

    def get(self, key: bytes) -> int:
        """Return the offset of `key`, -1 for one that is not there."""
        return self._words[find_slot(self._words, self._table, *digest_of(key)) + 2] - 1

    def put_records(self, payload: bytes, count: int, base_offset: int, start: int) -> bool:
        """Put the keys of records of magic 2 from offset `start` on; return False if it was full before the last one.

        `payload` holds the `count` records of a batch, checked and decompressed.
        """
        self.size, latest, is_full = self._kernel.put_keys(
            self._block, self._table, payload, count, base_offset, start, self.size, self.limit
        )
        self.latest = max(self.latest, latest)
        return not is_full

    def mark_kept(
        self, payload: bytes, count: int, base_offset: int, flags: bytearray, *, tombstones_stay: bool
    ) -> tuple[int, int, int]:
        """Flag the records of such a payload that stay; return what `dedupe_python.mark_kept` does."""
        return self._kernel.mark_kept(
            self._block, self._table, payload, count, base_offset, self.latest, tombstones_stay, flags
        )


def _prime_above(number: int) -> int:
    candidate = number + 1 | 1
    while any(candidate % factor == 0 for factor in range(3, int(candidate**0.5) + 1, 2)):
        candidate += 2
    return candidate
