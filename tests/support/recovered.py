"""What must hold of a recovered directory, whatever happened on the way: by content, with nothing taken on trust."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import PurePath

from support.log_dirs import OPTIONS, TOP, Files, live, ours, plan_of, recover
from support.memory_fs import MemoryFs

from checkpoint.offsets import decode_offsets
from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import restore
from recovery.plan.plan import PlanOptions
from storage.base.errors import CorruptData

POINTS = "recovery-point-offset-checkpoint"


def kept_of(files: Files) -> tuple[set[bytes], list[dict[str, object]]]:
    """Return every content under a name of ours, and every item of every manifest."""
    kept = {data for name, data in files.items() if name.endswith(".logmend")}
    manifests = [json.loads(data) for name, data in files.items() if name.endswith(".logmend.json")]
    return kept, [item for manifest in manifests for item in manifest["items"]]


def lost_files(before: Files, after: Files) -> list[str]:
    """Return the files of which some byte is neither in place, under whichever name, nor told to be a zero."""
    kept, items = kept_of(after)
    there = kept | set(live(after).values())
    return [name for name, data in before.items() if not (data in there or _is_cut(name, data, after, kept, items))]


def _is_cut(name: str, data: bytes, after: Files, kept: Iterable[bytes], items: list[dict[str, object]]) -> bool:
    """Tell whether a part of the file is still there, under its name or the one it was meant for, and the rest kept."""
    simple = PurePath(name).name
    now = after.get(name, after.get(name.removesuffix(".swap")))
    if not data or now is None or not data.startswith(now):
        return not data
    rest = data[len(now) :]
    told = {"name": simple, "position": len(now), "size": len(rest), "zeroes": True}
    return rest in kept or (not any(rest) and any(told.items() <= item.items() for item in items))


def assert_nothing_is_lost(before: Files, after: Files) -> None:
    lost = lost_files(before, after)
    assert not lost, f"bytes of {lost} are neither in the log nor in quarantine"


def assert_clean(fs: MemoryFs, options: PlanOptions = OPTIONS) -> None:
    """A second recovery plans nothing and does nothing."""
    plan = plan_of(fs, options)
    assert plan.is_empty, f"a second plan is not empty: {[str(finding) for finding in plan.findings]}"
    effects = fs.effects
    recover(fs, options)
    assert fs.effects == effects, "an empty plan changed something"


def assert_point_within_log(fs: MemoryFs) -> None:
    """No recovery point lies above the end of its log."""
    try:
        points = decode_offsets(fs.contents(str(TOP)).get(POINTS, b""))
    except CorruptData:
        return
    for partition in plan_of(fs).partitions:
        point = next((p for tp, p in points.items() if str(tp) == partition.partition), 0)
        assert partition.loaded is None or point <= partition.loaded.log_end, f"{point} is above the end"


def assert_restorable(
    fs: MemoryFs, before: Files, places: Iterable[PurePath] = (TOP,), unfinished: tuple[str, ...] = (".tmp",)
) -> None:
    """Whatever recoveries did, restoring all of it gives what was there before; tried on a copy.

    What an interrupted recovery had begun may come back as well, under the suffixes that say so.
    """
    other = copy.deepcopy(fs)
    kept, bad = find_kept(other, places)
    assert not bad
    restore(other, kept)
    found = live(other.contents(str(TOP)))
    found = {name: data for name, data in found.items() if not name.endswith(unfinished) or name in before}
    assert found == live(before), sorted(
        name for name in found.keys() | before.keys() if found.get(name) != before.get(name)
    )


def next_time(fs: MemoryFs) -> int:
    """Return a time after that of every recovery so far, as a clock would show it."""
    kept, _ = find_kept(fs, [TOP])
    return 1 + max((one.manifest.created_ms for one in kept), default=0)


__all__ = [
    "assert_clean",
    "assert_nothing_is_lost",
    "assert_point_within_log",
    "assert_restorable",
    "kept_of",
    "lost_files",
    "next_time",
    "ours",
]
