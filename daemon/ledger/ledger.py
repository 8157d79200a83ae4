"""The ledger: when each segment was last verified, its verdict, and the open findings; SQLite in the state directory.

An operator may query it (`sqlite3 ledger.sqlite3 'select * from findings'`). Its content is a memory, never a proof;
losing it costs one cycle of verification. `Page` has the rows of one log directory.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields
from pathlib import PurePath
from typing import Any, Final, TypeVar

from daemon.status.model import Clock, Events, OpenFinding
from recovery.plan.findings import Severity
from storage.base.errors import EnvironmentFault, ExitStatus, FileVanished, LogDirInUse, LogmendError, printable
from storage.disk.fs import OsFs, lock_log_dir

T = TypeVar("T")
FILE_NAME: Final = "ledger.sqlite3"
SCHEMA_VERSION: Final = 2
MOST_TRUNCATIONS: Final = 10_000
MOST_FINDINGS: Final = 1000
"""Findings kept of one log directory; more of them have one cause."""
_RETRY_SECONDS: Final = 300.0
_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR)
_SCHEMA: Final = """
CREATE TABLE log_dirs (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, device INTEGER, paused INTEGER NOT NULL DEFAULT 0,
    pass_started_ms INTEGER
);
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, log_dir INTEGER NOT NULL, directory TEXT NOT NULL,
    topic TEXT NOT NULL, partition INTEGER NOT NULL, inode INTEGER NOT NULL, topic_id TEXT NOT NULL,
    mtime_ns INTEGER, is_compacted INTEGER NOT NULL DEFAULT 0,
    kept_items INTEGER NOT NULL DEFAULT 0, kept_bytes INTEGER NOT NULL DEFAULT 0, kept_oldest_ms INTEGER,
    verified_offset INTEGER, cursor_base INTEGER, cursor_position INTEGER, cursor_inode INTEGER,
    UNIQUE (log_dir, directory)
);
CREATE TABLE segments (
    partition INTEGER NOT NULL, base INTEGER NOT NULL, log_dir INTEGER NOT NULL, inode INTEGER NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, is_active INTEGER NOT NULL, due_ms INTEGER NOT NULL,
    first_seen_ms INTEGER NOT NULL,
    suspect INTEGER NOT NULL DEFAULT 0, verified_ms INTEGER, verdict TEXT NOT NULL DEFAULT 'unverified',
    source TEXT, digest TEXT, digest_size INTEGER, version TEXT,
    PRIMARY KEY (partition, base)
) WITHOUT ROWID;
CREATE INDEX segments_due ON segments (log_dir, suspect DESC, due_ms);
CREATE TABLE findings (
    id TEXT NOT NULL, log_dir TEXT NOT NULL, topic TEXT, partition INTEGER, path TEXT NOT NULL, kind TEXT NOT NULL,
    severity TEXT NOT NULL, evidence TEXT NOT NULL, position INTEGER, size INTEGER, first_offset INTEGER,
    last_offset INTEGER, next_good_offset INTEGER, verdict TEXT NOT NULL, first_seen_ms INTEGER NOT NULL,
    last_seen_ms INTEGER NOT NULL, command TEXT NOT NULL, PRIMARY KEY (log_dir, id)
);
CREATE TABLE truncations (
    log_dir TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, first_offset INTEGER NOT NULL,
    last_offset INTEGER NOT NULL, noticed_ms INTEGER NOT NULL
);
"""
_FIELDS: Final = tuple(field.name for field in fields(OpenFinding))
_PUT: Final = f"INSERT OR REPLACE INTO findings ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})"  # noqa: S608 (names of our own fields)
_WORST: Final = {severity.value: rank for rank, severity in enumerate(reversed(Severity))}


def as_text(path: PurePath) -> str:
    """Return a path as the ledger holds it: bytes that are not UTF-8 are escaped."""
    return str(path).encode("utf-8", "backslashreplace").decode()


class StateDirInUse(LogmendError):
    """Another service has the state directory."""

    status = ExitStatus.IN_USE

    def __init__(self, state_dir: PurePath) -> None:
        super().__init__(
            f"{printable(state_dir)}: another logmend service uses this state directory: stop that one, or name "
            "another with --state-dir; `logmend status` shows what it does"
        )


class Ledger:
    """The memory of all workers of one service; any thread may call. Closed by `close`.

    Raises `StateDirInUse` where another service has it. It opens in every other case: a corrupt file is renamed
    and a new one created; where the disk refuses writes, the ledger works in memory, as `trouble` says.
    `generation` rises whenever earlier ids of partitions may be invalid.
    """

    def __init__(self, state_dir: PurePath, clock: Clock, events: Events, version: str) -> None:
        self.state_dir, self._clock, self._events, self.version = state_dir, clock, events, version
        self.path = state_dir / FILE_NAME
        self.generation = 0
        self.trouble = ""
        """Why nothing is written to disk at present; empty while the disk accepts writes."""
        self._turn = threading.RLock()
        self._dirty = False
        self._retry_at = 0.0
        self._findings: dict[str, dict[str, OpenFinding]] = {}
        self._held = contextlib.ExitStack()
        self._db = self._open()
        self._load_findings()

    def _first_id(self) -> int:
        """Return an id above all earlier ones, so that an old id never names a new partition."""
        return self._clock.now_ms() + (self.generation << 42)

    # ---- opening, and its faults

    def _open(self) -> sqlite3.Connection:
        with contextlib.suppress(EnvironmentFault):
            OsFs().make_dir(self.state_dir)
        try:
            self._held.enter_context(lock_log_dir(self.state_dir))
        except LogDirInUse:
            raise StateDirInUse(self.state_dir) from None
        except EnvironmentFault as fault:
            return self._in_memory(None, str(fault))
        return self._open_file()

    def _open_file(self) -> sqlite3.Connection:
        try:
            return _connect(str(self.path), self._first_id())
        except sqlite3.Error as error:
            if not _is_corrupt(error):
                return self._in_memory(None, str(error))
            return self._replace_file(str(error))

    def _set_aside(self) -> None:
        """Rename the unusable file, over an earlier one, so that they do not pile up."""
        with contextlib.suppress(FileVanished):
            OsFs().rename(self.path, self.path.with_name(FILE_NAME + ".unusable"))
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileVanished):
                OsFs().remove(self.path.with_name(FILE_NAME + suffix))

    def _in_memory(self, before: sqlite3.Connection | None, reason: str) -> sqlite3.Connection:
        """Return a ledger in memory with the rows that can still be read from disk."""
        self.trouble = f"the ledger cannot be written, so a restart forgets what is verified now: {printable(reason)}"
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        self._events.tell("ledger_not_written", path=self.path, reason=reason)
        db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        if before is not None:
            with contextlib.suppress(sqlite3.Error):
                before.rollback()
                before.backup(db)
                before.close()
                return _checked(db)
            db.close()
            db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        return _create(db, self._first_id())

    def _fell(self, error: sqlite3.Error) -> None:
        """Go on after an error of SQLite: with a new file where the old one is corrupt, else in memory."""
        if self.trouble:
            raise error  # in memory only a wrong query can fail
        self.generation += 1
        self._dirty = False
        if _is_corrupt(error):
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = self._replace_file(str(error))
        else:
            self._db = self._in_memory(self._db, str(error))
        self._save_findings()

    def _replace_file(self, reason: str) -> sqlite3.Connection:
        """Return a new ledger where the old file is unusable."""
        try:
            self._set_aside()
            db = _connect(str(self.path), self._first_id())
        except (EnvironmentFault, sqlite3.Error) as error:
            return self._in_memory(None, str(error))
        self._events.tell("ledger_rebuilt", path=self.path, reason=reason)
        return db

    def _back_to_disk(self) -> None:
        """Write the ledger in memory to the disk, if the disk accepts it."""
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        new = self.path.with_name(FILE_NAME + ".new")
        try:
            with contextlib.suppress(FileVanished):
                OsFs().remove(new)
            self._held.close()
            self._held.enter_context(lock_log_dir(self.state_dir))
            with contextlib.closing(sqlite3.connect(str(new))) as target:
                self._db.backup(target)
            self._set_aside()
            OsFs().rename(new, self.path)
            db = _connect(str(self.path), self._first_id())
        except (EnvironmentFault, sqlite3.Error):
            return
        self._db.close()
        self._db, self.trouble = db, ""

    # ---- reading and writing

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        with self._turn:
            try:
                return action(self._db)
            except sqlite3.Error as error:
                self._fell(error)
                return action(self._db)

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._do(lambda db: db.execute(sql, values).fetchall())

    def write(self, sql: str, *values: object) -> int:
        """Make a change, durable after the next `commit`; return the id of a row that was inserted."""

        def change(db: sqlite3.Connection) -> int:
            self._begin(db)
            return db.execute(sql, values).lastrowid or 0

        return self._do(change)

    def write_all(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Make the same change for each of the rows."""

        def change(db: sqlite3.Connection) -> None:
            self._begin(db)
            db.executemany(sql, rows)

        if rows:
            self._do(change)

    def _begin(self, db: sqlite3.Connection) -> None:
        if not db.in_transaction:
            db.execute("BEGIN")
        self._dirty = True

    def commit(self) -> None:
        """Make the changes durable; a ledger in memory tries now and then to return to the disk."""
        with self._turn:
            if self._dirty:
                self._do(lambda db: db.commit())
                self._dirty = False
            if self.trouble and self._clock.monotonic() >= self._retry_at:
                self._back_to_disk()

    def close(self) -> None:
        """Commit, and release the state directory."""
        with self._turn:
            self.commit()
            if self.trouble:
                self._back_to_disk()
            self._db.close()
            self._held.close()

    # ---- findings

    def _load_findings(self) -> None:
        rows = self.read(f"SELECT {', '.join(_FIELDS)} FROM findings")  # noqa: S608 (names of our own fields)
        for row in rows:
            values = dict(zip(_FIELDS, row, strict=True))
            log_dir = values["log_dir"]
            found = OpenFinding(**values | {"log_dir": PurePath(log_dir), "path": PurePath(values["path"])})
            self._findings.setdefault(log_dir, {})[found.id] = found

    def _save_findings(self) -> None:
        self.write_all(_PUT, [_row(finding) for each in self._findings.values() for finding in each.values()])

    def findings(self, log_dir: PurePath) -> tuple[OpenFinding, ...]:
        """Return the open findings of a log directory, the worst first."""
        with self._turn:
            found = list(self._findings.get(as_text(log_dir), {}).values())
        return tuple(sorted(found, key=_rank))

    def put_finding(self, finding: OpenFinding) -> bool:
        """Note a finding, or that it was seen again; return whether it is new. Above a limit, new ones are dropped."""
        with self._turn:
            known = self._findings.setdefault(as_text(finding.log_dir), {})
            is_new = finding.id not in known
            if is_new and len(known) >= MOST_FINDINGS:
                return False
            known[finding.id] = finding
            self.write(_PUT, *_row(finding))
            return is_new

    def drop_findings(self, log_dir: PurePath, ids: Iterable[str]) -> list[OpenFinding]:
        """Remove closed findings; return them."""
        key = as_text(log_dir)
        with self._turn:
            known = self._findings.get(key, {})
            gone = [known.pop(each) for each in list(ids) if each in known]
            self.write_all("DELETE FROM findings WHERE log_dir = ? AND id = ?", [(key, each.id) for each in gone])
            return gone


