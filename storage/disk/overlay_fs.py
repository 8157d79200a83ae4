"""OverlayFs: a disk that is only read, with changes beside it in memory; another one would see nothing of them.

So a directory can be recovered, opened and read as it would be afterwards, while not a byte of it changes. What lies
outside of `tops` cannot be read. Memory is what is written: indexes, snapshots, checkpoints; of what recovery sets
aside (`*.logmend`) only the size is kept, and it reads as zeroes. Errors are those of a real disk. From any thread.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Final, Self

from storage.base.errors import EnvironmentFault
from storage.disk.file_stat import FileKind, FileStat
from storage.disk.fs import OsReadFile, ReadFile, ReadFs, WriteFile, read_fault, write_fault
from storage.disk.os_files import refusal

_LOCK_NAME: Final = ".lock"
_KEPT: Final = ".logmend"
_FIRST_INODE: Final = 1 << 62
_NO_ROOM_LIMIT: Final = 1 << 50
_FILE_MODE: Final = 0o644
_DIRECTORY_MODE: Final = 0o755


class _Node:
    """A file, directory, link or special file: `known` is its stat but for size and links, `base` where it lies."""

    def __init__(self, known: FileStat, base: PurePath | None) -> None:
        self.known, self.base, self.links = known, base, known.links

    def stat(self) -> FileStat:
        return self.known._replace(links=self.links)


class _File(_Node):
    """The first `kept` bytes of the file at `base`, then `tail`, then `hollow` zeroes."""

    def __init__(self, known: FileStat, base: PurePath | None) -> None:
        super().__init__(known, base)
        self.kept, self.tail, self.hollow = known.size, bytearray(), 0

    @property
    def size(self) -> int:
        return self.kept + len(self.tail) + self.hollow

    def stat(self) -> FileStat:
        return self.known._replace(links=self.links, size=self.size)

    def cut(self, size: int) -> None:
        kept = self.kept
        self.hollow = min(self.hollow, max(size - kept - len(self.tail), 0))
        del self.tail[max(size - kept, 0) :]
        self.kept = min(kept, size)


class _Directory(_Node):
    """Its entries are listed at the first use."""

    def __init__(self, known: FileStat, base: PurePath | None) -> None:
        super().__init__(known, base)
        self._names: dict[str, _Node] | None = {} if base is None else None

    def names(self, inner: ReadFs) -> dict[str, _Node]:
        if self._names is None:
            assert self.base is not None, "it has no names of its own yet"
            found = inner.entries(self.base)
            self._names = {name: _node(stat, self.base / name) for name, stat in found.items()}
        return self._names


def _node(stat: FileStat, base: PurePath | None) -> _Node:
    kinds = {FileKind.FILE: _File, FileKind.DIRECTORY: _Directory}
    return kinds.get(stat.kind, _Node)(stat, base)


class OverlayFs:
    """An `Fs` over `inner` that keeps all changes in memory. `now_ns` becomes the time of every changed file."""

    def __init__(self, inner: ReadFs, tops: Iterable[PurePath], now_ns: int = 0) -> None:
        """Raises as `ReadFs.entries` does for each of `tops`."""
        self.inner, self._now_ns = inner, now_ns
        self._tops: dict[PurePath, _Directory] = {}
        for top in tops:
            inner.entries(top)
            known = FileStat(FileKind.DIRECTORY, 0, now_ns, 0, 0, _DIRECTORY_MODE, 0, 0, 2, 0)
            with contextlib.suppress(EnvironmentFault):
                known = inner.stat(top)._replace(kind=FileKind.DIRECTORY)
            self._tops[top] = _Directory(known, top)
        self._turn = threading.RLock()
        self._inode = _FIRST_INODE

    # ---- ReadFs

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        with self._doing(read_fault, "listing", directory):
            names = self._directory(directory).names(self.inner)
            return {name: node.stat() for name, node in sorted(names.items())}

    def stat(self, path: PurePath) -> FileStat:
        with self._doing(read_fault, "looking at it", path):
            return self._find(path).stat()

    def open_read(self, path: PurePath) -> ReadFile:
        with self._doing(read_fault, "opening", path):
            return _Reading(self, path, self._plain(path))

    def free_bytes(self, directory: PurePath) -> int:
        with self._doing(read_fault, "asking for free space", directory):
            self._find(directory)
            return _NO_ROOM_LIMIT

    # ---- Fs

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        with self._doing(write_fault, "creating", path):
            names = self._place_for(path)
            mode = _FILE_MODE if like is None else like.mode & 0o777
            file = _File(self._new_stat(FileKind.FILE, mode, like, links=1), None)
            names[path.name] = file
            return _Writing(self, path, file)

    def open_append(self, path: PurePath) -> WriteFile:
        with self._doing(write_fault, "opening", path):
            return _Writing(self, path, self._own_plain(path))

    def truncate(self, path: PurePath, size: int) -> None:
        with self._doing(write_fault, f"truncating to {size}", path):
            file = self._own_plain(path)
            if not 0 <= size <= file.size:
                raise refusal(errno.EINVAL)
            file.cut(size)
            self._touch(file)

    def rename(self, source: PurePath, target: PurePath) -> None:
        with self._doing(write_fault, f"renaming to {target}", source):
            moved = self._find(source)
            old = self._directory(source.parent).names(self.inner)
            new = self._directory(target.parent).names(self.inner)
            there = new.get(target.name)
            if there is moved:
                return
            if there is not None:
                self._ensure_replaceable(moved, there)
                there.links -= 1
            del old[source.name]
            new[target.name] = moved

    def link(self, source: PurePath, target: PurePath) -> None:
        with self._doing(write_fault, f"linking as {target}", source):
            node = self._find(source)
            if isinstance(node, _Directory):
                raise refusal(errno.EPERM)
            self._place_for(target)[target.name] = node
            node.links += 1

    def remove(self, path: PurePath) -> None:
        with self._doing(write_fault, "removing", path):
            node = self._find(path)
            if isinstance(node, _Directory):
                raise refusal(errno.EISDIR)
            node.links -= 1
            del self._directory(path.parent).names(self.inner)[path.name]

    def make_dir(self, directory: PurePath, like: FileStat | None = None) -> None:
        with self._doing(write_fault, "making the directory", directory):
            names = self._place_for(directory)
            mode = _DIRECTORY_MODE if like is None else like.mode
            names[directory.name] = _Directory(self._new_stat(FileKind.DIRECTORY, mode, like, links=2), None)

    def remove_dir(self, directory: PurePath) -> None:
        with self._doing(write_fault, "removing the directory", directory):
            if self._directory(directory).names(self.inner):
                raise refusal(errno.ENOTEMPTY)
            del self._directory(directory.parent).names(self.inner)[directory.name]

    def set_mtime(self, path: PurePath, mtime_ns: int) -> None:
        with self._doing(write_fault, "setting the modification time", path):
            node = self._find(path)
            node.known = node.known._replace(mtime_ns=mtime_ns)

    def sync_file(self, path: PurePath) -> None:
        with self._doing(write_fault, "syncing", path):
            self._plain(path)

    def sync_dir(self, directory: PurePath) -> None:
        with self._doing(write_fault, "syncing the directory", directory):
            self._directory(directory)

    def volume(self, directory: PurePath) -> None:
        """Return None: there is nothing to wait for."""

    # ---- inside

    def append(self, path: PurePath, file: _File, data: memoryview) -> None:
        """Add bytes to an open file."""
        with self._turn:
            if path.suffix == _KEPT or file.hollow:
                file.hollow += len(data)
            else:
                file.tail += data
            self._touch(file)

    @contextlib.contextmanager
    def _doing(
        self, fault: Callable[[str, PurePath, OSError], EnvironmentFault], operation: str, path: PurePath
    ) -> Iterator[None]:
        with self._turn:
            try:
                yield
            except OSError as error:
                raise fault(operation, path, error) from error

    def _touch(self, file: _File) -> None:
        file.known = file.known._replace(mtime_ns=self._now_ns)

    def _new_stat(self, kind: FileKind, mode: int, like: FileStat | None, *, links: int) -> FileStat:
        self._inode += 1
        model = like or next(iter(self._tops.values())).known
        return FileStat(kind, 0, self._now_ns, self._inode, model.device, mode, model.uid, model.gid, links, 0)

    def _walk(self, path: PurePath) -> _Node | None:
        top = next((top for top in self._tops if path == top or top in path.parents), None)
        if top is None:
            return None
        node: _Node = self._tops[top]
        for part in path.relative_to(top).parts:
            found = self._as_directory(node).names(self.inner).get(part)
            if found is None:
                return None
            node = found
        return node

    def _as_directory(self, node: _Node) -> _Directory:
        if isinstance(node, _Directory):
            return node
        raise refusal(errno.ENOTDIR)

    def _find(self, path: PurePath) -> _Node:
        node = self._walk(path)
        if node is None:
            raise refusal(errno.ENOENT)
        return node

    def _directory(self, path: PurePath) -> _Directory:
        return self._as_directory(self._find(path))

    def _place_for(self, path: PurePath) -> dict[str, _Node]:
        if path.name == _LOCK_NAME:
            raise refusal(errno.EBUSY)
        names = self._directory(path.parent).names(self.inner)
        if path.name in names:
            raise refusal(errno.EEXIST)
        return names

    def _plain(self, path: PurePath) -> _File:
        if path.name == _LOCK_NAME:
            raise refusal(errno.EBUSY)
        node = self._find(path)
        if isinstance(node, _Directory):
            raise refusal(errno.EISDIR)
        if not isinstance(node, _File):
            raise refusal(errno.ELOOP if node.known.kind is FileKind.SYMLINK else errno.EINVAL)
        return node

    def _own_plain(self, path: PurePath) -> _File:
        file = self._plain(path)
        if file.links > 1:
            raise refusal(errno.EMLINK)
        return file

    def _ensure_replaceable(self, moved: _Node, there: _Node) -> None:
        if isinstance(there, _Directory):
            if not isinstance(moved, _Directory):
                raise refusal(errno.EISDIR)
            if there.names(self.inner):
                raise refusal(errno.ENOTEMPTY)
        elif isinstance(moved, _Directory):
            raise refusal(errno.ENOTDIR)


class _Open:
    """What reading and writing have in common."""

    def __init__(self, fs: OverlayFs, path: PurePath, file: _File) -> None:
        self._fs, self._path, self._file = fs, path, file
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise ValueError("I/O operation on closed file")


class _Reading(_Open):
    """A file open for reading; its base is opened with it, so that it may be renamed or cut off meanwhile."""

    def __init__(self, fs: OverlayFs, path: PurePath, file: _File) -> None:
        super().__init__(fs, path, file)
        self._base = None if file.base is None or not file.kept else fs.inner.open_read(file.base)

    def read_into(self, position: int, target: memoryview) -> int:
        self._ensure_open()
        if position < 0:
            raise read_fault(f"reading at {position}", self._path, refusal(errno.EINVAL))
        target = target.cast("B")
        file, count = self._file, 0
        if position < file.kept and self._base is not None:
            part = target[: file.kept - position]
            count = self._base.read_into(position, part)
            if count < len(part):
                return count
        place = position + count - file.kept
        rest = file.tail[place : place + len(target) - count] if place >= 0 else b""
        target[count : count + len(rest)] = rest
        count += len(rest)
        zeroes = max(min(len(target) - count, file.size - position - count), 0)
        target[count : count + zeroes] = bytes(zeroes)
        return count + zeroes

    def duplicate(self) -> int:
        """Return another descriptor of the file below, for ranges that lie in what is kept of it."""
        self._ensure_open()
        if not isinstance(self._base, OsReadFile):
            raise refusal(errno.ESTALE)
        return self._base.duplicate()

    def close(self) -> None:
        super().close()
        if self._base is not None:
            self._base.close()


class _Writing(_Open):
    """A file open for writing at its end."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._ensure_open()
        self._fs.append(self._path, self._file, memoryview(data).cast("B"))

    def sync(self) -> None:
        self._ensure_open()
