"""Arguments that several commands share, and the settings made from them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from cli.settings.settings import DEPTHS, FILES, KEYS, PROGRESS, Settings, load_settings
from cli.settings.targets import absolute
from recovery.plan.plan import PlanOptions
from recovery.report.command_line import Flags
from storage.base.errors import ConfigInvalid, printable
from storage.base.quantities import parse_size

_ROLL_FROM: Final = 1 << 20
"""Bytes of an active segment that a broker scans in about the time that a roll takes."""


def add_output(parser: argparse.ArgumentParser, *, events: bool = False) -> None:
    """Add how results are written."""
    group = parser.add_argument_group("output")
    # SUPPRESS: what stands before the command's name is not undone by a default here.
    group.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON document instead of text"
    )
    group.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    if events:
        group.add_argument("--jsonl", action="store_true", help="one line of JSON for each event, as it happens")
        group.add_argument("--progress", choices=PROGRESS, help="progress on standard error (auto)")


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the files that settings come from."""
    group = parser.add_argument_group("settings")
    group.add_argument("--config", metavar="FILE", help="logmend's own settings, TOML")
    group.add_argument(
        "--server-properties", metavar="FILE", help="the broker's: log directories, index and thread settings"
    )


def add_work(parser: argparse.ArgumentParser) -> None:
    """Add what to work on and how thoroughly."""
    parser.add_argument("log_dirs", nargs="*", metavar="PATH", help="log directory or partition directory")
    parser.add_argument(
        "--topic", action="append", dest="topics", metavar="GLOB", help="only topics like this; may be repeated"
    )
    parser.add_argument("-j", dest="jobs", metavar="N", help="threads that read one log directory")
    parser.add_argument(
        "--depth",
        choices=DEPTHS,
        help="how much of flushed segments is read (quick; full with --accept-loss or --heal-from)",
    )
    parser.add_argument("--user", metavar="USER", help="user that the broker runs as; files of others are reported")


def settings_of(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """Return the settings in force for these arguments."""
    names = [*(key.name for key in KEYS), *FILES]
    flags: dict[str, Any] = {name: getattr(arguments, name, None) for name in names}
    return load_settings(flags, environment)


def file_flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the files that settings come from, as they were given."""
    return {name: getattr(arguments, name, None) for name in FILES}


def require_paths(settings: Settings) -> tuple[str, ...]:
    """Return the names to work on; `ConfigInvalid` if there are none."""
    if not settings.log_dirs:
        raise ConfigInvalid("no log directory: name one, or give --server-properties FILE, or set log_dirs")
    return settings.log_dirs


def places_of(settings: Settings) -> list[PurePath]:
    """Return the log directories, and the directory for copies, in which to look for what was kept."""
    named = [*settings.log_dirs, *([settings.quarantine] if settings.quarantine else [])]
    if not named:
        raise ConfigInvalid("no log directory: name one, or give --server-properties FILE, or set log_dirs")
    return list(dict.fromkeys(absolute(name) for name in named))


def options_of(
    settings: Settings,
    *,
    accept_loss: bool = False,
    heals: bool = False,
    now_ms: int | None = None,
    clean_marker: bool = False,
    roll_from: int | None = None,
) -> PlanOptions:
    """Return what a plan depends on besides the bytes.

    With `accept_loss`, or where it `heals`, all is read unless a depth was asked for: a look at the unflushed part
    alone would not see the damage that is meant.
    """
    depth = settings.depth
    if (accept_loss or heals) and depth == "quick" and settings.origins.get("depth") != "flag":
        depth = "full"
    return PlanOptions(
        depth=depth,
        accept_loss=accept_loss,
        topics=settings.topics,
        index_interval_bytes=settings.index_interval_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        metadata_dir=None if settings.metadata_dir is None else str(absolute(settings.metadata_dir)),
        user=settings.user,
        now_ms=now_ms,
        clean_marker=clean_marker,
        roll_from=roll_from,
    )


def recovery_options(arguments: argparse.Namespace, settings: Settings) -> PlanOptions:
    """Return the options of the plan that `plan` shows and `recover` carries out."""
    return options_of(
        settings,
        accept_loss=arguments.accept_loss,
        heals=bool(arguments.heal_from),
        clean_marker=wants_marker(arguments),
        roll_from=roll_from(arguments),
    )


def flags_of(arguments: argparse.Namespace, options: PlanOptions) -> Flags:
    """Return the words of this command line that a next command needs as well, to see and do the same.

    `--discard` is not among them: a command that is only proposed keeps a copy.
    """
    looking = ["--depth", options.depth] if options.depth != "quick" else []
    for topic in options.topics:
        looking += ["--topic", topic]
    planning = ["--accept-loss"] if options.accept_loss else []
    recovering = ["--keep-points"] if _value(arguments, "keep_points") else []
    recovering += ["--keep-segments"] if _value(arguments, "keep_segments") else []
    return Flags(
        (*looking, *_given(arguments, "user", *FILES)),
        (*planning, *_given(arguments, "clean_marker", "heal_from", "heal_config")),
        (*recovering, *_given(arguments, "quarantine", "keep_tail", "roll_from")),
    )


def _given(arguments: argparse.Namespace, *names: str) -> list[str]:
    words = []
    for name in names:
        value = _value(arguments, name)
        for one in value if isinstance(value, list) else [value] if value is not None else []:
            words += ["--" + name.replace("_", "-"), str(one)]
    return words


def _value(arguments: argparse.Namespace, name: str) -> object:
    return getattr(arguments, name, None)


def add_roll(parser: argparse.ArgumentParser) -> None:
    """Add the roll of active segments, which spares a broker their scan."""
    parser.add_argument(
        "--roll-from",
        metavar="SIZE",
        help="roll active segments of SIZE or more, so that a broker need not scan them (1MiB)",
    )
    parser.add_argument("--keep-segments", action="store_true", help="roll no active segment")


def roll_from(arguments: argparse.Namespace) -> int | None:
    """Return from which size on active segments are rolled, None for none; `ConfigInvalid` for what is no size."""
    if arguments.keep_segments:
        return None
    text = arguments.roll_from
    if text is None:
        return _ROLL_FROM
    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigInvalid(f"--roll-from {printable(text)}: not {error}") from None


def add_marker(parser: argparse.ArgumentParser) -> None:
    """Add the marker that spares a broker its own scan."""
    parser.add_argument(
        "--clean-marker",
        metavar="VERSION",
        help="mark the directory as shut down cleanly, for a broker of this version (tested: 4.3)",
    )


def wants_marker(arguments: argparse.Namespace) -> bool:
    """Tell whether a marker was asked for; `ConfigInvalid` for a broker version that is untested."""
    version_named = arguments.clean_marker
    if version_named is None:
        return False
    from recovery.apply.hand_over import MARKED_VERSIONS  # noqa: PLC0415 (`verify` imports nothing that writes)

    if not any(version_named == known or version_named.startswith(known + ".") for known in MARKED_VERSIONS):
        raise ConfigInvalid(
            f"--clean-marker {printable(version_named)}: tested with {', '.join(MARKED_VERSIONS)} alone; "
            "another broker may take it for more than it says"
        )
    return True


def add_comparison(parser: argparse.ArgumentParser) -> None:
    """Add what lets `verify` hold directories against a manifest."""
    group = parser.add_argument_group("evidence")
    group.add_argument("--manifest", metavar="FILE", help="say what is missing, extra or changed since `manifest`")
    group.add_argument("--allowed-signers", metavar="FILE", help="FILE.sig must be of one of these")
    group.add_argument("--signer", metavar="WHO", help="who must have signed it, as the allowed signers name them")
