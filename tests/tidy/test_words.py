"""What no tracked file may hold."""

from __future__ import annotations

import re

from tidy.tree import ROOT, texts

UNNAMED_TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\([\w.-]+\))")
MACHINE_PATH = re.compile(r"(?<![\w.}$])/(?:home|root|work|Users|builds?|mnt|private|workspace)/[\w.-]+")
REGISTRY = re.compile(
    r"https?://(?:[\w.-]+@)?[\w.-]*(?:pypi|pythonhosted|artifactory|nexus|devpi|maven|sonatype)[\w.-]*"
    r"|--(?:extra-)?index-url|--trusted-host",
    re.IGNORECASE,
)
HERE = "tests/tidy/test_words.py"


def places(pattern: re.Pattern[str]) -> list[str]:
    """Return `path:line: what` for each match in a tracked text file, this one left out."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path, text in texts()
        if str(path.relative_to(ROOT)) != HERE
        for number, line in enumerate(text.splitlines(), 1)
        for match in pattern.finditer(line)
    ]


def test_every_todo_names_who_does_it() -> None:
    assert places(UNNAMED_TODO) == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert places(MACHINE_PATH) == []


def test_no_file_names_a_package_registry() -> None:
    assert places(REGISTRY) == []


def test_the_patterns_find_what_they_look_for() -> None:
    assert UNNAMED_TODO.search("# " + "TODO: later")
    assert not UNNAMED_TODO.search("# " + "TODO(ada): later")
    assert MACHINE_PATH.search("read it from /home/ada/data")
    assert not MACHINE_PATH.search("${base}/home/ada")
    assert REGISTRY.search("pip install --index-url x")
