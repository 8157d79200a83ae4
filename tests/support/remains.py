"""What a power cut may leave of files and directories whose changes are not all synced."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from storage.disk.fs import FileKind

if TYPE_CHECKING:
    from support.memory_fs import MemoryFs

ROOT: Final = 1
ALL_SUBSETS_UP_TO: Final = 10
DRAWN_SUBSETS: Final = 1 << ALL_SUBSETS_UP_TO


class Change(NamedTuple):
    """One change of a file: bytes written at a place, a cut to a size, or a new time."""

    kind: Literal["write", "cut", "time"]
    at: int
    data: bytes
    mtime: int


class Left(NamedTuple):
    """What remained of one file; the time counts for comparisons only if it was set on purpose."""

    content: bytes
    mtime: int
    timed: bool


@dataclass(slots=True)
class File:
    """A file, whatever its names: what is durable of it, what changed since, and how it looks."""

    number: int
    kind: FileKind = FileKind.FILE
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    links: int = 0
    mtime: int = 0
    durable_mtime: int = 0
    timed: bool = False
    durable: bytes = b""
    current: bytes | bytearray = b""
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        if not isinstance(self.current, bytearray):
            self.current = bytearray(self.current)
        _apply(self.current, change)
        self.mtime = change.mtime
        self.pending.append(change)

    def sync(self) -> None:
        if self.pending:
            self.timed = self.pending[-1].kind == "time"
        self.durable, self.durable_mtime = bytes(self.current), self.mtime
        self.pending = []

    def remains(self, *, strict: bool, sector: int) -> list[Left]:
        """Return what may be left of it: first with no unsynced change done, last with all of them."""
        found: dict[tuple[bytes, int], Left] = {}
        cuts = [place for place, change in enumerate(self.pending) if change.kind == "cut"]
        for skipped in sorted(_subsets(cuts), key=len, reverse=True):
            for left in self._history(skipped, strict=strict, sector=sector):
                # An equal content found later goes to the end, so that the last one is the whole of it.
                key = (left.content, left.mtime if left.timed else 0)
                found.pop(key, None)
                found[key] = left
        first = Left(self.durable, self.durable_mtime, self.timed)
        rest = [left for key, left in found.items() if key != (first.content, first.mtime if first.timed else 0)]
        return [first, *rest]

    def _history(self, skipped: tuple[int, ...], *, strict: bool, sector: int) -> Iterator[Left]:
        content, timed = bytearray(self.durable), self.timed
        yield Left(self.durable, self.durable_mtime, timed)
        for place, change in enumerate(self.pending):
            if place in skipped:
                continue
            if change.kind == "write":
                for torn in _torn(change, strict=strict, sector=sector):
                    partly = bytearray(content)
                    _apply(partly, torn)
                    yield Left(bytes(partly), change.mtime, timed=False)
            _apply(content, change)
            timed = change.kind == "time"
            yield Left(bytes(content), change.mtime, timed)


class NameChange(NamedTuple):
    """One change of names in one directory, or this directory's half of a rename between two."""

    serial: int
    node: int
    adds: str | None = None
    removes: str | None = None
    other: int = 0
    """The directory that has the other half, 0 if there is none."""


Names: TypeAlias = dict[str, int]


class NamesLeft(NamedTuple):
    """What remained of the names of one directory, and which of its halves of renames were not done."""

    names: Names
    missing: frozenset[int]


@dataclass(slots=True)
class Directory:
    """A directory: which names are durable, what changed since, and how it looks."""

    number: int
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    durable: Names = field(default_factory=dict)
    current: Names = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)

    def change(self, change: NameChange) -> None:
        _rename(self.current, change)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable, self.pending = dict(self.current), []

    def remains(self, *, strict: bool, rng: random.Random) -> list[NamesLeft]:
        """Return what may be left of its names: first with no unsynced change done, last with all of them."""
        count = len(self.pending)
        prefixes = (range(done) for done in range(count + 1))
        done_ones: Iterable[Iterable[int]] = prefixes
        if strict and count <= ALL_SUBSETS_UP_TO:
            done_ones = _subsets(list(range(count)))
        elif strict:
            drawn = ([n for n in range(count) if rng.random() < 0.5] for _ in range(DRAWN_SUBSETS))
            done_ones = itertools.chain([()], drawn, prefixes)
        found: dict[tuple[tuple[tuple[str, int], ...], frozenset[int]], NamesLeft] = {}
        for done in done_ones:
            left = self._after(set(done))
            found.setdefault((tuple(sorted(left.names.items())), left.missing), left)
        return list(found.values())

    def _after(self, done: set[int]) -> NamesLeft:
        names = dict(self.durable)
        for place in sorted(done):
            _rename(names, self.pending[place])
        halves = (change.serial for place, change in enumerate(self.pending) if change.other and place not in done)
        return NamesLeft(names, frozenset(halves))


