"""The batches of logs as columns: which files there are to read, and what is in them, without an object a batch.

No Spark in it; `audit.spark.datasource` hands this on. A column is filled from the scanner's rows in bulk; only where a
log is damaged does a batch become an object for a moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.base.errors import CorruptData, EnvironmentFault, FileVanished, printable
from storage.base.names import FileRole, FileState, parse_directory_name, parse_file_name
from storage.base.rows import COLUMNS, BatchRows, Stop
from storage.base.units import Offset
from storage.batch.batch import HEADER_V2, BatchHeader
from storage.codec.compression import Codec
from storage.disk.fs import FileKind, ReadFile, ReadFs
from storage.index.indexes import IndexKind, look_up_offset, used_length
from storage.reading.log_reader import LogReader
from storage.reading.log_walk import Batch, Fault, walk

CHUNK_BYTES: Final = 16 << 20
"""Bytes of a log whose rows are held at once, at most."""
CAREFUL_BYTES: Final = 1 << 20
"""Bytes behind a fault that are walked batch by batch before the scanner takes over again."""
_INDEX_LIMIT: Final = 64 << 20
_LARGEST_OFFSET: Final = (1 << 63) - 1
_BASE_TIMESTAMP: Final = 27
"""Where the base timestamp stands in a header of magic 2; the scanner's rows do not have it."""
_ROWS_AT_ONCE: Final = 8192

