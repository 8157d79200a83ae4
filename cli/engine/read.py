"""`logmend read`: the records of a topic, one JSON object a line, from the files as they are. Changes nothing."""

from __future__ import annotations

import argparse
import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cli.console import Console
from cli.engine.append import whole
from cli.engine.engine import add_log_dirs, paths_of
from cli.engine.record_text import Encoding, to_document
from cli.settings.arguments import settings_of
from engine.client.topic_list import find_partitions
from engine.client.view import LogView
from engine.settings.refusals import UnknownTopic
from storage.base.errors import ConfigInvalid, CorruptData, ExitStatus, FileVanished, printable
from storage.base.refusals import OffsetOutOfRange
from storage.base.units import INT64_MAX, Offset, TopicPartition
from storage.batch.batch import ensure_sound, split_batches
from storage.batch.record import Record, records_of
from storage.disk.fs import OsFs, ReadOnlyFs
from storage.log.log_types import Isolation
from storage.reading.committed import CommittedFilter

_READ_BYTES: Final = 1 << 20
_POLL_SECONDS: Final = 0.2
ISOLATIONS: Final = {"read_uncommitted": Isolation.LOG_END, "read_committed": Isolation.COMMITTED}
_OFFSET: Final = re.compile(r"[0-9]{1,19}")


class From(NamedTuple):
    """Where to begin: an offset, or the first record of at least a timestamp in ms, or an end of the log."""

    offset: int | None = None
    timestamp: int | None = None
    is_latest: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `read`."""
    parser.add_argument("--topic", metavar="T", required=True, help="what to read")
    parser.add_argument("--partition", type=whole, metavar="N", help="only this partition")
    parser.add_argument(
        "--from", dest="start", type=parse_from, default=From(), metavar="WHERE",
        help="an offset, a time (ISO 8601, UTC unless it says otherwise, or @ and milliseconds), earliest or latest "
        "(earliest)",
    )  # fmt: skip
    parser.add_argument("--count", type=whole, metavar="N", help="at most so many records")
    parser.add_argument(
        "--isolation", choices=ISOLATIONS, default="read_uncommitted",
        help="with read_committed no records of transactions that are open or were aborted (read_uncommitted)",
    )  # fmt: skip
    parser.add_argument("--follow", action="store_true", help="wait for more at the end")
    parser.add_argument(
        "--encoding", choices=[e.value for e in Encoding], default="text", help="how bytes are written (text)"
    )
    add_log_dirs(parser)


def parse_from(text: str) -> From:
    """Return what `--from` says."""
    if text in ("earliest", "latest"):
        return From(is_latest=text == "latest")
    if _OFFSET.fullmatch(text) and int(text) <= INT64_MAX:
        return From(offset=int(text))
    if text.startswith("@") and _OFFSET.fullmatch(text[1:]) and int(text[1:]) <= INT64_MAX:
        return From(timestamp=int(text[1:]))
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        wanted = "an offset, @ and milliseconds, a time like 2024-05-01T12:00:00, earliest or latest"
        raise argparse.ArgumentTypeError(f"{printable(text)} is not {wanted}") from None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return From(timestamp=max(round(when.timestamp() * 1000), 0))


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Print the records."""
    fs = ReadOnlyFs(OsFs())
    found = find_partitions(fs, paths_of(fs, settings_of(arguments, environment)), arguments.topic)
    if not found:
        raise UnknownTopic(arguments.topic)
    with contextlib.ExitStack() as views:
        logs = [
            (TopicPartition(arguments.topic, n), views.enter_context(contextlib.closing(LogView(fs, found[n]))))
            for n in _numbers(arguments, sorted(found))
        ]
        _Reading(arguments, console, logs).run()
        damaged = [log.damage for _, log in logs if log.damage]
    for damage in damaged:
        console.complain(f"{damage}; what lies behind it was not read")
    return ExitStatus.FINDINGS if damaged else ExitStatus.CLEAN


