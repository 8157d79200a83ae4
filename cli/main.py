"""The command `logmend`: parse, call, and turn whatever happens into an exit status.

Only the chosen command's module is imported: the time that `logmend recover` takes to start is part of a broker's
downtime.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol, cast

from cli.console import Console, standard_console, terminal_columns
from cli.signals import Terminated, handled, nothing
from storage.base.errors import ExitStatus, LogmendError, printable

COMMANDS: Final = {
    "verify": ("cli.inspect.verify", "read logs and say what is wrong with them; change nothing"),
    "plan": ("cli.recover.plan", "show what recover would do; change nothing"),
    "recover": ("cli.recover.recover", "bring log directories into a state that a broker may open"),
    "apply": ("cli.recover.apply", "do exactly what a plan file says, or refuse"),
    "quarantine": ("cli.evidence.quarantine", "list, show, put back or let go of what was cut and set aside"),
    "dump": ("cli.inspect.dump", "print what is in a file of a log directory"),
    "run": ("cli.service.run", "guard the log directories of brokers, run those of your own: the service"),
    "serve": (
        "cli.service.serve",
        "serve log directories to Kafka clients, or show one read-only that nobody has repaired",
    ),
    "topics": ("cli.engine.topics", "make, list, describe, alter or delete topics"),
    "append": ("cli.engine.append", "append records from standard input to a topic"),
    "read": ("cli.engine.read", "print the records of a topic"),
    "explain": ("cli.engine.explain", "say why segments stay, what compaction waits for, which transactions are open"),
    "status": ("cli.service.status", "show how the service is, what it found and what to do"),
    "scrub": ("cli.service.scrub", "have the service read everything now, pause, or go on"),
    "losses": ("cli.evidence.losses", "say which records were cut out of logs, and where they are now"),
    "manifest": ("cli.inspect.manifest", "write down what is in log directories, to hold copies against it"),
    "audit": ("cli.audit.audit", "verify whole clusters on Spark and compare their replicas; change nothing"),
    "config": ("cli.service.config", "show the settings and where each came from"),
}
_FLAGS: Final = ("--version", "--json", "--debug")
_GARBAGE_THRESHOLD: Final = 500_000
"""Hardly anything is garbage that only a search finds, and searches took a tenth of a quick look."""
_SERVICES: Final = ("run", "serve")
_GARBAGE_THRESHOLD_OF_A_SERVICE: Final = 20_000
_REPORT: Final = "please report this, with the line above and what `logmend --version` prints"


class Command(Protocol):
    """What each module of a command offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus: ...


class _CommandParser(argparse.ArgumentParser):
    """The parser of one command, whose arguments are added when it is chosen."""

    module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.module:
            _command(self.module).add_arguments(self)
            self.module = ""
        return super().parse_known_args(args, namespace)


def _command(module: str) -> Command:
    return cast("Command", importlib.import_module(module))


class _Formatter(argparse.HelpFormatter):
    """As wide as the terminal. Argparse makes one for each argument, and by itself asks with all of `shutil`: 3 ms."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal_columns() - 2)


def _parser(commands: Iterable[str]) -> argparse.ArgumentParser:
    parser = _CommandParser(
        prog="logmend",
        description="Recovers, verifies and inspects Apache Kafka log directories; keeps what it cuts.",
        epilog="Exit status: 0 clean, 1 findings, 2 usage, 3 held, 4 unknown format, 5 environment, 6 in use, 7 stale "
        "plan, 70 bug, 130 and 143 stopped by a signal.",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and what it runs on, and stop")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an unforeseen error")
    # The name is said again because to find it out, argparse asks how wide the terminal is: 3 ms.
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", prog="logmend")
    for name in commands:
        module, meaning = COMMANDS[name]
        told = meaning.capitalize() + "."
        added = parsers.add_parser(name, help=meaning, description=told, allow_abbrev=False, formatter_class=_Formatter)
        added.module = module
    return parser


def _in_question(words: Sequence[str]) -> Iterable[str]:
    """Return the one command that is named, or all where it takes all of them to answer: each parser costs 0.6 ms."""
    for word in words:
        if word in COMMANDS:
            return (word,)
        if word not in _FLAGS:
            break
    return COMMANDS


def _dispatch(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    if arguments.version:
        from cli.version import facts, version_line  # noqa: PLC0415

        told = facts()
        console.document(told) if arguments.json else console.say(version_line(told))
        return ExitStatus.CLEAN
    if arguments.command in _SERVICES:
        gc.set_threshold(_GARBAGE_THRESHOLD_OF_A_SERVICE)
    return _command(COMMANDS[arguments.command][0]).run(arguments, console, environment)


def status_of(error: BaseException, console: Console) -> ExitStatus:
    """Return the exit status for whatever ended a command, and say on standard error what it was."""
    match error:
        case KeyboardInterrupt():
            console.complain("interrupted; whatever was begun is as after a crash: run it again")
            return ExitStatus.INTERRUPTED
        case Terminated():
            console.complain("terminated; whatever was begun is as after a crash: run it again")
            return ExitStatus.TERMINATED
        case LogmendError() if error.status is not ExitStatus.BUG:
            console.complain(str(error))
            from cli.advice import next_step  # noqa: PLC0415

            step = next_step(error)
            if step:
                console.complain(f"next: {step}")
            return error.status
        case _:
            return _bug(error, console)


def _bug(error: BaseException, console: Console) -> ExitStatus:
    if console.debug:
        import traceback  # noqa: PLC0415

        console.show("".join(traceback.format_exception(error)))
    console.complain(f"a fault of logmend itself: {type(error).__name__}: {printable(error)}")
    console.complain(_REPORT if console.debug else f"{_REPORT}; --debug shows the traceback")
    return ExitStatus.BUG


def _guarded(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    try:
        with handled(stop=nothing, tell=nothing):
            status = _dispatch(arguments, console, environment)
    except BaseException as error:  # noqa: BLE001 (the one place where whatever happens becomes a status)
        status = status_of(error, console)
    ended = console.finish()
    if ended is ExitStatus.CLEAN:
        return status
    from recovery.report.outcome import worst  # noqa: PLC0415

    return worst((status, ended))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; never raises, but for `SystemExit` from `--help` and wrong usage."""
    words = sys.argv[1:] if argv is None else argv
    parser = _parser(_in_question(words))
    arguments = parser.parse_args(words)
    if not arguments.command and not arguments.version:
        parser.print_usage(sys.stderr)
        return ExitStatus.USAGE.value
    environment = os.environ
    console = standard_console(
        environment, json=arguments.json, jsonl=getattr(arguments, "jsonl", False), debug=arguments.debug
    )
    return _guarded(arguments, console, environment).value


def run() -> NoReturn:
    """Run the command as a process: end it with its status, at once.

    All that was written is closed or flushed by then; to take apart in good order what was imported costs 10 ms.
    """
    gc.freeze()  # of what is there before it begins nothing will ever be garbage
    gc.set_threshold(_GARBAGE_THRESHOLD)
    try:
        status = main()
    except SystemExit as ended:  # from argparse
        status = ended.code if isinstance(ended.code, int) else ExitStatus.CLEAN.value
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (AttributeError, OSError, ValueError):  # closed, by us or by whoever started us
        status = status or ExitStatus.ENVIRONMENT.value
    os._exit(status)


if __name__ == "__main__":
    run()
