"""File systems around another one: `FaultFs` makes a call fail, `TracingFs` writes down what was changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import PurePath
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from storage.disk.fs import FileStat, Fs, ReadFile, Volume, WriteFile, read_fault, write_fault

T = TypeVar("T")
Opened = TypeVar("Opened", bound=ReadFile | WriteFile | Volume)
READING: Final = ("entries", "stat", "open_read", "free_bytes", "read_into")


class Call(NamedTuple):
    """One call that reached the file system: its method, the path, and the second argument if there is one.

    Calls of an open file are `append` with the number of bytes, `sync` and `read_into` with the position.
    """

    method: str
    path: PurePath
    detail: object = None


class WrappedFs:
    """Passes everything on through `_do`; a base for the others."""

    def __init__(self, inner: Fs) -> None:
        self.inner = inner

    def _do(self, call: Call, action: Callable[[], T]) -> T:
        return action()

    def _append(self, path: PurePath, file: WriteFile, data: bytes | bytearray | memoryview) -> None:
        self._do(Call("append", path, len(data)), lambda: file.append(data))

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        return self._do(Call("entries", directory), lambda: self.inner.entries(directory))

    def stat(self, path: PurePath) -> FileStat:
        return self._do(Call("stat", path), lambda: self.inner.stat(path))

    def open_read(self, path: PurePath) -> ReadFile:
        return _WrappedReadFile(self, path, self._do(Call("open_read", path), lambda: self.inner.open_read(path)))

    def free_bytes(self, directory: PurePath) -> int:
        return self._do(Call("free_bytes", directory), lambda: self.inner.free_bytes(directory))

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        return _WrappedWriteFile(self, path, self._do(Call("create", path), lambda: self.inner.create(path, like)))

    def open_append(self, path: PurePath) -> WriteFile:
        return _WrappedWriteFile(self, path, self._do(Call("open_append", path), lambda: self.inner.open_append(path)))

    def truncate(self, path: PurePath, size: int) -> None:
        self._do(Call("truncate", path, size), lambda: self.inner.truncate(path, size))

    def rename(self, source: PurePath, target: PurePath) -> None:
        self._do(Call("rename", source, target), lambda: self.inner.rename(source, target))

    def link(self, source: PurePath, target: PurePath) -> None:
        self._do(Call("link", source, target), lambda: self.inner.link(source, target))

    def remove(self, path: PurePath) -> None:
        self._do(Call("remove", path), lambda: self.inner.remove(path))

    def make_dir(self, directory: PurePath, like: FileStat | None = None) -> None:
        self._do(Call("make_dir", directory), lambda: self.inner.make_dir(directory, like))

    def remove_dir(self, directory: PurePath) -> None:
        self._do(Call("remove_dir", directory), lambda: self.inner.remove_dir(directory))

    def set_mtime(self, path: PurePath, mtime_ns: int) -> None:
        self._do(Call("set_mtime", path, mtime_ns), lambda: self.inner.set_mtime(path, mtime_ns))

    def sync_file(self, path: PurePath) -> None:
        self._do(Call("sync_file", path), lambda: self.inner.sync_file(path))

    def sync_dir(self, directory: PurePath) -> None:
        self._do(Call("sync_dir", directory), lambda: self.inner.sync_dir(directory))

    def volume(self, directory: PurePath) -> Volume | None:
        inner = self.inner.volume(directory)
        return None if inner is None else _WrappedVolume(self, directory, inner)


class _Wrapped(Generic[Opened]):
    def __init__(self, fs: WrappedFs, path: PurePath, inner: Opened) -> None:
        self._fs, self._path, self._inner = fs, path, inner

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _WrappedVolume(_Wrapped[Volume]):
    def __init__(self, fs: WrappedFs, path: PurePath, inner: Volume) -> None:
        super().__init__(fs, path, inner)
        self.device = inner.device

    def sync(self) -> None:
        self._fs._do(Call("sync_volume", self._path), self._inner.sync)


class _WrappedReadFile(_Wrapped[ReadFile]):
    def read_into(self, position: int, target: memoryview) -> int:
        return self._fs._do(Call("read_into", self._path, position), lambda: self._inner.read_into(position, target))


class _WrappedWriteFile(_Wrapped[WriteFile]):
    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._fs._append(self._path, self._inner, data)

    def sync(self) -> None:
        self._fs._do(Call("sync", self._path), self._inner.sync)


class FaultFs(WrappedFs):
    """Makes the `nth` call fail with `errno`, the first one being 1; with `forever` every later one too.

    Every method counts, those of open files and the looking ones too, closing excepted; `only` names the methods that
    do. With `short_write` an `append` that fails has written the first half of its bytes. `calls` is how many there
    were, so a run with `nth` 0, which never fails, tells how many there are to try.
    """

    def __init__(
        self,
        inner: Fs,
        nth: int,
        errno: int,
        forever: bool = False,
        short_write: bool = False,
        only: Collection[str] | None = None,
    ) -> None:
        super().__init__(inner)
        self.calls = 0
        self.failed: list[Call] = []
        self._nth, self._errno, self._forever, self._short_write, self._only = nth, errno, forever, short_write, only

    def _fails(self, call: Call) -> bool:
        if self._only is not None and call.method not in self._only:
            return False
        self.calls += 1
        fails = self.calls == self._nth or (self._forever and 0 < self._nth < self.calls)
        if fails:
            self.failed.append(call)
        return fails

    def _fault(self, call: Call) -> Exception:
        fault = read_fault if call.method in READING else write_fault
        return fault(f"{call.method} (made to fail)", call.path, OSError(self._errno, os.strerror(self._errno)))

    def _do(self, call: Call, action: Callable[[], T]) -> T:
        if self._fails(call):
            raise self._fault(call)
        return action()

    def _append(self, path: PurePath, file: WriteFile, data: bytes | bytearray | memoryview) -> None:
        call = Call("append", path, len(data))
        if not self._fails(call):
            file.append(data)
            return
        if self._short_write:
            file.append(bytes(data)[: len(data) // 2])
        raise self._fault(call)


class TracingFs(WrappedFs):
    """Writes down every change that was made, in order; `looks` too, if wanted. Opening to append is no change."""

    def __init__(self, inner: Fs, *, looks: bool = False) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []
        self._skipped = () if looks else (*READING, "open_append")

    def _do(self, call: Call, action: Callable[[], T]) -> T:
        result = action()
        if call.method not in self._skipped:
            self.calls.append(call)
        return result

    def methods(self) -> list[str]:
        """Return the names of the calls so far."""
        return [call.method for call in self.calls]

    def place(self, method: str, name: str) -> int:
        """Return where in `calls` the first `method` on something of this name stands; `ValueError` if none does."""
        for place, call in enumerate(self.calls):
            if call.method == method and call.path.name == name:
                return place
        raise ValueError(f"no {method} of {name} among {self.calls}")


class Unsynced:
    """An open file whose `sync` does nothing."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sync(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.close()


class Skipping:
    """Passes everything on to a file system but the calls of one method on paths that `which` picks."""

    def __init__(self, fs: Any, method: str, which: Callable[[PurePath], bool] = lambda path: True) -> None:
        self._fs, self._method, self._which = fs, method, which

    def __getattr__(self, name: str) -> Any:
        if name != self._method:
            return getattr(self._fs, name)
        return lambda path, *more: None if self._which(path) else getattr(self._fs, name)(path, *more)
