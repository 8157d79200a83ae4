"""Java properties text, as `java.util.Properties` loads it.

A parser of our own: the packaged one takes longer to import than all the checkpoints of a broker take to read, and
start-up is part of a broker's downtime.
"""

from __future__ import annotations

import re
from typing import Final

from checkpoint.text import quoted
from storage.base.errors import CheckpointCorrupt

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_BLANKS: Final = " \t\f"
# A backslash takes the next character with it, so a separator behind one belongs to the key.
# Possessive: it never gives back what it took, and so remembers nothing of a key of a million characters.
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]++|\\.)*+", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES: Final = {control: name for name, control in _CONTROLS.items()}


def decode_properties(data: bytes) -> dict[str, str]:
    """Return the properties of a file; the last of two equal keys counts.

    The bytes are ISO-8859-1. Raises `CheckpointCorrupt` for a malformed unicode escape, as Java does; there is nothing
    else that could be wrong.
    """
    entries = {}
    for line in _logical_lines(data.decode("iso-8859-1")):
        key = _KEY.match(line)
        assert key is not None, "an empty key matches"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "no separator matches"
        entries[_unescape(key[0])] = _unescape(line[separator.end() :])
    return entries


def _logical_lines(text: str) -> list[str]:
    """Return the lines without comments and blank ones, those that end in a backslash joined with the next."""
    lines: list[str] = []
    parts: list[str] = []
    goes_on = False
    naturals = _LINE_END.split(text)
    if not naturals[-1]:
        naturals.pop()
    for natural in naturals:
        line = natural.lstrip(_BLANKS)
        if not parts and (not line or line[0] in "#!"):
            goes_on = False
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if len(line) > goes_on:  # a backslash alone begins nothing: what follows may still be a comment
            parts.append(line[:-1] if goes_on else line)
        if not goes_on:
            lines.append("".join(parts))
            parts = []
    if goes_on:
        lines.append("".join(parts))
    return lines


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(_escaped, text)
    # Java's characters are units of UTF-16: two escapes may be one character.
    return units if units.isascii() else units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _escaped(found: re.Match[str]) -> str:
    code = found[1]
    if code == "u":
        raise CheckpointCorrupt(f"malformed unicode escape in {quoted(found.string)}")
    return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROLS.get(code, code)


def encode_value(text: str) -> str:
    """Return a value as `java.util.Properties` stores it: one line of ASCII that is read back as `text`."""
    return "".join(_encoded(character, is_first=not at) for at, character in enumerate(text))


def _encoded(character: str, *, is_first: bool) -> str:
    if character in _NAMES:
        return "\\" + _NAMES[character]
    if character in "\\=:#!" or (character == " " and is_first):
        return "\\" + character
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02X}{low:02X}" for high, low in zip(units[::2], units[1::2], strict=True))
