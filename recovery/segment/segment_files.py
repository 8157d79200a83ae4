"""The files of one segment, by their names; a path is made on demand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, Self

from storage.disk.fs import FileStat

_LOG: Final = 0
_INDEX: Final = 1
_TIME_INDEX: Final = 2
_TXN_INDEX: Final = 3


class SegmentFiles:
    """The files of one base offset as they were listed; a name may still carry a `.swap` suffix. Not to be changed.

    A clean directory has tens of thousands of them of which nobody ever asks the paths: those are made late.
    """

    __slots__ = (
        "base_offset",
        "directory",
        "index_stat",
        "log_stat",
        "names",
        "paths",
        "time_index_stat",
        "txn_index_stat",
    )

    base_offset: int
    directory: PurePath
    names: Sequence[str]
    """Of log, index, time index and transaction index, in this order, whether they are there or not."""
    paths: list[PurePath | None]
    """Of those that were asked for."""
    log_stat: FileStat
    index_stat: FileStat | None
    time_index_stat: FileStat | None
    txn_index_stat: FileStat | None

    def __init__(  # noqa: PLR0913, PLR0917 (a record)
        self,
        base_offset: int,
        log: PurePath,
        log_stat: FileStat,
        index: PurePath,
        index_stat: FileStat | None,
        time_index: PurePath,
        time_index_stat: FileStat | None,
        txn_index: PurePath,
        txn_index_stat: FileStat | None,
    ) -> None:
        self.base_offset, self.directory, self.log_stat = base_offset, log.parent, log_stat
        self.paths = [log, index, time_index, txn_index]
        self.names = [log.name, index.name, time_index.name, txn_index.name]
        self.index_stat, self.time_index_stat, self.txn_index_stat = index_stat, time_index_stat, txn_index_stat

    @classmethod
    def listed(
        cls, base_offset: int, directory: PurePath, names: Sequence[str], log: FileStat, side: Sequence[FileStat | None]
    ) -> Self:
        """Return the files of `directory` with these four names; `side` are the stats of all but the log."""
        made = cls.__new__(cls)
        made.base_offset, made.directory, made.names, made.log_stat = base_offset, directory, names, log
        made.index_stat, made.time_index_stat, made.txn_index_stat = side
        made.paths = [None, None, None, None]
        return made

    def names_there(self) -> list[str]:
        """Return the names of those that are there."""
        stats = (self.log_stat, self.index_stat, self.time_index_stat, self.txn_index_stat)
        return [name for name, stat in zip(self.names, stats, strict=True) if stat is not None]

    def _path(self, number: int) -> PurePath:
        path = self.paths[number]
        if path is None:
            path = self.paths[number] = self.directory / self.names[number]
        return path

    @property
    def log(self) -> PurePath:
        """The `.log`."""
        return self._path(_LOG)

    @property
    def index(self) -> PurePath:
        """The `.index`."""
        return self._path(_INDEX)

    @property
    def time_index(self) -> PurePath:
        """The `.timeindex`."""
        return self._path(_TIME_INDEX)

    @property
    def txn_index(self) -> PurePath:
        """The `.txnindex`."""
        return self._path(_TXN_INDEX)

    def _facts(self) -> tuple[object, ...]:
        stats = (self.log_stat, self.index_stat, self.time_index_stat, self.txn_index_stat)
        return self.base_offset, self.directory, *self.names, stats

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SegmentFiles) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def __repr__(self) -> str:
        return f"SegmentFiles({self.base_offset}, {str(self.directory)!r}, {self.names[_LOG]!r})"
