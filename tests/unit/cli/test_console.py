"""What the command writes as JSON: ASCII, without a character that a terminal acts upon."""

from __future__ import annotations

import io
import json
import re

from support.calling import call

from cli.console import Console, coloured, fitted, standard_console

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


def test_lines_fit_the_terminal_and_keep_their_words_and_colours() -> None:
    line = "  " + coloured("damage", "damage") + "  orders-0  one two three four five six seven"
    shown = fitted(line, 30).split("\n")
    assert [len(re.sub("\x1b\\[[0-9;]*m", "", part)) <= 30 for part in shown] == [True] * len(shown)
    assert " ".join("\n".join(shown).split()) == " ".join(line.split())
    assert shown[1].startswith("      ")
    assert fitted("a" * 50, 30) == "a" * 50
    command = "next: logmend recover --depth full --heal-from /replica /data"
    assert fitted(command, 30) == command


def test_a_pipe_gets_whole_lines() -> None:
    assert call("verify", "--help").stdout
    assert standard_console({}, debug=False).width == 0
