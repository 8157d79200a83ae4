"""`logmend dump FILE`: what is in a file, one line an item. Changes nothing, and opens nothing but that file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from cli.console import Console
from cli.inspect.dump_files import Wish, dump_file
from cli.settings.arguments import add_output
from cli.settings.targets import absolute
from recovery.report.command_line import command
from storage.base.errors import ConfigInvalid, ExitStatus, printable, worst
from storage.disk.fs import FileKind, OsFs, ReadOnlyFs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dump`."""
    parser.add_argument("files", nargs="*", metavar="FILE", help="a segment file, a snapshot, a checkpoint, a marker")
    parser.add_argument(
        "--files",
        dest="listed",
        metavar="FILE,...",
        action="append",
        default=[],
        help="files as kafka-dump-log takes them",
    )
    parser.add_argument("--records", "--deep-iteration", action="store_true", help="show the records inside batches")
    parser.add_argument("--data", "--print-data-log", action="store_true", help="show their keys and values as well")
    add_output(parser)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:  # noqa: ARG001
    """Print every item of every file; 1 if something in them is damaged."""
    wish = Wish(records=arguments.records or arguments.data, data=arguments.data)
    names = [*arguments.files, *(name for names in arguments.listed for name in names.split(",") if name)]
    if not names:
        raise ConfigInvalid("no file: name one, or several with --files FILE,FILE")
    return worst([_dump(name, console, wish) for name in names])


def _dump(name: str, console: Console, wish: Wish) -> ExitStatus:
    fs, path = ReadOnlyFs(OsFs()), absolute(name)
    if fs.stat(path).kind is FileKind.DIRECTORY:
        raise ConfigInvalid(f"{printable(path)} is a directory; for a verdict on it: {command('verify', path)}")
    status = ExitStatus.CLEAN
    for item in dump_file(fs, path, wish):
        status = worst((status, item.status))
        console.line(item.as_json()) if console.json else console.say(item.as_text())
        if console.is_gone:
            break
    return status
