"""The rooms: small, each with one sentence and a place in the layers, and the unit tests lie as the code does."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from tidy.structure import between_folders, circles, classes, imports, rooms
from tidy.tree import CODE, ROOT, sources, tree

MODULES_OF_A_ROOM = 12
UNIT = ROOT / "tests" / "unit"


def rooms_of(package: str) -> set[str]:
    """Return the names of the folders with modules at the top of a package."""
    return {path.relative_to(ROOT).parts[1] for path in sources(package) if len(path.relative_to(ROOT).parts) > 2}


def layers_of(package: str) -> set[str]:
    """Return the rooms that the contract of a package lists."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    ours = [contract for contract in contracts if contract.get("containers") == [package]]
    return {name for contract in ours for layer in contract["layers"] for name in re.split(r"[ |:]+", layer)}


def test_no_room_holds_more_than_twelve_modules() -> None:
    assert {folder: count for folder, count in rooms(ROOT).items() if count > MODULES_OF_A_ROOM} == {}


@pytest.mark.parametrize("path", [path for path in sources(*CODE) if path.name == "__init__.py"],
                         ids=lambda path: str(path.parent.relative_to(ROOT)))  # fmt: skip
def test_a_room_is_described_by_one_sentence(path: Path) -> None:
    (sentence,) = tree(path).body
    assert isinstance(sentence, ast.Expr)
    described = ast.get_docstring(tree(path)) or ""
    assert described.endswith(".")
    assert not re.search(r"\n|[.!?] ", described), "one sentence"


@pytest.mark.parametrize("package", [package for package in CODE if rooms_of(package)])
def test_every_room_has_a_place_in_the_layers_of_its_package(package: str) -> None:
    assert rooms_of(package) - layers_of(package) == set()


def test_every_folder_of_unit_tests_is_a_room_of_its_package() -> None:
    folders = [path.relative_to(UNIT) for path in UNIT.glob("*/*/") if any(path.glob("test_*.py"))]
    assert len(folders) > 20
    assert [str(folder) for folder in folders if folder.parts[1] not in rooms_of(folder.parts[0])] == []


@pytest.mark.parametrize("package", CODE)
def test_a_test_named_like_a_module_lies_in_the_room_of_the_module(package: str) -> None:
    places: dict[str, set[str]] = {}
    for path in sources(package):
        parts = path.relative_to(ROOT / package).parts
        places.setdefault(path.stem, set()).add(parts[0] if len(parts) > 1 else "")
    for path in (UNIT / package).rglob("test_*.py"):
        parts = path.relative_to(UNIT / package).parts
        room = parts[0] if len(parts) > 1 else ""
        assert room in places.get(path.stem.removeprefix("test_"), {room}), path.relative_to(ROOT)


def test_circles_are_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == [["a", "b", "c"]]


def test_no_folders_import_one_another() -> None:
    assert circles(between_folders(imports(ROOT), ROOT)) == []


def test_the_table_of_the_structure_knows_modules_and_classes() -> None:
    assert "storage.base.errors" in imports(ROOT)["checkpoint.text"]
    assert {shape.place for shape in classes(ROOT)} >= {"storage/disk/fs.py: OsFs"}
