"""The kinds of number and name that every other module speaks of.

A number carries its kind, so that a byte position is never passed where a record offset belongs; the type
checker tells them apart and they cost nothing at run time.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
"""Logical number of a record in its partition, int64, 0 or more."""

Position = NewType("Position", int)
"""Byte place in a file, 0 or more."""

Epoch = NewType("Epoch", int)
"""Leader epoch of a batch, int32; -1 only inside codecs, where it means unknown."""

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970, UTC; -1 only inside codecs, where it means no timestamp."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class TopicPartition(NamedTuple):
    """A partition by the name of its topic and its number; prints as Kafka's directory name does."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
