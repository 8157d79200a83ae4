"""`logmend verify`: what is wrong with log directories, partition directories or single files. Changes nothing."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

from cli.console import Console
from cli.recover.work import Work, find_targets, jobs_each, look_at_all, reporting, tell, with_flags
from cli.settings.arguments import (
    add_comparison,
    add_files,
    add_output,
    add_work,
    flags_of,
    options_of,
    require_paths,
    settings_of,
)
from cli.settings.targets import TargetKind, with_metadata_dir
from cli.version import version
from recovery.report.documents import document, outcome_document
from recovery.report.text import verify_text
from storage.base.errors import ExitStatus, worst
from storage.disk.fs import OsFs, ReadOnlyFs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verify`."""
    add_work(parser)
    add_comparison(parser)
    add_files(parser)
    add_output(parser, events=True)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Look, print every finding, and return the worst status."""
    if arguments.manifest:
        from cli.inspect.manifest import verify_manifest  # noqa: PLC0415 (signatures, and processes that check them)

        return verify_manifest(arguments, console, environment)
    settings = settings_of(arguments, environment)
    fs = ReadOnlyFs(OsFs())
    # The time only serves a note about timestamps in the future. A plan must not depend on it, a look may.
    options = options_of(settings, now_ms=time.time_ns() // 1_000_000)
    targets, outcomes = find_targets(fs, require_paths(settings), settings.topics)
    options = with_metadata_dir(fs, targets, options)
    directories = [target for target in targets if target.kind is not TargetKind.FILE]
    with reporting(console, settings) as reporter:
        outcomes = [
            *look_at_all(Work(fs, reporter, jobs_each(settings, len(targets))), directories, options),
            *outcomes,
        ]
    files = [target.path for target in targets if target.kind is TargetKind.FILE]
    if files:
        from cli.inspect.verify_file import verify_file  # noqa: PLC0415 (with the dump of every format: 20 ms)

        outcomes += [verify_file(fs, path, options) for path in files]
    flags = flags_of(arguments, options)
    outcomes = [with_flags(outcome, flags) for outcome in outcomes]
    status = tell(console, outcomes, lambda outcome: verify_text(outcome, console.style))
    if console.json:
        parts = [outcome_document(outcome) for outcome in outcomes]
        console.document(document("verify", version(), worst(o.status for o in outcomes), results=parts))
    return status
