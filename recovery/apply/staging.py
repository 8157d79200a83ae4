"""Writes every new file of a plan beside its place, durably: what follows only renames, cuts and removes.

So a disk without room, or a derived file that is not what the plan says, ends the work before anything has changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Final

from recovery.apply.copying import drop, range_of, write_new
from recovery.apply.keeping import Healed, spliced
from recovery.apply.part import Part, of_kind, piece_temporary
from recovery.plan.digest import new_digest, sha256_of
from recovery.plan.plan import Action, ReplaceFile, SpliceSegment, SplitLog
from storage.base.errors import PlanStale
from storage.disk.fs import FileKind, FileStat, Fs, WriteFile, temporary_name
from storage.disk.syncing import sync_all

AT_ONCE: Final = 64
"""Files that are written before they are synced together."""
Contents = Callable[[PurePath], bytes]
"""Gives what is to be written to a path; called once for each, right before it is written."""


def temporaries(actions: Sequence[Action]) -> Iterator[PurePath]:
    """Yield the names under which new files wait."""
    for action in actions:
        match action:
            case ReplaceFile() | SpliceSegment():
                yield temporary_name(action.path)
            case SplitLog():
                yield from (piece_temporary(action, piece) for piece in action.pieces)
            case _:
                pass


class Stager:
    """Writes the new files of one directory, made durable by that many threads."""

    def __init__(self, fs: Fs, part: Part, contents: Contents, healed: Healed, sync_threads: int) -> None:
        self._fs, self._part, self._contents, self._healed = fs, part, contents, healed
        self._sync_threads = sync_threads
        self._model: FileStat | None = None

    def stage(self) -> None:
        """Write and sync all of them, each under its temporary name."""
        actions = self._part.actions
        for split in of_kind(actions, SplitLog):
            self._write_pieces(split)
        for splice in of_kind(actions, SpliceSegment):
            like = self._fs.stat(splice.path)
            self._write(temporary_name(splice.path), spliced(self._fs, splice, self._healed, new_digest()), like)
        replaced = of_kind(actions, ReplaceFile)
        for first in range(0, len(replaced), AT_ONCE):
            self._write_derived(replaced[first : first + AT_ONCE])

    def _write_pieces(self, action: SplitLog) -> None:
        like = self._fs.stat(action.path)
        for piece in action.pieces:
            data = range_of(self._fs, action.path, piece.position, piece.size, new_digest())
            self._write(piece_temporary(action, piece), data, like)

    def _write(self, path: PurePath, data: Iterator[bytes], like: FileStat) -> None:
        """Write a log that keeps the time of its last write: retention of old formats goes by it."""
        write_new(self._fs, path, data, like, private=False)
        self._fs.set_mtime(path, like.mtime_ns)
        self._fs.sync_file(path)

    def _write_derived(self, actions: Sequence[ReplaceFile]) -> None:
        with contextlib.ExitStack() as opened:
            files: list[WriteFile] = []
            for action in actions:
                data = self._contents(action.path)
                if len(data) != action.size or sha256_of(data) != action.sha256:
                    raise PlanStale(action.path, "what is derived from the log for it has changed")
                files.append(opened.enter_context(self._create_beside(action)))
                if data:
                    files[-1].append(data)
            sync_all(files, self._sync_threads)

    def _create_beside(self, action: ReplaceFile) -> WriteFile:
        drop(self._fs, temporary_name(action.path))
        like = self._fs.stat(action.path) if action.replaces else self._like_others()
        return self._fs.create(temporary_name(action.path), like)

    def _like_others(self) -> FileStat:
        """Return owner and mode for a file that was not there: those of the first plain file beside it."""
        if self._model is None:  # looked for once: a directory may hold thousands of files, and lack as many
            entries = self._fs.entries(self._part.directory).items()
            plain = (s for n, s in entries if s.kind is FileKind.FILE and n.endswith((".log", ".index", "checkpoint")))
            directory = self._fs.stat(self._part.directory)
            like = next(plain, None)
            mode = 0o644 if like is None else like.mode
            self._model = FileStat(FileKind.FILE, 0, 0, 0, 0, mode, directory.uid, directory.gid, 1, 0)
        return self._model
