"""Keeps the marks of a guard: one SQLite file in the state directory, with one row for each segment.

Its content is a memory, never a proof: a reader of a mark proves it first (`recovery.segment.marks`). So a lost file
costs time, and an old one nothing else.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple, Self
from urllib.parse import quote

from recovery.segment.marks import FILE_NAME, Mark, Marks, decode_mark
from storage.base.errors import EnvironmentFault, ExitStatus, LogmendError, printable
from storage.disk.state_files import drop, size_of

SCHEMA_VERSION: Final = 1
_APPLICATION: Final = 0x4C4D6D6B
_SCHEMA: Final = f"""
CREATE TABLE marks (
    log_dir BLOB NOT NULL, directory BLOB NOT NULL, base INTEGER NOT NULL, durable INTEGER NOT NULL,
    mark BLOB NOT NULL,
    PRIMARY KEY (log_dir, directory, base, durable)
) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {SCHEMA_VERSION};
"""


class MarksNotWritten(LogmendError):
    """The marks could not be written; the next recovery reads more."""

    status = ExitStatus.ENVIRONMENT

    def __init__(self, path: PurePath, reason: str) -> None:
        super().__init__(f"{printable(path)}: marks cannot be written: {printable(reason)}")


class MarkStore:
    """The marks of one state directory, for its one writer. Not for several threads at once. Closed by `close`.

    Opening replaces a file that is damaged or of another version. Every call raises `MarksNotWritten` where the disk or
    the file refuses; what was put before that may be lost.
    """

    def __init__(self, state_dir: PurePath) -> None:
        self.path = state_dir / FILE_NAME
        try:
            self._db = self._opened()
        except (sqlite3.Error, EnvironmentFault) as error:
            raise MarksNotWritten(self.path, str(error)) from error

    def _opened(self) -> sqlite3.Connection:
        try:
            return _connect(self.path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise  # the disk is full, the file is locked, there is no directory
        for suffix in ("", "-wal", "-shm"):
            drop(self.path.with_name(FILE_NAME + suffix))
        return _connect(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self, log_dir: PurePath, marks: Iterable[Mark]) -> None:
        """Keep these marks, all of them or none; of each segment the latest, and the latest durable one."""
        rows = [
            (_key(log_dir), _key(mark.directory), mark.base_offset, mark.is_durable, mark.encode()) for mark in marks
        ]
        self._change("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?, ?)", rows)

    def drop(self, log_dir: PurePath, keys: Iterable[tuple[str, int]]) -> None:
        """Forget the marks of these segments, each named by partition directory and base offset."""
        rows = [(_key(log_dir), _key(directory), base) for directory, base in keys]
        self._change("DELETE FROM marks WHERE log_dir = ? AND directory = ? AND base = ?", rows)

    def drop_all_but(self, log_dirs: Iterable[PurePath]) -> None:
        """Forget the marks of all other log directories."""
        kept = {_key(log_dir) for log_dir in log_dirs}
        with self._raising():
            there = self._db.execute("SELECT DISTINCT log_dir FROM marks").fetchall()
        self._change("DELETE FROM marks WHERE log_dir = ?", [row for row in there if bytes(row[0]) not in kept])

    def read(self, log_dir: PurePath) -> Marks:
        """Return the marks of a log directory; those that cannot be decoded are left out."""
        with self._raising():
            return _read(self._db, log_dir)

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    def _change(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows:
            return
        with self._raising(), self._db:
            self._db.executemany(statement, rows)

    @contextlib.contextmanager
    def _raising(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise MarksNotWritten(self.path, str(error)) from error


class FoundMarks(NamedTuple):
    """The marks of a log directory; where there are none, why, for people."""

    marks: Marks
    reason: str = ""


def read_marks(state_dir: PurePath, log_dir: PurePath) -> FoundMarks:
    """Return the marks that the guard of a state directory has left of a log directory.

    Changes nothing and never waits for a lock: whatever is the matter with the file, there are no marks then.
    """
    path = state_dir / FILE_NAME
    try:
        if size_of(path) is None:
            return FoundMarks({}, f"no marks in {printable(state_dir)}")
        with contextlib.closing(sqlite3.connect(_address(path), uri=True, timeout=0)) as db:
            if not _is_known(db):
                return FoundMarks({}, f"{printable(path)} is of another version")
            return FoundMarks(_read(db, log_dir))
    except (sqlite3.Error, EnvironmentFault) as error:
        return FoundMarks({}, f"{printable(path)}: {printable(error)}")


def _address(path: PurePath) -> str:
    """Return the address by which a file is read without a trace.

    Where a writer is at work, or was killed, the newest rows are in its write-ahead log. Without one the file is all
    there is, and SQLite needs nothing beside it.
    """
    how = "readonly_shm=1" if size_of(path.with_name(path.name + "-wal")) else "immutable=1"
    return f"file:{quote(_key(path))}?mode=ro&{how}"


def _key(name: PurePath | str) -> bytes:
    return str(name).encode("utf-8", "surrogateescape")


def _read(db: sqlite3.Connection, log_dir: PurePath) -> dict[tuple[str, int], tuple[Mark, ...]]:
    marks: dict[tuple[str, int], tuple[Mark, ...]] = {}
    for (data,) in db.execute("SELECT CAST(mark AS BLOB) FROM marks WHERE log_dir = ?", (_key(log_dir),)):
        with contextlib.suppress(ValueError, TypeError):
            mark = decode_mark(data)
            key = (mark.directory, mark.base_offset)
            marks[key] = tuple(sorted((*marks.get(key, ()), mark), key=_reach, reverse=True))
    return marks


def _reach(mark: Mark) -> int:
    return mark.position


def _is_known(db: sqlite3.Connection) -> bool:
    numbers = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    return numbers == [_APPLICATION, SCHEMA_VERSION]


def _connect(path: PurePath) -> sqlite3.Connection:
    db = sqlite3.connect(str(path), timeout=1.0, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")  # what a power cut takes away is read again
        db.execute("PRAGMA journal_size_limit = 4194304")
        if db.execute("PRAGMA schema_version").fetchone()[0] == 0:
            db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        if not _is_known(db):
            raise sqlite3.DatabaseError("of another version")
    except BaseException:
        db.close()
        raise
    return db
