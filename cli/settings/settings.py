"""What the command works on and how, each value with where it came from.

The first place that has a value wins: flag, environment (`LOGMEND_...`), logmend's own TOML file, the broker's
`server.properties`, default. `log_dirs` given as arguments replace those of every file; the files then give the rest.
What may lose data (`--accept-loss`, `--discard`) is a flag and nothing else, so that no forgotten file decides it.
"""

from __future__ import annotations

import difflib
import os
import pwd
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from checkpoint.properties import decode_properties
from storage.base.errors import CheckpointCorrupt, ConfigInvalid, printable
from storage.base.units import INT32_MAX

DEFAULT_FILE: Final = PurePath("/etc/logmend/logmend.toml")
PREFIX: Final = "LOGMEND_"
DEPTHS: Final = ("quick", "full", "records")
PROGRESS: Final = ("auto", "plain", "none")
_MAX_JOBS: Final = 256

Parser = Callable[[object], Any]
Properties = Mapping[str, str]


def _integer(low: int, high: int) -> Parser:
    def parse(raw: object) -> int:
        if isinstance(raw, str) and raw.strip().isascii() and raw.strip().isdecimal() and len(raw) < 20:
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return raw

    return parse


def _choice(*allowed: str) -> Parser:
    def parse(raw: object) -> str:
        if not isinstance(raw, str) or raw not in allowed:
            raise ValueError("one of " + ", ".join(allowed))
        return raw

    return parse


def _names(raw: object) -> tuple[str, ...]:
    # Spaces around commas are for the eye; those in an argument or a list of names belong to the name.
    parts = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a list of names")
    return tuple(part for part in parts if part.strip())


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise ValueError("a name")
    return raw


def _user(raw: object) -> int:
    """Return the number of a user given by number or name."""
    if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < 1 << 32:
        return raw
    if isinstance(raw, str) and raw.isascii() and raw.isdecimal() and len(raw) <= 10:
        return int(raw)
    try:
        return pwd.getpwnam(_text(raw)).pw_uid
    except KeyError:
        raise ValueError("a user of this machine, by name or number") from None


class Key(NamedTuple):
    """One setting: its name in TOML, the broker's names for it, how a value is read, and what it means."""

    name: str
    parse: Parser
    meaning: str
    default: Callable[[], Any] = lambda: None
    kafka: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper()


def _processors() -> int:
    return min(len(os.sched_getaffinity(0)), _MAX_JOBS)


KEYS: Final = (
    Key("log_dirs", _names, "log directories to work on", tuple, ("log.dirs", "log.dir", "metadata.log.dir")),
    Key("topics", _names, "only topics that match one of these patterns (*, ?, [...]); none: all", tuple),
    Key(
        "jobs",
        _integer(1, _MAX_JOBS),
        "threads that read one log directory",
        _processors,
        ("num.recovery.threads.per.data.dir",),
    ),
    Key("depth", _choice(*DEPTHS), "how much of a flushed segment is read", lambda: "quick"),
    Key(
        "index_interval_bytes",
        _integer(0, INT32_MAX),
        "bytes of log between two index entries",
        lambda: 4096,
        ("log.index.interval.bytes",),
    ),
    Key(
        "segment_index_bytes",
        _integer(12, INT32_MAX),
        "largest size of an index",
        lambda: 10 * 1024 * 1024,
        ("log.index.size.max.bytes",),
    ),
    Key(
        "metadata_dir",
        _text,
        "log directory with the metadata log; none: the first that has it",
        kafka=("metadata.log.dir",),
    ),
    Key("quarantine", _text, "directory for what is cut; none: beside the log it was cut from"),
    Key("user", _user, "user that the broker runs as; files of others are reported"),
    Key("progress", _choice(*PROGRESS), "progress on standard error", lambda: "auto"),
)
SERVICE_KEYS: Final = ("state_dir", "log_dir", "guard", "scrub", "http", "listener", "log", "notify")
"""What the service reads from the same file: `daemon.service.config` says what may stand there."""
FILES: Final = ("config", "server_properties")
"""Where other settings come from; `server_properties` may stand in the TOML file, `config` may not."""


