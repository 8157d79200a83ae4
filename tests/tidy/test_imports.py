"""Rules on imports that import-linter and ruff cannot express."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidy.tree import ROOT, sources, tree

LOOKING = {"FileKind", "FileStat", "ReadFile", "ReadFs", "ReadOnlyFs", "read_all", "temporary_name"}
"""What `storage.disk.fs` offers to who only looks."""
CHANGERS = ("recovery/apply/", "recovery/evidence/quarantine.py")


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


def modules(path: Path) -> set[str]:
    """Return every module that a file may have imported; `from a import b` counts as `a` and as `a.b`."""
    return {name for module, part in imported(path) for name in (module, f"{module}.{part}")}


def test_in_recovery_only_execute_and_quarantine_get_what_changes_a_disk() -> None:
    lookers = [path for path in sources("recovery") if not str(path.relative_to(ROOT)).startswith(CHANGERS)]
    assert lookers
    for path in lookers:
        taken = {name for module, name in imported(path) if module == "storage.disk.fs" or name == "fs"}
        assert taken <= LOOKING, path


@pytest.mark.parametrize("folder", ["storage", "checkpoint", "audit"])
def test_below_and_beside_recovery_nobody_imports_what_changes_things(folder: str) -> None:
    for path in sources(folder):
        assert modules(path).isdisjoint({"recovery.apply.execute", "recovery.evidence.quarantine"}), path


def test_only_the_job_the_data_source_and_the_sql_command_of_the_audit_import_pyspark() -> None:
    users = {path for path in sources("storage", "checkpoint", "recovery", "cli", "engine", "daemon", "audit")
             if any(module.split(".")[0] == "pyspark" for module, _ in run_by(path))}  # fmt: skip
    assert {str(path.relative_to(ROOT)) for path in users} <= {
        "audit/spark/job.py",
        "audit/spark/datasource.py",
        "cli/audit/sql.py",
    }
