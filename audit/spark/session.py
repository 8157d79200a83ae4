"""What a Spark session of our own needs: a Java that is there, settings, and the code for executors elsewhere.

Spark itself is started by `audit.spark.job.start_session`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from storage.base.errors import ConfigInvalid, EnvironmentFault

GOOD_JAVA: Final = (17, 21)
_PACKAGES: Final = ("storage", "checkpoint", "recovery", "audit")
_ROOT: Final = Path(__file__).resolve().parents[2]
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_LIGHT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Of a session on one machine, where Java passes work on to Python for some seconds or minutes: to compile its code
twice, and to collect its garbage on all cores, takes more of the machine than it need. Measured beside other load: half
the processor time of a small audit, two thirds of the memory; a quiet machine is no faster (bench/README.md). One
compiler alone gets 48 MiB for its code, which three audits of one session filled; then nothing is compiled any more."""
_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_INSTALL: Final = {
    "debian": "apt-get install openjdk-17-jre-headless",
    "ubuntu": "apt-get install openjdk-17-jre-headless",
    "rhel": "dnf install java-17-openjdk-headless",
    "fedora": "dnf install java-21-openjdk-headless",
    "suse": "zypper install java-17-openjdk-headless",
    "alpine": "apk add openjdk17-jre-headless",
    "arch": "pacman -S jre17-openjdk-headless",
}


class NoJava(EnvironmentFault):
    """There is no Java that Spark runs on."""

    def __init__(self, found: str, command: str) -> None:
        super().__init__("starting Spark", Path("java"), OSError(2, found))
        self.found, self.command = found, command

    def __str__(self) -> str:
        return f"Spark needs Java 17 or 21, {self.found}. To install it: {self.command}"


def check_java(environment: Mapping[str, str]) -> int:
    """Return the major version of the Java that Spark will use; raises `NoJava`, which says how to install one."""
    home = environment.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    if java is None:
        raise NoJava("and there is none here", install_command())
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"and {java} does not start: {error}", install_command()) from None
    found = _VERSION.search(told.stderr + told.stdout)
    if found is None:
        raise NoJava(f"and {java} does not say which it is", install_command())
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < min(GOOD_JAVA):
        raise NoJava(f"and {java} is {major}", install_command())
    return major


def install_command(os_release: str | None = None) -> str:
    """Return the command that installs Java on this kind of system; `os_release`: content of that file."""
    if os_release is None:
        try:
            os_release = Path("/etc/os-release").read_text(encoding="utf-8", errors="replace")
        except OSError:
            os_release = ""
    told = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    for name in f"{told.get('ID', '')} {told.get('ID_LIKE', '')}".replace('"', "").split():
        if name in _INSTALL:
            return _INSTALL[name]
    return _INSTALL["debian"] + " (or what your system calls Java 17)"


def session_settings(master: str, extra: Mapping[str, str], cores: int | None = None) -> dict[str, str]:
    """Return the settings of a session. For a `local` master nothing listens but on the loopback interface.

    `extra` is what the user wants to be otherwise.
    """
    chosen = {
        "spark.master": master,
        "spark.app.name": "logmend audit",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.ui.enabled": "false",
        "spark.task.maxFailures": "4",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        chosen["spark.master"] = _with_retries(master, cores)
        chosen["spark.driver.bindAddress"] = chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.sql.shuffle.partitions"] = str(4 * (cores or os.cpu_count() or 1))
        chosen["spark.driver.extraJavaOptions"] = _LIGHT_JAVA
    return chosen | dict(extra)


def _with_retries(master: str, cores: int | None) -> str:
    """Return a local master whose tasks may fail as often as anywhere else; by itself it gives up at the first."""
    found = re.fullmatch(r"local(?:\[([0-9*]+)\])?", master)
    return f"local[{found[1] or cores or 1},4]" if found else master


def prepare_environment(environment: MutableMapping[str, str]) -> None:
    """Make executors on this machine run the Python that we run, and find the code that we found."""
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    here = str(_ROOT)
    known = environment.get("PYTHONPATH", "")
    if here not in known.split(os.pathsep):
        environment["PYTHONPATH"] = os.pathsep.join(part for part in (here, known) if part)


@contextmanager
def quiet_log4j(scratch: Path) -> Iterator[None]:
    """Let Spark's own log say errors only, from its first line on; who has settings of his own keeps them."""
    settings = scratch / "log4j2.properties"
    settings.write_text(_LOG4J, encoding="ascii")
    if "SPARK_CONF_DIR" in os.environ or "SPARK_SUBMIT_OPTS" in os.environ:
        yield
        return
    os.environ["SPARK_SUBMIT_OPTS"] = f"-Dlog4j2.configurationFile={settings.as_uri()}"
    try:
        yield
    finally:
        os.environ.pop("SPARK_SUBMIT_OPTS", None)


def write_zip(target: Path) -> Path:
    """Write the code that executors need as a zip, always with the same bytes, and return its path.

    A C kernel does not load from a zip: executors that lack an installed logmend use the scanner in Python.
    """
    if not all((_ROOT / package).is_dir() for package in _PACKAGES):
        raise ConfigInvalid(f"{_ROOT} is no directory with the code; give executors what they need by --py-files")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for path in sorted((_ROOT / package).rglob("*")):
                if path.suffix in (".py", ".sql", ".css", ".js") and "__pycache__" not in path.parts:
                    info = zipfile.ZipInfo(str(path.relative_to(_ROOT)), (2020, 1, 1, 0, 0, 0))
                    archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target
