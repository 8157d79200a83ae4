"""Every bit, every length and every sector of each file beside the logs: repaired, or reported, or without effect.

Whatever stands in a side file, no byte of a log changes, and what a recovery leaves is clean. `LOGMEND_FAULTS=all` has
all eight bits of each byte; by default it is one, a different one for each byte, and a part of all damages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from support.faults import EVERYTHING
from support.log_dirs import (
    END,
    MARKER,
    OPTIONS,
    POINTS,
    SOUND,
    TOP,
    Files,
    checkpoint,
    live,
    on_disk,
    plan_of,
    recover,
)
from support.recovered import assert_nothing_is_lost

from checkpoint.markers import encode_partition_metadata
from recovery.plan.findings import Severity
from recovery.plan.plan import PlanOptions

FULL = PlanOptions(depth="full", index_interval_bytes=OPTIONS.index_interval_bytes)
MORE = {
    "replication-offset-checkpoint": checkpoint({"orders-0": 25}),
    "cleaner-offset-checkpoint": checkpoint({"orders-0": 5}),
    "log-start-offset-checkpoint": checkpoint({"orders-0": 3}),
    "orders-0/partition.metadata": encode_partition_metadata(bytes(range(16))),
}
CRASHED: Files = {**SOUND, **MORE}
CLEAN: Files = {**CRASHED, POINTS: checkpoint({"orders-0": END}), MARKER: b'{"version":0,"brokerEpoch":7}'}
STATES = {"after a crash": CRASHED, "after a clean stop": CLEAN}


def settled(files: Files, options: PlanOptions) -> Files:
    """Return the directory as a recovery leaves it, in which nothing is to be done."""
    fs = on_disk(files)
    recover(fs, options)
    return live(fs.contents(str(TOP)))


def side_files(files: Files) -> list[str]:
    return sorted(name for name in files if not name.endswith(".log") and files[name])


def changes(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what is done to the bytes, and the bytes then."""
    for position in range(len(data)):
        for bit in range(8) if EVERYTHING else [(position * 3) % 8]:
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            yield f"bit {bit} of byte {position}", bytes(changed)
    for size in range(len(data)):
        yield f"cut to {size}", data[:size]
    for start in range(0, len(data), 512):
        end = min(start + 512, len(data))
        yield f"zeroes from {start}", data[:start] + bytes(end - start) + data[end:]
    for more in (1, 7, 8, 11, 12, 34, 512):
        yield f"{more} zeroes behind it", data + bytes(more)
    yield "its bytes twice", data * 2


class Trial:
    """One file of a log directory, damaged in every way."""

    def __init__(self, before: Files, name: str, options: PlanOptions) -> None:
        self.before, self.name, self.options = before, name, options
        self.logs = {path: data for path, data in before.items() if path.endswith(".log")}
        self.counts: Counter[str] = Counter()

    def try_one(self, what: str, data: bytes) -> str:
        """Return what is wrong with how one damage ends, or nothing."""
        hurt = {**self.before, self.name: data}
        fs = on_disk(hurt)
        plan = plan_of(fs, self.options)
        noticed = not plan.is_empty or any(f.kind.severity is not Severity.NOTE for f in plan.findings)
        if plan.stopped or plan.is_held:
            self.counts["reported, and left alone"] += 1
            return "" if noticed else f"{what}: left alone without a word"
        recover(fs, self.options)
        found = fs.contents(str(TOP))
        assert_nothing_is_lost(hurt, found)
        after = live(found)
        if {path: after.get(path) for path in self.logs} != self.logs:
            return f"{what}: a log has changed"
        if not plan_of(fs, self.options).is_empty:
            return f"{what}: a second plan is not empty"
        others = {path for path in after.keys() | hurt.keys() if after.get(path) != self.before.get(path)}
        if not others:
            self.counts["repaired" if noticed else "no damage"] += 1
        elif noticed:
            self.counts["reported"] += 1
        elif others <= {self.name}:
            self.counts["without effect, and not noticed"] += 1
        else:
            return f"{what}: {sorted(others)} have changed without a word"
        return ""


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 900)
@pytest.mark.parametrize("options", [OPTIONS, FULL], ids=["quick", "full"])
@pytest.mark.parametrize("state", STATES)
def test_whatever_stands_in_a_side_file_costs_no_byte_of_a_log(state: str, options: PlanOptions) -> None:
    before = settled(STATES[state], options)
    assert plan_of(on_disk(before), options).is_empty
    wrong, tried = [], 0
    for name in side_files(before):
        trial = Trial(before, name, options)
        for number, (what, data) in enumerate(changes(before[name])):
            if not EVERYTHING and number % (7 if options is FULL else 4):
                continue
            tried += 1
            try:
                why = trial.try_one(what, data)
            except Exception as error:  # noqa: BLE001 (told with the place)
                why = f"{what}: {type(error).__name__}: {error}"
            if why:
                wrong.append(f"{name}: {why}")
        print(f"{name}: {dict(sorted(trial.counts.items()))}")
    print(f"{tried} damages")
    assert (wrong, tried > 150) == ([], True)