def _apply(content: bytearray, change: Change) -> None:
    if change.kind == "write":
        if len(content) < change.at:
            content.extend(bytes(change.at - len(content)))
        content[change.at : change.at + len(change.data)] = change.data
    elif change.kind == "cut":
        del content[change.at :]


def _torn(write: Change, *, strict: bool, sector: int) -> Iterator[Change]:
    """Yield the parts of a write that may be all that reached the disk, shortest first."""
    end = write.at + len(write.data)
    borders = range(write.at - write.at % sector + sector, end, sector)
    if strict:
        yield write._replace(data=bytes(len(write.data)))
    for border in borders:
        size = border - write.at
        yield write._replace(data=write.data[:size])
        if strict:
            yield write._replace(data=write.data[:size] + bytes(end - border))
            yield write._replace(data=bytes(size) + write.data[size:])


def _rename(names: Names, change: NameChange) -> None:
    if change.removes is not None and names.get(change.removes) == change.node:
        del names[change.removes]
    if change.adds is not None:
        names[change.adds] = change.node


def _subsets(places: list[int]) -> list[tuple[int, ...]]:
    """Return all subsets, smallest first; of many places only those with at most one in or at most one out."""
    sizes = range(len(places) + 1)
    if len(places) > ALL_SUBSETS_UP_TO:
        sizes_kept = (0, 1, len(places) - 1, len(places))
        return [chosen for size in sizes_kept for chosen in itertools.combinations(places, size)]
    return [chosen for size in sizes for chosen in itertools.combinations(places, size)]


Nodes: TypeAlias = Mapping[int, File | Directory]


class Remainder:
    """One disk as a power cut may have left it. Equal fingerprints mean equal names, contents and set times."""

    __slots__ = ("_files", "_names", "_nodes", "fingerprint")

    def __init__(self, nodes: Nodes, names: dict[int, NamesLeft], files: dict[int, Left]) -> None:
        self._nodes, self._names, self._files = nodes, names, files
        self.fingerprint = hash(tuple(self._facts(ROOT, {})))

    def to_fs(self, died: MemoryFs) -> MemoryFs:
        """Return the machine started again after `died`, with this on its disk."""
        nodes: dict[int, File | Directory] = {}
        self._copy(ROOT, nodes)
        return died.revive(nodes)

    def _of(self, directory: Directory) -> Names:
        left = self._names.get(directory.number)
        return directory.durable if left is None else left.names

    def _facts(self, number: int, seen: dict[int, int]) -> Iterator[object]:
        node = self._nodes[number]
        assert isinstance(node, Directory)
        for name, inner in sorted(self._of(node).items()):
            below = self._nodes[inner]
            if isinstance(below, Directory):
                yield (name, tuple(self._facts(inner, seen)))
            else:
                left = self._files.get(inner) or Left(below.durable, below.durable_mtime, below.timed)
                # Which number a file has says nothing; that two names have the same one does.
                which = seen.setdefault(inner, len(seen))
                yield (name, below.kind.value, which, left.content, left.mtime if left.timed else 0)

    def _copy(self, number: int, nodes: dict[int, File | Directory]) -> None:
        node = self._nodes[number]
        if isinstance(node, File):
            copied = nodes.get(number)
            if copied is None:
                left = self._files.get(number) or Left(node.durable, node.durable_mtime, node.timed)
                content, time = left.content, left.mtime
                nodes[number] = copied = File(
                    number, node.kind, node.mode, node.uid, node.gid, 0, time, time, left.timed, content, content
                )
            assert isinstance(copied, File)
            copied.links += 1
            return
        names = self._of(node)
        nodes[number] = Directory(number, node.mode, node.uid, node.gid, node.mtime, dict(names), dict(names))
        for inner in names.values():
            self._copy(inner, nodes)


