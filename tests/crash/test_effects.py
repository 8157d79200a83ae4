"""What is crashed is all there is: every effect that a file system defines takes part.

The door to the disk has so many methods that change something; what the crash tests do must go through each of them.
"""

from __future__ import annotations

import copy
from collections import Counter

import pytest
from crash.engine_steps import HOME, STEPS, Promises, begun, run
from crash.test_together_crashes import sync_together
from support.damages import KINDS
from support.log_dirs import SOUND, TOP, damaged, on_disk, recover
from support.memory_fs import MemoryFs
from support.wrapped_fs import READING

from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import expire, restore
from storage.disk.fs import Fs, ReadFs, Volume, WriteFile

OPENING = {"open_append", "volume"}
"""Changes nothing by itself."""
DEFINED = (
    ({name for name in vars(Fs) if not name.startswith("_")} - set(vars(ReadFs)) - OPENING)
    | {name for name in vars(WriteFile) if not name.startswith("_") and name != "close"}
    | {f"{name}_volume" for name in vars(Volume) if not name.startswith("_") and name != "close"}
)


def effects_of_recoveries() -> Counter[str]:
    counts: Counter[str] = Counter()
    for kind in KINDS:
        fs = on_disk(damaged(KINDS[kind], files=SOUND))
        recover(fs)
        for end in (restore, expire):
            other = copy.deepcopy(fs)
            kept, _ = find_kept(other, [TOP])
            end(other, kept)  # type: ignore[operator]
            counts.update(effect.method for effect in other.history)
    with pytest.MonkeyPatch.context() as patch:
        sync_together(patch)
        fs = on_disk(damaged(KINDS["torn_tail"], files=SOUND))
        recover(fs)
        counts.update(effect.method for effect in fs.history)
    return counts


def effects_of_the_engine() -> Counter[str]:
    counts: Counter[str] = Counter()
    start = begun()
    for names in [*((name,) for name in STEPS), ("retain", "remove"), ("delete", "remove")]:
        seen: list[MemoryFs] = []

        def look(at: MemoryFs, promises: Promises, seen: list[MemoryFs] = seen) -> None:
            seen[:] = [at]

        run(names, look, start)
        counts.update(effect.method for effect in seen[0].history)
    return counts


def test_every_effect_that_is_defined_is_one_that_is_crashed() -> None:
    recoveries, engine = effects_of_recoveries(), effects_of_the_engine()
    print(f"{len(DEFINED)} effects are defined; recoveries: {dict(recoveries)}, engine: {dict(engine)}")
    names = {"write": "append"}
    found = {names.get(name, name) for name in recoveries | engine}
    assert found == DEFINED
    assert not DEFINED & set(READING)
    assert str(HOME) == "/data"
