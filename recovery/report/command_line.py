"""Commands to try next, as a shell reads them."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from storage.base.errors import printable


class Flags(NamedTuple):
    """Words of a command line that the next command needs as well.

    `looking` is for every command on log directories, `planning` for those that plan, `recovering` for `recover` alone.
    """

    looking: tuple[str, ...] = ()
    planning: tuple[str, ...] = ()
    recovering: tuple[str, ...] = ()

    def of(self, name: str) -> tuple[str, ...]:
        """Return those that the command of this name takes."""
        more = {"plan": self.planning, "recover": (*self.planning, *self.recovering)}
        return (*self.looking, *more.get(name, ()))


def command(*words: object) -> str:
    """Return a command line that a shell would read as these words."""
    return " ".join(shlex.quote(printable(word)) for word in ("logmend", *words))
