"""What a test needs: a missing program is a skip, in CI a failure; what no installation changes stays a skip."""

from __future__ import annotations

import pytest
from _pytest.outcomes import Skipped
from support.needs import NOT_HERE, fail_in_ci, impossible, need, program


def report(reason: str) -> pytest.TestReport:
    where = ("test_it.py", 3, f"Skipped: {reason}")
    return pytest.TestReport("test_it.py::test", ("test_it.py", 3, "test"), {}, "skipped", where, "call")


def test_the_path_of_the_first_program_that_is_there_is_found() -> None:
    assert program("no-such-program", "sh").endswith("/sh")
    need("sh", "env")


def test_a_missing_program_skips_the_test_and_names_it() -> None:
    with pytest.raises(Skipped, match="no-such-program is not installed"):
        need("sh", "no-such-program")


@pytest.mark.parametrize(("ci", "outcome"), [("1", "failed"), ("", "skipped")])
def test_in_ci_a_skip_is_a_failure(ci: str, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", ci)
    skipped = report("strace is not installed")
    fail_in_ci(skipped)
    assert skipped.outcome == outcome
    assert "strace is not installed" in str(skipped.longrepr)


def test_what_this_machine_cannot_do_is_skipped_in_ci_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    with pytest.raises(Skipped, match=NOT_HERE) as raised:
        impossible("only root may do this")
    skipped = report(str(raised.value))
    fail_in_ci(skipped)
    assert skipped.outcome == "skipped"
