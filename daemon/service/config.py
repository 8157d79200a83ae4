"""The service's part of logmend.toml: its keys, their meaning and their defaults.

The same file serves all commands; the keys that the others know are those of `cli.settings.settings`.
systemd/logmend.toml has every key with its default; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from daemon.events.events import FORMATS, LEVELS
from daemon.http.sockets import is_loopback, parse_listen
from daemon.service.access import Rule, principals, rules
from daemon.service.config_values import (
    Reader,
    address,
    choice,
    command,
    directory,
    hours,
    listen,
    names,
    path_or_nothing,
    percent,
    size,
    span,
    whole,
    yes_or_no,
)
from daemon.status.model import Mode
from daemon.verify.options import GuardOptions, ScrubOptions
from recovery.plan.findings import Severity
from storage.base.errors import ConfigInvalid, printable
from storage.base.quantities import parse_address

UNIX: Final = "unix"
"""The socket at its usual place."""


@dataclass(frozen=True, slots=True)
class DirConfig:
    """One log directory."""

    path: PurePath
    mode: Mode = Mode.GUARD


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Addresses of status, metrics and the page; none if empty."""

    listen: tuple[str, ...] = (UNIX,)
    """`UNIX` stands for a socket in the run-time or state directory."""
    allow_remote: bool = False
    hosts: tuple[str, ...] = ()
    partition_labels: bool = False
    kafka_names: bool = False


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Format and level of the log of events."""

    format: str = "auto"
    """`auto`: the journal where it listens, else `console`."""
    level: str = "info"


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """Command for a finding; none if empty."""

    command: tuple[str, ...] = ()
    severity: str = "damage"
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """Address and limits of the listener for Kafka clients; none if `listen` is empty."""

    listen: str = ""
    advertise: str = ""
    """Address that clients are told to connect to; empty: the one that they used."""
    flush: str = "sync"
    flush_interval_seconds: float = 1.0
    flush_bytes: int = 64 << 20
    dirty_bytes: int = 1 << 30
    tls_certificate: str = ""
    tls_key: str = ""
    users: str = ""
    rules: tuple[Rule, ...] = ()
    """What users may do; what no rule allows is denied."""
    super_users: tuple[str, ...] = ()
    insecure: bool = False
    connections: int = 1000
    request_bytes: int = 100 << 20
    idle_seconds: float = 600.0
    auto_create: bool = False
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The whole configuration. With an empty `state_dir` the command that starts the service chooses."""

    log_dirs: tuple[DirConfig, ...] = ()
    state_dir: str = ""
    guard: GuardOptions = field(default_factory=GuardOptions)
    scrub: ScrubOptions = field(default_factory=ScrubOptions)
    http: HttpConfig = field(default_factory=HttpConfig)
    listener: ListenerConfig = field(default_factory=ListenerConfig)
    log: LogConfig = field(default_factory=LogConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)


class Setting(NamedTuple):
    """One key of a table: the field that it sets, its reader and its meaning."""

    key: str
    field: str
    read: Reader
    meaning: str
    is_live: bool = True
    """Takes effect with a reload; the others need a restart."""


FIXED: Final = False
"""A reload does not change it."""


