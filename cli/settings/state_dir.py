"""Where the service keeps its state: other commands look there without the rest of its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from cli.settings.settings import PREFIX, own_file
from cli.settings.targets import absolute
from storage.base.errors import ConfigInvalid

SYSTEM_STATE: Final = PurePath("/var/lib/logmend")


def named_state_dir(flags: Mapping[str, object], flag: str | None, environment: Mapping[str, str]) -> PurePath:
    """Return the state directory as `state_dir_of` does, with the name that logmend's own file gives it."""
    named = own_file(flags, environment)[1].get("state_dir")
    return state_dir_of(named if isinstance(named, str) else "", flag, environment)


def state_dir_of(named: str, flag: str | None, environment: Mapping[str, str]) -> PurePath:
    """Return the state directory: flag, environment, `named` of the file, what systemd made, else one of the user's.

    Raises `ConfigInvalid` where none is known.
    """
    named = flag or environment.get(PREFIX + "STATE_DIR") or named
    named = named or environment.get("STATE_DIRECTORY", "").split(":")[0]
    if named:
        return absolute(named)
    if os.geteuid() == 0 or os.access(SYSTEM_STATE, os.W_OK):
        return SYSTEM_STATE
    base = environment.get("XDG_STATE_HOME") or (
        f"{environment['HOME']}/.local/state" if environment.get("HOME") else ""
    )
    if not base.startswith("/"):
        raise ConfigInvalid("no place for the state directory: give --state-dir DIR, or set state_dir")
    return PurePath(base) / "logmend"
