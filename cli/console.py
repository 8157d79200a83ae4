"""Where a command's words go: results to standard output, progress and errors to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TextIO

from recovery.report import Style, plain

_COLOURS: Final = {
    "note": "2",
    "repairable": "33",
    "damage": "31",
    "blocking": "1;31",
    "good": "32",
    "title": "1",
}


def coloured(text: str, role: str) -> str:
    """Return `text` in the colour of its role, for a terminal."""
    code = _COLOURS.get(role)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def style_for(stream: TextIO, environment: Mapping[str, str]) -> Style:
    """Return colours for a terminal that wants them (NO_COLOR is not set, TERM is not dumb), else none."""
    wanted = not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"
    return coloured if wanted and stream.isatty() else plain


@dataclass(frozen=True, slots=True)
class Console:
    """The streams of one run of the command; `json` and `jsonl` say how results are wanted."""

    out: TextIO
    err: TextIO
    style: Style
    json: bool = False
    jsonl: bool = False

    @property
    def is_text(self) -> bool:
        """Results are for people."""
        return not (self.json or self.jsonl)

    def say(self, text: str) -> None:
        """Write a result for people."""
        if text:
            self.out.write(text + "\n")

    def document(self, told: Mapping[str, Any]) -> None:
        """Write the one JSON document of this run."""
        self.out.write(json.dumps(told, indent=2) + "\n")

    def event(self, told: Mapping[str, Any]) -> None:
        """Write one line of JSON, at once."""
        self.out.write(json.dumps(told, separators=(",", ":")) + "\n")
        self.out.flush()

    def complain(self, text: str) -> None:
        """Write an error or a warning."""
        self.out.flush()
        self.err.write(f"logmend: {text}\n")
        self.err.flush()


def standard_console(environment: Mapping[str, str], *, as_json: bool, as_events: bool) -> Console:
    """Return the console on the process's own streams; what their encoding does not know is escaped, never an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    return Console(sys.stdout, sys.stderr, style_for(sys.stdout, environment), as_json, as_events)
