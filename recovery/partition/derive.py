"""What the batches of a log say about its side files: producer snapshots, transaction indexes, leader epochs.

Pure: rows that were scanned go in, the content that those files should have comes out.
Source: Apache Kafka 4.3.0, ProducerStateManager, LogSegment.recover, LogLoader, LeaderEpochFileCache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from checkpoint.leader_epoch import EpochStart, assign, truncate_from_end, truncate_from_start
from recovery.plan.findings import Damage
from recovery.segment.epoch_runs import leave_out_undercut
from recovery.segment.segment_report import SegmentReport
from storage.base.errors import BatchCorrupt
from storage.base.rows import BatchRows, ProducerEvent
from storage.base.units import Epoch, Offset
from storage.disk.fs import ReadFs
from storage.index.txn_index import AbortedTxn, encode_txn_index
from storage.producers.producer_state import ProducerState
from storage.reading.log_reader import LogReader


class SideFiles:
    """The side files of the scanned segments: transaction indexes by segment base, snapshots by their offset.

    `offsets` are those of all snapshots that there should be; `snapshots` has the content of the ones that differ.
    """

    __slots__ = ("offsets", "refused", "snapshots", "txn_indexes")

    def __init__(self) -> None:
        self.offsets: set[int] = set()
        self.snapshots: dict[int, bytes] = {}
        self.txn_indexes: dict[int, bytes] = {}
        self.refused: tuple[int, int, str] | None = None
        """Segment base and batch offset of the first batch that cannot follow those before it, and why."""


Differs = Callable[[int, ProducerState], bool]


def derive_side_files(
    fs: ReadFs,
    reader: LogReader,
    state: ProducerState,
    reports: Sequence[SegmentReport],
    log_start: int,
    differs: Differs,
) -> SideFiles:
    """Fold scanned segments, in order, into a producer state that stands in the first one or at its base offset.

    Batches that the state knows already are passed over. The segment in which it stands is known in part only, so it
    gets neither a transaction index nor a snapshot at its base. A snapshot belongs to the base of each other segment
    and to the end of the last, but never at or below the log start offset: a broker deletes it there. Its content is
    kept where `differs(offset, state)` is true. The fold ends at a batch that the state refuses.
    """
    files = SideFiles()
    start = int(state.map_end_offset)
    for report in reports:
        whole = report.base_offset >= start
        if whole:
            _take_snapshot(files, state, report.base_offset, log_start, differs)
        aborted: list[AbortedTxn] = []
        try:
            aborted.extend(_fold(fs, reader, state, report, start))
        except _Refused as refused:
            files.refused = (report.base_offset, refused.offset, refused.reason)
            return files
        if whole:
            files.txn_indexes[report.base_offset] = encode_txn_index(aborted)
        state.advance(Offset(report.next_offset))
    if reports:
        _take_snapshot(files, state, reports[-1].next_offset, log_start, differs)
    return files


def _take_snapshot(files: SideFiles, state: ProducerState, offset: int, log_start: int, differs: Differs) -> None:
    if offset > log_start and offset not in files.offsets:
        files.offsets.add(offset)
        if differs(offset, state):
            files.snapshots[offset] = state.encode_snapshot()


class _Refused(Exception):
    def __init__(self, offset: int, reason: str) -> None:
        self.offset, self.reason = offset, reason


def _fold(
    fs: ReadFs, reader: LogReader, state: ProducerState, report: SegmentReport, start: int
) -> Iterable[AbortedTxn]:
    if report.events is None:
        # More producers and transactions than are kept between scan and fold: the headers are walked once more.
        yield from _fold_headers(fs, reader, state, report, start)
        return
    width = len(ProducerEvent._fields)
    if min(report.events[::width], default=start) >= start and state.add_plain(report.events):
        return
    for at in range(0, len(report.events), width):
        event = ProducerEvent(*report.events[at : at + width])
        aborted = _add(state, event) if event.base_offset >= start else None
        if aborted is not None:
            yield aborted


def _add(state: ProducerState, event: ProducerEvent) -> AbortedTxn | None:
    try:
        return state.add_batch(event)
    except BatchCorrupt as error:
        raise _Refused(event.base_offset, error.reason) from None


def _fold_headers(
    fs: ReadFs, reader: LogReader, state: ProducerState, report: SegmentReport, start: int
) -> list[AbortedTxn]:
    aborted_txns: list[AbortedTxn] = []

    def on_rows(rows: BatchRows, count: int, _: memoryview, __: int) -> None:
        for i in range(count):
            if rows.producer_id[i] >= 0 and rows.base_offset[i] >= start:
                aborted = _add(state, ProducerEvent(*(getattr(rows, name)[i] for name in ProducerEvent._fields)))
                if aborted is not None:
                    aborted_txns.append(aborted)

    with fs.open_read(report.files.log) as file:
        reader.walk(file, report.files.log, report.valid_size, report.base_offset, on_rows)
    return aborted_txns


class _Shown(NamedTuple):
    """What one scanned segment shows of leader epochs."""

    base_offset: int
    next_offset: int
    rises: Sequence[tuple[int, int]]
    has_gaps: bool
    is_doubted: bool
    """Epochs of some of its batches are not believed."""


def derive_epochs(
    known: Sequence[EpochStart], reports: Sequence[SegmentReport], log_end: int, log_start: int, flushed: int = 0
) -> list[EpochStart]:
    """Return the leader epochs as a broker has them after loading: what the file says, and what the batches add.

    `known` are the entries of the file; those that speak of scanned segments are held against the batches, and the
    batches win. `log_start` is the checkpointed one: a broker cuts the history there, not at the first segment's base.
    The first `flushed` of the reports are of segments that a broker does not scan: no epoch of theirs is taken over
    that what follows contradicts.
    """
    # What lies behind the log end goes first: it would hide that batches before it have an epoch of their own.
    entries = truncate_from_end(known, Offset(log_end))
    shown = _shown(known, reports, flushed)
    if shown:
        entries = _agreeing(entries, shown[0].base_offset, shown)
    for segment in shown:
        for epoch, offset in segment.rises:
            if not entries or epoch > entries[-1].epoch:
                entries = assign(entries, Epoch(epoch), Offset(offset))
    # A broker cuts at the end first. In a log without records that leaves an epoch at its start, which is its end, so
    # the next start cuts that one too; cut in this order the first time gives what all further starts agree with.
    return truncate_from_end(truncate_from_start(entries, Offset(log_start)), Offset(log_end))


def _shown(known: Sequence[EpochStart], reports: Sequence[SegmentReport], flushed: int) -> list[_Shown]:
    shown: list[_Shown] = []
    later: int | None = None
    entries = {(int(entry.epoch), int(entry.start_offset)) for entry in known}
    for number, report in reversed(list(enumerate(reports))):
        has_gaps = any(finding.kind is Damage.OFFSET_GAP for finding in report.findings)
        rises: Sequence[tuple[int, int]] = report.epochs
        if number < flushed:
            rises = leave_out_undercut(rises, entries, later)
        is_doubted = report.epochs_fall or len(rises) < len(report.epochs)
        shown.append(_Shown(report.base_offset, report.next_offset, rises, has_gaps, is_doubted))
        if rises:
            later = rises[0][0] if later is None else min(later, rises[0][0])
    return shown[::-1]


def _agreeing(entries: list[EpochStart], first: int, shown: Sequence[_Shown]) -> list[EpochStart]:
    """Drop the entries from the first on that the scanned batches contradict.

    An entry that begins in the scanned range stands for a batch there, unless no batch of its epoch was ever written.
    """
    seen = {epoch: offset for segment in reversed(shown) for epoch, offset in reversed(segment.rises)}
    ranges = _epoch_ranges(shown)
    history: list[EpochStart] = []
    for number, entry in enumerate(entries):
        offset = int(entry.start_offset)
        actual = _epoch_at(ranges, offset)
        # The first entry follows the log start offset upwards, of which the checkpoint may have been lost.
        misplaced = number > 0 and entry.epoch in seen and offset >= first and offset > seen[entry.epoch]
        is_older = actual is not None and actual < entry.epoch and _tells(shown, offset)
        if offset >= first and (misplaced or is_older):
            break
        history.append(entry)
    return history


def _tells(shown: Sequence[_Shown], offset: int) -> bool:
    """Tell whether a batch that was scanned stands at `offset`, so that its epoch is known and not guessed.

    Compaction takes out the first batches of an epoch; its beginning then lies where no batch is any more. Segments
    that were not scanned say nothing.
    """
    for segment in shown:
        if segment.base_offset <= offset < segment.next_offset:
            return not (segment.is_doubted or (segment.has_gaps and any(at > offset for _, at in segment.rises)))
    return False


def _epoch_ranges(shown: Sequence[_Shown]) -> list[tuple[int, int]]:
    newest, ranges = -1, []
    for segment in shown:
        for epoch, offset in segment.rises:
            if epoch > newest:
                newest = epoch
                ranges.append((offset, epoch))
    return ranges


def _epoch_at(ranges: list[tuple[int, int]], offset: int) -> int | None:
    newest = None
    for start, epoch in ranges:
        if start <= offset:
            newest = epoch
    return newest
