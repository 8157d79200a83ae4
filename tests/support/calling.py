"""Calls the command within the process of the test, which costs a tenth of a process of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from cli.main import main


def call(*words: object, stdin: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run `logmend` with these words; settings in the environment are left out."""
    out, err = io.StringIO(), io.StringIO()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOGMEND_")}
    with tempfile.TemporaryFile() as typed:
        typed.write(stdin.encode() if isinstance(stdin, str) else stdin)
        typed.seek(0)
        with (
            patch.dict(os.environ, kept, clear=True), patch.object(sys, "stdin", typed),
            redirect_stdout(out), redirect_stderr(err),
        ):  # fmt: skip
            try:
                status = main([str(word) for word in words])
            except SystemExit as wrong_usage:
                status = int(wrong_usage.code or 0)
    return subprocess.CompletedProcess([*map(str, words)], status, out.getvalue(), err.getvalue())
