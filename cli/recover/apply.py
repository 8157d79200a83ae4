"""`logmend apply PLAN`: do exactly what a plan file says, or refuse."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial

from cli.console import Console
from cli.recover.carry_out import Order, carry_out_all
from cli.recover.flags import add_hand_over, add_keeping, keeping_of
from cli.recover.plan_file import ensure_same, read_plan_file
from cli.recover.recover import tell_done
from cli.recover.work import with_flags
from cli.settings.arguments import add_files, add_output, flags_of, settings_of
from cli.settings.targets import Target, TargetKind
from storage.base.errors import ExitStatus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `apply`."""
    parser.add_argument("plan", metavar="PLAN", help="what `plan --out` wrote")
    parser.add_argument("-j", dest="jobs", metavar="N", help="threads that read one log directory")
    add_keeping(parser)
    add_hand_over(parser)
    add_files(parser)
    add_output(parser, events=True)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Plan again with the options in the file, and carry out what comes out if it is the very plan of the file.

    Each log directory of the file stands for itself: one that is stale is refused whole, and the others are done.
    """
    wanted = read_plan_file(arguments.plan)
    settings = settings_of(arguments, environment)
    keeping = keeping_of(arguments, settings, [one.log_dir for one in wanted])
    keep = arguments.keep_points
    orders = [
        Order(Target(TargetKind.LOG_DIR, one.log_dir), one.options, partial(ensure_same, one), keep) for one in wanted
    ]
    outcomes = carry_out_all(console, settings, orders, keeping)
    flags = {one.log_dir: flags_of(arguments, one.options) for one in wanted}
    return tell_done(console, "apply", [with_flags(outcome, flags[outcome.path]) for outcome in outcomes])
