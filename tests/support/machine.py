"""A machine of its own for the units: a Debian root booted by systemd in a container, with logmend of this source.

Whatever it writes goes to memory and is gone with it. Needs root, systemd-nspawn and debootstrap.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from support.needs import impossible, need
from support.waiting import until

T = TypeVar("T")
HERE: Final = Path(__file__).resolve().parents[1] / "systemd"
SOURCE: Final = HERE.parents[1]
PACKAGES: Final = ("storage", "checkpoint", "recovery", "engine", "daemon", "cli")
ROOT_PYTHON: Final = (3, 11)
"""Of Debian 12, which the root is made of."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_WRAPPER: Final = """#!/bin/sh
export PYTHONPATH=/opt/logmend/lib:/opt/logmend/site PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 -m cli.main "$@"
"""


def need_machines() -> None:
    """Skip the test where no machine can be booted."""
    need("systemd-nspawn", "debootstrap", "nsenter", root=True)
    if sys.version_info[:2] != ROOT_PYTHON:
        version = ".".join(map(str, ROOT_PYTHON))
        impossible(f"the root has Python {version}, for which our libraries are not installed")
    if not Path("/sys/fs/cgroup/systemd").is_dir() and not Path("/sys/fs/cgroup/cgroup.controllers").is_file():
        impossible("there are no control groups")


def root_directory() -> Path:
    """Return the root to boot, made the first time: LOGMEND_SYSTEMD_ROOT, else in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = os.environ.get("LOGMEND_SYSTEMD_ROOT") or str(cache / "logmend-systemd" / "root")
    made = subprocess.run([HERE / "make-root.sh", place], check=True, stdout=subprocess.PIPE, text=True)
    return Path(made.stdout.strip())


def copy_source(target: Path) -> None:
    """Copy our packages."""
    for package in PACKAGES:
        shutil.copytree(SOURCE / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))


def libraries() -> Path:
    """Return where the libraries lie that we stand on."""
    found = importlib.util.find_spec("structlog")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parents[1]


class Machine:
    """One machine. Files are put there before `boot`; `run` runs a command in it as root.

    `start_up`: Python that logmend runs in it before anything else.
    """

    def __init__(self, directory: Path, start_up: str = "") -> None:
        self.directory, self.files = directory, directory / "files"
        self.console = directory / "console"
        self._binds: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0
        copy_source(directory / "lib")
        (directory / "lib" / "sitecustomize.py").write_text(start_up)
        self.bind(directory / "lib", "/opt/logmend/lib")
        self.bind(libraries(), "/opt/logmend/site")
        self.put("/opt/logmend/bin/logmend", _WRAPPER, mode=0o755)

    def bind(self, place: Path, target: str) -> None:
        """Show a directory of ours in the machine, read-only."""
        self._binds.append(f"--bind-ro={place}:{target}")

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Put a file into the machine; before `boot`."""
        place = self.files / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        place.chmod(mode)

    def enable(self, unit: str, by: str) -> None:
        """Let a unit be started when another one is: `multi-user.target.wants`, `kafka.service.requires`."""
        link = self.files / "etc/systemd/system" / by / unit
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"/etc/systemd/system/{unit}")

    def boot(self, seconds: float = 180, *, settled: bool = True) -> None:
        """Boot, and wait until the manager answers; `settled`: until it has done all that the boot asks for."""
        # The files come as an archive that is unpacked before anything else: a bind mount would need one for each.
        subprocess.run(["tar", "-C", self.files, "-cf", self.directory / "files.tar", "."], check=True)
        self.bind(self.directory / "files.tar", "/files.tar")
        command = [
            "systemd-nspawn", "--quiet", f"--directory={root_directory()}", "--volatile=overlay", "--register=no",
            "--keep-unit", "--private-network", "--machine=logmend-test", *self._binds,
            "--link-journal=no", "--console=pipe",
            "/bin/sh", "-c", "tar -C / --no-same-owner -xf /files.tar && systemd-sysusers && exec /lib/systemd/systemd",
        ]  # fmt: skip
        with self.console.open("wb") as console:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
            )
        self._leader = self.until(self._find_leader, seconds)
        wanted = _BOOTED if settled else (*_BOOTED, "starting")
        self.until(lambda: self.run("systemctl", "is-system-running", check=False).strip() in wanted, seconds)

    def _find_leader(self) -> int:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError("it does not boot:\n" + self.console.read_text(errors="replace")[-3000:])
        for child in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split():
            with contextlib.suppress(OSError):  # nspawn has other children on the way there
                if re.search(r"(?m)^NSpid:\s+\d+\s+1$", Path(f"/proc/{child}/status").read_text()):
                    return int(child)
        return 0

    def run(self, *words: object, check: bool = True) -> str:
        """Run a command in it and return what it printed; `check`: it must end with 0."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "--", *map(str, words)],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.journal()[-3000:]}")
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", name, unit).strip()

    def outer_pid(self, pid: int) -> int:
        """Return the number that a process of the machine has out here."""
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                seen = re.search(r"(?m)^NSpid:\s+(\d+)\s+(\d+)$", (place / "status").read_text())
                if seen is not None and int(seen[2]) == pid and self._is_inside(place):
                    return int(place.name)
        raise AssertionError(f"no process {pid}")

    def _is_inside(self, place: Path) -> bool:
        return os.readlink(place / "ns/pid") == os.readlink(f"/proc/{self._leader}/ns/pid")

    def journal(self, *words: str) -> str:
        """Return the journal, or that of a unit."""
        return self.run("journalctl", "--no-pager", "-o", "short-monotonic", *words, check=False)

    def until(self, look: Callable[[], T], seconds: float = 240) -> T:
        """Return the first answer of `look` that is true; where none is, fail with the machine's last words."""
        return until(look, seconds, say=self._last_words)

    def _last_words(self) -> str:
        said = self.console.read_text(errors="replace")[-2000:]
        return said + (self.journal()[-4000:] if self._leader else "")

    def end(self) -> None:
        """Stop it at once, whatever it does."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                if self._leader:
                    os.kill(self._leader, 9)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait(60)
        for place in _CGROUPS.glob("*/payload"), _CGROUPS.glob("*/supervisor"):
            for group in place:
                _remove_groups(group)


_BOOTED: Final = ("running", "degraded")


def _remove_groups(group: Path) -> None:
    """Remove the control groups that nspawn leaves where no systemd is host, the innermost first."""
    for directory, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
