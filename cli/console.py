"""Where a command's words go: results to standard output, progress and errors to standard error."""

from __future__ import annotations

import contextlib
import json as json_text
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

from storage.base.errors import ExitStatus

if TYPE_CHECKING:
    from recovery.report.rows import Style

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_WORDS: Final = re.compile(r"(\s*)(\S+)")
_HANGING: Final = 4
_COLOURS: Final = {
    "note": "2",
    "repairable": "33",
    "damage": "31",
    "blocking": "1;31",
    "good": "32",
    "title": "1",
}


def plain(text: str, role: str) -> str:  # noqa: ARG001 (it is a `Style`)
    """Return `text` as it is: the style without colours."""
    return text


def coloured(text: str, role: str) -> str:
    """Return `text` in the colour of its role, for a terminal."""
    code = _COLOURS.get(role)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def style_for(stream: TextIO, environment: Mapping[str, str]) -> Style:
    """Return colours for a terminal that wants them (NO_COLOR is not set, TERM is not dumb), else none."""
    wanted = not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"
    return coloured if wanted and stream.isatty() else plain


def fitted(text: str, width: int) -> str:
    """Return lines that fit the width, broken at spaces and indented; a next command stays whole, to be copied."""
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int) -> Iterator[str]:
    if len(_COLOUR.sub("", line)) <= width or line.startswith("next: "):
        yield line
        return
    indent = " " * (len(line) - len(line.lstrip()) + _HANGING)
    part, used = "", 0
    for gap, word in _WORDS.findall(line):
        size = len(_COLOUR.sub("", word))
        if part.strip() and used + len(gap) + size > width:
            yield part
            part, used = indent + word, len(indent) + size
        else:
            part, used = part + gap + word, used + len(gap) + size
    yield part


class Console:
    """The streams of one run of the command; `json` and `jsonl` say how results are wanted, `debug` how much of a bug.

    A stream that cannot be written to never interrupts the work: a recovery must not stop half way because the
    reader of its output has gone. `finish` says at the end whether results were lost.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        style: Style = plain,
        *,
        json: bool = False,
        jsonl: bool = False,
        debug: bool = False,
    ) -> None:
        self.out, self.err, self.style = out, err, style
        self.json, self.jsonl, self.debug = json, jsonl, debug
        self.width = 0
        """Columns of the terminal that shows the results, 0 where none does: lines stay as they are then."""
        self.only_reads = False
        """The command changes no log directory."""
        self._failure: OSError | None = None

    @property
    def is_text(self) -> bool:
        """Results are for people."""
        return not (self.json or self.jsonl)

    @property
    def is_gone(self) -> bool:
        """The reader of the results has gone; a command that only prints may stop."""
        return self._failure is not None

    def say(self, text: str) -> None:
        """Write a result for people."""
        if text:
            self._write((fitted(text, self.width) if self.width else text) + "\n")

    def say_at_once(self, text: str) -> None:
        """Write what a terminal acts upon, or nothing, and flush what was written."""
        self._write(text, flush=True)

    def raw(self, text: str) -> None:
        """Write text that was made elsewhere, as it is."""
        self._write(text)

    def document(self, told: Mapping[str, Any]) -> None:
        """Write the one JSON document of this run."""
        self._write(json_text.dumps(told, indent=2) + "\n")

    def line(self, told: Mapping[str, Any]) -> None:
        """Write one line of JSON."""
        self._write(json_text.dumps(told, separators=(",", ":")) + "\n")

    def event(self, told: Mapping[str, Any]) -> None:
        """Write one line of JSON, at once."""
        self.line(told)
        self._write("", flush=True)

    def complain(self, text: str) -> None:
        """Write an error or a warning, behind the results so far."""
        self._write("", flush=True)
        self.show(f"logmend: {text}\n")

    def show(self, text: str) -> None:
        """Write to standard error as it stands; where that is closed there is nobody to tell."""
        with contextlib.suppress(OSError, ValueError):
            self.err.write(text)
            self.err.flush()

    def finish(self) -> ExitStatus:
        """Flush the results; `ENVIRONMENT` if some could not be written, for any reason but a reader that went away."""
        self._write("", flush=True)
        if self._failure is None or isinstance(self._failure, BrokenPipeError):
            return ExitStatus.CLEAN
        self.complain(f"standard output: {self._failure.strerror}; results were lost")
        return ExitStatus.ENVIRONMENT

    def _write(self, text: str, *, flush: bool = False) -> None:
        if self._failure is not None:
            return
        try:
            self.out.write(text)
            if flush:
                self.out.flush()
        except OSError as error:
            self._failure = error
            self._let_go()

    def _let_go(self) -> None:
        """Point standard output at nothing, lest Python flush what is left of it once more when it ends."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.out.fileno())
            os.close(nowhere)


def standard_console(environment: Mapping[str, str], *, debug: bool) -> Console:
    """Return the console on the process's own streams; what their encoding does not know is escaped, never an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    console = Console(sys.stdout, sys.stderr, style_for(sys.stdout, environment), debug=debug)
    with contextlib.suppress(OSError, ValueError):  # it is no terminal
        console.width = os.get_terminal_size(sys.stdout.fileno()).columns
    return console
