"""The service's part of logmend.toml: what may stand there, what it means, and what holds where nothing stands.

The same file serves all commands; the keys that the others know are those of `cli.settings.settings`.
systemd/logmend.toml is the file with every key and its default, and a test holds it against this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from daemon.events.events import FORMATS, LEVELS
from daemon.http.sockets import is_loopback, parse_listen
from daemon.scrub.verify_options import GuardOptions, ScrubOptions
from daemon.service.config_values import (
    Reader,
    address,
    choice,
    command,
    directory,
    file,
    hours,
    listen,
    names,
    percent,
    size,
    span,
    state_directory,
    whole,
    yes_or_no,
)
from daemon.status.model import Mode
from recovery.plan.findings import Severity
from storage.base.errors import ConfigInvalid, printable
from storage.base.quantities import parse_address

UNIX: Final = "unix"
"""The socket where everybody looks for it."""


@dataclass(frozen=True, slots=True)
class DirConfig:
    """One log directory."""

    path: PurePath
    mode: Mode = Mode.GUARD


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Where status, metrics and the page are served; nowhere if empty."""

    listen: tuple[str, ...] = (UNIX,)
    """`UNIX` stands for a socket in the run-time or state directory."""
    allow_remote: bool = False
    hosts: tuple[str, ...] = ()
    partition_labels: bool = False
    kafka_names: bool = False


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How events are written."""

    format: str = "auto"
    """`auto`: the journal where it listens, else for people."""
    level: str = "info"


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """What is run for a finding; nothing if empty."""

    command: tuple[str, ...] = ()
    severity: str = "damage"
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """Where Kafka clients are served from our own directories, and how; nowhere if `listen` is empty."""

    listen: str = ""
    advertise: str = ""
    """Where clients are told to connect; empty: where they did."""
    flush: str = "sync"
    flush_interval_seconds: float = 1.0
    flush_bytes: int = 64 << 20
    dirty_bytes: int = 1 << 30
    tls_certificate: str = ""
    tls_key: str = ""
    users: str = ""
    insecure: bool = False
    connections: int = 1000
    request_bytes: int = 100 << 20
    idle_seconds: float = 600.0
    auto_create: bool = False
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """All of it. `state_dir` is empty where the command chooses it."""

    log_dirs: tuple[DirConfig, ...] = ()
    state_dir: str = ""
    guard: GuardOptions = field(default_factory=GuardOptions)
    scrub: ScrubOptions = field(default_factory=ScrubOptions)
    http: HttpConfig = field(default_factory=HttpConfig)
    listener: ListenerConfig = field(default_factory=ListenerConfig)
    log: LogConfig = field(default_factory=LogConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)


class Setting(NamedTuple):
    """One key of a table: the field that it sets, how it is read, and what it means."""

    key: str
    field: str
    read: Reader
    meaning: str
    is_live: bool = True
    """Takes effect with a reload; the others with the next start."""


FIXED: Final = False
"""What a reload does not change."""


TABLES: Final[dict[str, tuple[Setting, ...]]] = {
    "guard": (
        Setting(
            "verify_within",
            "verify_within_seconds",
            span("1s", "1d"),
            "how soon after the broker's checkpoint newly flushed data has been read",
        ),
        Setting("rate", "max_bytes_per_second", size("64KiB", "1TiB"), "most bytes a second for newly flushed data"),
        Setting("poll", "poll_seconds", span("1s", "1h"), "interval between searches for changes that inotify missed"),
        Setting("broker", "broker_seconds", span("1s", "1h"), "interval between checks whether a broker runs"),
        Setting(
            "catch_up",
            "catch_up_bytes",
            size("0B", "1024TiB"),
            "of a partition that is new here, so much is read at once; the scrubber reads the rest",
        ),
    ),
    "scrub": (
        Setting("enabled", "enabled", yes_or_no, "whether old flushed data is read again and again"),
        Setting("cycle", "cycle_seconds", span("1min", "3650d"), "within which time every closed segment is read"),
        Setting("rate", "max_bytes_per_second", size("64KiB", "1TiB"), "most bytes a second, however late it is"),
        Setting("hours", "hours", hours, "parts of the day, local time, in which it may read; none: always"),
        Setting(
            "pressure_slow",
            "pressure_low",
            percent,
            "percent of time in which work waits for the disks, from which on it slows down",
        ),
        Setting("pressure_stop", "pressure_high", percent, "percent at which it waits until the disks have room"),
        Setting("sick_errors", "sick_errors", whole(1, 1_000_000), "so many bad files on one device"),
        Setting("sick_within", "sick_seconds", span("1s", "30d"), "in this time end the scrub of that device"),
        Setting("census", "census_seconds", span("1s", "1d"), "interval between checks whether a partition changed"),
        Setting("confirm", "confirm_seconds", span("0s", "1h"), "how long a suspicion rests until it is read again"),
    ),
    "http": (
        Setting("listen", "listen", listen, "where status, metrics and the page are served; none: nowhere", FIXED),
        Setting("allow_remote", "allow_remote", yes_or_no, "whether other machines may be let in", FIXED),
        Setting("hosts", "hosts", names, "further names under which a port may be asked", FIXED),
        Setting("partition_labels", "partition_labels", yes_or_no, "metrics that name each partition", FIXED),
        Setting("kafka_names", "kafka_names", yes_or_no, "metrics of a recovery under Kafka's own names, too", FIXED),
    ),
    "listener": (
        Setting("listen", "listen", address, "where Kafka clients are served from our own directories", FIXED),
        Setting("advertise", "advertise", address, "where clients are told to connect", FIXED),
        Setting(
            "flush", "flush", choice("none", "interval", "sync"), "what an acknowledged record went through", FIXED
        ),
        Setting("flush_interval", "flush_interval_seconds", span("1ms", "1h"), "how late an interval may flush", FIXED),
        Setting("flush_bytes", "flush_bytes", size("4KiB", "1TiB"), "so much is flushed before its time", FIXED),
        Setting("dirty_limit", "dirty_bytes", size("4KiB", "1TiB"), "with so much unflushed, appends wait", FIXED),
        Setting("tls_certificate", "tls_certificate", file, "the chain of certificates, in PEM", FIXED),
        Setting("tls_key", "tls_key", file, "its private key, in PEM; left out: it is in the same file", FIXED),
        Setting("users", "users", file, "who may connect, with their passwords", FIXED),
        Setting("insecure", "insecure", yes_or_no, "whether others may connect without TLS and users", FIXED),
        Setting("max_connections", "connections", whole(1, 1_000_000), "connections at a time", FIXED),
        Setting("max_request", "request_bytes", size("1KiB", "1GiB"), "bytes of the largest request", FIXED),
        Setting("idle", "idle_seconds", span("1s", "1d"), "after which a silent connection is closed", FIXED),
        Setting("auto_create", "auto_create", yes_or_no, "whether asking for a topic makes it", FIXED),
        Setting("partitions", "partitions", whole(1, 10_000), "of a topic that is made without a number", FIXED),
    ),
    "log": (
        Setting("format", "format", choice("auto", *FORMATS), "how events are written", FIXED),
        Setting("level", "level", choice(*LEVELS), "events below this level are not written"),
    ),
    "notify": (
        Setting("command", "command", command, "run for a finding, which it gets as JSON on its standard input"),
        Setting(
            "severity",
            "severity",
            choice(*(each.value for each in Severity)),
            "least severity of a finding that it is run for",
        ),
        Setting("timeout", "timeout_seconds", span("1s", "1h"), "after which the command is ended"),
    ),
}
"""The tables that may stand once, each with its keys."""

_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 (an address that clients cannot be told)
TOP: Final = (Setting("state_dir", "state_dir", state_directory, "ledger, status.json and stored plans", FIXED),)
LOG_DIR: Final = (
    Setting("path", "path", directory, "the log directory", FIXED),
    Setting("mode", "mode", choice(*(each.value for each in Mode)), "whose it is", FIXED),
)
KEYS: Final = ("state_dir", "log_dir", *TABLES)
"""What the service knows at the top of the file."""


def parse_service(document: Mapping[str, object], path: str) -> ServiceConfig:
    """Return the service's part of a parsed file; keys outside `KEYS` are ignored.

    Raises `ConfigInvalid`, naming the file, the key, its value and what is allowed.
    """
    where = f"config {printable(path)}"
    found = ServiceConfig(log_dirs=_log_dirs(document.get("log_dir", []), where))
    found = replace(found, **_read(TOP, {k: v for k, v in document.items() if k == "state_dir"}, where, ""))
    for name, settings in TABLES.items():
        table = document.get(name, {})
        if not isinstance(table, dict):
            raise ConfigInvalid(f"{where}: {name}: {_shown(table)} is not a table: write [{name}] above its keys")
        given = _read(settings, table, where, f"{name}.")
        found = replace(found, **{name: replace(getattr(found, name), **given)})
    for place in found.http.listen:
        if place != UNIX:
            try:
                parse_listen(place, allow_remote=found.http.allow_remote)
            except ConfigInvalid as error:
                raise ConfigInvalid(f"{where}: http: {error}") from None
    if found.scrub.pressure_high < found.scrub.pressure_low:
        raise ConfigInvalid(f"{where}: scrub.pressure_stop: {found.scrub.pressure_high} is less than pressure_slow")
    _ensure_listener(found, where)
    return replace(found, guard=replace(found.guard, scrub=found.scrub))


def _ensure_listener(found: ServiceConfig, where: str) -> None:
    """Refuse a listener that other machines can reach without TLS and users."""
    listener = found.listener
    if not listener.listen:
        return
    if listener.tls_key and not listener.tls_certificate:
        raise ConfigInvalid(f"{where}: listener.tls_key: there is no tls_certificate that it belongs to")
    if listener.advertise and parse_address(listener.advertise).port == 0:
        raise ConfigInvalid(f"{where}: listener.advertise: port 0 is nowhere")
    host = parse_address(listener.listen).host
    if host in _EVERYWHERE and not listener.advertise:
        raise ConfigInvalid(f"{where}: listener.advertise: is wanted, for nobody can connect to {host}")
    is_safe = bool(listener.tls_certificate and listener.users)
    if not is_loopback(host) and not is_safe and not listener.insecure:
        raise ConfigInvalid(
            f"{where}: listener.listen: others can reach {printable(host)}: set tls_certificate and users, or insecure "
            "if everybody who can may read, write and delete everything"
        )


def _log_dirs(raw: object, where: str) -> tuple[DirConfig, ...]:
    if not isinstance(raw, list) or not all(isinstance(each, dict) for each in raw):
        raise ConfigInvalid(f"{where}: log_dir: {_shown(raw)} is not a list of tables: write [[log_dir]] above each")
    found: list[DirConfig] = []
    for number, table in enumerate(raw, 1):
        given = _read(LOG_DIR, table, where, f"log_dir {number}: ")
        if "path" not in given:
            raise ConfigInvalid(f"{where}: log_dir {number}: path is missing")
        entry = DirConfig(PurePath(given["path"]), Mode(given.get("mode", Mode.GUARD)))
        if any(entry.path == other.path for other in found):
            raise ConfigInvalid(f"{where}: log_dir {number}: path: {printable(entry.path)} stands there twice")
        found.append(entry)
    return tuple(found)


def _read(settings: tuple[Setting, ...], table: Mapping[str, object], where: str, prefix: str) -> dict[str, Any]:
    known = {setting.key: setting for setting in settings}
    found: dict[str, Any] = {}
    for key, raw in table.items():
        setting = known.get(key)
        if setting is None:
            allowed = ", ".join(known)
            raise ConfigInvalid(f"{where}: unknown key {prefix}{printable(key)} = {_shown(raw)} (allowed: {allowed})")
        try:
            found[setting.field] = setting.read(raw)
        except ValueError as error:
            raise ConfigInvalid(f"{where}: {prefix}{key}: {_shown(raw)} is not {error}") from None
    return found


def _shown(raw: object) -> str:
    return printable(repr(raw))[:80]


def changes(old: ServiceConfig, new: ServiceConfig) -> tuple[list[str], list[str]]:
    """Return the keys whose values differ: those that a reload puts in force, and those that need a new start."""
    live: list[str] = []
    fixed = [name for name in ("log_dirs", "state_dir") if getattr(old, name) != getattr(new, name)]
    for name, settings in TABLES.items():
        before, after = getattr(old, name), getattr(new, name)
        for setting in settings:
            if getattr(before, setting.field) != getattr(after, setting.field):
                (live if setting.is_live else fixed).append(f"{name}.{setting.key}")
    return live, [name.replace("log_dirs", "log_dir") for name in fixed]


def put_in_force(old: ServiceConfig, new: ServiceConfig) -> ServiceConfig:
    """Return what holds after a reload: the new values of what can change, the old ones of what cannot."""
    result = old
    for name, settings in TABLES.items():
        table = getattr(new, name)
        given = {s.field: getattr(table, s.field) for s in settings if s.is_live}
        result = replace(result, **{name: replace(getattr(result, name), **given)})
    return replace(result, guard=replace(result.guard, scrub=result.scrub))