TABLES: Final[dict[str, tuple[Setting, ...]]] = {
    "guard": (
        Setting(
            "verify_within",
            "verify_within_seconds",
            span("1s", "1d"),
            "longest time from the broker's checkpoint until the flushed data is verified",
        ),
        Setting("rate", "max_bytes_per_second", size("64KiB", "1TiB"), "most bytes a second for newly flushed data"),
        Setting("poll", "poll_seconds", span("1s", "1h"), "interval between looks for changes without an event"),
        Setting("broker", "broker_seconds", span("1s", "1h"), "interval between checks whether a broker runs"),
        Setting(
            "catch_up",
            "catch_up_bytes",
            size("0B", "1024TiB"),
            "bytes of a new partition that are read at once; the scrubber reads the rest",
        ),
        Setting(
            "mark_within",
            "mark_within_seconds",
            span("0s", "1h"),
            "longest time from an append until it is read and marked, so that a recovery need not read it; 0: no marks",
        ),
        Setting(
            "sync_within",
            "sync_within_seconds",
            span("0s", "1d"),
            "longest time until what is marked is synced, so that a mark holds after a power cut; 0: no syncs",
        ),
    ),
    "scrub": (
        Setting("enabled", "enabled", yes_or_no, "whether old flushed data is read again periodically"),
        Setting("cycle", "cycle_seconds", span("1min", "3650d"), "time within which every closed segment is read"),
        Setting(
            "rate", "max_bytes_per_second", size("64KiB", "1TiB"), "most bytes a second, however late the scrubber is"
        ),
        Setting("hours", "hours", hours, "parts of the day, local time, in which it may read; none: always"),
        Setting(
            "pressure_slow",
            "pressure_low",
            percent,
            "percent of time in which work waits for the disks, above which it slows down",
        ),
        Setting("pressure_stop", "pressure_high", percent, "percent at which it waits until the pressure falls"),
        Setting("sick_errors", "sick_errors", whole(1, 1_000_000), "number of bad files on one device"),
        Setting(
            "sick_within", "sick_seconds", span("1s", "30d"), "time within which they end the scrub of that device"
        ),
        Setting(
            "census", "census_seconds", span("1s", "1d"), "interval between two checks of each partition for changes"
        ),
        Setting("confirm", "confirm_seconds", span("0s", "1h"), "time until a bad segment is read again"),
    ),
    "http": (
        Setting("listen", "listen", listen, "addresses of status, metrics and the page; an empty list: none", FIXED),
        Setting(
            "allow_remote", "allow_remote", yes_or_no, "whether an address that other machines reach is allowed", FIXED
        ),
        Setting("hosts", "hosts", names, "further names that a Host header may give", FIXED),
        Setting("partition_labels", "partition_labels", yes_or_no, "metrics that name each partition", FIXED),
        Setting("kafka_names", "kafka_names", yes_or_no, "metrics of a recovery under Kafka's own names, too", FIXED),
    ),
    "listener": (
        Setting(
            "listen", "listen", address, "address on which Kafka clients are served from own log directories", FIXED
        ),
        Setting("advertise", "advertise", address, "address that clients are told to connect to", FIXED),
        Setting(
            "flush",
            "flush",
            choice("none", "interval", "sync"),
            "what a record has been through when it is acknowledged",
            FIXED,
        ),
        Setting(
            "flush_interval",
            "flush_interval_seconds",
            span("1ms", "1h"),
            "longest time until a flush, with `interval`",
            FIXED,
        ),
        Setting(
            "flush_bytes",
            "flush_bytes",
            size("4KiB", "1TiB"),
            "unflushed bytes that are flushed before the interval",
            FIXED,
        ),
        Setting("dirty_limit", "dirty_bytes", size("4KiB", "1TiB"), "unflushed bytes at which appends wait", FIXED),
        Setting("tls_certificate", "tls_certificate", path_or_nothing, "the chain of certificates, in PEM", FIXED),
        Setting(
            "tls_key", "tls_key", path_or_nothing, "its private key, in PEM; left out: it is in the same file", FIXED
        ),
        Setting("users", "users", path_or_nothing, "who may connect, with their passwords", FIXED),
        Setting(
            "acl", "rules", rules, "what users may do: one table `[[listener.acl]]` a rule; the rest is denied", FIXED
        ),
        Setting("super_users", "super_users", principals, "users who may do everything", FIXED),
        Setting("insecure", "insecure", yes_or_no, "whether others may connect without TLS and users", FIXED),
        Setting("max_connections", "connections", whole(1, 1_000_000), "connections at a time", FIXED),
        Setting("max_request", "request_bytes", size("1KiB", "1GiB"), "bytes of the largest request", FIXED),
        Setting("idle", "idle_seconds", span("1s", "1d"), "time after which a silent connection is closed", FIXED),
        Setting("auto_create", "auto_create", yes_or_no, "whether a request for a topic creates it", FIXED),
        Setting(
            "partitions",
            "partitions",
            whole(1, 10_000),
            "partitions of a topic that is created without a number",
            FIXED,
        ),
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
        Setting("timeout", "timeout_seconds", span("1s", "1h"), "time after which the command is ended"),
    ),
}
"""The tables that may appear once, each with its keys."""

_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 (an address that clients cannot be told)
TOP: Final = (Setting("state_dir", "state_dir", path_or_nothing, "ledger, marks, status.json and stored plans", FIXED),)
LOG_DIR: Final = (
    Setting("path", "path", directory, "the log directory", FIXED),
    Setting("mode", "mode", choice(*(each.value for each in Mode)), "whose it is", FIXED),
)
KEYS: Final = ("state_dir", "log_dir", *TABLES)
"""The keys and tables of the service at the top of the file."""


def parse_service(document: Mapping[str, object], path: str) -> ServiceConfig:
    """Return the service's part of a parsed file: the keys of `KEYS`.

    Raises `ConfigInvalid`, naming the file, the key, its value and what is allowed.
    """
    where = f"config {printable(path)}"
    config = ServiceConfig(log_dirs=_log_dirs(document.get("log_dir", []), where))
    config = replace(config, **_read(TOP, {k: v for k, v in document.items() if k == "state_dir"}, where, ""))
    for name, settings in TABLES.items():
        table = document.get(name, {})
        if not isinstance(table, dict):
            raise ConfigInvalid(f"{where}: {name}: {_shown(table)} is not a table: write [{name}] above its keys")
        given = _read(settings, table, where, f"{name}.")
        config = replace(config, **{name: replace(getattr(config, name), **given)})
    for place in config.http.listen:
        if place != UNIX:
            try:
                parse_listen(place, allow_remote=config.http.allow_remote)
            except ConfigInvalid as error:
                raise ConfigInvalid(f"{where}: http: {error}") from None
    if config.scrub.pressure_high < config.scrub.pressure_low:
        raise ConfigInvalid(f"{where}: scrub.pressure_stop: {config.scrub.pressure_high} is less than pressure_slow")
    _ensure_listener(config.listener, where)
    return replace(config, guard=replace(config.guard, scrub=config.scrub))


