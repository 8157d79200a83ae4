"""Variables are nouns: in a long block a participle does not say what a value is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tidy.tree import CODE, ROOT, sources, tree

PARTICIPLES = frozenset(("done", "each", "found", "given", "kept", "seen", "told"))
LINES = 8
"""Within so many lines what a name stands for is in view."""


def long_participles(function: ast.AST) -> Iterator[str]:
    """Yield the parameters and variables of a function that are participles and used over more than `LINES` lines."""
    places: dict[str, set[int]] = {}
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
            places.setdefault(node.arg, set()).add(node.lineno)
        elif isinstance(node, ast.Name):
            places.setdefault(node.id, set()).add(node.lineno)
            if isinstance(node.ctx, ast.Store):
                names.add(node.id)
    for name in sorted(names & PARTICIPLES):
        if max(places[name]) - min(places[name]) >= LINES:
            yield name


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return all functions of a file, also those within others."""
    return (node for node in ast.walk(tree(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def test_a_participle_of_a_long_block_is_seen() -> None:
    body = "\n".join(["    pass"] * 8)
    (long, short) = ast.parse(f"def long(found):\n{body}\n    return found\ndef short(found):\n    return found").body
    assert [*long_participles(long)] == ["found"]
    assert [*long_participles(short)] == []


def test_no_variable_of_a_long_block_is_a_participle() -> None:
    paths = sources(*CODE)
    names = [f"{path.relative_to(ROOT)}: {function.name}: {name}"
             for path in paths for function in functions(path) for name in long_participles(function)]  # fmt: skip
    assert names == []
