"""What the command says of its own use: sentences of help, usage errors with a suggestion, the short help."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from storage.base.errors import printable

SHORT_HELP: Final = """\
logmend recovers, verifies and guards Apache Kafka log directories, and keeps what it cuts.

  A broker crashed, or does not start:
    logmend plan DIR                shows what a recovery would do; changes nothing
    logmend recover DIR             repairs DIR so that the broker can open it
  Is what is on the disk sound?
    logmend verify --depth full DIR
  Keep watch beside a running broker:
    logmend run --log-dir DIR       the service; `logmend status` shows what it has found

`logmend --help` lists all commands, `logmend COMMAND --help` explains one.
"""


class CommandParser(argparse.ArgumentParser):
    """The parser of one command; `add` adds its arguments once it is chosen. Errors show its usage."""

    add: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the arguments; what none of the commands below this one has taken is an error of this one."""
        if self.add is not None:
            add, self.add = self.add, None
            add(self)
        arguments, extras = super().parse_known_args(args, namespace)
        if extras and self._subparsers is None:
            flags = [flag for action in self._actions for flag in action.option_strings]
            self.error(f"unrecognized arguments: {printable(' '.join(extras))}{did_you_mean(extras[0], flags)}")
        return arguments, extras


def as_sentence(meaning: str) -> str:
    """Return a meaning as a sentence; names in it keep their capitals."""
    return f"{meaning[0].upper()}{meaning[1:]}."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the known word that is closest to `word`, as the end of a message; empty if none is close."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def answered(words: Sequence[str], commands: Iterable[str]) -> list[str]:
    """Return the words with `help` and `version` as the flags that they mean."""
    name = command_in(words)
    if name in commands or name not in ("help", "version"):
        return list(words)
    rest = list(words)
    rest.remove(name)
    return [*rest, "--help" if name == "help" else "--version"]


def command_in(words: Sequence[str]) -> str:
    """Return the word that stands where the command does, empty if there is none."""
    return next((word for word in words if not word.startswith("-")), "")
