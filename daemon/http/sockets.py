"""The addresses of the HTTP server: a Unix socket that only its owner may use, or a port of this machine.

A socket file outlives its process. A lock on a file beside it shows its owner, and ends with its holder: a service that
gets the lock replaces a stale socket file in one step; a service that does not get it has a running rival.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from storage.base.errors import ConfigInvalid, ExitStatus, LogmendError, printable
from storage.base.quantities import Address, parse_address

_LONGEST_PATH: Final = 107
"""Bytes of a Unix socket's path that the kernel accepts."""
_BACKLOG: Final = 64


class ListenRefused(LogmendError):
    """The address is taken by another process or another file, or the system refuses it."""

    status = ExitStatus.ENVIRONMENT

    def __init__(self, listen: str, reason: str) -> None:
        super().__init__(listen, reason)
        self.listen, self.reason = listen, reason

    def __str__(self) -> str:
        return f"{printable(self.listen)}: cannot listen: {printable(self.reason)}"


@dataclass(frozen=True, slots=True)
class Listen:
    """An address: `path` of a Unix socket, or host and port."""

    path: PurePath | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return str(Address(self.host, self.port))


def parse_listen(text: str, *, allow_remote: bool = False) -> Listen:
    """Return what `unix:/run/logmend/logmend.sock`, `/run/…` or `127.0.0.1:9644` names; `ConfigInvalid` if nothing.

    A host that other machines can reach is refused unless `allow_remote`: not everybody may read what is served.
    """
    path = text.removeprefix("unix:")
    if path != text or text.startswith("/"):
        if not path.startswith("/") or "\0" in path:
            raise ConfigInvalid(f"listen = {printable(text)}: the path of a Unix socket must be absolute")
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise ConfigInvalid(f"listen = {printable(text)}: longer than {_LONGEST_PATH} bytes, the system's limit")
        return Listen(path=PurePath(path))
    try:
        host, port = parse_address(text)
    except ValueError:
        raise ConfigInvalid(
            f"listen = {printable(text)}: neither unix:/path, nor host:port, nor [address]:port"
        ) from None
    if not allow_remote and not is_loopback(host):
        raise ConfigInvalid(
            f"listen = {printable(text)}: other machines can reach this host; set allow_remote to allow that"
        )
    return Listen(host=host, port=port)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class BoundSocket:
    """A listening socket; `close` releases the address."""

    def __init__(self, listen: Listen) -> None:
        self.listen = listen
        self._lock = -1
        self._made: tuple[int, int] | None = None
        try:
            self.socket = self._bind_port() if listen.path is None else self._bind_path(listen.path)
        except OSError as error:
            self._unlock()
            raise ListenRefused(str(listen), error.strerror or str(error)) from error
        except ListenRefused:
            self._unlock()
            raise

    @property
    def port(self) -> int:
        """The port that the system chose for port 0, else the configured one; 0 of a Unix socket."""
        return 0 if self.listen.path is not None else int(self.socket.getsockname()[1])

    def close(self) -> None:
        """Remove the socket's file, if it is still ours, and release the lock."""
        path = self.listen.path
        with contextlib.suppress(OSError):
            if path is not None and self._made == _identity(path):
                os.unlink(path)
        self.socket.close()
        self._unlock()

    def _bind_port(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.listen.host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((self.listen.host, self.listen.port))
            made.listen(_BACKLOG)
        except OSError:
            made.close()
            raise
        return made

    def _bind_path(self, path: PurePath) -> socket.socket:
        self._take_lock(path)
        self._refuse_what_is_no_stale_socket(path)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Created under another name with mode 0600, then renamed: other users can never connect, and a stale file is
        # replaced in one step.
        new = path.with_name(f".{path.name}.new")
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            made.bind(str(new))
            os.chmod(new, 0o600)
            self._made = _identity(new)
            made.listen(_BACKLOG)
            os.rename(new, path)
        except OSError:
            made.close()
            raise
        return made

    def _take_lock(self, path: PurePath) -> None:
        self._lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ListenRefused(str(self.listen), "another logmend listens there") from error

    def _refuse_what_is_no_stale_socket(self, path: PurePath) -> None:
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise ListenRefused(str(self.listen), "this file is not a socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.settimeout(1)
            try:
                asked.connect(str(path))
            except OSError:
                return  # no process listens: the file of a process that was killed
        raise ListenRefused(str(self.listen), "another process listens there")

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _identity(path: PurePath) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
