"""The places that list packages and files list all of them."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from typing import Any

import pytest
from tidy.tree import CODE, ROOT, tracked


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages() -> set[str]:
    """Return the packages that are there."""
    return {name for name in CODE if ROOT / name / "__init__.py" in tracked()}


@pytest.mark.parametrize("place", [("mypy", "packages"), ("importlinter", "root_packages")], ids="-".join)
def test_every_package_is_checked(place: tuple[str, str]) -> None:
    tool, key = place
    assert set(project()["tool"][tool][key]) == packages()


def test_every_package_is_built_with_those_within_it() -> None:
    there = {path.parent.relative_to(ROOT) for path in tracked() if path.name == "__init__.py"}
    ours = {".".join(place.parts) for place in there if place.parts[0] in CODE}
    patterns = project()["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {name for name in ours if any(fnmatch(name, pattern) for pattern in patterns)} == ours
    assert {pattern.rstrip("*") for pattern in patterns} == packages()


def test_make_check_looks_at_every_package() -> None:
    (listed,) = re.findall(r"^CODE := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(listed.split()) == packages()


def test_the_kernel_is_compiled_anew_when_any_header_changes() -> None:
    headers = {str(path.relative_to(ROOT)) for path in tracked() if path.suffix == ".h"}
    kernels = project()["tool"]["setuptools"]["ext-modules"]
    assert {header for kernel in kernels for header in kernel.get("depends", ())} == headers
