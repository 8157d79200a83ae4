"""What the service is to do: flags, the service's part of logmend.toml, and places that depend on who starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from cli.settings.settings import DEFAULT_FILE, Settings, load_settings, own_file
from cli.settings.state_dir import SYSTEM_STATE
from cli.settings.targets import absolute
from daemon.service.config import UNIX, DirConfig, ServiceConfig, parse_service
from daemon.status.model import Mode
from storage.base.errors import ConfigInvalid

SYSTEM_RUN: Final = PurePath("/run/logmend")
SOCKET: Final = "logmend.sock"


class Read(NamedTuple):
    """The configuration in force; `path`: of the file it came from, empty if there is none."""

    config: ServiceConfig
    settings: Settings
    path: str


def read_service(flags: Mapping[str, object], environment: Mapping[str, str]) -> Read:
    """Return the service's configuration: `log_dirs`, `own`, `listen`, `log_format`, `log_level` are its own flags.

    Directories that are named replace those of the file. Raises `ConfigInvalid`.
    """
    own = _strings(flags.get("own"))
    named = _strings(flags.get("log_dirs"))
    path, document = own_file(flags, environment)
    config = parse_service(document, path)
    if named or own:
        config = replace(config, log_dirs=_dirs(named, own))
    # Directories that are known need not stand in the broker's file, too.
    known = [str(each.path) for each in config.log_dirs]
    settings = load_settings({**flags, "log_dirs": known}, environment)
    if not config.log_dirs:
        config = replace(config, log_dirs=_dirs(settings.log_dirs, ()))
    if listen := _strings(flags.get("listen")):
        config = replace(config, http=replace(config.http, listen=_places(listen)))
    for name, value in (("format", flags.get("log_format")), ("level", flags.get("log_level"))):
        if isinstance(value, str):
            config = replace(config, log=replace(config.log, **{name: value}))
    scrub = replace(
        config.scrub,
        index_interval_bytes=settings.index_interval_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        flags=_origins(path, flags),
    )
    return Read(replace(config, scrub=scrub, guard=replace(config.guard, scrub=scrub)), settings, path)


def _origins(path: str, flags: Mapping[str, object]) -> tuple[str, ...]:
    """Return the words by which a command of the operator reads the same files as the service."""
    words = ["--config", str(absolute(path))] if path and path != str(DEFAULT_FILE) else []
    if properties := flags.get("server_properties"):
        words += ["--server-properties", str(absolute(str(properties)))]
    return tuple(words)


def _places(named: tuple[str, ...]) -> tuple[str, ...]:
    """Return where to listen: a port comes beside the Unix socket, without which `status` and `scrub` find nobody."""
    if named == ("none",):
        return ()
    has_socket = any(place == UNIX or place.startswith("unix:") for place in named)
    return named if has_socket else (UNIX, *named)


def _strings(raw: object) -> tuple[str, ...]:
    return tuple(str(each) for each in raw) if isinstance(raw, Sequence) and not isinstance(raw, str) else ()


def _dirs(guarded: Sequence[str], owned: Sequence[str]) -> tuple[DirConfig, ...]:
    found = [DirConfig(absolute(name)) for name in guarded]
    found += [DirConfig(absolute(name), Mode.OWN) for name in owned]
    if len({each.path for each in found}) < len(found):
        raise ConfigInvalid("the same log directory twice")
    return tuple(found)


def run_dir_of(state_dir: PurePath, environment: Mapping[str, str]) -> PurePath:
    """Return where the service puts its socket: the run-time directory that systemd made, else the state directory."""
    named = environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return PurePath(named) if named else state_dir


def socket_of(state_dir: PurePath) -> PurePath | None:
    """Return the socket of the service with this state directory, for other processes; None if there is none."""
    places = [state_dir / SOCKET]
    if state_dir == SYSTEM_STATE:
        places.insert(0, SYSTEM_RUN / SOCKET)
    return next((place for place in places if Path(place).is_socket()), None)


def make_state_dir(state_dir: PurePath) -> None:
    """Make it where it is missing, for its owner alone. Raises `ConfigInvalid`."""
    try:
        Path(state_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigInvalid(f"state directory {state_dir}: cannot be made: {error.strerror}") from error
