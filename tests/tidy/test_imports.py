"""Rules on imports that import-linter and ruff cannot express."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidy.tree import ROOT, sources, tree

from storage.disk import fs


def run_by(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what `imported` does, without what is imported for the type checker alone."""
    for_types = {
        id(part)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for part in node.body
    }
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types:
            yield node.module or "", ""
        elif isinstance(node, ast.Import) and id(node) not in for_types:
            yield from ((alias.name, "") for alias in node.names)


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each import in a file; the name is empty for `import module`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def changers() -> tuple[str, ...]:
    """Return the parts of recovery that import-linter protects because they change a disk."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (protected,) = (contract["protected_modules"] for contract in contracts if contract["type"] == "protected")
    return tuple(module.replace(".", "/") for module in protected)


def can_change(name: str) -> bool:
    """Tell whether a name of `storage.disk.fs` changes a disk: it can write, or takes a file system that can."""
    value = getattr(fs, name)
    if not inspect.isclass(value):
        return any(kind in ("Fs", "WriteFile") for kind in getattr(value, "__annotations__", {}).values())
    writing = {*dir(fs.Fs), *dir(fs.WriteFile)} - {*dir(fs.ReadFs), *dir(fs.ReadFile)}
    return any(inspect.isfunction(getattr(value, method, None)) for method in writing)


@pytest.mark.parametrize("name", ["Fs", "OsFs", "WriteFile", "replace_atomically"])
def test_what_can_write_is_recognised_as_such(name: str) -> None:
    assert can_change(name)
    assert not any(can_change(name) for name in ("ReadFs", "ReadFile", "ReadOnlyFs", "FileStat", "read_all"))


def test_in_recovery_only_what_is_protected_is_given_a_file_system_that_it_can_write() -> None:
    readers = [p for p in sources("recovery") if not str(p.relative_to(ROOT).with_suffix("")).startswith(changers())]
    assert readers
    for path in readers:
        assert not [name for module, name in imported(path) if module == fs.__name__ and can_change(name)], path
        assert {(fs.__name__, ""), ("storage.disk", "fs")}.isdisjoint(imported(path)), path


def test_only_the_job_the_data_source_and_the_sql_command_of_the_audit_import_pyspark() -> None:
    users = {path for path in sources("storage", "checkpoint", "recovery", "cli", "engine", "daemon", "audit")
             if any(module.split(".")[0] == "pyspark" for module, _ in run_by(path))}  # fmt: skip
    assert {str(path.relative_to(ROOT)) for path in users} <= {
        "audit/spark/job.py",
        "audit/spark/datasource.py",
        "cli/audit/sql.py",
    }