def parse_listener(document: Mapping[str, object], path: str) -> ListenerConfig:
    """Return the table `[listener]` of a parsed file, for a command that adds flags; raises `ConfigInvalid`."""
    where, table = f"config {printable(path)}", document.get("listener", {})
    if not isinstance(table, dict):
        raise ConfigInvalid(f"{where}: listener: {_shown(table)} is not a table: write [listener] above its keys")
    return replace(ListenerConfig(), **_read(TABLES["listener"], table, where, "listener."))


def changed_keys(listener: ListenerConfig) -> list[str]:
    """Return the keys whose values are not the defaults."""
    default = ListenerConfig()
    return [s.key for s in TABLES["listener"] if getattr(listener, s.field) != getattr(default, s.field)]


def _ensure_listener(listener: ListenerConfig, where: str) -> None:
    """Refuse a listener that other machines can reach without TLS and users, and settings without effect."""
    if not listener.listen:
        if keys := changed_keys(listener):
            raise ConfigInvalid(f"{where}: listener.{keys[0]}: nothing is served without listener.listen")
        return
    if listener.tls_key and not listener.tls_certificate:
        raise ConfigInvalid(f"{where}: listener.tls_key: it needs a tls_certificate")
    if listener.advertise and parse_address(listener.advertise).port == 0:
        raise ConfigInvalid(f"{where}: listener.advertise: clients cannot connect to port 0")
    host = parse_address(listener.listen).host
    if host in _EVERYWHERE and not listener.advertise:
        raise ConfigInvalid(f"{where}: listener.advertise: is missing; clients cannot connect to {host}")
    is_safe = bool(listener.tls_certificate and listener.users)
    if not is_loopback(host) and not is_safe and not listener.insecure:
        raise ConfigInvalid(
            f"{where}: listener.listen: others can reach {printable(host)}: set tls_certificate and users, or insecure "
            "if every client that can connect may read, write and delete everything"
        )
    if listener.users and not (listener.rules or listener.super_users):
        raise ConfigInvalid(
            f"{where}: listener.users: no rule lets them do anything, and what no rule allows is denied: write "
            'a [[listener.acl]] for each; super_users = ["User:*"] lets every user do everything, as before there were '
            "rules"
        )
    if not listener.users and (listener.rules or listener.super_users):
        raise ConfigInvalid(f"{where}: listener.acl: without listener.users no client has a name that rules could name")


def _log_dirs(raw: object, where: str) -> tuple[DirConfig, ...]:
    if not isinstance(raw, list) or not all(isinstance(each, dict) for each in raw):
        raise ConfigInvalid(f"{where}: log_dir: {_shown(raw)} is not a list of tables: write [[log_dir]] above each")
    entries: list[DirConfig] = []
    for number, table in enumerate(raw, 1):
        given = _read(LOG_DIR, table, where, f"log_dir {number}: ")
        if "path" not in given:
            raise ConfigInvalid(f"{where}: log_dir {number}: path is missing")
        entry = DirConfig(PurePath(given["path"]), Mode(given.get("mode", Mode.GUARD)))
        if any(entry.path == other.path for other in entries):
            raise ConfigInvalid(f"{where}: log_dir {number}: path: {printable(entry.path)} appears twice")
        entries.append(entry)
    return tuple(entries)


def _read(settings: tuple[Setting, ...], table: Mapping[str, object], where: str, prefix: str) -> dict[str, Any]:
    known = {setting.key: setting for setting in settings}
    values: dict[str, Any] = {}
    for key, raw in table.items():
        setting = known.get(key)
        if setting is None:
            allowed = ", ".join(known)
            raise ConfigInvalid(f"{where}: unknown key {prefix}{printable(key)} = {_shown(raw)} (allowed: {allowed})")
        try:
            values[setting.field] = setting.read(raw)
        except ValueError as error:
            raise ConfigInvalid(f"{where}: {prefix}{key}: {_shown(raw)} is not {error}") from None
    return values


def _shown(raw: object) -> str:
    return printable(repr(raw))[:80]


def changes(old: ServiceConfig, new: ServiceConfig) -> tuple[list[str], list[str]]:
    """Return the keys whose values differ: live ones, and those that need a restart."""
    live: list[str] = []
    fixed = [name for name in ("log_dirs", "state_dir") if getattr(old, name) != getattr(new, name)]
    for name, settings in TABLES.items():
        before, after = getattr(old, name), getattr(new, name)
        for setting in settings:
            if getattr(before, setting.field) != getattr(after, setting.field):
                (live if setting.is_live else fixed).append(f"{name}.{setting.key}")
    return live, [name.replace("log_dirs", "log_dir") for name in fixed]


def put_in_force(old: ServiceConfig, new: ServiceConfig) -> ServiceConfig:
    """Return the configuration after a reload: new values of live keys, old values of the others."""
    result = old
    for name, settings in TABLES.items():
        table = getattr(new, name)
        given = {s.field: getattr(table, s.field) for s in settings if s.is_live}
        result = replace(result, **{name: replace(getattr(result, name), **given)})
    return replace(result, guard=replace(result.guard, scrub=result.scrub))
