"""The shape of the code as a table: `python tests/tidy/structure.py [CHECKOUT]` prints rooms, circles, lines, classes.

It reads sources only, so that it can compare two checkouts; the directory it is given need not be this one.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PACKAGES: Final = ("storage", "checkpoint", "recovery", "wire", "engine", "daemon", "server", "audit", "cli")
DOCUMENTS: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs", "bench/README.md")
MOST_CLASSES: Final = 12
_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class Shape(NamedTuple):
    """A class: its methods and fields, those of its bases within the project included."""

    place: str
    methods: int
    fields: int


def modules(root: Path) -> dict[str, Path]:
    """Return the modules of all packages by their dotted name; a package goes by its own name."""
    names = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def rooms(root: Path) -> Counter[str]:
    """Return how many modules each folder of a package holds, `__init__` not counted."""
    folders: Counter[str] = Counter()
    for path in modules(root).values():
        folders[str(path.parent.relative_to(root))] += path.name != "__init__.py"
    return folders


def imports(root: Path) -> dict[str, set[str]]:
    """Return which modules each module imports, also within functions and for the type checker."""
    files = modules(root)
    edges: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                submodules = (f"{node.module}.{alias.name}" for alias in node.names)
                targets = [target if target in files else node.module for target in submodules]
            else:
                continue
            edges[name] |= {target for target in targets if target in files and target != name}
    return edges


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import one another over whatever way, largest first."""
    reach = {name: _reachable(name, edges) for name in edges}
    groups = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in edges}
    return sorted((list(group) for group in groups if len(group) > 1), key=lambda group: (-len(group), group))


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for target in edges[waiting.pop()] - seen:
            seen.add(target)
            waiting.append(target)
    return seen


def between_folders(edges: dict[str, set[str]], root: Path) -> dict[str, set[str]]:
    """Return which folders import which, from which modules do."""
    files = modules(root)
    folder = {name: ".".join(path.parent.relative_to(root).parts) for name, path in files.items()}
    grouped: dict[str, set[str]] = {place: set() for place in folder.values()}
    for name, targets in edges.items():
        grouped[folder[name]] |= {folder[target] for target in targets} - {folder[name]}
    return grouped


def classes(root: Path) -> list[Shape]:
    """Return every class of the packages; protocols are left out, which only declare."""
    places = [
        (f"{path.relative_to(root)}: {node.name}", node)
        for path in modules(root).values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and "Protocol" not in _bases(node)
    ]
    by_name = {node.name: node for _, node in places}
    return [Shape(place, len(_methods(node, by_name)), len(_fields(node, by_name))) for place, node in places]


def _bases(node: ast.ClassDef) -> set[str]:
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


def _lineage(node: ast.ClassDef, by_name: dict[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    yield node
    for base in _bases(node) & by_name.keys() - {node.name}:
        yield from _lineage(by_name[base], by_name)


def _methods(node: ast.ClassDef, by_name: dict[str, ast.ClassDef]) -> set[str]:
    return {part.name for owner in _lineage(node, by_name) for part in owner.body if isinstance(part, _FUNCTION)}


def _fields(node: ast.ClassDef, by_name: dict[str, ast.ClassDef]) -> set[str]:
    names = set()
    for owner in _lineage(node, by_name):
        for part in owner.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                names.add(part.target.id)
        for part in ast.walk(owner):
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and _is_self(part.value):
                names.add(part.attr)
    return names


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def lines(root: Path) -> dict[str, int]:
    """Return lines of the product in Python and in C, of tests, of benches and scripts, and of documents."""

    def count(places: tuple[str, ...], *suffixes: str) -> int:
        files = (
            path
            for place in places
            for path in ((root / place).rglob("*") if (root / place).is_dir() else [root / place])
            if path.suffix in suffixes and path.is_file()
        )
        return sum(len(path.read_bytes().splitlines()) for path in files)

    return {
        "product, Python": count(PACKAGES, ".py"),
        "product, C": count(PACKAGES, ".c", ".h"),
        "tests": count(("tests",), ".py"),
        "tests, Java": count(("tests",), ".java"),
        "bench, scripts, deploy": count(("bench", "scripts", "deploy", "systemd"), ".py", ".sh"),
        "documents": count(DOCUMENTS, ".md"),
    }


def table(root: Path) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "modules per room"
    for folder, count in sorted(rooms(root).items()):
        yield f"  {folder:<32}{count:>4}"
    edges = imports(root)
    packages = {name.split(".")[0]: set[str]() for name in edges}
    for name, targets in edges.items():
        packages[name.split(".")[0]] |= {target.split(".")[0] for target in targets} - {name.split(".")[0]}
    for title, graph in (("modules", edges), ("folders", between_folders(edges, root)), ("packages", packages)):
        groups = circles(graph)
        yield f"circles of imports between {title}: {len(groups)}"
        yield from (f"  {' '.join(group)}" for group in groups)
    yield "lines"
    for what, number in lines(root).items():
        yield f"  {what:<32}{number:>6}"
    shapes = classes(root)
    yield "longest classes by methods (inherited ones included)"
    for shape in sorted(shapes, key=lambda shape: -shape.methods)[:MOST_CLASSES]:
        yield f"  {shape.methods:>4}  {shape.place}"
    yield "longest classes by fields (inherited ones included)"
    for shape in sorted(shapes, key=lambda shape: -shape.fields)[:MOST_CLASSES]:
        yield f"  {shape.fields:>4}  {shape.place}"


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])))
