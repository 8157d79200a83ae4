"""A file system in memory that knows what a power cut may leave of it.

Each file keeps the bytes that are durable and the changes that are not synced yet; each directory keeps the names that
are durable and the changes of names that are not. `MemoryFs.crash_states` lists what may remain if it died now.

What is durable when: `WriteFile.sync` and `sync_file` make content, size and modification time of that one file so, but
not its name; `sync_dir` makes the names in that one directory so, but not the content behind them; the `sync` of the
volume, of which there is one, makes all so.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Final, NamedTuple, Self, TypeAlias

from support.remains import Change, Directory, File, NameChange, Remainder, every_remainder, some_remainders
from support.wrapped_fs import Call, FaultFs, TracingFs

from storage.base.errors import EnvironmentFault
from storage.disk.fs import FileKind, FileStat, ReadFile, Volume, WriteFile, read_fault, write_fault

__all__ = ["Call", "Crashed", "Effect", "FaultFs", "MemoryFs", "Remainder", "TracingFs"]

Fault: TypeAlias = Callable[[str, PurePath, OSError], EnvironmentFault]
ROOT: Final = 1
START_NS: Final = 1_700_000_000_000_000_000
TICK_NS: Final = 1_000_000
NO_ROOM_LIMIT: Final = 1 << 40


class Crashed(BaseException):
    """The machine died. Not an `Exception`, so that no handler outlives a power cut."""


class Effect(NamedTuple):
    """One change: its method, and what it was given."""

    method: str
    path: PurePath
    detail: object = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}" + ("" if self.detail is None else f" ({self.detail})")


def refuse(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@contextmanager
def raising(fault: Fault, operation: str, path: PurePath) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise fault(operation, path, error) from error


class MemoryFs:
    """An `Fs`. Paths are taken from the root; `room` bounds the bytes of all files together.

    `effects` counts the changes so far, `history` names them. A call that is refused changes nothing and is no effect.
    After a crash every further call raises `Crashed` again, as a machine that is off does nothing more.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None, *, room: int | None = None) -> None:
        """Hold `files`, all durable, in the directories that their paths name; a path that ends in / is a directory."""
        self.nodes: dict[int, File | Directory] = {ROOT: Directory(ROOT)}
        self.effects = 0
        self.history: list[Effect] = []
        self.before_effect: Callable[[MemoryFs], None] | None = None
        """Called before each effect; it may look, and list crash states, but change nothing."""
        self.clock = START_NS
        self._room = room
        self._next = ROOT + 1
        self._stop: int | None = None
        self._off = False
        for path, content in (files or {}).items():
            self.plant(PurePath(path), FileKind.DIRECTORY if path.endswith("/") else FileKind.FILE, content)

    # ---- crashes

    def stop_before(self, effect: int) -> None:
        """Die before the effect of this number, the first one being 1."""
        self._stop = effect

    def crash_states(self, *, strict: bool = False, sector: int = 512) -> Iterator[Remainder]:
        """Yield what may remain if the machine dies now, each different content once.

        Of the unsynced changes of names in a directory any prefix survives, with `strict` any subset; a rename from one
        directory to another is lost or whole or leaves both names, with `strict` it may also leave none. Of a file's
        unsynced writes any prefix survives, the last one cut at any `sector` border, truncations among them done or
        not; with `strict` a part of the last write may also be there as zeros.
        """
        return every_remainder(self.nodes, strict=strict, sector=sector)

    def some_crash_states(
        self, limit: int, rng: random.Random, *, strict: bool = False, sector: int = 512
    ) -> tuple[list[Remainder], bool]:
        """Return at most `limit` of the crash states, and whether these are all.

        If there are more they are drawn at random, after those where nothing and where everything survived.
        """
        return some_remainders(self.nodes, strict=strict, sector=sector, limit=limit, rng=rng)

    def revive(self, nodes: dict[int, File | Directory]) -> MemoryFs:
        """Return a new machine that finds `nodes` on its disk, all durable; numbers of files and the clock go on."""
        born = MemoryFs(room=self._room)
        born.nodes, born._next, born.clock = nodes, self._next, self.clock
        return born

    # ---- outside of the protocol, and no effects

    def plant(
        self, path: PurePath, kind: FileKind = FileKind.FILE, content: bytes = b"", like: FileStat | None = None
    ) -> None:
        """Put something there, durably, with the directories above it."""
        inside = self._directory_for(path.parent)
        number = self._number()
        node = Directory(number) if kind is FileKind.DIRECTORY else File(number, kind, durable=content, current=content)
        node.mtime = self.clock
        if isinstance(node, File):
            node.links = 1
        if like is not None:
            node.mode, node.uid, node.gid, node.mtime = like.mode, like.uid, like.gid, like.mtime_ns
        if isinstance(node, File):
            node.durable_mtime = node.mtime
        self.nodes[number] = node
        inside.durable[path.name] = inside.current[path.name] = number

    @classmethod
    def load(cls, real: str | os.PathLike[str], at: str = "/", *, room: int | None = None) -> Self:
        """Return the tree under the real directory `real`, all durable, as the directory `at`."""
        fs = cls(room=room)
        fs._directory_for(PurePath(at))
        known: dict[tuple[int, int], PurePath] = {}
        for top, directories, names in os.walk(real):
            for name in sorted(directories + names):
                fs._load_one(Path(top, name), PurePath(at) / Path(top).relative_to(real) / name, known)
        return fs

    def _load_one(self, source: Path, target: PurePath, known: dict[tuple[int, int], PurePath]) -> None:
        raw = source.lstat()
        first = known.setdefault((raw.st_dev, raw.st_ino), target)
        if first != target:  # another name of a file that is loaded already
            file, inside = self._plain(first), self._directory_for(target.parent)
            inside.durable[target.name] = inside.current[target.name] = file.number
            file.links += 1
            return
        if source.is_symlink():
            kind, content = FileKind.SYMLINK, b""
        elif source.is_dir():
            kind, content = FileKind.DIRECTORY, b""
        else:
            kind, content = (FileKind.FILE, source.read_bytes()) if source.is_file() else (FileKind.OTHER, b"")
        mode = raw.st_mode & 0o7777
        like = FileStat(kind, 0, raw.st_mtime_ns, 0, 0, mode, raw.st_uid, raw.st_gid, 1, 0)
        self.plant(target, kind, content, like)

    def dump(self, real: str | os.PathLike[str], of: str = "/") -> None:
        """Write the directory `of` as it looks now into the real directory `real`, with modes and times."""
        for name, number in self._directory_at(PurePath(of)).current.items():
            node, target = self.nodes[number], Path(real, name)
            if isinstance(node, Directory):
                target.mkdir(exist_ok=True)
                self.dump(target, str(PurePath(of) / name))
            elif node.kind is FileKind.FILE:
                target.write_bytes(node.current)
                target.chmod(node.mode)
                os.utime(target, ns=(node.mtime, node.mtime))

    def contents(self, of: str = "/") -> dict[str, bytes]:
        """Return every plain file under the directory `of` as it looks now: path within it -> content."""
        found: dict[str, bytes] = {}
        for name, number in sorted(self._directory_at(PurePath(of)).current.items()):
            node = self.nodes[number]
            if isinstance(node, Directory):
                below = self.contents(str(PurePath(of) / name))
                found.update({f"{name}/{path}": content for path, content in below.items()})
            elif node.kind is FileKind.FILE:
                found[name] = bytes(node.current)
        return found

    # ---- ReadFs

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        with self._doing(read_fault, "listing", directory):
            return {name: self._stat(number) for name, number in sorted(self._directory_at(directory).current.items())}

    def stat(self, path: PurePath) -> FileStat:
        with self._doing(read_fault, "looking at it", path):
            return self._stat(self._find(path).number)

    def open_read(self, path: PurePath) -> ReadFile:
        with self._doing(read_fault, "opening", path):
            return _Open(self, path, self._plain(path))

    def free_bytes(self, directory: PurePath) -> int:
        with self._doing(read_fault, "asking for free space", directory):
            self._find(directory)
            return NO_ROOM_LIMIT if self._room is None else max(self._room - self._used(), 0)

    # ---- Fs

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        with self._doing(write_fault, "creating", path):
            parent = self._place_for(path)
            self._effect(Effect("create", path))
            file = File(self._number(), links=1, mtime=self.clock, durable_mtime=self.clock)
            if like is not None:
                file.mode, file.uid, file.gid = like.mode & 0o777, like.uid, like.gid
            self.nodes[file.number] = file
            parent.change(NameChange(self.effects, file.number, adds=path.name))
            return _Open(self, path, file)

    def open_append(self, path: PurePath) -> WriteFile:
        with self._doing(write_fault, "opening", path):
            return _Open(self, path, self._own_plain(path))

    def truncate(self, path: PurePath, size: int) -> None:
        with self._doing(write_fault, f"truncating to {size}", path):
            file = self._own_plain(path)
            if size < 0 or size > len(file.current):
                raise refuse(errno.EINVAL)
            self._effect(Effect("truncate", path, size))
            file.change(Change("cut", size, b"", self.clock))

    def rename(self, source: PurePath, target: PurePath) -> None:
        with self._doing(write_fault, f"renaming to {target}", source):
            moved, old, new = self._find(source), self._directory_at(source.parent), self._directory_at(target.parent)
            there = new.current.get(target.name)
            if there is not None:
                self._may_replace(moved, self.nodes[there])
            self._effect(Effect("rename", source, target))
            if there == moved.number:
                return
            if there is not None:
                self._unlinked(there)
            if old is new:
                old.change(NameChange(self.effects, moved.number, adds=target.name, removes=source.name))
            else:
                new.change(NameChange(self.effects, moved.number, adds=target.name, other=old.number))
                old.change(NameChange(self.effects, moved.number, removes=source.name, other=new.number))

    def link(self, source: PurePath, target: PurePath) -> None:
        with self._doing(write_fault, f"linking as {target}", source):
            file = self._find(source)
            if isinstance(file, Directory):
                raise refuse(errno.EPERM)
            parent = self._place_for(target)
            self._effect(Effect("link", source, target))
            file.links += 1
            parent.change(NameChange(self.effects, file.number, adds=target.name))

    def remove(self, path: PurePath) -> None:
        with self._doing(write_fault, "removing", path):
            node = self._find(path)
            if isinstance(node, Directory):
                raise refuse(errno.EISDIR)
            self._effect(Effect("remove", path))
            self._unlinked(node.number)
            self._directory_at(path.parent).change(NameChange(self.effects, node.number, removes=path.name))

    def make_dir(self, directory: PurePath, like: FileStat | None = None) -> None:
        with self._doing(write_fault, "making the directory", directory):
            parent = self._place_for(directory)
            self._effect(Effect("make_dir", directory))
            made = Directory(self._number(), mtime=self.clock)
            if like is not None:
                made.mode, made.uid, made.gid = like.mode, like.uid, like.gid
            self.nodes[made.number] = made
            parent.change(NameChange(self.effects, made.number, adds=directory.name))

    def remove_dir(self, directory: PurePath) -> None:
        with self._doing(write_fault, "removing the directory", directory):
            gone = self._directory_at(directory)
            if gone.current:
                raise refuse(errno.ENOTEMPTY)
            self._effect(Effect("remove_dir", directory))
            parent = self._directory_at(directory.parent)
            parent.change(NameChange(self.effects, gone.number, removes=directory.name))

    def set_mtime(self, path: PurePath, mtime_ns: int) -> None:
        with self._doing(write_fault, "setting the modification time", path):
            node = self._find(path)
            self._effect(Effect("set_mtime", path, mtime_ns))
            if isinstance(node, File):
                node.change(Change("time", 0, b"", mtime_ns))
            else:
                node.mtime = mtime_ns

    def sync_file(self, path: PurePath) -> None:
        with self._doing(write_fault, "syncing", path):
            file = self._plain(path)
            self._effect(Effect("sync_file", path))
            file.sync()

    def sync_dir(self, directory: PurePath) -> None:
        with self._doing(write_fault, "syncing the directory", directory):
            node = self._directory_at(directory)
            self._effect(Effect("sync_dir", directory))
            node.sync()

    def volume(self, directory: PurePath) -> Volume | None:
        return _Volume(self, directory)

    # ---- inside

    @contextmanager
    def _doing(self, fault: Fault, operation: str, path: PurePath) -> Iterator[None]:
        self._alive()
        with raising(fault, operation, path):
            yield

    def _alive(self) -> None:
        if self._off:
            raise Crashed

    def _effect(self, effect: Effect) -> None:
        self._alive()
        if self.before_effect is not None:
            self.before_effect(self)
        if self.effects + 1 == self._stop:
            self._off = True
            raise Crashed
        self.effects += 1
        self.clock += TICK_NS
        self.history.append(effect)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _used(self) -> int:
        return sum(len(node.current) for node in self.nodes.values() if isinstance(node, File) and node.links)

    def write(self, path: PurePath, file: File, data: bytes) -> None:
        """Append to an open file; what has no room is refused after the part that has."""
        fits = data if self._room is None else data[: max(self._room - self._used(), 0)]
        if fits:
            self._effect(Effect("append", path, len(fits)))
            file.change(Change("write", len(file.current), fits, self.clock))
        if len(fits) < len(data):
            raise refuse(errno.ENOSPC)

    def sync_volume(self, path: PurePath) -> None:
        with self._doing(write_fault, "syncing the file system", path):
            self._effect(Effect("sync_volume", path))
            for node in self.nodes.values():
                node.sync()

    def sync_open(self, path: PurePath, file: File) -> None:
        self._effect(Effect("sync", path))
        file.sync()

    def _walk(self, path: PurePath) -> File | Directory | None:
        node: File | Directory = self.nodes[ROOT]
        for part in path.parts:
            if part == "/":
                continue
            if not isinstance(node, Directory):
                raise refuse(errno.ENOTDIR)
            number = node.current.get(part)
            if number is None:
                return None
            node = self.nodes[number]
        return node

    def _find(self, path: PurePath) -> File | Directory:
        node = self._walk(path)
        if node is None:
            raise refuse(errno.ENOENT)
        return node

    def _directory_at(self, path: PurePath) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise refuse(errno.ENOTDIR)
        return node

    def _directory_for(self, path: PurePath) -> Directory:
        if self._walk(path) is None:
            self.plant(path, FileKind.DIRECTORY)
        return self._directory_at(path)

    def _place_for(self, path: PurePath) -> Directory:
        parent = self._directory_at(path.parent)
        if path.name == ".lock":
            raise refuse(errno.EBUSY)
        if path.name in parent.current:
            raise refuse(errno.EEXIST)
        return parent

    def _plain(self, path: PurePath) -> File:
        if path.name == ".lock":
            raise refuse(errno.EBUSY)
        node = self._find(path)
        if isinstance(node, Directory):
            raise refuse(errno.EISDIR)
        if node.kind is not FileKind.FILE:
            raise refuse(errno.ELOOP if node.kind is FileKind.SYMLINK else errno.EINVAL)
        return node

    def _own_plain(self, path: PurePath) -> File:
        file = self._plain(path)
        if file.links > 1:
            raise refuse(errno.EMLINK)
        return file

    @staticmethod
    def _may_replace(moved: File | Directory, there: File | Directory) -> None:
        if isinstance(there, Directory):
            if not isinstance(moved, Directory):
                raise refuse(errno.EISDIR)
            if there.current and there is not moved:
                raise refuse(errno.ENOTEMPTY)
        elif isinstance(moved, Directory):
            raise refuse(errno.ENOTDIR)

    def _unlinked(self, number: int) -> None:
        node = self.nodes[number]
        if isinstance(node, File):
            node.links -= 1

    def _stat(self, number: int) -> FileStat:
        node = self.nodes[number]
        if isinstance(node, Directory):
            return FileStat(FileKind.DIRECTORY, 4096, node.mtime, number, 1, node.mode, node.uid, node.gid, 2, 4096)
        size = len(node.current)
        held = -(-size // 4096) * 4096
        return FileStat(node.kind, size, node.mtime, number, 1, node.mode, node.uid, node.gid, node.links, held)


class _Open:
    """An open file: a `ReadFile` and a `WriteFile`, whichever it was opened as."""

    def __init__(self, fs: MemoryFs, path: PurePath, file: File) -> None:
        self._fs, self._path, self._file = fs, path, file
        self._closed = False

    def read_into(self, position: int, target: memoryview) -> int:
        self._usable()
        with raising(read_fault, f"reading at {position}", self._path):
            if position < 0:
                raise refuse(errno.EINVAL)
            part = self._file.current[position : position + len(target)]
            target[: len(part)] = part
            return len(part)

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._usable()
        with raising(write_fault, "writing", self._path):
            self._fs.write(self._path, self._file, bytes(data))

    def sync(self) -> None:
        self._usable()
        self._fs.sync_open(self._path, self._file)

    def close(self) -> None:
        self._closed = True

    def _usable(self) -> None:
        self._fs._alive()
        if self._closed:
            raise ValueError("I/O operation on closed file")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Volume:
    """The whole of it, opened by way of one of its directories."""

    def __init__(self, fs: MemoryFs, path: PurePath) -> None:
        self._fs, self._path, self.device = fs, path, fs.stat(path).device

    def sync(self) -> None:
        self._fs.sync_volume(self._path)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass
