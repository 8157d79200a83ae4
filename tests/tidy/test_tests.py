"""The tests: each states something, and each interop test can be told from the rest."""

from __future__ import annotations

import ast

from tidy.tree import ROOT, Node, functions, sources, tree

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
