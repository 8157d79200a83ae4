"""A parser takes less than a second for 1 MiB of input, and less than 150 MB.

Seconds of the processor, not of the clock, and four times the goal, so that a busy machine fails nothing: what grows
with the square of its input takes minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.bounds import Taken, measured
from fuzz.fuzz_parsers import PARSERS, fault_of

from checkpoint.properties import decode_properties
from cli.settings.settings import own_file, parse_toml
from storage.base.errors import ConfigInvalid

SECONDS, MEBIBYTES = 4.0, 150


@pytest.mark.slow
@pytest.mark.deep
def test_a_mebibyte_takes_a_second_of_the_processor_and_little_memory() -> None:
    found = measured(sorted(PARSERS))
    print(found)
    assert [f"{name}: {taken}" for name, taken in found.items() if not isinstance(taken, Taken)] == []
    bad = [
        f"{name}: {taken}"
        for name, taken in found.items()
        if isinstance(taken, Taken) and (taken.seconds > SECONDS or taken.mebibytes > MEBIBYTES)
    ]
    assert bad == []


def test_a_dotted_key_without_end_is_refused_before_it_costs_anything() -> None:
    with pytest.raises(ConfigInvalid, match="more than 1,000 dots"):
        parse_toml(b"a." * 100_000 + b"a = 1\n", "logmend.toml")


@pytest.mark.parametrize("name", ["a", "log_dir", "jobs"])
def test_a_value_that_is_nested_too_deep_to_be_shown_is_refused_all_the_same(name: str) -> None:
    assert fault_of(PARSERS["toml"], f"{name}{'.a' * 999} = 1\n".encode()) == ""


def test_a_key_without_end_is_one_key() -> None:
    key = "k\\:" * 300_000
    assert decode_properties(f"{key}=v".encode()) == {"k:" * 300_000: "v"}


def test_a_file_of_settings_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "logmend.toml"
    path.write_bytes(b"#" * (513 << 10))
    with pytest.raises(ConfigInvalid, match="longer than 512 KiB"):
        own_file({"config": str(path)}, {})