def _numbers(arguments: argparse.Namespace, numbers: Sequence[int]) -> Sequence[int]:
    wanted = arguments.partition
    if wanted is None:
        if arguments.start.offset is not None and len(numbers) > 1:
            raise ConfigInvalid("--from OFFSET means one partition: say which with --partition")
        return numbers
    if wanted not in numbers:
        raise UnknownTopic(arguments.topic, wanted)
    return [wanted]


class _Reading:
    """One run over some partitions: each to its end, then, with `--follow`, round and round."""

    def __init__(
        self, arguments: argparse.Namespace, console: Console, logs: Sequence[tuple[TopicPartition, LogView]]
    ) -> None:
        self._console, self._logs = console, logs
        self._encoding = Encoding(arguments.encoding)
        self._start: From = arguments.start
        self._left: int | None = arguments.count
        self._follows: bool = arguments.follow
        self._isolation = ISOLATIONS[arguments.isolation]
        self._write = console.event if self._follows else console.line

    def run(self) -> None:
        next_offsets = {name: first_offset(log, self._start, self._isolation) for name, log in self._logs}
        while True:
            for name, log in self._logs:
                next_offsets[name] = self._print(name, log, next_offsets[name])
            if not self._follows or self._is_done:
                return
            time.sleep(_POLL_SECONDS)
            for _, log in self._logs:
                with contextlib.suppress(FileVanished):  # retention or a roll: the next look finds it
                    log.refresh()

    @property
    def _is_done(self) -> bool:
        return self._left == 0 or self._console.is_gone

    def _print(self, name: TopicPartition, log: LogView, start: Offset) -> Offset:
        """Print the records from `start` to the end of a log; return where it goes on."""
        end = readable_end(log, self._isolation)
        next_offset = max(start, log.log_start)
        for record in records_between(log, next_offset, end, self._isolation):
            if self._is_done:
                return next_offset
            self._write(to_document(name, record, self._encoding))
            next_offset = Offset(record.offset + 1)
            self._left = None if self._left is None else self._left - 1
        return max(end, next_offset)


def readable_end(log: LogView, isolation: Isolation) -> Offset:
    """Return the offset that reading ends below."""
    return log.last_stable_offset if isolation is Isolation.COMMITTED else log.log_end


def first_offset(log: LogView, start: From, isolation: Isolation = Isolation.LOG_END) -> Offset:
    """Return where reading begins; for a time that all records are older than, the end of the log.

    Raises `OffsetOutOfRange` for an offset that is no more, or not yet, in the log.
    """
    if start.is_latest:
        return readable_end(log, isolation)
    if start.offset is not None:
        if not log.log_start <= start.offset <= log.log_end:
            raise OffsetOutOfRange(
                f"offset {start.offset}; the log has those from {log.log_start} up to below {log.log_end}"
            )
        return Offset(start.offset)
    if start.timestamp is None:
        return log.log_start
    found = log.offset_for_time(start.timestamp)
    return log.log_end if found is None else found.offset


def records_between(
    log: LogView, start: Offset, end: Offset, isolation: Isolation = Isolation.LOG_END
) -> Iterator[Record]:
    """Yield the records from `start` up to below `end`, without those of control batches.

    With an `isolation` of committed records those of aborted transactions are left out too.

    Raises `BatchCorrupt` for a batch that is not sound, `OffsetOutOfRange`, `UnsupportedFormat` and `ReadFault`.
    """
    position = start
    while position < end:
        fetched = log.read(position, _READ_BYTES, isolation=isolation)
        data, size = fetched.load(), 0
        committed = CommittedFilter(fetched.aborted or ())
        for batch in _whole(data):
            header = ensure_sound(batch)
            size += len(batch)
            if committed.takes(header, batch):
                yield from (record for record in records_of(batch) if start <= record.offset < end)
            position = Offset(header.last_offset + 1)
        if not data:
            return  # nothing is left of these offsets
        if not size:
            next(split_batches(data))  # raises what is wrong


def _whole(data: memoryview) -> Iterator[memoryview]:
    """Yield the batches; what is left behind the last whole one comes with the next read."""
    with contextlib.suppress(CorruptData):
        yield from split_batches(data)
