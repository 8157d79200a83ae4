"""A minute of fuzzing for all Python parsers together; `make fuzz N=600` goes on for as long as wanted."""

from __future__ import annotations

import pytest
from fuzz.fuzz_parsers import PARSERS, corpus, fault_of, fuzz_plainly, kept
from support.faults import EVERYTHING

INPUTS = 100_000 if EVERYTHING else 1500


@pytest.fixture(scope="module")
def seeds() -> list[bytes]:
    return corpus()


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.timeout(3600 if EVERYTHING else 900)
@pytest.mark.parametrize("name", sorted(PARSERS))
def test_only_typed_errors_come_out_of_a_parser(name: str, seeds: list[bytes]) -> None:
    known = [*seeds, *kept(name)]
    assert [why for data in known if (why := fault_of(PARSERS[name], data))] == []
    tried, data, why = fuzz_plainly(name, known, 600 if EVERYTHING else 4, 0, INPUTS)
    assert why == "", f"{data!r}"
    assert tried > 10