def _rank(finding: OpenFinding) -> tuple[int, int, str, int]:
    return _WORST.get(finding.severity, 0), finding.first_seen_ms, str(finding.path), finding.position or 0


def _row(finding: OpenFinding) -> tuple[object, ...]:
    return tuple(as_text(value) if isinstance(value, PurePath) else value for value in astuple(finding))


def _is_corrupt(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.DatabaseError) and code is not None and code & 0xFF in _CORRUPT


def _connect(path: str, first_id: int) -> sqlite3.Connection:
    """Open or create the file; raises `sqlite3.Error`, also for one that is damaged or of another release."""
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=1.0)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA cache_size = -8192")
        db.execute("PRAGMA journal_size_limit = 4194304")
        if db.execute("PRAGMA user_version").fetchone()[0] == 0:
            return _create(db, first_id)
        return _checked(db)
    except BaseException:
        db.close()
        raise


def _create(db: sqlite3.Connection, first_id: int) -> sqlite3.Connection:
    db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    # Partition ids of a new ledger never equal those that a worker still holds of the old one.
    db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('partitions', ?)", (first_id,))
    return db


def _checked(db: sqlite3.Connection) -> sqlite3.Connection:
    version, found = db.execute("PRAGMA user_version").fetchone()[0], db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if version == SCHEMA_VERSION and found == "ok":
        return db
    wrong = sqlite3.DatabaseError(found if found != "ok" else f"of version {version}; {SCHEMA_VERSION} is known")
    wrong.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    raise wrong
