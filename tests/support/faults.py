"""Real directories for tests of real faults, and what must hold after each of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from support.batches import batch_v2
from support.log_dirs import POINTS, Files, checkpoint, damaged, live, ours, place, segment
from support.recovering import LOCK, recover_and_hand_over

from recovery.logdir.survey import plan_log_dir
from recovery.plan.plan import PlanOptions
from storage.disk.fs import OsFs

EVERYTHING = os.environ.get("LOGMEND_FAULTS") == "all"
"""LOGMEND_FAULTS=all: nothing is sampled, which takes an hour or so."""
ROLLED, ROLL = PlanOptions(roll_from=1), ("--roll-from", "1")
"""What a command that rolls every active segment is given: a call of our own, and the words."""
DOCUMENTED = frozenset({0, 1, 2, 3, 4, 5, 6, 7})
"""Exit statuses that a fault from outside may lead to; 70 is for faults of our own."""


@contextlib.contextmanager
def tmpfs(place: Path, size: int, *, inodes: int = 0) -> Iterator[Path]:
    """Give an empty file system of `size` bytes (whole pages) at `place`, for as long as the context lasts."""
    place.mkdir(parents=True, exist_ok=True)
    options = f"size={size},nr_inodes={inodes},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def write_tree(directory: Path, files: Mapping[str, bytes]) -> Path:
    """Write the files, named relative to `directory`, and return it; every mtime is the same."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(1_700_000_000_000_000_000,) * 2)
    return directory


def read_tree(directory: Path) -> Files:
    """Return the content of every plain file but locks and temporary files, named relative to `directory`."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.name != LOCK and path.suffix != ".tmp"
    }


def recovered(files: Mapping[str, bytes], place: Path, options: PlanOptions | None = None) -> Files:
    """Return what a broker sees after an undisturbed recovery of a copy of the files."""
    recover_and_hand_over(write_tree(place, files), options)
    found = live(read_tree(place))
    shutil.rmtree(place)
    return found


def check_end(
    directory: Path, before: Files, wanted: Files, options: PlanOptions | None = None, elsewhere: Path | None = None
) -> None:
    """Recover what a fault has left: nothing is lost before and after, and the end is that of an undisturbed run."""
    check_nothing_is_lost(directory, before, elsewhere)
    recover_and_hand_over(directory, options, created_ms=1_800_000_000_000)
    check_nothing_is_lost(directory, before, elsewhere)
    again = plan_log_dir(OsFs(), directory, options or PlanOptions()).plan
    assert again.is_empty, [str(finding) for finding in again.findings]
    found = live(read_tree(directory))
    # A recovery that ends between a cut and the new indexes leaves old ones. Where each entry is right below the cut,
    # too, which the empty plan says, they stay.
    stayed = {n: data for n, data in before.items() if n.endswith(DERIVED) and n in wanted and found.get(n) == data}
    wanted = wanted | stayed
    assert found == wanted, sorted(n for n in found.keys() | wanted.keys() if found.get(n) != wanted.get(n))


def check_recovered(done: subprocess.CompletedProcess[str], home: Path, wanted: Files) -> None:
    """Check what a broker sees; where there is no room to raise the recovery points, that is told, and they stay.

    Without room for a roll nothing of it is there.
    """
    found = live(read_tree(home))
    if " rolled;" not in done.stdout:
        wanted = {name: data for name, data in wanted.items() if name not in new_segments(wanted)}
    if "the recovery points stay as they were" in done.stdout + done.stderr:
        assert found.pop(POINTS) != wanted[POINTS]
        wanted = {name: data for name, data in wanted.items() if name != POINTS}
    assert found == wanted


def new_segments(files: Files) -> set[str]:
    """Return the files of empty segments at the log end, which a roll has made."""
    empty = {name.removesuffix(".log") for name, data in files.items() if name.endswith(".log") and not data}
    return {stem + suffix for stem in empty for suffix in (".log", *DERIVED)}


DERIVED = (".index", ".timeindex")


def check_nothing_is_lost(directory: Path, before: Files, elsewhere: Path | None = None) -> None:
    """Every byte that was there is in place or kept; indexes may be made anew where there is no room to keep them."""
    there = read_tree(directory)
    if elsewhere is not None:
        there |= {f"elsewhere/{name}": data for name, data in read_tree(elsewhere).items()}
    lost = [name for name, data in before.items() if not (name.endswith(DERIVED) or _is_there(name, data, there))]
    assert lost == [], f"bytes of {lost} are neither in place nor kept"


def _is_there(name: str, data: bytes, there: Files) -> bool:
    """Tell whether a file exists whole under any name, or as a part that stayed and a rest that is kept or told of."""
    if not data or data in there.values():
        return True
    stayed = there.get(name)
    if stayed is None or not data.startswith(stayed):
        return False
    rest = data[len(stayed) :]
    kept = {other for path, other in there.items() if ours(path)}
    return rest in kept or (not any(rest) and _is_counted(Path(name).name, len(stayed), len(rest), there))


def _is_counted(name: str, position: int, size: int, there: Files) -> bool:
    """Tell whether a manifest says that so many zero bytes were cut off the file."""
    manifests = [json.loads(data) for path, data in there.items() if path.endswith(".logmend.json")]
    items = [item for manifest in manifests for item in manifest["items"]]
    wanted = {"name": name, "position": position, "size": size, "zeroes": True}
    return any(wanted.items() <= item.items() for item in items)


def torn(files: Files) -> None:
    """Cut the last batch of the last segment short, and make its index wrong."""
    files[place(20)] = files[place(20)][:-9]
    files[place(20, "index")] = b"\x7f" + files[place(20, "index")][1:]


def zeroed(files: Files) -> None:
    """Put zero bytes behind the last batch."""
    files[place(20)] += bytes(700)


def broken_in_the_middle(files: Files) -> None:
    """Damage the first of three unflushed segments, so that two have to step aside; lose an index of a flushed one."""
    files[POINTS] = checkpoint({"orders-0": 3})
    data = bytearray(files[place(0)])
    data[len(b"".join(segment(0)[:2])) + 40] ^= 0x41
    files[place(0)] = bytes(data)


def left_over(files: Files) -> None:
    """Leave a deleted segment, a finished compaction that is not in place, and no recovery points."""
    files["orders-0/00000000000000000005.log.deleted"] = batch_v2(5, 2)
    files[place(0) + ".swap"] = b"".join(segment(0)[:2])
    del files[POINTS]


DAMAGES = {change.__name__: damaged(change) for change in (torn, zeroed, broken_in_the_middle, left_over)}
"""Small log directories, each with something for a recovery to do."""

BIG_LEFTOVERS = {
    f"orders-0/{1:020}.{kind}.deleted": b"gone" * size
    for kind, size in (("log", 30_000), ("index", 10), ("timeindex", 6))
}
"""What retention leaves until a broker removes it, when it starts at the latest."""


def sample(things: Iterable[object], most: int) -> list[object]:
    """Return at most `most` of the things, evenly spread, first and last among them; all with LOGMEND_FAULTS=all."""
    found = list(things)
    if EVERYTHING or len(found) <= most:
        return found
    step = (len(found) - 1) / (most - 1)
    return [found[round(number * step)] for number in range(most)]
