"""The tests: each states something, and each interop test can be told from the rest."""

from __future__ import annotations

import ast
import re

from tidy.tree import ROOT, Node, functions, sources, tracked, tree

CHECKS = ("assert", "check", "expect", "verify", "compare", "raises", "warns", "fail")


def checks_something(node: Node) -> bool:
    """Say whether there is an `assert`, or a call of something whose name says that it checks."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assert):
            return True
        if isinstance(part, ast.Call):
            called = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if called.lstrip("_").startswith(CHECKS):
                return True
    return False


def test_no_test_asserts_nothing() -> None:
    tests = [found for found in functions("tests") if found.node.name.startswith("test_")]
    assert len(tests) > 10
    assert [str(found) for found in tests if not checks_something(found.node)] == []


def test_a_test_without_an_assert_is_seen() -> None:
    def parse(body: str) -> Node:
        (node,) = ast.parse(f"def test_it():\n    {body}").body
        assert isinstance(node, ast.FunctionDef)
        return node

    assert checks_something(parse("assert 1"))
    assert checks_something(parse("check_rows(found)"))
    assert not checks_something(parse("scan(window)"))


def test_files_with_tests_are_named_so_that_pytest_finds_them() -> None:
    for path in sources("tests"):
        has_tests = any(isinstance(n, Node) and n.name.startswith("test_") for n in tree(path).body)
        assert not has_tests or path.name.startswith("test_"), path.relative_to(ROOT)


def test_the_map_of_the_tests_names_each_suite_and_each_file_of_support() -> None:
    named = re.findall(r"`([\w.]+)`", (ROOT / "tests/README.md").read_text())
    there = [path.relative_to(ROOT / "tests") for path in tracked() if path.is_relative_to(ROOT / "tests")]
    suites = {path.parts[0] for path in there if len(path.parts) > 1}
    assert len(suites) > 10
    assert suites - set(named) == set()
    support = {path.name for path in there if path.parts[0] == "support"}
    assert support == {name for name in named if name in support or (ROOT / "tests/support" / name).exists()}
    assert [name for name in named if name.endswith(".py") and name not in support and name != "conftest.py"] == []


def test_waiting_is_done_in_one_place() -> None:
    """A sleep that stands for a condition fails under load; each exception here has its reason."""
    sleeps = {path.relative_to(ROOT).as_posix() for path in sources("tests") if SLEEP in path.read_text()}
    assert sleeps == SLEEPS


SLEEP = "time" + ".sleep("
SLEEPS = {
    "tests/support/waiting.py",
    "tests/support/real_clock.py",  # a clock
    "tests/support/group_asking.py",  # asks again while the coordinator raises that it loads
    "tests/interop/kafka_lab.py",  # the kit stands on nothing else
    "tests/golden/make_fixtures.py",  # lets brokers run for as long as their files need
    "tests/golden/make_crashed_sample.py",
    "tests/soak/worker.py",  # are programs of their own, and busy
    "tests/soak/runner.py",
    "tests/power/powercut.py",
    "tests/faults/test_memory.py",  # samples memory
    "tests/faults/test_shrinking_while_read.py",  # ends with the process too
    "tests/faults/test_kills.py",  # kills at random times
    "tests/systemd/test_boot.py",  # makes a disk slow
    "tests/unit/cli/service/test_run.py",
    "tests/unit/cli/test_exit_statuses.py",  # works for long
    "tests/unit/daemon/events/test_notify.py",  # hangs
}
