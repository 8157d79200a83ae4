"""The command `logmend`: parse, call, and turn whatever happens into an exit status.

Only the chosen command's module is imported: the time that `logmend recover` takes to start is part of a broker's
downtime.
"""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Protocol, cast

from cli.advice import MORE_DESCRIPTORS, next_step
from cli.console import Console, standard_console
from cli.signals import Terminated, handled, nothing
from cli.usage import SHORT_HELP, CommandParser, answered, as_sentence, command_in, did_you_mean
from cli.version import facts, version_line
from storage.base.errors import ConfigInvalid, ExitStatus, LogmendError, printable, worst

COMMANDS: Final = {
    "verify": ("cli.inspect.verify", "read logs and report what is wrong with them; change nothing"),
    "plan": ("cli.recover.plan", "show what recover would do; change nothing"),
    "recover": ("cli.recover.recover", "repair log directories so that a broker can open them"),
    "apply": ("cli.recover.apply", "do exactly what a plan file says, or refuse"),
    "quarantine": ("cli.evidence.quarantine", "list, show, put back or remove what was cut and quarantined"),
    "dump": ("cli.inspect.dump", "print a file of a log directory"),
    "run": ("cli.service.run", "guard the log directories of brokers, run those of your own: the service"),
    "serve": (
        "cli.service.serve",
        "serve log directories to Kafka clients, or show an unrepaired one read-only",
    ),
    "topics": ("cli.engine.topics", "create, list, describe, alter or delete topics"),
    "append": ("cli.engine.append", "append records from standard input to a topic"),
    "read": ("cli.engine.read", "print the records of a topic"),
    "explain": (
        "cli.engine.explain",
        "explain why segments stay, what compaction waits for, which transactions are open",
    ),
    "status": ("cli.service.status", "show the state of the service, its findings and what to do"),
    "scrub": ("cli.service.scrub", "make the service read everything now, pause, or continue"),
    "losses": ("cli.evidence.losses", "list the records that were cut out of logs, and where they are now"),
    "manifest": ("cli.inspect.manifest", "write a manifest of log directories, to compare copies with it"),
    "audit": ("cli.audit.audit", "verify whole clusters on Spark and compare their replicas; change nothing"),
    "config": ("cli.service.config", "show the settings and where each came from"),
}
_GARBAGE_THRESHOLD: Final = 500_000
"""Hardly anything is garbage that only a search finds, and searches took a tenth of a quick look."""
_SERVICES: Final = ("run", "serve")
_GARBAGE_THRESHOLD_OF_A_SERVICE: Final = 20_000
_READING: Final = (
    "verify", "plan", "dump", "read", "explain", "status", "losses", "manifest", "audit", "config",
)  # fmt: skip
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
_REPORT: Final = "please report this, with the line above and what `logmend --version` prints"


