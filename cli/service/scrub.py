"""`logmend scrub now|pause|resume [--log-dir DIR]`: orders for the scrubber of the running service."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping

from cli.console import Console
from cli.service.service_client import add_service, ask, find_service
from cli.settings.arguments import add_output
from cli.settings.targets import absolute, ensure_logs
from cli.version import version
from recovery.report.documents import document
from storage.base.errors import EnvironmentFault, ExitStatus, printable
from storage.disk.fs import OsFs, ReadOnlyFs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `scrub`."""
    parser.add_argument(
        "action", choices=("now", "pause", "resume"), help="read everything now; stop reading; go on as promised"
    )
    parser.add_argument("--log-dir", metavar="DIR", help="only this log directory")
    add_service(parser)
    add_output(parser)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Hand the order over and print the answer."""
    body = {"action": arguments.action}
    if arguments.log_dir:
        log_dir = absolute(arguments.log_dir)
        with contextlib.suppress(EnvironmentFault):  # the service may read what this user may not
            ensure_logs(ReadOnlyFs(OsFs()), log_dir)
        body["log_dir"] = str(log_dir)
    place, _ = find_service(arguments, environment)
    told = ask(place, "POST", "/v1/scrub", body)
    if console.json:
        console.document({**document("scrub", version(), ExitStatus.CLEAN), "answer": told["answer"]})
    else:
        for line in str(told["answer"]).splitlines():  # one for each log directory
            console.say(printable(line))
    return ExitStatus.CLEAN
