"""The example in docs/reference/python-api.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from checkpoint.markers import CLEAN_SHUTDOWN

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "python-api.md"


def test_the_example_of_the_page_runs_and_leaves_a_clean_directory(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    directory = tmp_path / "data"
    exec(compile(example, str(PAGE), "exec"), {"directory": str(directory)})
    assert (directory / CLEAN_SHUTDOWN).exists()
