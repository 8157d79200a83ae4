"""`logmend explain PARTITION|SEGMENT`: why a partition is as it is. Locks nothing, changes nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from cli.console import Console
from cli.engine.engine import add_log_dirs, defaults_of, now_ms
from cli.settings.arguments import settings_of
from cli.settings.targets import absolute
from cli.version import version
from engine.client.explaining import Explanation, Hole, SegmentStory, explain, find_holes
from recovery.plan.words import count, full_size
from recovery.report.documents import document
from storage.base.errors import ConfigInvalid, CorruptData, ExitStatus, FileVanished, printable
from storage.base.names import FileRole, parse_directory_name, parse_file_name
from storage.disk.fs import FileKind, OsFs, ReadFs, ReadOnlyFs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `explain`."""
    parser.add_argument(
        "target", metavar="PARTITION|SEGMENT",
        help="directory of a partition, or a file of one of its segments; with --log-dir also a name like orders-0",
    )  # fmt: skip
    parser.add_argument("--holes", action="store_true", help="read every batch and list the holes")
    add_log_dirs(parser)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Explain one partition, or one segment of it."""
    fs = ReadOnlyFs(OsFs())
    directory, base = _find(fs, arguments, environment)
    explanation = explain(fs, directory, defaults_of(arguments), now_ms(), _log_dirs(arguments, environment))
    holes = list(find_holes(fs, directory)) if arguments.holes else None
    if base is not None:
        stories = [s for s in explanation.segments if s.verdict.segment.base_offset == base]
        if not stories:
            raise ConfigInvalid(f"{printable(directory)} has no segment {base}")
        holes = None if holes is None else [hole for hole in holes if hole.base_offset == base]
    else:
        stories = list(explanation.segments)
    report = _document(explanation, stories, holes)
    if console.json:
        console.document({**document("explain", version(), ExitStatus.CLEAN), **report})
    else:
        for line in _lines(explanation, report, console):
            console.say(line)
    return ExitStatus.CLEAN


def _find(fs: ReadFs, arguments: argparse.Namespace, environment: Mapping[str, str]) -> tuple[PurePath, int | None]:
    """Return the directory of the partition, and the base offset of the segment if it is about one."""
    for place in _places(arguments, environment):
        try:
            kind = fs.stat(place).kind
        except FileVanished:
            continue
        if kind is FileKind.DIRECTORY:
            _ensure_partition(place)
            return place, None
        name = parse_file_name(place.name)
        if name is None or name.base_offset is None or name.role is FileRole.METADATA_SNAPSHOT:
            raise ConfigInvalid(f"{printable(place)} is no file of a segment")
        _ensure_partition(place.parent)
        return place.parent, name.base_offset
    raise ConfigInvalid(f"{printable(arguments.target)}: there is no such partition or segment")


def _places(arguments: argparse.Namespace, environment: Mapping[str, str]) -> list[PurePath]:
    named = absolute(arguments.target)
    if "/" in arguments.target:
        return [named]
    settings = settings_of(arguments, environment)
    return [*(absolute(log_dir) / arguments.target for log_dir in settings.log_dirs), named]


def _log_dirs(arguments: argparse.Namespace, environment: Mapping[str, str]) -> list[PurePath]:
    """Return the log directories that were named, none where a broker's file names none: the target tells its own."""
    try:
        return [absolute(log_dir) for log_dir in settings_of(arguments, environment).log_dirs]
    except ConfigInvalid:
        return []


def _ensure_partition(directory: PurePath) -> None:
    try:
        parse_directory_name(directory.name)
    except CorruptData as error:
        raise ConfigInvalid(error.reason) from None


def _document(explanation: Explanation, stories: list[SegmentStory], holes: list[Hole] | None) -> dict[str, Any]:
    config, ends = explanation.config, explanation.ends
    return {
        "partition": str(explanation.partition),
        "directory": str(explanation.directory),
        "settings_known": explanation.is_listed,
        "settings": {
            "cleanup.policy": ",".join(config.cleanup_policy),
            "retention.ms": config.retention_ms,
            "retention.bytes": config.retention_bytes,
        },
        "log_start": ends.log_start,
        "log_end": ends.log_end,
        "high_watermark": explanation.high_watermark,
        "last_stable_offset": explanation.last_stable_offset,
        "recovery_point": explanation.recovery_point,
        "cleaned_up_to": explanation.cleaned_up_to,
        "segments": [_segment(story) for story in stories],
        "epochs": [{"epoch": epoch, "start_offset": start} for epoch, start in explanation.epochs],
        "producers": [entry._asdict() for _, entry in sorted(explanation.producers.entries.items())],
        "open_transactions": [
            {"producer_id": producer_id, "first_offset": first}
            for producer_id, first in sorted(explanation.producers.open_transactions().items())
        ],
        "holes": None if holes is None else [hole._asdict() for hole in holes],
    }


def _segment(story: SegmentStory) -> dict[str, Any]:
    verdict = story.verdict
    return {
        "base_offset": verdict.segment.base_offset,
        "next_base": verdict.segment.next_base,
        "bytes": verdict.segment.size,
        "largest_timestamp": verdict.segment.largest_timestamp,
        "retention": "stays" if verdict.reason is None else f"may go: {verdict.reason.value}",
        "because": [check.text for check in verdict.checks],
        "compaction": story.compaction,
    }


def _lines(explanation: Explanation, report: dict[str, Any], console: Console) -> list[str]:
    def known(value: int | None) -> str:
        return "none" if value is None else str(value)

    title = console.style(printable(explanation.partition), "title")
    lines = [
        f"{title}  offsets {report['log_start']} to below {report['log_end']}, in {printable(explanation.directory)}",
        f"  high watermark {known(explanation.high_watermark)}, last stable offset {explanation.last_stable_offset}, "
        f"recovery point {known(explanation.recovery_point)}, cleaned up to {known(explanation.cleaned_up_to)}",
        "  settings " + ", ".join(f"{name}={value}" for name, value in report["settings"].items()),
    ]
    if not explanation.is_listed:
        lines.append("  its own settings are not known here: these are the defaults (--server-properties)")
    for each in report["segments"]:
        end = "active" if each["next_base"] is None else f"to below {each['next_base']}"
        lines.append(f"  segment {each['base_offset']} ({end}), {full_size(each['bytes'])}: {each['retention']}")
        lines += [f"    {text}" for text in each["because"] or ["no rule of retention is in force"]]
        lines.append(f"    {each['compaction']}")
    lines += [f"  epoch {each['epoch']} from offset {each['start_offset']}" for each in report["epochs"]]
    lines += _producer_lines(report)
    return lines + _hole_lines(report["holes"])


def _producer_lines(report: dict[str, Any]) -> list[str]:
    lines = [f"  {count(len(report['producers']), 'producer')}"] if report["producers"] else []
    lines += [
        f"    {each['producer_id']} epoch {each['producer_epoch']}, last sequence {each['last_sequence']} at offset "
        f"{each['last_offset']}"
        for each in report["producers"]
    ]
    lines += [
        f"  open transaction of producer {each['producer_id']} since offset {each['first_offset']}: "
        "committed readers and compaction stop there"
        for each in report["open_transactions"]
    ]
    return lines


def _hole_lines(holes: list[dict[str, Any]] | None) -> list[str]:
    if holes is None:
        return []
    if not holes:
        return ["  no holes"]
    return [
        f"  hole at offset {each['offset']} (segment {each['base_offset']}, position {each['position']}): "
        f"{each['reason']}; "
        + ("nothing good behind it here" if each["next_offset"] is None else f"next good offset {each['next_offset']}")
        for each in holes
    ]
