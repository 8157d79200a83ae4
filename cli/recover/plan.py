"""`logmend plan`: what recover would do, for people or as the JSON that `apply` takes. Changes nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence

from cli.console import Console
from cli.heal.heal import add_healing, preview, replicas_of
from cli.recover.guard_marks import FindMarks, add_marks, marks_of, no_marks
from cli.recover.work import Work, find_targets, jobs_each, look_at_all, reporting, tell, with_flags
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
from cli.settings.settings import Settings
from cli.settings.targets import Target, TargetKind, absolute, with_metadata_dir, write_new
from cli.version import version
from recovery.heal.replica import NO_REPLICAS, Replicas
from recovery.plan.plan import PlanOptions, to_plain
from recovery.report.command_line import Flags, command
from recovery.report.documents import plan_document
from recovery.report.outcome import Outcome
from recovery.report.text import plan_text
from storage.base.errors import ConfigInvalid, CorruptData, ExitStatus, printable
from storage.base.names import parse_directory_name
from storage.disk.fs import OsFs, ReadOnlyFs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `plan`."""
    add_work(parser)
    parser.add_argument("--accept-loss", action="store_true", help="cut damage in flushed data too, keeping a copy")
    add_roll(parser)
    add_marker(parser)
    add_healing(parser)
    add_marks(parser)
    parser.add_argument("--out", metavar="FILE", help="write the plan to FILE, which must not exist yet, for apply")
    add_files(parser)
    add_output(parser, events=True)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Plan and print; return the worst status of the log directories."""
    settings = settings_of(arguments, environment)
    options = recovery_options(arguments, settings)
    flags = flags_of(arguments, options)
    replicas, find_marks = replicas_of(arguments, ()), marks_of(arguments, options, environment)
    return show_plan(console, settings, options, flags, out=arguments.out, replicas=replicas, find_marks=find_marks)


def show_plan(
    console: Console,
    settings: Settings,
    options: PlanOptions,
    flags: Flags,
    *,
    out: str | None = None,
    replicas: Replicas = NO_REPLICAS,
    find_marks: FindMarks = no_marks,
) -> ExitStatus:
    """Print the plan of every log directory, as `recover --dry-run` does too; nothing is locked, nothing changed."""
    fs = ReadOnlyFs(OsFs())
    targets, outcomes = find_targets(fs, require_paths(settings), settings.topics)
    refuse_files(targets, "plan")
    if out is not None:
        refuse_partitions(targets, "plan --out")
        _refuse_inside(targets, out)
    options = with_metadata_dir(fs, targets, options)
    with reporting(console, settings) as reporter:
        work = Work(fs, reporter, jobs_each(settings, len(targets)), find_marks=find_marks)
        outcomes = [*look_at_all(work, targets, options), *outcomes]
    outcomes = [with_flags(outcome, flags) for outcome in outcomes]
    if replicas.sources:
        outcomes = [
            o._replace(healing=preview(fs, o.plan, replicas)) if o.plan is not None else o for o in outcomes
        ]  # fmt: skip
    status = tell(console, outcomes, lambda outcome: plan_text(outcome, console.style))
    planned = [outcome for outcome in outcomes if outcome.plan is not None]
    if console.json:
        console.document(_document(planned) | ({"healing": _healing(planned)} if replicas.sources else {}))
    if out is not None:
        write_plan(out, planned)
        console.complain(f"plan written; next: {command('apply', out)}")
    return status


def _refuse_inside(targets: Sequence[Target], out: str) -> None:
    """Raise `ConfigInvalid` for a plan file inside a log directory: nothing there may change by looking."""
    for target in targets:
        if absolute(out).is_relative_to(target.path):
            raise ConfigInvalid(f"--out {printable(out)} lies in the log directory {printable(target.path)}")


def _document(planned: Sequence[Outcome]) -> dict[str, object]:
    return plan_document([outcome.plan for outcome in planned if outcome.plan is not None], version())


def _healing(planned: Sequence[Outcome]) -> object:
    return [to_plain(note) for outcome in planned for note in outcome.healing]


def write_plan(out: str, planned: Sequence[Outcome]) -> None:
    """Write the plan to a new file; an operator may be about to apply an old one."""
    write_new(out, [json.dumps(_document(planned), indent=1).encode("ascii"), b"\n"], "the plan")


def refuse_files(targets: Sequence[Target], what: str) -> None:
    """Raise `ConfigInvalid` for a target that is a single file."""
    for target in targets:
        if target.kind is TargetKind.FILE:
            raise ConfigInvalid(
                f"{printable(target.path)} is a file; {what} works on log directories. "
                f"To check a file: {command('verify', target.path)}"
            )


def refuse_partitions(targets: Sequence[Target], what: str) -> None:
    """Raise `ConfigInvalid` for a target that is the directory of one partition."""
    for target in targets:
        if target.kind is TargetKind.PARTITION:
            raise ConfigInvalid(
                f"{printable(target.path)} is the directory of one partition; {what} works on a whole log directory, "
                f"with --topic on some topics alone: {command('recover', *_topic_of(target), target.log_dir)}"
            )


def _topic_of(target: Target) -> tuple[str, ...]:
    try:
        return ("--topic", parse_directory_name(target.path.name).partition.topic)
    except CorruptData:
        return ()
