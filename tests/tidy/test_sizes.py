"""Files and functions stay of a size that can be read at once."""

from __future__ import annotations

import statistics

from tidy.tree import CODE, ROOT, functions, sources

LINES_OF_A_FILE = 500
LINES_OF_A_FUNCTION = 70
MEDIAN_LINES = 10


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources(*CODE, "tests", "bench")}
    assert [f"{path.relative_to(ROOT)}: {n}" for path, n in lengths.items() if n > LINES_OF_A_FILE] == []


def test_no_function_is_longer_than_70_lines() -> None:
    assert [str(found) for found in functions(*CODE, "tests", "bench") if found.lines > LINES_OF_A_FUNCTION] == []


def test_half_of_the_functions_have_at_most_10_lines() -> None:
    assert statistics.median(found.lines for found in functions(*CODE)) <= MEDIAN_LINES
