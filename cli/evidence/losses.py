"""`logmend losses`: which records were cut out of logs, and where they are now; `quarantine export` gives them back."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from cli.console import Console
from cli.engine.record_text import Encoding, to_document
from cli.heal.heal import add_sources, sources_of
from cli.settings.arguments import add_files, add_output, places_of, settings_of
from cli.settings.state_dir import state_dir_of
from cli.settings.targets import write_new
from cli.version import version
from recovery.evidence.kept import Kept, find_kept
from recovery.evidence.loss_account import Loss, account, batches_in, is_loss, place_of
from recovery.plan.plan import to_plain
from recovery.plan.words import count, full_size
from recovery.report.documents import document
from recovery.report.rows import rows_text
from storage.base.errors import BatchCorrupt, ConfigInvalid, ExitStatus, UnsupportedFormat, printable
from storage.base.names import parse_directory_name
from storage.batch.record import records_of
from storage.disk.fs import OsFs, ReadFs, ReadOnlyFs

FORMATS: Final = ("json", "segment")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `losses`."""
    parser.add_argument("log_dirs", nargs="*", metavar="PATH", help="log directory, or a quarantine directory")
    parser.add_argument("--quarantine", metavar="DIR", help="where copies were kept with --quarantine")
    parser.add_argument("--state-dir", metavar="DIR", help="of the service, which notices what brokers cut")
    add_sources(parser)
    add_files(parser)
    add_output(parser)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Tell every loss, the oldest first; 1 if there is any."""
    settings = settings_of(arguments, environment)
    places = places_of(settings)
    fs = ReadOnlyFs(OsFs())
    kept, bad = find_kept(fs, places)
    for unreadable in bad:
        console.complain(f"{printable(unreadable.path)}: {printable(unreadable.reason)}")
    losses = [*account(fs, kept, sources_of(arguments, places)), *_noticed(arguments, places, environment)]
    losses.sort(key=lambda loss: loss.when_ms)
    status = ExitStatus.FINDINGS if losses or bad else ExitStatus.CLEAN
    if console.json:
        console.document(document("losses", version(), status, losses=[to_plain(loss) for loss in losses]))
        return status
    for line in rows_text(_row(loss) for loss in losses):
        console.say(line)
    records = sum(loss.records for loss in losses)
    console.say(f"{count(len(losses), 'loss', 'losses')}, {count(records, 'record')} in whole batches")
    return status


def _noticed(arguments: argparse.Namespace, places: list[PurePath], environment: Mapping[str, str]) -> Iterator[Loss]:
    """Yield what the service has noticed: recovery points that went back over data it had verified."""
    from cli.settings.service_settings import read_service  # noqa: PLC0415 (`quarantine` has no use for it)
    from daemon.ledger.truncations import read_truncations  # noqa: PLC0415 (as above)

    try:
        config = read_service({"config": getattr(arguments, "config", None)}, environment).config
        state_dir = state_dir_of(config.state_dir, arguments.state_dir, environment)
    except ConfigInvalid:
        return
    for cut in read_truncations(state_dir, places):
        name = f"{cut.topic}-{cut.partition}"
        yield Loss(
            cut.noticed_ms, "broker", "-", PurePath(cut.log_dir) / name, name, "", "noticed by the service",
            cut.first_offset, cut.last_offset, 0, 0, (), 0, 0, None,
        )  # fmt: skip


def _row(loss: Loss) -> tuple[str, ...]:
    offsets = "offsets unknown" if loss.first_offset is None else f"offsets {loss.first_offset} to "
    offsets += "" if loss.first_offset is None else "?" if loss.last_offset is None else str(loss.last_offset)
    facts = [count(loss.records, "record"), full_size(loss.size)] if loss.size else ["how many records is not known"]
    if loss.torn_bytes:
        facts.append(f"{full_size(loss.torn_bytes)} of it no whole batch")
    if loss.epochs:
        facts.append(f"epoch {', '.join(map(str, loss.epochs))}")
    facts.append(f"kept as {printable(loss.kept.name)}" if loss.kept is not None else "not kept")
    if loss.held_by:
        facts.append(f"still held by {', '.join(map(printable, loss.held_by))}")
    cut = f"cut by {loss.by}" if loss.by == "logmend" else f"truncated by a {loss.by}"
    what = f"{cut}: {printable(loss.reason)}; {', '.join(facts)}"
    return loss.plan_id, moment(loss.when_ms), printable(loss.partition), offsets, what


def moment(milliseconds: int) -> str:
    """Return a time in UTC; the number itself where it lies beyond what a calendar knows."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(milliseconds / 1000))
    return str(milliseconds)


# ---- quarantine export


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add how kept records are given out."""
    parser.add_argument("--format", choices=FORMATS, default="json", help="JSON lines, as `read` prints, or a segment")
    parser.add_argument("--encoding", choices=[e.value for e in Encoding], default="text", help="of keys and values")
    parser.add_argument("--out", metavar="FILE", help="write to a new FILE; a segment needs one")


def export(copies: Sequence[Kept], arguments: argparse.Namespace, console: Console) -> ExitStatus:
    """Give out the records of whole batches in what was cut, in the order in which they were cut.

    As a segment: the whole batches, one after another, as `dump` reads them and a producer's tool can replay them.
    """
    fs = ReadOnlyFs(OsFs())
    if arguments.format == "segment":
        if not arguments.out:
            raise ConfigInvalid("--format segment needs --out FILE")
        write_new(arguments.out, (bytes(batch) for _, batch in _batches(fs, copies)), "the records")
        return ExitStatus.CLEAN
    lines = _lines(fs, copies, Encoding(arguments.encoding), console)
    if arguments.out:
        write_new(arguments.out, (_encoded(line) for line in lines), "the records")
        return ExitStatus.CLEAN
    for line in lines:
        console.line(line)
    return ExitStatus.CLEAN


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _batches(fs: ReadFs, kept: Sequence[Kept]) -> Iterator[tuple[PurePath, memoryview]]:
    for one in kept:
        for item in one.manifest.items:
            place = place_of(one, item)
            if place is None or not is_loss(item):
                continue
            for position, header in batches_in(fs, place, item.size):
                buffer = bytearray(header.size)
                with fs.open_read(place) as file:
                    file.read_into(position, memoryview(buffer))
                yield one.directory, memoryview(buffer)


def _lines(fs: ReadFs, kept: Sequence[Kept], encoding: Encoding, console: Console) -> Iterator[dict[str, Any]]:
    for directory, batch in _batches(fs, kept):
        name = parse_directory_name(directory.name).partition
        try:
            for record in records_of(batch):
                yield to_document(name, record, encoding)
        except (BatchCorrupt, UnsupportedFormat) as error:
            console.complain(f"{printable(directory)}: a batch that was cut cannot be decoded: {error.reason}")
