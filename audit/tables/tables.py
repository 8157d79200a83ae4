"""Where the tables of audits lie: written once and whole, replaced in one step.

    OUT/<table>/audit_id=<id>/generation=<g>/*.parquet
    OUT/audits/<id>.json        names the generation that counts; it is replaced in one step, after all else is written
    OUT/_staging/<id>/<g>/      of an audit that runs, or was cut off

A reader asks `Tables` for the rows that count, and never sees half an audit, nor one that is being replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from audit.tables.reading import is_uri
from audit.tables.schema import TABLES, arrow_schema
from storage.base.errors import ConfigInvalid, WriteFault, printable
from storage.disk.fs import Fs, OsFs, replace_atomically

if TYPE_CHECKING:
    import pyarrow as pa

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}")
_POINTER_LIMIT: Final = 1 << 20
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class Committed:
    """An audit that is there. `started_at` is a time in ISO 8601, UTC."""

    audit_id: str
    generation: str
    started_at: str
    status: int


class Tables:
    """The tables below one path or URI."""

    def __init__(self, out: str) -> None:
        self.out = out.rstrip("/") or "/"
        self._store, self._root = _open(self.out)

    # ---- reading

    def committed(self) -> list[Committed]:
        """Return the audits that are there, in the order in which they were started."""
        from pyarrow import fs  # noqa: PLC0415

        chosen = fs.FileSelector(self._path("audits"), allow_not_found=True)
        found = []
        for info in self._store.get_file_info(chosen):
            if info.base_name.endswith(".json"):
                with self._store.open_input_file(info.path) as file:
                    told = json.loads(file.read(_POINTER_LIMIT))
                found.append(Committed(told["audit_id"], told["generation"], told["started_at"], told["status"]))
        return sorted(found, key=lambda one: (one.started_at, one.audit_id))

    def find(self, audit_id: str) -> Committed:
        """Return one audit, with `latest` the newest; raises `ConfigInvalid` if it is not there."""
        there = self.committed()
        if audit_id == LATEST and there:
            return there[-1]
        for one in there:
            if one.audit_id == audit_id:
                return one
        known = ", ".join(one.audit_id for one in there[-5:]) or "none"
        raise ConfigInvalid(f"no audit {printable(audit_id)} in {printable(self.out)}; the newest there: {known}")

    def directories(self, table: str, audits: Iterable[Committed] | None = None) -> list[str]:
        """Return the directories that hold a table of these audits, by default of all that are there."""
        chosen = self.committed() if audits is None else audits
        return [self.directory(table, one.audit_id, one.generation) for one in chosen]

    def read(self, table: str, audit_id: str | None = None) -> pa.Table:
        """Return a table of one audit, by default of all of them, in memory; with a column `audit_id`."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        schema = arrow_schema(TABLES[table])
        parts = []
        for one in self.committed() if audit_id is None else [self.find(audit_id)]:
            path = self._path(table, f"audit_id={one.audit_id}", f"generation={one.generation}")
            part = pq.read_table(path, filesystem=self._store, partitioning=None).cast(schema)
            if "audit_id" not in schema.names:
                part = part.append_column("audit_id", pa.repeat(one.audit_id, part.num_rows))
            parts.append(part)
        if not parts:
            extra = [] if "audit_id" in schema.names else [pa.field("audit_id", pa.string())]
            return pa.schema([*schema, *extra]).empty_table()
        return pa.concat_tables(parts)

    def audit_ids(self) -> list[str]:
        """Return the audits that are there, the oldest first."""
        return [one.audit_id for one in self.committed()]

    def batches(self, name: str, audit_id: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of one table of one audit, in pieces; raises `ConfigInvalid` if the audit is not there."""
        from pyarrow import dataset  # noqa: PLC0415

        one = self.find(audit_id)
        path = self._path(name, f"audit_id={one.audit_id}", f"generation={one.generation}")
        schema = arrow_schema(TABLES[name])
        found = dataset.dataset(path, schema=schema, filesystem=self._store, format="parquet", partitioning=None)
        yield from found.to_batches(columns=list(columns))

    # ---- writing

    def directory(self, table: str, audit_id: str, generation: str) -> str:
        """Return where a generation of a table is to be written."""
        return f"{self.out}/{table}/audit_id={audit_id}/generation={generation}"

    def staging(self, audit_id: str, generation: str) -> str:
        """Return where an audit keeps what it has until it is whole."""
        return f"{self.out}/_staging/{audit_id}/{generation}"

    def make(self, directory: str) -> None:
        """Make a directory below `out`, with those above it."""
        self._store.create_dir(self._inner(directory), recursive=True)

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory below `out`; none if it is not there."""
        from pyarrow import fs  # noqa: PLC0415

        chosen = fs.FileSelector(self._inner(directory), allow_not_found=True)
        return sorted(info.base_name for info in self._store.get_file_info(chosen))

    def commit(self, audit_id: str, generation: str, facts: Mapping[str, Any]) -> None:
        """Make a generation the one that counts, then remove what it replaces and what is staged for that audit."""
        told = {"audit_id": audit_id, "generation": generation, **facts}
        data = json.dumps(told, indent=1).encode()
        if is_uri(self.out):
            with self._store.open_output_stream(self._path("audits", f"{audit_id}.json")) as file:
                file.write(data)
        else:
            self._commit_durably(OsFs(), audit_id, generation, data)
        for table in TABLES:
            place = f"{self.out}/{table}/audit_id={audit_id}"
            for name in self.names(place):
                if name != f"generation={generation}":
                    self.remove(f"{place}/{name}")
        self.remove(f"{self.out}/_staging/{audit_id}")

    def _commit_durably(self, fs: Fs, audit_id: str, generation: str, data: bytes) -> None:
        for table in TABLES:
            place = PurePath(self.directory(table, audit_id, generation))
            for name in fs.entries(place):
                fs.sync_file(place / name)
            for directory in (place, place.parent, place.parent.parent):
                fs.sync_dir(directory)
        self.make(f"{self.out}/audits")
        replace_atomically(fs, PurePath(self.out) / "audits" / f"{audit_id}.json", data)
        fs.sync_dir(PurePath(self.out))

    def remove(self, directory: str) -> None:
        """Remove a directory below `out` with all that is in it, if it is there."""
        from pyarrow import fs  # noqa: PLC0415

        if self._store.get_file_info(self._inner(directory)).type is fs.FileType.Directory:
            self._store.delete_dir(self._inner(directory))

    def writer_place(self, path: str) -> tuple[Any, str]:
        """Return file system and path, for `pyarrow`, of a file below `out`."""
        return self._store, self._inner(path)

    def _inner(self, path: str) -> str:
        return path.replace(self.out, self._root, 1)

    def _path(self, *parts: str) -> str:
        return "/".join([self._root, *parts])


def _open(out: str) -> tuple[Any, str]:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import fs  # noqa: PLC0415

    if not is_uri(out):
        return fs.LocalFileSystem(), out
    try:
        store, path = fs.FileSystem.from_uri(out)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigInvalid(f"{printable(out)}: {printable(error)}") from None
    return store, path.rstrip("/")


def checked_id(audit_id: str) -> str:
    """Return an id that may be part of a path; raises `ConfigInvalid` for another."""
    if _ID.fullmatch(audit_id) is None or audit_id == LATEST:
        raise ConfigInvalid(f"audit id {printable(audit_id)}: letters, digits and . _ : + - are allowed, not 'latest'")
    return audit_id


def check_writable(out: str) -> None:
    """Raise `WriteFault` if nothing can be written below `out`, before hours of work are spent."""
    try:
        tables = Tables(out)
        tables.make(f"{tables.out}/_staging")
        store, path = tables.writer_place(f"{tables.out}/_staging/.probe")
        with store.open_output_stream(path) as file:
            file.write(b"")
        store.delete_file(path)
    except OSError as error:
        raise WriteFault("writing", PurePath(out), error) from error
