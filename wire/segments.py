"""Segments: the parts of a response, bytes in memory and ranges of files."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class RangeFile(Protocol):
    """An open file of which a part is sent; the maker of the range keeps it open until `close` was called."""

    def fileno(self) -> int:
        """Return its descriptor, for the kernel to read from at any position."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position` on; return the count of bytes, less only where the file ends."""

    def close(self) -> None:
        """Release the file; once for each range."""


class FileRange(NamedTuple):
    """`size` bytes of a file from `position` on."""

    file: RangeFile
    position: int
    size: int


Segment = bytes | bytearray | memoryview | FileRange


def size_of(segment: Segment) -> int:
    """Return how many bytes a segment is on the wire."""
    return segment.size if isinstance(segment, FileRange) else len(segment)


def close_files(segments: list[Segment]) -> None:
    """Close the files of segments that are sent, or never will be."""
    for segment in segments:
        if isinstance(segment, FileRange):
            segment.file.close()
