"""What the names on the command line stand for: a log directory, one partition's directory, or a single file."""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from recovery.plan.plan import PlanOptions
from storage.base.errors import ConfigInvalid, CorruptData, EnvironmentFault, WriteFault, printable
from storage.base.names import METADATA_TOPIC, REMOTE_INDEX_CACHE, FileRole, parse_directory_name, parse_root_file_name
from storage.disk.fs import FileKind, FileStat, ReadFs

_PARTITION_FILES: Final = frozenset({"partition.metadata", "leader-epoch-checkpoint"})
_OURS: Final = (".logmend", ".logmend.json", ".tmp")
_DIGITS: Final = 20
_OF_NO_BROKER: Final = {FileRole.LOCK.value, "lost+found"}
"""What may be in a directory that no broker has used."""


class TargetKind(Enum):
    """What a name stands for."""

    LOG_DIR = "log directory"
    PARTITION = "partition directory"
    FILE = "file"


class Target(NamedTuple):
    """One thing to work on, by its absolute path with symbolic links resolved."""

    kind: TargetKind
    path: PurePath

    @property
    def log_dir(self) -> PurePath:
        """The log directory that it is, or lies in: where the lock is."""
        return self.path if self.kind is TargetKind.LOG_DIR else self.path.parent


def absolute(name: str) -> PurePath:
    """Return the one path that `name` leads to: the operator may name a link; below it none is followed.

    A plan names what it was made for, so the same directory must have the same name however it was typed.
    """
    if not name or "\0" in name:
        raise ConfigInvalid("an empty name, or one with a zero byte, names no file")
    return PurePath(os.path.realpath(name))


def write_new(out: str, parts: Iterable[bytes], what: str) -> None:
    """Write to the new file that `--out` names; an operator may still need what an old one says."""
    try:
        with Path(out).open("xb") as file:
            file.writelines(parts)
    except FileExistsError:
        raise ConfigInvalid(f"--out {printable(out)}: exists already; name a new file") from None
    except OSError as error:
        raise WriteFault(f"writing {what}", PurePath(out), error) from error


def find_target(fs: ReadFs, name: str) -> Target:
    """Return what `name` stands for; `ReadFault` if it cannot be read, `ConfigInvalid` if no log can be in it.

    A directory is told by what lies in it: the volumes of a broker in a container may be called `data-0`, which would
    do as the name of a partition as well.
    """
    path = absolute(name)
    if fs.stat(path).kind is not FileKind.DIRECTORY:
        return Target(TargetKind.FILE, path)
    entries = fs.entries(path)
    if _is_partition(entries):
        return Target(TargetKind.PARTITION, path)
    _refuse_without_logs(fs, path, entries)
    return Target(TargetKind.LOG_DIR, path)


def _is_partition(entries: Mapping[str, FileStat]) -> bool:
    """Tell whether a directory is that of one partition; a stray file with the name of a segment makes it none."""
    if not _PARTITION_FILES.isdisjoint(entries):
        return True
    files = [name for name, stat in entries.items() if stat.kind is not FileKind.DIRECTORY]
    return any(map(_is_segment_file, files)) and not any(
        _is_of_broker(name, stat) and not name.endswith(_OURS) for name, stat in entries.items()
    )


def _is_segment_file(name: str) -> bool:
    digits = name[:_DIGITS]
    return len(digits) == _DIGITS and digits.isascii() and digits.isdecimal() and name[_DIGITS : _DIGITS + 1] == "."


def ensure_logs(fs: ReadFs, path: PurePath) -> None:
    """Raise `ConfigInvalid` for a directory that is empty, lies above log directories, or is no broker's at all."""
    _refuse_without_logs(fs, path, fs.entries(path))


def _refuse_without_logs(fs: ReadFs, path: PurePath, entries: Mapping[str, FileStat]) -> None:
    if not entries.keys() - _OF_NO_BROKER:
        first = "for the first start of a broker format it (kafka-storage.sh format)"
        raise ConfigInvalid(f"{printable(path)} is empty, so nothing was read: is its volume mounted? {first}")
    if _has_root_file(entries):
        return
    inner = [name for name, stat in entries.items() if stat.kind is FileKind.DIRECTORY and _is_log_dir(fs, path / name)]
    if inner:
        places = ", ".join(printable(path / name) for name in sorted(inner))
        raise ConfigInvalid(f"{printable(path)} is no log directory, but these below it are: {places}")
    _refuse_strangers(path, entries)


def _has_root_file(entries: Mapping[str, FileStat]) -> bool:
    files = (name for name, stat in entries.items() if stat.kind is FileKind.FILE and name not in _OF_NO_BROKER)
    return any(parse_root_file_name(name) is not None for name in files)


def _is_log_dir(fs: ReadFs, path: PurePath) -> bool:
    with contextlib.suppress(EnvironmentFault):
        return _has_root_file(fs.entries(path))
    return False


def ensure_topics(fs: ReadFs, targets: Iterable[Target], patterns: Iterable[str]) -> None:
    """Raise `ConfigInvalid` for a pattern of topics that no partition of the log directories matches."""
    log_dirs = [target.path for target in targets if target.kind is TargetKind.LOG_DIR]
    topics = set()
    for log_dir in log_dirs:
        for name in fs.entries(log_dir):
            with contextlib.suppress(CorruptData):
                topics.add(parse_directory_name(name).partition.topic)
    for pattern in patterns:
        if log_dirs and not fnmatch.filter(topics, pattern):
            places = ", ".join(map(printable, log_dirs))
            raise ConfigInvalid(f"--topic {printable(pattern)}: no partition in {places} matches, so nothing was read")


def ensure_log_dir(fs: ReadFs, path: PurePath) -> None:
    """Raise `ConfigInvalid` for a directory that holds things, and nothing of a broker: a lock file is not made there.

    An empty directory is fine: brokers are started on those.
    """
    entries = fs.entries(path)
    if entries:
        _refuse_strangers(path, entries)


def _refuse_strangers(path: PurePath, entries: Mapping[str, FileStat]) -> None:
    if not any(_is_of_broker(name, stat) for name, stat in entries.items()):
        raise ConfigInvalid(f"{printable(path)} holds no partition and no file of a broker: is it a log directory?")


def _is_of_broker(name: str, stat: FileStat) -> bool:
    if stat.kind is not FileKind.DIRECTORY:
        return parse_root_file_name(name) is not None
    try:
        parse_directory_name(name)
    except CorruptData:
        return name == REMOTE_INDEX_CACHE
    return True


def with_metadata_dir(fs: ReadFs, targets: Iterable[Target], options: PlanOptions) -> PlanOptions:
    """Return the options with the log directory of the metadata log, which tells topics' ids, if a target has it."""
    if options.metadata_dir is not None:
        return options
    for target in targets:
        place = target.log_dir / f"{METADATA_TOPIC}-0"
        with contextlib.suppress(EnvironmentFault):
            if fs.stat(place).kind is FileKind.DIRECTORY:
                return options._replace(metadata_dir=str(target.log_dir))
    return options


def distinct(targets: Iterable[Target]) -> list[Target]:
    """Return the targets in their order, each once."""
    return list(dict.fromkeys(targets))
