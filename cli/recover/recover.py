"""`logmend recover`: plan, carry out, and look again. `--dry-run` prints the very plan and changes nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from cli.console import Console
from cli.heal.heal import add_healing, replicas_of
from cli.recover.carry_out import Order, carry_out_all
from cli.recover.flags import add_hand_over, add_keeping, add_tails, keeping_of, tail_bytes
from cli.recover.guard_marks import add_marks, marks_of
from cli.recover.plan import refuse_files, refuse_partitions, show_plan
from cli.recover.work import find_targets, tell, with_flags
from cli.settings.arguments import (
    add_files,
    add_marker,
    add_output,
    add_roll,
    add_work,
    flags_of,
    recovery_options,
    require_paths,
    settings_of,
)
from cli.settings.targets import with_metadata_dir
from cli.version import version
from recovery.report.documents import document, outcome_document
from recovery.report.outcome import Outcome
from recovery.report.text import recover_text
from storage.base.errors import ExitStatus, worst
from storage.disk.fs import OsFs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `recover`."""
    add_work(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing; 1 if it is not empty")
    parser.add_argument("--accept-loss", action="store_true", help="cut damage in flushed data too, keeping a copy")
    add_keeping(parser)
    add_healing(parser)
    add_hand_over(parser)
    add_tails(parser)
    add_roll(parser)
    add_marker(parser)
    add_marks(parser)
    add_files(parser)
    add_output(parser, events=True)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Recover every log directory and return the worst status."""
    settings = settings_of(arguments, environment)
    options = recovery_options(arguments, settings)
    flags = flags_of(arguments, options)
    find_marks = marks_of(arguments, options, environment)
    if arguments.dry_run:
        return show_plan(
            console, settings, options, flags, replicas=replicas_of(arguments, ()), find_marks=find_marks
        )  # fmt: skip
    fs = OsFs()
    targets, failed = find_targets(fs, require_paths(settings), settings.topics)
    refuse_files(targets, "recover")
    refuse_partitions(targets, "recover")
    options = with_metadata_dir(fs, targets, options)
    keeping = keeping_of(arguments, settings, [target.path for target in targets])
    options = options._replace(frees_deleted=keeping.directory is not None or keeping.discard)
    replicas = replicas_of(arguments, [target.path for target in targets])
    tail, days, keep = tail_bytes(arguments), arguments.keep_days, arguments.keep_points
    orders = [
        Order(target, options, keep_points=keep, replicas=replicas, keep_tail=tail, keep_days=days)
        for target in targets
    ]
    outcomes = carry_out_all(console, settings, orders, keeping, find_marks)
    return tell_done(console, "recover", [with_flags(outcome, flags) for outcome in (*outcomes, *failed)])


def tell_done(console: Console, name: str, outcomes: Sequence[Outcome]) -> ExitStatus:
    """Write what was done in each log directory and return the worst status."""
    status = tell(console, outcomes, lambda outcome: recover_text(outcome, console.style))
    if console.json:
        parts = [outcome_document(outcome, with_plan=True) for outcome in outcomes]
        console.document(document(name, version(), worst(o.status for o in outcomes), results=parts))
    return status