class Settings(NamedTuple):
    """The values in force; `origins` says where each came from. Directories are as given, not yet made absolute."""

    log_dirs: tuple[str, ...]
    topics: tuple[str, ...]
    jobs: int
    depth: str
    index_interval_bytes: int
    segment_index_bytes: int
    metadata_dir: str | None
    quarantine: str | None
    user: int | None
    progress: str
    origins: Mapping[str, str] = MappingProxyType({})


def load_settings(flags: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """Return the settings from flags that were given, the environment and the files they name.

    Raises `ConfigInvalid`, naming the key, where it stands, and what is allowed.
    """
    toml_path, toml = own_file(flags, environment)
    properties_path, properties = broker_file(flags, environment, toml, toml_path)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key in KEYS:
        origin, raw = _first(key, flags, environment, (toml_path, toml), (properties_path, properties))
        values[key.name] = key.default() if raw is None else _parsed(key, raw, origin)
        origins[key.name] = origin
    return Settings(**values, origins=origins)


def _first(
    key: Key,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    toml: tuple[str, Mapping[str, object]],
    properties: tuple[str, Properties],
) -> tuple[str, object]:
    """Return origin and raw value of the first place that has the key; the raw value is None for the default."""
    if flags.get(key.name):
        return "flag", flags[key.name]
    if environment.get(key.variable):
        return f"environment {key.variable}", environment[key.variable]
    if key.name in toml[1]:
        return f"{printable(toml[0])}: {key.name}", toml[1][key.name]
    if key.name == "log_dirs":
        if guarded := _guarded_dirs(toml[1]):
            return f"{printable(toml[0])}: log_dir", guarded
        if properties[0]:
            return _broker_dirs(*properties)
    for name in key.kafka:
        if properties[1].get(name, "").strip():
            return f"{printable(properties[0])}: {name}", _resolved(name, *properties)
    return "default", None


def _guarded_dirs(toml: Mapping[str, object]) -> tuple[str, ...]:
    """Return the log directories that the service guards: a broker's. Those of its own it recovers itself."""
    tables = toml.get("log_dir")
    found = (
        [each.get("path") for each in tables if each.get("mode", "guard") == "guard"]
        if isinstance(tables, list)
        else []
    )
    return tuple(path for path in found if isinstance(path, str) and path)


def _parsed(key: Key, raw: object, origin: str) -> Any:
    try:
        return key.parse(raw)
    except ValueError as error:
        shown = printable(raw if isinstance(raw, str) else repr(raw))[:80]
        raise ConfigInvalid(f"{key.name} ({origin}): {shown} is not {error}") from None


_LONGEST = 512 << 10
"""Bytes of a file of settings: its parser takes up to a hundred times as much memory."""


def _read(path: str, what: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LONGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigInvalid(f"{what} {printable(path)}: cannot be read: {reason}") from error
    if len(data) > _LONGEST:
        raise ConfigInvalid(f"{what} {printable(path)}: longer than {_LONGEST >> 10} KiB")
    return data


def _named_file(name: str, flags: Mapping[str, object], environment: Mapping[str, str]) -> str:
    return str(flags.get(name) or environment.get(PREFIX + name.upper()) or "")


def own_file(flags: Mapping[str, object], environment: Mapping[str, str]) -> tuple[str, Mapping[str, object]]:
    """Return the path and the keys of logmend's own file, empty if there is none. Raises `ConfigInvalid`."""
    path = _named_file("config", flags, environment)
    if not path:
        if not Path(DEFAULT_FILE).exists():
            return "", {}
        path = str(DEFAULT_FILE)
    return path, parse_toml(_read(path, "config"), path)


_MOST_DOTS = 1_000
"""In a line: the time that the parser takes for a dotted key grows with their square."""
_DEEPEST = 16


def parse_toml(data: bytes, path: str) -> dict[str, object]:
    """Return the keys of logmend's own file; an unknown one raises `ConfigInvalid` with the nearest known."""
    try:
        text = data.decode()
        if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
            raise ValueError(f"a line with more than {_MOST_DOTS:,} dots")
        table: dict[str, object] = tomllib.loads(text)
        if _depth(table) > _DEEPEST:
            raise ValueError(f"tables and lists lie more than {_DEEPEST} deep in one another")
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"config {printable(path)}: not TOML: {printable(str(error))}") from error
    known = [*(key.name for key in KEYS), "server_properties", *SERVICE_KEYS]
    for name, value in table.items():
        if name not in known:
            what = f"{printable(name)} = {printable(repr(value))[:80]}"
            raise ConfigInvalid(f"config {printable(path)}: unknown key {what}{suggestion(name, known)}")
    tables = table.get("log_dir", [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        shown = printable(repr(tables))[:80]
        raise ConfigInvalid(
            f"config {printable(path)}: log_dir: {shown} is no table of the service: write [[log_dir]] above path and "
            "mode, or log_dirs for a list of names"
        )
    return table


def _depth(value: object) -> int:
    """Return how many tables and lists lie in one another, by a loop: what is too deep for a call cannot be shown."""
    depth, level = 0, [value]
    while level := [each for one in level for each in _inside(one)]:
        depth += 1
    return depth


def _inside(value: object) -> list[object]:
    return [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []


def suggestion(name: str, known: list[str]) -> str:
    """Return `; did you mean …?` where a known name is near, and the list of known ones."""
    near = difflib.get_close_matches(name, known, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"{meant} (allowed: {', '.join(known)})"


def broker_file(
    flags: Mapping[str, object], environment: Mapping[str, str], toml: Mapping[str, object], toml_path: str
) -> tuple[str, Properties]:
    """Return the path and the keys of the broker's file, empty if none is named. Raises `ConfigInvalid`."""
    path = _named_file("server_properties", flags, environment)
    if not path and "server_properties" in toml:
        named = toml["server_properties"]
        if not isinstance(named, str) or not named:
            raise ConfigInvalid(f"config {printable(toml_path)}: server_properties is not the name of a file")
        path = named
    return (path, parse_properties(_read(path, "server.properties"), path)) if path else ("", {})


def parse_properties(data: bytes, path: str) -> dict[str, str]:
    """Return the keys of a broker's `server.properties` (Java's text form, ISO 8859-1 with escapes)."""
    try:
        return decode_properties(data)
    except CheckpointCorrupt as error:
        raise ConfigInvalid(f"server.properties {printable(path)}: {error.reason}") from error


def _resolved(name: str, path: str, properties: Properties) -> str:
    value = properties[name].strip()
    where = f"server.properties {printable(path)}"
    if not value.isascii() and _is_half_a_character(value):
        raise ConfigInvalid(f"{where}: {name} is no text: an escape is half a character ({printable(value)})")
    if "${" in value:
        raise ConfigInvalid(f"{where}: {name} takes its value from elsewhere ({printable(value)}); give it as a flag")
    return value


def _is_half_a_character(text: str) -> bool:
    """Tell whether no file can have it for a name: Java's text may hold half of a pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _broker_dirs(path: str, properties: Properties) -> tuple[str, object]:
    """Return the log directories as the broker understands them: `log.dirs`, else `log.dir`; the metadata's as well."""
    used = [name for name in ("log.dirs", "log.dir") if properties.get(name, "").strip()][:1]
    if not used:
        # The broker would take its default in the directory for temporary files, which is hardly meant.
        raise ConfigInvalid(f"server.properties {printable(path)}: neither log.dirs nor log.dir; name the directories")
    if properties.get("metadata.log.dir", "").strip():
        used.append("metadata.log.dir")
    found = [part for name in used for part in _names(_resolved(name, path, properties))]
    return f"{printable(path)}: {', '.join(used)}", tuple(dict.fromkeys(found))
