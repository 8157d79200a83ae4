"""`logmend append`: records from standard input to a topic, in batches, each on the partition of its key."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cli.console import Console
from cli.engine.engine import Engine, add_log_dirs, now_ms, opened
from cli.engine.record_text import FORMATS, Encoding
from cli.signals import Terminated
from cli.version import version
from engine.client.batching import BATCH_BYTES, LINGER_MS, Batcher, Keyless, NewRecord, RoundRobin, Sticky, numbered
from engine.manager.manager import LogManager
from recovery.plan.words import count
from recovery.report.documents import document
from storage.base.errors import ConfigInvalid, ExitStatus, LogmendError, printable
from storage.base.units import INT32_MAX, TopicPartition
from storage.batch.record import encode_batch
from storage.codec.compression import Codec

_PIECE: Final = 1 << 16
_LINE_LIMIT: Final = 256 << 20
_LOOK_UP_MS: Final = 1_000
"""Longest wait for input between two runs of the schedules."""
CODECS: Final = {codec.name.lower(): codec for codec in Codec}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `append`."""
    parser.add_argument("--topic", metavar="T", required=True, help="where to")
    parser.add_argument("--partition", type=whole, metavar="N", help="all records to this partition")
    parser.add_argument(
        "--format", choices=FORMATS, default="json", help="one JSON object a line, or plain lines (json)"
    )
    parser.add_argument(
        "--encoding", choices=[e.value for e in Encoding], default="text", help="how bytes stand in the input (text)"
    )
    parser.add_argument("--codec", choices=CODECS, default="none", help="compression of the batches (none)")
    parser.add_argument("--batch-bytes", type=whole, default=BATCH_BYTES, metavar="N", help="size of a batch (16384)")
    parser.add_argument("--linger-ms", type=whole, default=LINGER_MS, metavar="N", help="longest wait of a batch (5)")
    parser.add_argument("--round-robin", action="store_true", help="records without a key in turn, not batch by batch")
    add_log_dirs(parser, writes=True)


def whole(text: str) -> int:
    """Return a whole number from 0 on."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= INT32_MAX):
        raise argparse.ArgumentTypeError(f"{printable(text)} is no whole number from 0 to {INT32_MAX}")
    return int(text)


@dataclass(slots=True)
class _Sent:
    """What went to one partition."""

    first_offset: int
    last_offset: int
    records: int = 0


@dataclass(slots=True)
class _Sender:
    """Makes batches of records and appends them."""

    manager: LogManager
    topic: str
    codec: int
    done: dict[int, _Sent] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def send(self, partition: int, records: list[NewRecord]) -> None:
        batch = encode_batch(numbered(records), codec=self.codec)
        try:
            appended = self.manager.append(TopicPartition(self.topic, partition), batch, now_ms())
        except LogmendError:
            first, last = records[0].source, records[-1].source
            self.refused.append(f"line {first}" if first == last else f"lines {first} to {last}")
            raise
        assert appended is not None, "a whole batch was sent"
        sent = self.done.setdefault(partition, _Sent(appended.first_offset, appended.last_offset))
        sent.last_offset = appended.last_offset
        sent.records += len(records)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Append what comes until the input ends; a line or a batch that is refused ends it as well."""
    with opened(arguments, console, environment) as engine:
        sender = _Sender(engine.manager, arguments.topic, CODECS[arguments.codec])
        status = ExitStatus.CLEAN
        try:
            _append_all(arguments, engine, sender, console)
        except LogmendError as error:
            status = error.status
            raise
        finally:
            _tell(console, sender, status)
    return status


def _append_all(arguments: argparse.Namespace, engine: Engine, sender: _Sender, console: Console) -> None:
    manager = engine.manager
    partitions = manager.topics.get(arguments.topic).partitions
    if arguments.partition is not None:
        manager.partition(TopicPartition(arguments.topic, arguments.partition))
    parse, encoding = FORMATS[arguments.format], Encoding(arguments.encoding)
    keyless: Keyless = RoundRobin(partitions) if arguments.round_robin else Sticky(partitions, random.randrange)
    batcher = Batcher(
        partitions, keyless, sender.send, batch_bytes=arguments.batch_bytes, linger_ms=arguments.linger_ms
    )
    descriptor = sys.stdin.fileno()

    def is_ready() -> bool:
        with engine.deferral.interruptible():
            return bool(select.select([descriptor], [], [], _wait_ms(batcher) / 1000)[0])

    try:
        for number, line in lines(descriptor, is_ready):
            if line is None:
                batcher.send_due(now_ms())
            elif line:
                record = parse(line, number, encoding, now_ms())
                if arguments.partition is not None:
                    record = record._replace(partition=arguments.partition)
                batcher.add(record, now_ms())
            for fault in manager.run_due(now_ms()) if line is None or number % _LOOK_UP_MS == 0 else ():
                console.complain(str(fault))
    except (LogmendError, KeyboardInterrupt, Terminated):
        _send_rest(batcher)
        raise
    batcher.flush()


def _send_rest(batcher: Batcher) -> None:
    """Send the batches that are left, each of which may be refused: their lines were good, and have been read."""
    while batcher.wait_ms(now_ms()) is not None:
        with contextlib.suppress(LogmendError):
            batcher.flush()


def _wait_ms(batcher: Batcher) -> int:
    wait = batcher.wait_ms(now_ms())
    return _LOOK_UP_MS if wait is None else min(wait, _LOOK_UP_MS)


def lines(descriptor: int, is_ready: Callable[[], bool]) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines of a stream with their numbers, without their ends; None where it is not ready after a while.

    Raises `ConfigInvalid` for a line of more than 256 MiB.
    """
    number, parts, size = 0, list[bytes](), 0
    while True:
        if not is_ready():
            yield number, None
            continue
        piece = os.read(descriptor, _PIECE)
        if not piece:
            break
        *whole_lines, rest = piece.split(b"\n")
        for line in whole_lines:
            number += 1
            yield number, b"".join([*parts, line]).removesuffix(b"\r")
            parts, size = [], 0
        if rest:
            parts.append(rest)
            size += len(rest)
        if size > _LINE_LIMIT:
            raise ConfigInvalid(f"line {number + 1}: longer than {_LINE_LIMIT} bytes")
    if parts:
        yield number + 1, b"".join(parts).removesuffix(b"\r")


def _tell(console: Console, sender: _Sender, status: ExitStatus) -> None:
    rows: list[dict[str, Any]] = [
        {
            "partition": partition,
            "records": sent.records,
            "first_offset": sent.first_offset,
            "last_offset": sent.last_offset,
        }
        for partition, sent in sorted(sender.done.items())
    ]
    total = sum(sent.records for sent in sender.done.values())
    if console.json:
        parts = {"topic": sender.topic, "records": total, "partitions": rows, "refused": sender.refused}
        console.document({**document("append", version(), status), **parts})
        return
    console.say(f"appended {count(total, 'record')} to {printable(sender.topic)}")
    for each in rows:
        console.say(
            f"  {each['partition']}  {count(each['records'], 'record')}, "
            f"offsets {each['first_offset']} to {each['last_offset']}"
        )
    for refused in sender.refused:
        console.say(f"  not appended: {refused}")