SCHEMA: Final = pa.schema(
    [
        ("log_dir", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("segment", pa.int64()),
        ("position", pa.int64()),
        ("size_bytes", pa.int64()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("record_count", pa.int32()),
        ("magic", pa.int32()),
        ("codec", pa.string()),
        ("leader_epoch", pa.int32()),
        ("base_timestamp_ms", pa.int64()),
        ("max_timestamp_ms", pa.int64()),
        ("timestamp_type", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
        ("transactional", pa.bool_()),
        ("control", pa.bool_()),
        ("marker", pa.string()),
        ("crc", pa.int64()),
        ("crc_valid", pa.bool_()),
        ("fault", pa.string()),
    ]
)
"""One row a batch, or a stretch of bytes that is none; what a batch does not have, and what is not known, is null."""

_CODECS: Final = pa.array([Codec(n).name.lower() if n in list(Codec) else f"unknown({n})" for n in range(8)])
_TIMES: Final = pa.array(["create", "log_append"])
_MARKERS: Final = pa.array(["abort", "commit"])

Ints = npt.NDArray[np.int64]


class LogFile(NamedTuple):
    """One `.log` to read; `size` in bytes as it was listed, `segment` its base offset."""

    log_dir: str
    topic: str
    partition: int
    segment: int
    path: PurePath
    size: int


@dataclass(frozen=True, slots=True)
class Range:
    """Batches with a last offset of `first` or more and a base offset up to `last` are wanted."""

    first: int = -(1 << 63)
    last: int = _LARGEST_OFFSET

    def meets(self, other: Range) -> Range:
        """Return what is in both."""
        return Range(max(self.first, other.first), min(self.last, other.last))


EVERYTHING: Final = Range()
Wants = Callable[[str, int], bool]
"""Tells whether a topic and partition are asked for."""


def list_logs(fs: ReadFs, path: PurePath, wants: Wants = lambda _topic, _partition: True) -> Iterator[LogFile]:
    """Yield the live `.log` files of a log directory, of one partition directory, or the one that `path` names.

    In the order of names, and of offsets within a partition. Left out are directories of partitions that wait for their
    deletion, move in or are strays, and what vanishes meanwhile. Raises `EnvironmentFault` if `path` cannot be listed.
    """
    if fs.stat(path).kind is FileKind.FILE:
        yield from (file for file in _partition_logs(fs, path.parent, wants) if file.path == path)
        return
    yield from _partition_logs(fs, path, wants)
    for name, stat in fs.entries(path).items():
        if stat.kind is FileKind.DIRECTORY:
            with contextlib.suppress(FileVanished):
                yield from _partition_logs(fs, path / name, wants)


def _partition_logs(fs: ReadFs, directory: PurePath, wants: Wants) -> list[LogFile]:
    try:
        named = parse_directory_name(directory.name)
    except CorruptData:
        return []
    topic, partition = named.partition
    if named.state is not None or not wants(printable(topic), partition):
        return []
    logs = []
    for name, stat in fs.entries(directory).items():
        file = parse_file_name(name)
        if (
            file is None
            or file.role is not FileRole.LOG
            or file.state is not FileState.LIVE
            or file.base_offset is None
        ):
            continue
        if stat.kind is FileKind.FILE:
            place = directory / name
            logs.append(LogFile(str(directory.parent), topic, partition, file.base_offset, place, stat.size))
    return sorted(logs, key=lambda log: log.segment)


def within(logs: Iterable[LogFile], bounds: Range) -> Iterator[LogFile]:
    """Yield those of listed files, in their order, that may hold batches that are `wanted`.

    By their names: a segment ends where the next one of its directory begins.
    """
    before: LogFile | None = None
    for log in logs:
        if before is not None:
            same = before.path.parent == log.path.parent
            if before.segment <= bounds.last and not (same and log.segment <= bounds.first):
                yield before
        before = log
    if before is not None and before.segment <= bounds.last:
        yield before


def cut(logs: Iterable[LogFile], task_bytes: int) -> list[tuple[LogFile, ...]]:
    """Return the files in groups of about `task_bytes`, in their order; a file, at most 2 GiB, is never divided."""
    groups: list[tuple[LogFile, ...]] = []
    group: list[LogFile] = []
    size = 0
    for log in logs:
        if group and size + log.size > task_bytes:
            groups.append(tuple(group))
            group, size = [], 0
        group.append(log)
        size += log.size
    return [*groups, tuple(group)] if group else groups


def read_logs(
    fs: ReadFs, logs: Sequence[LogFile], bounds: Range = EVERYTHING, *, checksums: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of all files as columns of `SCHEMA`, in the order of the files and of their bytes.

    Without `checksums` only headers are read into rows, and `crc_valid` is null. A file that cannot be read to its end
    yields what was read and then one row that says why; nothing is raised for what disks do.
    """
    reader = LogReader()
    for log in logs:
        pieces = _LogBatches(fs, log, bounds, reader, checksums=checksums)
        try:
            yield from pieces.read()
        except EnvironmentFault as fault:
            yield from pieces.waiting(0)
            yield _fault_rows(log, [(pieces.position, None, None, None, printable(fault))])


class _LogBatches:
    """Reads one file: in bulk as far as the chain of batches is sound, batch by batch for a while behind a fault."""

    def __init__(self, fs: ReadFs, log: LogFile, wanted: Range, reader: LogReader, *, checksums: bool) -> None:
        self._fs, self._log, self._wanted, self._reader = fs, log, wanted, reader
        self._checksums = checksums
        self.position = 0
        self._next_offset = 0
        self._found: list[Ints] = []

    def read(self) -> Iterator[pa.RecordBatch]:
        with self._fs.open_read(self._log.path) as file:
            self.position = self._first_position(file)
            while self.position < self._log.size and self._next_offset <= self._wanted.last:
                is_broken = yield from self._in_bulk(file)
                if is_broken:
                    yield from self._carefully(file)
        yield from self.waiting(0)

    def _in_bulk(self, file: ReadFile) -> Generator[pa.RecordBatch, None, bool]:
        """Yield the sound batches from the position on; return whether the chain ends before the file does."""

        def on_rows(rows: BatchRows, count: int, window: memoryview, origin: int) -> None:
            if not len(window):
                window, origin = _header_of(file, rows.position[0]), rows.position[0]
            self._found.append(_copied(rows, count, window, origin))
            self.position = rows.position[count - 1] + rows.size[count - 1]
            self._next_offset = rows.last_offset[count - 1] + 1

        path, size = self._log.path, self._log.size
        walk = self._reader.begin(
            file, path, size, self._next_offset, on_rows, start=self.position, checksums=self._checksums
        )
        while self._next_offset <= self._wanted.last:
            scan = walk.advance(CHUNK_BYTES)
            yield from self.waiting(_ROWS_AT_ONCE if scan is None else 0)
            if scan is not None:
                return scan.stop is not Stop.END
        return False

    def waiting(self, least: int) -> Iterator[pa.RecordBatch]:
        """Yield what was found and not yet handed on, in pieces worth their while; nothing if below `least` rows."""
        waiting = sum(numbers.shape[1] for numbers in self._found)
        if waiting and waiting >= least:
            numbers = np.concatenate(self._found, axis=1)
            self._found = []
            for first in range(0, waiting, _ROWS_AT_ONCE):
                yield _columns(self._log, numbers[:, first : first + _ROWS_AT_ONCE], checksums=self._checksums)

    def _carefully(self, file: ReadFile) -> Iterator[pa.RecordBatch]:
        """Yield what lies at and behind a fault, up to the end of a batch some way behind it."""
        rows: list[_Row] = []
        until, reason = self.position + CAREFUL_BYTES, None
        for item in walk(file, self._log.size, self.position, self._next_offset):
            if isinstance(item, Fault):
                if _is_of_a_batch(item):
                    reason = item.reason
                    continue
                rows.append((item.position, item.size, None, False, item.reason))
                self.position = item.position + (item.size or self._log.size)
            else:
                rows.append(_row(item, reason, checksums=self._checksums))
                reason = None
                self.position = item.position + item.header.size
                if item.is_sound:
                    self._next_offset = max(self._next_offset, item.header.last_offset + 1)
            if self.position >= until:
                break
        yield _fault_rows(self._log, rows)

    def _first_position(self, file: ReadFile) -> int:
        """Return where the first batch that is wanted may begin, by the index if that is to be trusted."""
        log, first = self._log, self._wanted.first
        if first <= log.segment:
            return 0
        try:
            with self._fs.open_read(log.path.with_suffix(FileRole.INDEX.value)) as index:
                size = min(self._fs.stat(log.path.with_suffix(FileRole.INDEX.value)).size, _INDEX_LIMIT)
                data = memoryview(bytearray(size))
                data = data[: index.read_into(0, data)]
        except EnvironmentFault:
            return 0
        data = data[: used_length(data, IndexKind.OFFSET, log.size)]
        entry = look_up_offset(data, Offset(log.segment), Offset(min(first, _LARGEST_OFFSET)))
        there = next(walk(file, log.size, entry.position), None)
        if isinstance(there, Batch) and there.is_sound and there.header.base_offset <= entry.offset:
            return entry.position
        return 0


_Row = tuple[int, int | None, BatchHeader | None, bool | None, str | None]
"""Position, size, header if it is a batch, whether the checksum holds, and what is wrong."""


def _is_of_a_batch(fault: Fault) -> bool:
    return fault.reason.startswith("offsets do not follow")


def _row(batch: Batch, reason: str | None, *, checksums: bool) -> _Row:
    if reason is None and not batch.checksum_holds and checksums:
        reason = "the checksum does not hold"
    elif reason is None and batch.header.magic > 2:
        reason = f"magic {batch.header.magic}: of a newer broker"
    return batch.position, batch.header.size, batch.header, batch.checksum_holds if checksums else None, reason


def _header_of(file: ReadFile, position: int) -> memoryview:
    data = memoryview(bytearray(HEADER_V2.size))
    return data[: file.read_into(position, data)]


def _copied(rows: BatchRows, count: int, window: memoryview, origin: int) -> Ints:
    """Return the scanner's rows, which it will use again, and the base timestamps as one more column."""
    numbers = np.empty((len(COLUMNS) + 1, count), np.int64)
    numbers[:-1] = np.frombuffer(rows.block, np.int64).reshape(len(COLUMNS), rows.capacity)[:, :count]
    numbers[-1] = _base_timestamps(window, numbers[0] - origin)
    return numbers


def _columns(log: LogFile, numbers: Ints, *, checksums: bool) -> pa.RecordBatch:
    """Return sound batches as a piece of the table."""
    count = numbers.shape[1]
    column = dict(zip(COLUMNS, numbers, strict=False)).__getitem__
    magic, attributes, control = column("magic"), column("attributes"), column("control")
    is_old = magic < 2
    base_timestamp = np.where(is_old, column("max_timestamp"), numbers[-1])
    columns = {
        **_constants(log, count),
        "position": pa.array(column("position")),
        "size_bytes": pa.array(column("size")),
        "base_offset": pa.array(column("base_offset")),
        "last_offset": pa.array(column("last_offset")),
        "record_count": _known(column("record_count")),
        "magic": pa.array(magic),
        "codec": _CODECS.take(pa.array(attributes & 7)),
        "leader_epoch": _known(column("leader_epoch")),
        "base_timestamp_ms": _known(base_timestamp),
        "max_timestamp_ms": _known(column("max_timestamp")),
        "timestamp_type": _TIMES.take(pa.array(attributes >> 3 & 1, mask=magic == 0)),
        "producer_id": _known(column("producer_id")),
        "producer_epoch": _known(column("producer_epoch")),
        "base_sequence": _known(column("base_sequence")),
        "transactional": pa.array((attributes & 0x10 != 0) & ~is_old),
        "control": pa.array((attributes & 0x20 != 0) & ~is_old),
        "marker": _MARKERS.take(pa.array(np.clip(control >> 32, 0, 1), mask=control < 0)),
        "crc": pa.array(column("crc")),
        "crc_valid": pa.array(np.full(count, fill_value=True), mask=np.full(count, not checksums)),
        "fault": pa.nulls(count, pa.string()),
    }
    return _record_batch(columns)


def _record_batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    arrays = [columns[each.name].cast(each.type) for each in SCHEMA]
    made: pa.RecordBatch = pa.record_batch(arrays, schema=SCHEMA)
    return made


def _constants(log: LogFile, count: int) -> dict[str, pa.Array]:
    values = {"log_dir": log.log_dir, "topic": log.topic}
    texts = {name: pa.array([printable(value)], pa.string()) for name, value in values.items()}
    numbers = {"partition": log.partition, "segment": log.segment}
    return {
        **{name: pa.repeat(array[0], count) for name, array in texts.items()},
        **{name: pa.repeat(pa.scalar(value, pa.int64()), count) for name, value in numbers.items()},
    }


def _known(values: Ints) -> pa.Array:
    """Return the values with null for -1, by which a header says that it has none."""
    return pa.array(values, mask=values == -1)


def _base_timestamps(window: memoryview, places: Ints) -> Ints:
    """Return the base timestamps of the batches at `places` of the window, as if all were of magic 2."""
    data = np.frombuffer(window, dtype=np.uint8)
    at = np.minimum(places[:, None] + np.arange(_BASE_TIMESTAMP, _BASE_TIMESTAMP + 8), len(data) - 1)
    found: Ints = data[at].view(">i8")[:, 0].astype(np.int64)
    return found


def _fault_rows(log: LogFile, rows: Sequence[_Row]) -> pa.RecordBatch:
    """Return rows made one by one, as a piece of the table."""
    told = [_told(row) for row in rows]
    columns = {
        name: pa.array([row.get(name) for row in told], kind)
        for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)
    }
    return _record_batch(columns | _constants(log, len(rows)))


def _told(row: _Row) -> dict[str, Any]:
    position, size, header, crc_valid, fault = row
    values: dict[str, Any] = {"position": position, "size_bytes": size, "crc_valid": crc_valid, "fault": fault}
    if header is None:
        return values
    kept = {"record_count", "leader_epoch", "producer_id", "producer_epoch", "base_sequence"}
    numbers = {name: getattr(header, name) for name in kept}
    numbers |= {"base_timestamp_ms": header.base_timestamp, "max_timestamp_ms": header.max_timestamp}
    values |= {name: None if value == -1 else value for name, value in numbers.items()}
    is_long = abs(header.last_offset) <= _LARGEST_OFFSET
    return values | {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset if is_long else None,
        "magic": header.magic,
        "codec": _CODECS[header.codec].as_py(),
        "timestamp_type": None if header.magic == 0 else _TIMES[header.timestamp_type.value].as_py(),
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }
