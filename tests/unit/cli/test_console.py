"""What the command writes as JSON: ASCII, without a character that a terminal acts upon."""

from __future__ import annotations

import io
import json

from cli.console import Console

NAMES = {
    "del": "\x7f",
    "escape": "\x1b]0;",
    "c1": "\x80\x85\x9b\x9f",
    "bidi": "\u061c\u200e\u200f\u202a\u202e\u2066\u2069",
    "lines": "\u2028\u2029\n\r",
    "surrogate": "\udc80",
    "key \x7f\x9b\u202e": "",
}


def test_json_holds_no_character_that_a_terminal_acts_upon_and_means_the_same() -> None:
    out = io.StringIO()
    console = Console(out, io.StringIO())
    for write in (console.document, console.line, console.event):
        out.seek(0)
        out.truncate()
        write(NAMES)
        text = out.getvalue()
        assert [char for char in text if not " " <= char <= "~" and char != "\n"] == []
        assert json.loads(text) == NAMES
