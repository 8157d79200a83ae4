"""`logmend quarantine list|show|restore|expire`: what recoveries cut and set aside, from the manifests alone."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from cli.console import Console
from cli.evidence import losses
from cli.settings.arguments import add_files, add_output, places_of, settings_of
from cli.settings.targets import find_target
from cli.usage import as_sentence
from cli.version import version
from recovery.evidence.kept import Kept, Unreadable, find_kept, find_orphans
from recovery.evidence.manifest import Item
from recovery.evidence.quarantine import expire, restore
from recovery.plan.plan import to_plain
from recovery.plan.words import count, full_size
from recovery.report.command_line import command
from recovery.report.documents import document
from recovery.report.rows import rows_text
from storage.base.errors import ConfigInvalid, ExitStatus, printable, worst
from storage.disk.fs import FileKind, OsFs, ReadFs, ReadOnlyFs, lock_log_dir

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Found:
    """The manifests in the places that were named, and those that cannot be read."""

    kept: Sequence[Kept]
    bad: Sequence[Unreadable]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands below `quarantine`."""
    commands = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    for name, (meaning, _) in _STEPS.items():
        added = commands.add_parser(name, help=meaning, description=as_sentence(meaning), allow_abbrev=False)
        added.add_argument("log_dirs", nargs="*", metavar="PATH", help="log directory, or a quarantine directory")
        if name == "export":
            added.add_argument("--plan", metavar="ID", help="what this plan cut")
            losses.add_export(added)
        if name == "show":
            added.add_argument("--plan", metavar="ID", help="of this plan alone")
        if name == "restore":
            what = added.add_mutually_exclusive_group(required=True)
            what.add_argument("--plan", metavar="ID", help="what this plan set aside or replaced")
            what.add_argument("--all", action="store_true", help="everything that is kept, the newest first")
        if name == "expire":
            which = added.add_mutually_exclusive_group(required=True)
            which.add_argument("--plan", metavar="ID", help="what this plan set aside")
            which.add_argument("--older-than", metavar="DAYS", help="what was set aside longer ago than this")
        if name in ("show", "restore", "export", "expire"):
            added.add_argument("--partition", metavar="NAME", help="of this partition alone: topic-0")
        added.add_argument("--quarantine", metavar="DIR", help="where copies were kept with --quarantine")
        add_files(added)
        add_output(added)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Do the step that was asked for."""
    settings = settings_of(arguments, environment)
    places = places_of(settings)
    fs = ReadOnlyFs(OsFs())
    kept, bad = find_kept(fs, places)
    orphans = find_orphans(fs, places, kept) if arguments.step == "list" else []
    found = _chosen(Found(kept, [*bad, *orphans]), arguments)
    if arguments.step in ("restore", "expire"):
        _ensure_named(fs, found.kept, places)
    for unreadable in found.bad:
        console.complain(f"{printable(unreadable.path)}: {printable(unreadable.reason)}")
    status = _STEPS[arguments.step][1](found, arguments, console)
    return worst((status, ExitStatus.FINDINGS)) if found.bad else status


def _chosen(listing: Found, arguments: argparse.Namespace) -> Found:
    """Return the manifests that the flags ask for; `ConfigInvalid` if a plan that was named is not there."""
    plan_id, partition = getattr(arguments, "plan", None), getattr(arguments, "partition", None)
    kept = [
        one
        for one in listing.kept
        if plan_id in (None, one.manifest.plan_id) and partition in (None, one.directory.name)
    ]
    if plan_id is not None and not kept:
        raise ConfigInvalid(f"no manifest of plan {printable(plan_id)} in the places that were named")
    return Found(kept, listing.bad)


def _ensure_named(fs: ReadFs, kept: Sequence[Kept], places: Sequence[PurePath]) -> None:
    """Raise `ConfigInvalid` if a manifest kept elsewhere speaks of a directory in none of the places that were named.

    Otherwise a process that can write to that volume could have files changed anywhere.
    """
    for one in kept:
        directory = one.directory
        if directory == one.place:
            continue
        is_named = directory in places or directory.parent in places
        if not is_named or fs.stat(directory).kind is not FileKind.DIRECTORY:
            raise ConfigInvalid(
                f"{printable(one.path)} speaks of {printable(directory)}, in no log directory that was named: "
                "name it as well"
            )


def _plain(one: Kept) -> dict[str, Any]:
    return {"place": str(one.place), "directory": str(one.directory), "manifest": to_plain(one.manifest)}


def _list(listing: Found, arguments: argparse.Namespace, console: Console) -> ExitStatus:  # noqa: ARG001
    if console.json:
        console.document(
            document("quarantine", version(), ExitStatus.CLEAN, kept=[_plain(one) for one in listing.kept])
        )
        return ExitStatus.CLEAN
    rows = []
    for one in listing.kept:
        items = one.manifest.items
        size = full_size(one.manifest.kept_bytes)
        rows.append((one.manifest.plan_id, losses.moment(one.manifest.created_ms), printable(one.directory.name), size,
                     count(len(items), "item")))  # fmt: skip
    for line in rows_text(rows):
        console.say(line)
    total = sum(one.manifest.kept_bytes for one in listing.kept)
    console.say(f"{count(len(listing.kept), 'manifest')}, {full_size(total)} kept")
    return ExitStatus.CLEAN


def _show(found: Found, arguments: argparse.Namespace, console: Console) -> ExitStatus:
    if console.json:
        return _list(found, arguments, console)
    for one in found.kept:
        manifest = one.manifest
        console.say(f"plan {manifest.plan_id} in {printable(one.directory)}, {losses.moment(manifest.created_ms)}")
        for line in rows_text([_item_row(item) for item in manifest.items]):
            console.say(line)
    return ExitStatus.CLEAN


def _item_row(item: Item) -> tuple[str, str, str, str]:
    at = f" at {item.position}" if item.step == "cut" else ""
    kept = printable(item.kept) if item.kept else "zeroes, only counted" if item.zeroes else "-"
    told = f"{kept}  {printable(item.reason)}" + (f"  sha256 {item.sha256}" if item.sha256 else "")
    return item.step, printable(item.name) + at, full_size(item.size), told


def _restore(found: Found, arguments: argparse.Namespace, console: Console) -> ExitStatus:
    with _locked(found):
        directories = restore(OsFs(), found.kept)
    _tell(console, "restored", arguments, [str(directory) for directory in directories], 0)
    return ExitStatus.CLEAN


def _expire(listing: Found, arguments: argparse.Namespace, console: Console) -> ExitStatus:
    copies = listing.kept
    if arguments.older_than is not None:
        if not (arguments.older_than.isascii() and arguments.older_than.isdecimal() and len(arguments.older_than) < 6):
            raise ConfigInvalid(f"--older-than {printable(arguments.older_than)}: a number of days is needed")
        before = time.time_ns() // 1_000_000 - int(arguments.older_than) * _DAY_MS
        copies = [one for one in copies if one.manifest.created_ms < before]
    with _locked(Found(copies, ())):
        freed = expire(OsFs(), copies)
    _tell(console, "expired", arguments, [str(one.directory) for one in copies], freed)
    return ExitStatus.CLEAN


def _tell(console: Console, verb: str, arguments: argparse.Namespace, directories: list[str], freed: int) -> None:
    if console.json:
        parts = {"step": arguments.step, "directories": directories, "bytes_freed": freed}
        console.document(document("quarantine", version(), ExitStatus.CLEAN, **parts))
        return
    for name in directories:
        console.say(f"{verb}: {printable(name)}")
    console.say(f"{count(len(directories), 'directory', 'directories')} {verb}, {full_size(freed)} freed")
    if verb == "restored" and directories:
        log_dirs = sorted({str(log_dir_of(PurePath(name))) for name in directories})
        console.say(f"the damage is back as well; next: {command('verify', '--depth', 'full', *log_dirs)}")


def log_dir_of(directory: PurePath) -> PurePath:
    """Return the log directory that a directory is, or lies in: that of the lock."""
    return find_target(OsFs(), str(directory)).log_dir


def _locked(found: Found) -> contextlib.ExitStack:
    """Return a context that holds the locks of all log directories whose files would change."""
    locks = contextlib.ExitStack()
    try:
        for log_dir in sorted({log_dir_of(one.directory) for one in found.kept}):
            locks.enter_context(lock_log_dir(log_dir))
    except BaseException:
        locks.close()
        raise
    return locks


def _export(found: Found, arguments: argparse.Namespace, console: Console) -> ExitStatus:
    return losses.export(found.kept, arguments, console)


_Step = Callable[[Found, argparse.Namespace, Console], ExitStatus]
_STEPS: Final[dict[str, tuple[str, _Step]]] = {
    "list": ("list what was set aside, by plan and partition", _list),
    "show": ("show every piece that was set aside, and why", _show),
    "export": ("give out the records that were cut, as JSON lines or as a segment", _export),
    "restore": ("put back what a plan cut and set aside, the damage with it", _restore),
    "expire": ("remove what was set aside, for good", _expire),
}
