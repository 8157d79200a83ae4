"""One look at a partition directory that was shut down in good order, in one call of the kernel.

Most partitions of most log directories are that: nothing is odd in them, and that is all anybody wants to know.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple

from storage.disk.fs import ReadFs, kernel_of, read_fault


class Glance(NamedTuple):
    """A directory in which nothing is odd, though most of its bytes were not read. Sizes are in bytes.

    It holds segments with both indexes, producer snapshots and the two small files, all plain files of the right owner,
    with the names that brokers give, and nothing else. Indexes end as they should, and behind the last entry of each
    there are nothing but sound batches.
    """

    segments: int
    first_base: int
    last_base: int
    active_size: int
    """Of the last log."""
    log_end: int
    """Behind the last batch; the last base where the last log is empty."""
    magic: int
    """Of the last batch; -1 where the last log is empty."""
    newest_snapshot: int
    """Its offset; -1 if there is none."""
    has_end_snapshot: bool
    """There is one at the log end."""
    epochs: bytes | None
    """What `leader-epoch-checkpoint` holds; None where it is not there."""
    metadata: bytes | None
    """What `partition.metadata` holds."""
    snapshot: bytes | None
    """The newest one, if it lies at or behind the last base."""


def glance(fs: ReadFs, directory: PurePath, user: int | None) -> Glance | None:
    """Return what lies in a partition directory; None where anything is odd, or nobody can look in one call.

    `user`: who must own the files, by default who owns the directory. Raises `ReadFault` where the system refuses, but
    not for files that went away.
    """
    kernel = kernel_of(fs)
    if kernel is None:
        return None
    try:
        found = kernel.glance(directory, -1 if user is None else user)
    except OSError as error:
        path = directory / error.filename if error.filename else directory
        raise read_fault("reading", path, OSError(error.errno, error.strerror)) from error
    return None if found is None else Glance._make(found)
