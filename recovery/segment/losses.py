"""Notices records that are gone without a trace in the log itself: what an index still knows of a lost end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from recovery.plan.findings import Damage, Finding
from recovery.segment.index_checks import load_checked
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import Depth, SegmentReport
from storage.base.errors import CorruptData
from storage.base.units import Offset
from storage.disk.fs import ReadFs
from storage.index.indexes import IndexKind, decode_offset_index, used_length

BEHIND_A_CUT: Final = "behind the cut in "
BELOW_THE_START: Final = "below the log start offset "
"""How the reasons begin for which segments are set aside whole, their records with them."""
_INDEX_LOOK: Final = 16 << 20
"""More than any index has, of which the largest is 10 MiB unless configured; what a file claims is no measure."""


def lost_ends(fs: ReadFs, segments: Sequence[SegmentFiles], reports: Mapping[int, SegmentReport]) -> Iterator[Finding]:
    """Yield a finding for each segment that ends, at the border of a batch, before what its offset index speaks of.

    A gap before the next segment alone says nothing, for compaction leaves such; but it never leaves an index that
    knows batches within the gap, at positions that the log no longer has.
    """
    for files, after in pairwise(segments):
        report = reports.get(files.base_offset)
        if (
            report is None
            or report.depth is Depth.QUICK
            or report.damage is not None
            or report.next_offset >= after.base_offset
        ):
            continue
        known = _known_beyond(fs, files, report, after.base_offset)
        if known is not None:
            yield Finding(
                Damage.LOG_MISSING,
                files.log,
                f"the log ends at offset {report.next_offset}, its index knows offset {known}, and the next segment"
                f" begins at {after.base_offset}: the records in between are gone",
                position=report.valid_size,
                first_offset=report.next_offset,
                last_offset=after.base_offset - 1,
                next_good_offset=after.base_offset,
            )


def _known_beyond(fs: ReadFs, files: SegmentFiles, report: SegmentReport, limit: int) -> int | None:
    if files.index_stat is None:
        return None
    data = load_checked(fs, files.index, min(files.index_stat.size, _INDEX_LOOK))
    try:
        entries = decode_offset_index(data[: used_length(data, IndexKind.OFFSET)], Offset(files.base_offset))
    except CorruptData:
        return None
    beyond = [e.offset for e in entries if e.position >= report.valid_size and report.next_offset <= e.offset < limit]
    return max(beyond, default=None)
