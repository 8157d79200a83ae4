"""Verifies log directories where their disks are, without Spark; an audit elsewhere joins what several hosts wrote.

A report is one Parquet file with the rows that listing, verifying and the metadata give. It has names, offsets and
digests, and no record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from audit.scan.listing import LISTED, ListedSegment, LogDirRow, list_log_dir
from audit.scan.metadata import AssignedRow
from audit.scan.pieces import SegmentTask
from audit.scan.tasks import VERIFIED, Verifier, utc_now
from audit.spark.steps import ReadMetadata, guarded
from audit.tables.options import AuditOptions, Source
from audit.tables.schema import SegmentRow
from audit.tables.wire import union_batches, union_schema
from storage.base.errors import ConfigInvalid, WriteFault, printable
from storage.disk.fs import OsFs

REPORT: Final[dict[str, type]] = {f"listed_{name}": kind for name, kind in LISTED.items()} | {
    name: kind for name, kind in VERIFIED.items() if name != "finding"
}
"""Columns of a report; findings of a scan stand beside those of the listing, as `listed_finding`."""
ASSIGNED_COLUMN: Final = "assigned"
COLUMNS: Final = REPORT | {ASSIGNED_COLUMN: AssignedRow}

Tell = Callable[[str, int, int], None]
"""Called after each segment with its log directory, the bytes done and all bytes."""


def scan_host(
    sources: Sequence[Source], options: AuditOptions, target: PurePath, tell: Tell = lambda *_: None
) -> tuple[int, int]:
    """Write the report of these log directories, whole or not at all; return bytes read and findings that are no notes.

    Raises `WriteFault` if it cannot be written.
    """
    fs = OsFs()
    hidden = target.with_name(target.name + ".tmp")
    counts = [0, 0]
    try:
        with pq.ParquetWriter(str(hidden), union_schema(COLUMNS)) as writer:
            for batch in union_batches(COLUMNS, _counted(_rows(sources, options, tell), counts)):
                writer.write_batch(batch)
        fs.sync_file(hidden)
        fs.rename(hidden, target)
        fs.sync_dir(target.parent)
    except (OSError, pa.ArrowException) as error:
        raise WriteFault("writing", target, error if isinstance(error, OSError) else OSError(str(error))) from error
    return counts[0], counts[1]


def _rows(sources: Sequence[Source], options: AuditOptions, tell: Tell) -> Iterator[Any]:
    verifier = Verifier(options, utc_now(options.now_ms))
    for source in sources:
        rows = list(list_log_dir(source, options))
        yield from rows
        segments = [row for row in rows if isinstance(row, ListedSegment)]
        total, finished = sum(row.size_bytes for row in segments), 0
        for segment in segments:
            yield from guarded(verifier, SegmentTask(segment))
            finished += segment.size_bytes
            tell(source.log_dir, finished, total)
        if any(isinstance(row, LogDirRow) and row.end_offset is not None for row in rows):
            yield from ReadMetadata(options.topics).rows(source)


def _counted(rows: Any, counts: list[int]) -> Iterator[Any]:
    for row in rows:
        if isinstance(row, SegmentRow):
            counts[0] += row.size_bytes
        elif getattr(row, "severity", "note") != "note":
            counts[1] += 1
        yield row


def check_report(name: str) -> None:
    """Raise `ConfigInvalid` if a file is no report of ours."""
    try:
        schema = pq.read_schema(name)
    except (OSError, pa.ArrowException) as error:
        raise ConfigInvalid(f"report {printable(name)}: {printable(error)}") from None
    if not schema.equals(union_schema(COLUMNS)):
        raise ConfigInvalid(f"report {printable(name)}: not one of this version of logmend; run audit scan again")
