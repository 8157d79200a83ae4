"""From paths to log directories that are locked, recovered and claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from engine.logdir.log_dir import LogDir
from engine.settings.identity import ensure_identities, make_log_dir, read_identity
from engine.settings.options import ManagerOptions
from engine.settings.refusals import LogDirStopped, NoLogDir
from storage.base.errors import ConfigInvalid, EnvironmentFault, ExitStatus, LogmendError, printable
from storage.disk.fs import Fs


def open_log_dirs(fs: Fs, paths: Sequence[PurePath], options: ManagerOptions, now_ms: int) -> list[LogDir]:
    """Return the log directories, in this order, locked and recovered; those that the disk fails on are offline.

    No marker has gone by then. Raises as `LogManager.open` does, with all locks released.
    """
    if len(set(paths)) < len(paths):
        raise ConfigInvalid("the same log directory twice")
    log_dirs = [LogDir(fs, path, options) for path in paths]
    try:
        _each(log_dirs, lambda log_dir: _take(fs, log_dir))
        _each(log_dirs, lambda log_dir: read_identity(fs, log_dir.path))
        ensure_online(log_dirs)
        online = [log_dir for log_dir in log_dirs if log_dir.offline is None]
        ensure_identities(fs, [log_dir.path for log_dir in online], options.draw_id)
        _each(log_dirs, lambda log_dir: log_dir.recover(now_ms))
        _refuse_duplicates(log_dirs)
    except BaseException:
        for log_dir in log_dirs:
            log_dir.go_offline("opening was given up")
        raise
    return log_dirs


def claim_log_dirs(log_dirs: Sequence[LogDir], now_ms: int) -> None:
    """Take the markers away: from here on a crash leaves unclean directories. Raises `CorruptData`."""
    _each(log_dirs, lambda log_dir: log_dir.claim(now_ms))


def ensure_online(log_dirs: Sequence[LogDir]) -> None:
    """Raise `NoLogDir` if there is none, or none that is online."""
    if all(log_dir.offline is not None for log_dir in log_dirs):
        raise NoLogDir({log_dir.path: (log_dir.offline or "", log_dir.status) for log_dir in log_dirs})


def _take(fs: Fs, log_dir: LogDir) -> None:
    make_log_dir(fs, log_dir.path)
    log_dir.lock()


def _each(log_dirs: Sequence[LogDir], work: Callable[[LogDir], object]) -> None:
    """Do `work` in each log directory; where the disk fails, or `sets_aside` says so, that one goes offline alone."""
    for log_dir in log_dirs:
        if log_dir.offline is None:
            try:
                work(log_dir)
            except LogmendError as fault:
                if not _goes_alone(log_dir, fault):
                    raise
                log_dir.go_offline(str(fault), fault.status)


def _goes_alone(log_dir: LogDir, fault: LogmendError) -> bool:
    """Tell whether a fault takes its log directory offline and nothing else."""
    is_of_disk = isinstance(fault, EnvironmentFault)
    is_unreadable = isinstance(fault, LogDirStopped) and fault.status is ExitStatus.ENVIRONMENT
    return is_of_disk or is_unreadable or isinstance(fault, log_dir.options.sets_aside)


def _refuse_duplicates(log_dirs: Sequence[LogDir]) -> None:
    """Raise `ConfigInvalid` for a partition that lies in two log directories: which one is right cannot be known."""
    places: dict[str, PurePath] = {}
    for log_dir in log_dirs:
        if log_dir.offline is None:
            for directory in log_dir.directories():
                if directory.state is None:
                    other = places.setdefault(str(directory.partition), log_dir.path)
                    if other != log_dir.path:
                        where = f"{printable(other)} and {printable(log_dir.path)}"
                        raise ConfigInvalid(f"partition {printable(directory.partition)} lies in {where}: remove one")