class _Choices:
    """The choices that a power cut has at one moment; frozen against what happens later."""

    def __init__(self, nodes: Nodes, *, strict: bool, sector: int, rng: random.Random) -> None:
        self._nodes = {number: _frozen(node) for number, node in nodes.items()}
        self._strict = strict
        self._rng = rng
        self._files = {
            node.number: node.remains(strict=strict, sector=sector)
            for node in self._nodes.values()
            if isinstance(node, File) and node.pending
        }
        self._names = {
            node.number: node.remains(strict=strict, rng=rng)
            for node in self._nodes.values()
            if isinstance(node, Directory) and node.pending
        }

    def every(self) -> Iterator[Remainder]:
        for chosen in itertools.product(*self._names.values()):
            names = dict(zip(self._names, chosen, strict=True))
            if self._possible(names):
                dirty = [number for number in self._reached(names) if number in self._files]
                for left in itertools.product(*(self._files[number] for number in dirty)):
                    yield Remainder(self._nodes, names, dict(zip(dirty, left, strict=True)))

    def some(self) -> Iterator[Remainder]:
        """Yield at random without end, after nothing and everything."""
        for end in (0, -1):
            names = {number: options[end] for number, options in self._names.items()}
            if self._possible(names):
                yield Remainder(self._nodes, names, {n: all_left[end] for n, all_left in self._files.items()})
        while True:
            names = {number: self._rng.choice(options) for number, options in self._names.items()}
            if self._possible(names):
                files = {number: self._rng.choice(options) for number, options in self._files.items()}
                yield Remainder(self._nodes, names, files)

    def _possible(self, names: dict[int, NamesLeft]) -> bool:
        """Say whether no file went away in one directory before it came in the other."""
        if self._strict:
            return True
        for number, left in names.items():
            for change in self._directory(number).pending:
                if change.adds and change.serial in left.missing and self._went(change, names):
                    return False
        return True

    def _went(self, change: NameChange, names: dict[int, NamesLeft]) -> bool:
        if change.other not in names:
            return True
        return change.serial not in names[change.other].missing

    def _directory(self, number: int) -> Directory:
        node = self._nodes[number]
        assert isinstance(node, Directory)
        return node

    def _reached(self, names: dict[int, NamesLeft]) -> list[int]:
        reached: dict[int, None] = {}
        todo = [ROOT]
        while todo:
            number = todo.pop()
            if number in reached:
                continue
            reached[number] = None
            node = self._nodes[number]
            if isinstance(node, Directory):
                todo.extend((names[number].names if number in names else node.durable).values())
        return sorted(reached)


def _frozen(node: File | Directory) -> File | Directory:
    if isinstance(node, File):
        return File(
            node.number, node.kind, node.mode, node.uid, node.gid, 0, node.mtime, node.durable_mtime, node.timed,
            node.durable, b"", list(node.pending),
        )  # fmt: skip
    return Directory(node.number, node.mode, node.uid, node.gid, node.mtime, node.durable, {}, list(node.pending))


def every_remainder(nodes: Nodes, *, strict: bool, sector: int) -> Iterator[Remainder]:
    """Yield the different remainders of `nodes`, as they are at the time of this call."""
    return _different(_Choices(nodes, strict=strict, sector=sector, rng=random.Random(0)).every())


def some_remainders(
    nodes: Nodes, *, strict: bool, sector: int, limit: int, rng: random.Random
) -> tuple[list[Remainder], bool]:
    """Return at most `limit` different remainders, and whether these are all there are."""
    choices = _Choices(nodes, strict=strict, sector=sector, rng=rng)
    tries = limit * 8
    looked_at = list(itertools.islice(choices.every(), tries + 1))
    found = list(_different(looked_at))
    if len(looked_at) <= tries and len(found) <= limit:
        return found, True
    return list(itertools.islice(_different(itertools.islice(choices.some(), tries)), limit)), False


def _different(found: Iterable[Remainder]) -> Iterator[Remainder]:
    seen: set[int] = set()
    for one in found:
        if one.fingerprint not in seen:
            seen.add(one.fingerprint)
            yield one
