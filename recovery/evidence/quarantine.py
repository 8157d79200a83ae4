"""Puts back and expires what recoveries have set aside, from the manifests alone."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from recovery.evidence.kept import Kept, find_kept
from recovery.evidence.manifest import MANIFEST_LIMIT, Item, decode
from storage.base.errors import CheckpointCorrupt, CorruptData, FileVanished, NoRoom, PlanStale
from storage.disk.buffers import page_aligned
from storage.disk.fs import Fs, ReadFs, read_all, temporary_name
from storage.disk.second_names import replace_by_copy

_CHUNK: Final = 1 << 20
_LARGEST: Final = 1 << 32
"""Bytes: no segment is larger than half of it."""


@dataclass(frozen=True, slots=True)
class _State:
    """How far one item has been put back. `done`: nothing is left to do; `refused`: why it must not be touched."""

    done: bool = False
    refused: str = ""


def restore(fs: Fs, copies: Sequence[Kept]) -> list[PurePath]:
    """Put back everything the manifests list, the newest first, and remove them; return the directories restored.

    Nothing is touched unless all of it can be put back: `PlanStale` names the first file that has changed since, which
    is what a broker does by appending. `CheckpointCorrupt` where kept bytes are not what the manifest says. A crash in
    the middle is made good by running it again.
    """
    # Copies of what stayed in place are no part of that.
    changing = [one for one in copies if any(item.step != "copied" for item in one.manifest.items)]
    ordered = sorted(changing, key=lambda k: k.manifest.created_ms, reverse=True)
    for one in ordered[:1] if _overlap(ordered) else ordered:
        _refuse_unless_possible(fs, one)
    for one in ordered:
        _refuse_unless_possible(fs, one)
        for item in reversed(one.manifest.items):
            if not _state(fs, one, item).done:
                _undo(fs, one, item)
        fs.sync_dir(one.directory)
        _remove_kept(fs, one)
    return [one.directory for one in ordered]


def _overlap(kept: Sequence[Kept]) -> bool:
    """Two manifests of one directory: the older can only be judged once the newer has been undone."""
    return len({one.directory for one in kept}) < len(kept)


def _refuse_unless_possible(fs: Fs, one: Kept) -> None:
    needed = 0
    for item in one.manifest.items:
        state = _state(fs, one, item)
        if state.refused:
            raise PlanStale(one.directory / item.name, state.refused)
        if not state.done and (item.step == "cut" or _is_moved(item)):
            needed += item.size
        if not state.done and item.step == "cut":
            stat = fs.stat(_where_it_is(fs, one, item))
            needed += stat.size if stat.links > 1 else 0
    # Zeroes are only counted, and a number costs nothing: the writer of a manifest may have put any there.
    room = fs.free_bytes(one.directory) if needed else 0
    if needed > room:
        raise NoRoom(one.directory, needed, room, what="what is put back")


def _state(fs: ReadFs, one: Kept, item: Item) -> _State:
    path = one.directory / item.name
    match item.step:
        case "copied":
            return _State(done=True)
        case "cut":
            return _state_of_cut(fs, one, item, _where_it_is(fs, one, item))
        case "renamed":
            return _state_of_renamed(fs, one, item, path)
        case "aside":
            return _state_of_aside(fs, one, item, path)
        case "created":
            if _size(fs, path) is None or _is_back(fs, one, item.name):
                return _State(done=True)
            return _State() if _is(fs, path, item.result_size, item.result_sha256) else _CHANGED
        case _:
            return _state_of_replaced(fs, one, item, path)


_CHANGED: Final = _State(refused="it has changed")
_BOTH: Final = _State(refused="a file of the same name has come")
_GONE: Final = _State(refused="it is gone")


def _is_moved(item: Item) -> bool:
    """Tell whether a file was set aside by copying it elsewhere and removing it."""
    return item.step == "aside" and bool(item.sha256)


def _is_back(fs: ReadFs, one: Kept, name: str) -> bool:
    """Tell whether a file that was to be set aside stands under its own name: put back, or never set aside at all."""
    return any(
        other.step == "aside"
        and other.name == name
        and (
            _is(fs, one.directory / name, other.size, other.sha256)
            if _is_moved(other)
            else _size(fs, one.directory / other.kept) is None
        )
        for other in one.manifest.items
    )


def _state_of_renamed(fs: ReadFs, one: Kept, item: Item, path: PurePath) -> _State:
    there, back = _size(fs, one.directory / item.result_name), _size(fs, path)
    if back is None:
        return _GONE if there is None else _State()
    # What bears the name that it was meant to have may be the file that was there before.
    return _State(done=True) if there is None or _is_back(fs, one, item.result_name) else _BOTH


def _state_of_aside(fs: ReadFs, one: Kept, item: Item, path: PurePath) -> _State:
    if _is_moved(item):
        if _is(fs, path, item.size, item.sha256):
            return _State(done=fs.stat(path).mtime_ns == item.mtime_ns)
        if not _is(fs, one.place_of(item), item.size, item.sha256):
            raise CheckpointCorrupt("the kept bytes are not what the manifest says", path=one.place_of(item))
    elif _size(fs, one.place_of(item)) is None:
        return _State(done=True) if _size(fs, path) is not None else _State(refused="what was set aside is gone")
    replaced = any(other.name == item.name and other.step in ("created", "renamed") for other in one.manifest.items)
    arrived = any(other.result_name == item.name for other in one.manifest.items)
    return _BOTH if _size(fs, path) is not None and not (replaced or arrived) else _State()


def _where_it_is(fs: ReadFs, one: Kept, item: Item) -> PurePath:
    """Return where the file of an item lies now: one that was cut in an interrupted swap has lost its suffix since."""
    path = one.directory / item.name
    if _size(fs, path) is None:
        renames = (i for i in one.manifest.items if i.step == "renamed" and i.name == item.name)
        return next((one.directory / i.result_name for i in renames), path)
    return path


def _state_of_cut(fs: ReadFs, one: Kept, item: Item, path: PurePath) -> _State:
    if any(other.step == "replaced" and other.name == item.name for other in one.manifest.items):
        return _State(done=True)  # the whole file of before comes back
    size = _size(fs, path)
    if size is None:
        return _GONE
    has_bytes = item.zeroes or (bool(item.kept) and _size(fs, one.place / item.kept) is not None)
    if size == item.position + item.size and not has_bytes:
        return _State(done=True)  # kept bytes are removed once they are back
    if size < item.position:
        return _State(refused="it is shorter than where it was cut")
    if not item.kept and not item.zeroes:
        return _State(refused="the bytes were discarded, and it was cut")
    if not item.zeroes and not _is(fs, one.place / item.kept, item.size, item.sha256):
        raise CheckpointCorrupt("the kept bytes are not what the manifest says", path=one.place / item.kept)
    if item.zeroes and item.position + item.size > _LARGEST:
        return _State(refused=f"{item.size} zero bytes are more than any file of a broker has")
    if size > item.position and not _tail_is(fs, one, item, path, size):
        return _State(refused="something was appended to it")
    is_back = size == item.position + item.size and fs.stat(path).mtime_ns == item.mtime_ns
    return _State(done=is_back and _tail_is(fs, one, item, path, size, torn=False))


def _tail_is(fs: ReadFs, one: Kept, item: Item, path: PurePath, size: int, *, torn: bool = True) -> bool:
    """Tell whether what stands behind the cut are the kept bytes, all of them or the first part.

    With `torn` some may be zero instead: an append that was under way when the power went leaves its length and holes.
    """
    length = size - item.position
    if length > item.size:
        return False
    wanted = _bytes(fs, None if item.zeroes else one.place / item.kept, 0, length)
    found = _bytes(fs, path, item.position, length)
    return all(a == b or (torn and _is_torn_from(a, b)) for a, b in zip(found, wanted, strict=True))


def _is_torn_from(found: bytes, wanted: bytes) -> bool:
    return len(found) == len(wanted) and all(now in (0, then) for now, then in zip(found, wanted, strict=True))


def _state_of_replaced(fs: ReadFs, one: Kept, item: Item, path: PurePath) -> _State:
    kept = _size(fs, one.place / item.kept) if item.kept else None
    if kept is None:
        # Put back already, never replaced, or a derived file for whose copy the room did not suffice.
        return _State(done=True)
    if _size(fs, path) is None or _is(fs, path, item.result_size, item.result_sha256):
        return _State()
    if one.place == one.directory:
        return _State() if fs.stat(path).inode == fs.stat(one.place / item.kept).inode else _CHANGED
    if not _is(fs, path, item.size, item.sha256):
        return _CHANGED
    return _State(done=fs.stat(path).mtime_ns == item.mtime_ns)


def _undo(fs: Fs, one: Kept, item: Item) -> None:
    path = one.directory / item.name
    match item.step:
        case "cut":
            _put_tail_back(fs, one, item, path)
        case "renamed":
            fs.rename(one.directory / item.result_name, path)
        case "aside" if not _is_moved(item):
            fs.rename(one.place_of(item), path)
        case "created":
            fs.remove(path)
        case _:
            _put_file_back(fs, one, item, path)


def _put_tail_back(fs: Fs, one: Kept, item: Item, path: PurePath) -> None:
    stat = fs.stat(path)
    if stat.links > 1:
        replace_by_copy(fs, path, stat, stat.size)
    size = stat.size
    if size > item.position and not _tail_is(fs, one, item, path, size, torn=False):
        size = item.position
        fs.truncate(path, size)
    done = size - item.position
    with fs.open_append(path) as file:
        for piece in _bytes(fs, None if item.zeroes else one.place / item.kept, done, item.size - done):
            file.append(piece)
        file.sync()
    fs.set_mtime(path, item.mtime_ns)
    fs.sync_file(path)


def _put_file_back(fs: Fs, one: Kept, item: Item, path: PurePath) -> None:
    source = one.place / item.kept
    if one.place == one.directory:
        fs.rename(source, path)  # the very file of before, with its owner, mode and time
        return
    like = fs.stat(source)._replace(mode=item.mode & 0o777) if _size(fs, path) is None else fs.stat(path)
    temporary = temporary_name(path)
    with contextlib.suppress(FileVanished):
        fs.remove(temporary)
    with fs.create(temporary, like) as file:
        left = item.size
        for piece in _bytes(fs, source, 0, item.size):
            file.append(piece)
            left -= len(piece)
        for piece in _bytes(fs, None, 0, left):  # the zeroes that a preallocated index ends with are not kept
            file.append(piece)
        file.sync()
    fs.set_mtime(temporary, item.mtime_ns)
    fs.sync_file(temporary)
    fs.rename(temporary, path)


def _remove_kept(fs: Fs, one: Kept) -> None:
    for item in one.manifest.items:
        if item.kept and (item.step != "aside" or _is_moved(item)):
            with contextlib.suppress(FileVanished):
                fs.remove(one.place_of(item))
    _forget(fs, one)
    with contextlib.suppress(FileVanished):
        fs.remove(one.path)
    fs.sync_dir(one.place)


def _forget(fs: Fs, one: Kept) -> None:
    """Remove the record in the log directory before the last manifest goes of a plan that kept its copies elsewhere."""
    if not one.is_elsewhere or any(other.path != one.path for other in find_kept(fs, [one.place.parent])[0]):
        return
    for path in one.records:
        with contextlib.suppress(FileVanished, CorruptData):
            if decode(read_all(fs, path, MANIFEST_LIMIT), path).copies_in:
                fs.remove(path)
                fs.sync_dir(path.parent)


def expire(fs: Fs, kept: Iterable[Kept]) -> int:
    """Remove kept bytes and their manifests for good; return the bytes that became free.

    Nothing else in this tool removes what it cut, and only the operator calls it. The manifest goes last:
    after a crash it still lists the files that are left.
    """
    freed = 0
    for one in kept:
        touched = {one.place}
        for item in one.manifest.items:
            size = _size(fs, one.place_of(item)) if item.kept else None
            if size is not None:
                fs.remove(one.place_of(item))
                touched.add(one.place_of(item).parent)
                freed += size
        for place in sorted(touched):
            fs.sync_dir(place)
        _forget(fs, one)
        fs.remove(one.path)
        fs.sync_dir(one.place)
    return freed


def _size(fs: ReadFs, path: PurePath) -> int | None:
    try:
        return fs.stat(path).size
    except FileVanished:
        return None


def _is(fs: ReadFs, path: PurePath, size: int, sha256: str) -> bool:
    if _size(fs, path) != size:
        return False
    digest = hashlib.sha256()
    for piece in _bytes(fs, path, 0, size):
        digest.update(piece)
    return digest.hexdigest() == sha256


def _bytes(fs: ReadFs, path: PurePath | None, position: int, size: int) -> Iterator[bytes]:
    """Yield `size` bytes of a file from `position` on, in pieces of equal length; zeroes where `path` is None."""
    if path is None:
        yield from (bytes(min(_CHUNK, size - at)) for at in range(0, size, _CHUNK))
        return
    buffer = page_aligned(min(_CHUNK, size) or 1)
    with fs.open_read(path) as file:
        for at in range(0, size, _CHUNK):
            part = buffer[: min(_CHUNK, size - at)]
            yield bytes(part[: file.read_into(position + at, part)])
