"""`logmend manifest`: what is in log directories, to hold copies against; and `verify --manifest`, which does so."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final

from cli.console import Console
from cli.settings.arguments import add_files, add_output, require_paths, settings_of
from cli.settings.targets import absolute, write_new
from cli.version import version
from recovery.evidence.evidence import Difference, compare, decode_manifest, encode_manifest, take_evidence
from recovery.plan.plan import to_plain
from recovery.plan.words import count
from recovery.report.documents import document
from recovery.report.rows import rows_text
from storage.base.errors import ConfigInvalid, CorruptData, ExitStatus, LogmendError, printable
from storage.disk.fs import OsFs, ReadOnlyFs
from storage.reading.log_reader import LogReader

NAMESPACE: Final = "logmend-evidence"
_SECONDS: Final = 300


class SignatureInvalid(LogmendError):
    """A signature does not hold, or cannot be checked."""

    status = ExitStatus.FINDINGS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `manifest`."""
    parser.add_argument("log_dirs", nargs="*", metavar="PATH", help="log directory")
    parser.add_argument("--out", metavar="FILE", help="write to a new FILE instead of standard output")
    parser.add_argument("--sign", metavar="KEY", help="sign FILE with this SSH key, by ssh-keygen: makes FILE.sig")
    add_files(parser)
    add_output(parser)


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Write the manifest of every log directory."""
    if arguments.sign and not arguments.out:
        raise ConfigInvalid("--sign needs --out FILE: a signature is made for a file")
    log_dirs = [absolute(name) for name in require_paths(settings_of(arguments, environment))]
    lines = _lines(log_dirs)
    if not arguments.out:
        for line in lines:
            console.raw(line)
        return ExitStatus.CLEAN
    for log_dir in log_dirs:
        if absolute(arguments.out).is_relative_to(log_dir):
            raise ConfigInvalid(f"--out {printable(arguments.out)} lies in the log directory {printable(log_dir)}")
    write_new(arguments.out, (line.encode("ascii") for line in lines), "the manifest")
    if arguments.sign:
        _ssh_keygen("sign", "-f", arguments.sign, "-n", NAMESPACE, arguments.out)
    return ExitStatus.CLEAN


def _lines(log_dirs: Sequence[PurePath]) -> Iterator[str]:
    fs, reader = ReadOnlyFs(OsFs()), LogReader()
    for log_dir in log_dirs:
        yield from encode_manifest(log_dir, version(), take_evidence(fs, log_dir, reader))


def verify_manifest(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Hold log directories against a manifest: the only one it speaks of, or each by its path."""
    if arguments.allowed_signers or arguments.signer:
        if not (arguments.allowed_signers and arguments.signer):
            raise ConfigInvalid("--allowed-signers and --signer belong together")
        _check_signature(arguments)
    manifest = _read(arguments.manifest)
    log_dirs = [absolute(name) for name in require_paths(settings_of(arguments, environment))]
    fs, reader = ReadOnlyFs(OsFs()), LogReader()
    results = []
    for log_dir in log_dirs:
        files = manifest.get(str(log_dir)) if len(manifest) > 1 or len(log_dirs) > 1 else next(iter(manifest.values()))
        if files is None:
            raise ConfigInvalid(f"the manifest does not speak of {printable(log_dir)}")
        differences = list(compare(fs, log_dir, files, reader))
        results.append((log_dir, len(files), differences))
    status = ExitStatus.FINDINGS if any(differences for _, _, differences in results) else ExitStatus.CLEAN
    if console.json:
        told = [
            {"path": str(path), "files": n, "differences": to_plain(tuple(differences))}
            for path, n, differences in results
        ]
        console.document(document("verify-manifest", version(), status, results=told))
    for path, number, differences in results if console.is_text else ():
        verdict = "differs" if differences else "as in the manifest"
        console.say(f"{printable(path)}: {verdict}: {count(number, 'file')}, {count(len(differences), 'difference')}")
        for line in rows_text(_row(each) for each in differences):
            console.say(line)
    return status


def _row(difference: Difference) -> tuple[str, str, str]:
    offsets = ""
    if difference.first_offset is not None:
        offsets = f"offsets {difference.first_offset} to {difference.last_offset}: "
    return difference.what, printable(difference.file), offsets + printable(difference.evidence)


def _read(name: str) -> dict[str, dict[str, Any]]:
    try:
        with Path(name).open("rb") as file:
            return decode_manifest(file)
    except CorruptData as error:
        raise ConfigInvalid(f"--manifest {printable(name)}: {error.reason}") from None
    except OSError as error:
        raise ConfigInvalid(f"--manifest {printable(name)}: cannot be read: {error.strerror}") from None


def _check_signature(arguments: argparse.Namespace) -> None:
    try:
        with Path(arguments.manifest).open("rb") as file:
            _ssh_keygen(
                "verify", "-f", arguments.allowed_signers, "-I", arguments.signer, "-n", NAMESPACE,
                "-s", f"{arguments.manifest}.sig", stdin=file,
            )  # fmt: skip
    except OSError as error:
        raise ConfigInvalid(f"--manifest {printable(arguments.manifest)}: cannot be read: {error.strerror}") from None


def _ssh_keygen(step: str, *words: str, stdin: Any = subprocess.DEVNULL) -> None:
    """Run OpenSSH's own tool; raises `SignatureInvalid` with what it says."""
    try:
        words = ("ssh-keygen", "-Y", step, *words)
        done = subprocess.run(words, stdin=stdin, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except FileNotFoundError:
        raise SignatureInvalid("ssh-keygen is not installed; on Debian: apt-get install openssh-client") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SignatureInvalid(f"ssh-keygen: {error}") from None
    if done.returncode:
        said = printable((done.stderr or done.stdout).strip())
        what = "the manifest was not signed" if step == "sign" else "the signature does not hold"
        raise SignatureInvalid(f"{what}: {said}")
