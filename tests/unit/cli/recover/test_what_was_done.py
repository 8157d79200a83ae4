"""What `recover` says was done when an error ended it: nothing, leftovers moved, or a part."""

from __future__ import annotations

import errno
from pathlib import Path, PurePath

import pytest
from support.calling import call
from support.faults import BIG_LEFTOVERS, DAMAGES, write_tree

from storage.disk.fs import OsFs, write_fault


def failing(patch: pytest.MonkeyPatch, method: str, end: str) -> None:
    """Let one method of the disk find no room for files of which the name ends so."""
    real = getattr(OsFs, method)

    def other(self: OsFs, path: PurePath, *arguments: object) -> object:
        if path.name.endswith(end):
            raise write_fault(method, path, OSError(errno.ENOSPC, "no room"))
        return real(self, path, *arguments)

    patch.setattr(OsFs, method, other)


@pytest.mark.parametrize(
    ("method", "end", "words", "said"),
    [
        ("create", ".index.tmp", [], "nothing done"),
        ("create", ".index.tmp", ["--quarantine", "kept"], "3 leftover files moved to "),
        ("create", ".index.tmp", ["--discard"], "3 leftover files removed, nothing else done"),
        ("create", ".logmend", ["--quarantine", "kept"], "nothing done"),
        ("truncate", ".log", [], "ended in the middle, as a crash would; recover again finishes it"),
    ],
)
def test_nothing_done_is_said_where_nothing_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, end: str, words: list[str], said: str
) -> None:
    home = write_tree(tmp_path / "data", {**DAMAGES["torn"], **BIG_LEFTOVERS})
    (tmp_path / "kept").mkdir()
    words = [str(tmp_path / word) if word == "kept" else word for word in words]
    with monkeypatch.context() as patch:
        failing(patch, method, end)
        done = call("recover", *words, home)
    assert done.returncode == 5
    assert f"not recovered (exit status 5): {said}" in done.stdout
    assert "--quarantine" not in done.stderr
    assert call("recover", *words, home).returncode == 0
    assert call("recover", "--dry-run", home).returncode == 0
