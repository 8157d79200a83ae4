"""Lists what recoveries have set aside: the manifests, and the copies that none of them lists. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from recovery.evidence.manifest import MANIFEST_LIMIT, MANIFEST_SUFFIX, SUFFIX, Item, Manifest, decode, manifest_name
from storage.base.errors import CheckpointCorrupt, CorruptData, ReadFault, printable
from storage.disk.fs import FileKind, ReadFs, read_all


@dataclass(frozen=True, slots=True)
class Kept:
    """One manifest, the directory it lies in with the kept bytes, and the directory it speaks of."""

    manifest: Manifest
    place: PurePath
    directory: PurePath

    @property
    def is_elsewhere(self) -> bool:
        """Tell whether the copies lie in a directory that was named with `--quarantine`."""
        return self.place != self.directory

    def place_of(self, item: Item) -> PurePath:
        """Return where the kept bytes of an item are: what only stepped aside is still in its own directory."""
        return (self.directory if item.step == "aside" and not item.sha256 else self.place) / item.kept

    @property
    def records(self) -> tuple[PurePath, ...]:
        """Return where a log directory may have the record of copies that are elsewhere."""
        name = manifest_name(self.manifest.plan_id)
        return (self.directory / name, self.directory.parent / name) if self.is_elsewhere else ()

    @property
    def path(self) -> PurePath:
        """Where the manifest itself is."""
        return self.place / (self.manifest.plan_id + MANIFEST_SUFFIX)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A manifest that cannot be used, and why."""

    path: PurePath
    reason: str


def find_kept(fs: ReadFs, directories: Iterable[PurePath]) -> tuple[list[Kept], list[Unreadable]]:
    """Return every manifest in the directories and, for log directories, in the directories of their partitions.

    Oldest first. A quarantine directory, as named with `--quarantine`, is searched in the same way, two levels deep;
    so is one that a log directory's record names.
    """
    copies: dict[PurePath, Kept] = {}
    bad: dict[PurePath, Unreadable] = {}
    for place in _places(fs, directories):
        for one in _manifests(fs, place, bad):
            if not one.manifest.copies_in:
                copies[one.path] = one
                continue
            for elsewhere in _recorded(fs, one, bad):
                copies[elsewhere.path] = elsewhere
    ordered = sorted(copies.values(), key=lambda k: (k.manifest.created_ms, k.manifest.plan_id, str(k.place)))
    return ordered, list(bad.values())


def _manifests(fs: ReadFs, place: PurePath, bad: dict[PurePath, Unreadable]) -> Iterator[Kept]:
    for name, stat in fs.entries(place).items():
        if not name.endswith(MANIFEST_SUFFIX) or stat.kind is not FileKind.FILE:
            continue
        path = place / name
        try:
            yield _load(fs, place, path)
        except CorruptData as error:
            bad[path] = Unreadable(path, error.reason)


def _recorded(fs: ReadFs, record: Kept, bad: dict[PurePath, Unreadable]) -> Iterator[Kept]:
    """Yield what a log directory's record says is kept elsewhere, as far as it is about that log directory."""
    top = PurePath(record.manifest.copies_in) / record.manifest.plan_id
    try:
        places = [top / name for name, stat in fs.entries(top).items() if stat.kind is FileKind.DIRECTORY]
    except ReadFault:
        reason = f"its copies were kept below {printable(top)}, which is not there: is its volume mounted?"
        bad[record.path] = Unreadable(record.path, reason)
        return
    mine = (PurePath(record.manifest.directory), record.place)
    for place in places:
        for one in _manifests(fs, place, bad):
            if one.directory in mine or one.directory.parent in mine:
                yield one


def find_orphans(fs: ReadFs, directories: Iterable[PurePath], kept: Iterable[Kept]) -> list[Unreadable]:
    """Return the copies that no manifest lists: a recovery died while it made them, before it changed anything."""
    listed = {one.place_of(item) for one in kept for item in one.manifest.items if item.kept}
    reason = "a copy that no manifest lists: the recovery that made it died before it changed anything; it may go"
    return [
        Unreadable(place / name, reason)
        for place in _places(fs, directories)
        for name, stat in fs.entries(place).items()
        if stat.kind is FileKind.FILE and name.endswith(SUFFIX) and place / name not in listed
    ]


def _load(fs: ReadFs, place: PurePath, path: PurePath) -> Kept:
    manifest = decode(read_all(fs, path, MANIFEST_LIMIT), path)
    if manifest.plan_id + MANIFEST_SUFFIX != path.name:
        raise CheckpointCorrupt("its name and its plan id differ", path=path)
    named = PurePath(manifest.directory)
    # Beside the segments it speaks of its own directory, wherever that has been moved or copied to since.
    return Kept(manifest, place, named if manifest.plan_id == place.parent.name else place)


def _places(fs: ReadFs, directories: Iterable[PurePath]) -> Iterator[PurePath]:
    for directory in directories:
        yield directory
        for name, stat in fs.entries(directory).items():
            if stat.kind is FileKind.DIRECTORY:
                yield directory / name
                if len(name) == 12 and set(name) <= set("0123456789abcdef"):
                    inner = fs.entries(directory / name)
                    yield from (directory / name / n for n, s in inner.items() if s.kind is FileKind.DIRECTORY)
