"""How commands reach the service: its Unix socket first, and what it last wrote where nobody answers."""

from __future__ import annotations

import argparse
import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, cast

from cli.settings.service_settings import SOCKET, read_service, run_dir_of, socket_of
from cli.settings.state_dir import state_dir_of
from cli.settings.targets import absolute
from storage.base.errors import EnvironmentFault, ExitStatus, LogmendError, printable
from storage.disk.fs import OsFs, ReadFs, read_all

STATUS_NAME: Final = "status.json"
_SECONDS: Final = 10.0
_LARGEST: Final = 256 << 20


class ServiceSilent(LogmendError):
    """The service does not answer: it is not there, it may not be asked by us, or it has no time."""

    status = ExitStatus.ENVIRONMENT

    def __init__(self, path: PurePath, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{printable(self.path)}: the service does not answer: {printable(self.reason)}"


class ServiceRefused(LogmendError):
    """The service does not take an order."""

    status = ExitStatus.USAGE

    def __str__(self) -> str:
        return printable(self.args[0])


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: PurePath) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(str(self._path))


def ask(path: PurePath, method: str, target: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the JSON object that the service answers with; `ServiceSilent` or `ServiceRefused` if it does not."""
    connection = _UnixConnection(path)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, target, data, {"Content-Type": "application/json"} if data else {})
        response = connection.getresponse()
        text = response.read(_LARGEST)
    except FileNotFoundError:
        raise ServiceSilent(path, "there is no socket; is `logmend run` running?") from None
    except ConnectionRefusedError:
        raise ServiceSilent(path, "nobody listens on this socket any more") from None
    except PermissionError:
        raise ServiceSilent(path, "only its own user may ask it; run this as that user") from None
    except (OSError, http.client.HTTPException) as error:
        raise ServiceSilent(path, str(error) or type(error).__name__) from error
    finally:
        connection.close()
    told = _parsed(path, text) if response.status in (200, 400) else {}
    if response.status == 400:
        raise ServiceRefused(str(told.get("error", "refused")))
    if response.status != 200:
        raise ServiceSilent(path, f"it answers {response.status}: {text.decode('utf-8', 'replace').strip()[:200]}")
    return told


def last_written(state_dir: PurePath, fs: ReadFs | None = None) -> dict[str, Any] | None:
    """Return what the service last wrote into its state directory; None if there is nothing of use."""
    path = state_dir / STATUS_NAME
    try:
        told = _parsed(path, read_all(fs or OsFs(), path, _LARGEST))
    except (EnvironmentFault, ServiceSilent):
        return None
    is_ours = told.get("document") == "status" and told.get("schema_version") == 1
    return told if is_ours and isinstance(told.get("now_ms"), int) and isinstance(told.get("log_dirs"), list) else None


def _parsed(path: PurePath, text: bytes) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ServiceSilent(path, "what it says is no JSON") from error
    if not isinstance(told, dict):
        raise ServiceSilent(path, "what it says is no JSON object")
    return cast("dict[str, Any]", told)


def add_service(parser: argparse.ArgumentParser) -> None:
    """Add where the service is to be found."""
    group = parser.add_argument_group("service")
    group.add_argument("--socket", metavar="PATH", help="its Unix socket; by default as its configuration has it")
    group.add_argument("--state-dir", metavar="DIR", help="its state directory (/var/lib/logmend)")
    group.add_argument("--config", metavar="FILE", help="its configuration")


def find_service(arguments: argparse.Namespace, environment: Mapping[str, str]) -> tuple[PurePath, PurePath]:
    """Return the socket to ask on and the state directory of a service that was started in the same way."""
    config = read_service({"config": arguments.config}, environment).config
    state_dir = state_dir_of(config.state_dir, arguments.state_dir, environment)
    if arguments.socket:
        return absolute(arguments.socket), state_dir
    named = [place.removeprefix("unix:") for place in config.http.listen if place.startswith("unix:")]
    if named:
        return PurePath(named[0]), state_dir
    around = run_dir_of(state_dir, environment)
    return (around / SOCKET if around != state_dir else socket_of(state_dir) or state_dir / SOCKET), state_dir