class Command(Protocol):
    """What each module of a command offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus: ...


def _command(module: str) -> Command:
    refuse_foreign_daemon()
    return cast("Command", importlib.import_module(module))


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="logmend",
        description="Recovers, verifies and inspects Apache Kafka log directories; keeps what it cuts.",
        epilog="Exit status: 0 clean, 1 findings, 2 usage, 3 held, 4 unknown format, 5 environment, 6 in use, 7 stale "
        "plan, 70 bug, 130 and 143 stopped by a signal.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and what it runs on, and stop")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an unforeseen error")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (module, meaning) in COMMANDS.items():
        command_parser = parsers.add_parser(name, help=meaning, description=as_sentence(meaning), allow_abbrev=False)
        command_parser.add = partial(_add_arguments, module)
    return parser


def _add_arguments(module: str, parser: argparse.ArgumentParser) -> None:
    _command(module).add_arguments(parser)


def refuse_foreign_daemon() -> None:
    """Raise `ConfigInvalid` where python-daemon is installed over our package `daemon`, or hides it.

    Both have the same import name; pip lets either overwrite the other without a word.
    """
    spec = importlib.util.find_spec("daemon")
    if spec is None:
        return
    places = spec.submodule_search_locations or [str(Path(spec.origin or "").parent)]
    if any((Path(place) / "daemon.py").is_file() for place in places):
        raise ConfigInvalid(
            "the package python-daemon is installed beside logmend and shares the import name `daemon` with it; "
            "install logmend into an environment of its own (a venv, or pipx)"
        )


def _dispatch(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    if arguments.version:
        document = facts()
        console.document(document) if arguments.json else console.say(version_line(document))
        return ExitStatus.CLEAN
    if arguments.command in _SERVICES:
        gc.set_threshold(_GARBAGE_THRESHOLD_OF_A_SERVICE)
    return _command(COMMANDS[arguments.command][0]).run(arguments, console, environment)


def status_of(error: BaseException, console: Console) -> ExitStatus:
    """Return the exit status for whatever ended a command, and say on standard error what it was."""
    match error:
        case KeyboardInterrupt():
            console.complain(f"interrupted; {_left(console)}")
            return ExitStatus.INTERRUPTED
        case Terminated():
            console.complain(f"terminated; {_left(console)}")
            return ExitStatus.TERMINATED
        case LogmendError() if error.status is not ExitStatus.BUG:
            console.complain(str(error))
            step = next_step(error)
            if step:
                console.complain(f"next: {step}")
            return error.status
        case OSError() | ImportError() if _lacks_descriptors(error):
            console.complain("no file descriptor is left: Too many open files (EMFILE)")
            console.complain(f"next: {MORE_DESCRIPTORS}")
            return ExitStatus.ENVIRONMENT
        case _:
            return _bug(error, console)


def _left(console: Console) -> str:
    """Return what a command that was stopped has left."""
    if console.only_reads:
        return "nothing was changed"
    return "whatever was begun is as after a crash: run it again"


def _only_reads(arguments: argparse.Namespace) -> bool:
    """Tell whether the command changes no log directory."""
    if arguments.command in ("topics", "quarantine"):
        return arguments.step in ("list", "describe", "show")
    return (
        arguments.command in _READING or getattr(arguments, "dry_run", False) or getattr(arguments, "read_only", False)
    )


def _lacks_descriptors(error: OSError | ImportError) -> bool:
    """Tell whether the process can open nothing more: a module that cannot be opened counts as missing for Python."""
    if isinstance(error, OSError):
        return error.errno in _NO_DESCRIPTORS
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as refusal:
        return refusal.errno in _NO_DESCRIPTORS
    return False


def _bug(error: BaseException, console: Console) -> ExitStatus:
    if console.debug:
        console.show("".join(traceback.format_exception(error)))
    console.complain(f"a fault of logmend itself: {type(error).__name__}: {printable(error)}")
    console.complain(_REPORT if console.debug else f"{_REPORT}; --debug shows the traceback")
    return ExitStatus.BUG


def _run(words: Sequence[str], console: Console, environment: Mapping[str, str]) -> ExitStatus:
    if (name := command_in(words)) and name not in (*COMMANDS, "help", "version"):
        raise ConfigInvalid(f"there is no command {printable(name)}{did_you_mean(name, COMMANDS)}; see logmend --help")
    arguments = _parser().parse_args(answered(words, COMMANDS))
    if not arguments.command and not arguments.version:
        console.show(SHORT_HELP)
        return ExitStatus.USAGE
    console.json, console.jsonl = arguments.json, getattr(arguments, "jsonl", False)
    console.only_reads = _only_reads(arguments)
    return _dispatch(arguments, console, environment)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; never raises, but for `SystemExit` from `--help` and wrong usage."""
    words = sys.argv[1:] if argv is None else argv
    console = standard_console(os.environ, debug="--debug" in words)
    try:
        with handled(stop=nothing, tell=nothing):
            status = _run(words, console, os.environ)
    except SystemExit:  # from argparse
        raise
    except BaseException as error:  # noqa: BLE001 (the one place where whatever happens becomes a status)
        status = status_of(error, console)
    ended = console.finish()
    return (status if ended is ExitStatus.CLEAN else worst((status, ended))).value


def run() -> NoReturn:
    """Run the command as a process: end it with its status, at once.

    All that was written is closed or flushed by then; an orderly shutdown of the interpreter costs 10 ms.
    """
    gc.freeze()  # modules never become garbage
    gc.set_threshold(_GARBAGE_THRESHOLD)
    try:
        status = main()
    except SystemExit as ended:  # from argparse
        status = ended.code if isinstance(ended.code, int) else ExitStatus.CLEAN.value
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (AttributeError, OSError, ValueError):  # closed, by us or by the parent process
        status = status or ExitStatus.ENVIRONMENT.value
    os._exit(status)


if __name__ == "__main__":
    run()
