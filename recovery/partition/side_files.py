"""Compares the small files of a partition with what its log gives, and plans the repair of those that differ.

These are transaction indexes, producer snapshots, leader epochs and the topic id.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.leader_epoch import EpochStart, encode_epochs
from checkpoint.markers import PARTITION_METADATA, decode_partition_metadata, encode_partition_metadata
from recovery.partition.changes import Changes, joined, judged, writing
from recovery.partition.cutting import Logs
from recovery.partition.derive import SideFiles, derive_epochs, derive_side_files
from recovery.partition.partition import Survey
from recovery.partition.points import SMALL_FILE_LIMIT, is_tiered
from recovery.partition.tiering import log_start_of, lost_epochs
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import SetAside
from recovery.segment.index_checks import load_checked
from recovery.segment.segment_files import SegmentFiles
from storage.base.errors import CorruptData, IndexCorrupt, SnapshotCorrupt, UnsupportedFormat
from storage.base.names import snapshot_file_name
from storage.base.units import INT64_MAX, Offset
from storage.disk.fs import ReadFs, read_all
from storage.index.txn_index import decode_txn_index
from storage.producers.producer_state import ProducerState, decode_snapshot
from storage.reading.log_reader import LogReader

_TXN_INDEX_LOOK: Final = 34 << 15


class Derived(NamedTuple):
    """What the log says of its side files, and which snapshots on the disk differ from it."""

    side: SideFiles
    derive_from: int
    """Index of the first segment that stays whose scan feeds the producer state."""
    differing: Mapping[int, Finding]
    """Findings on snapshots that are not as the log gives them, by offset."""


def derive(survey: Survey, logs: Logs, reader: LogReader) -> Derived:
    """Fold the producers of a log; of one that is held nothing is derived."""
    state, derive_from = _choose_state(survey, logs)
    if state is None or logs.held:
        return Derived(SideFiles(), logs.derive_from, {})
    chain = [logs.report_on(files) for files in logs.kept[derive_from:]]
    start = logs.start(survey.points.log_start)
    differing: dict[int, Finding] = {}

    def differs(offset: int, state: ProducerState) -> bool:
        finding = _snapshot_finding(survey, logs, offset, state)
        if finding is not None:
            differing[offset] = finding
        return finding is not None

    side = derive_side_files(survey.fs, reader, state.copy(), chain, start, differs)
    return Derived(side, derive_from, differing)


def _choose_state(survey: Survey, logs: Logs) -> tuple[ProducerState | None, int]:
    """Return a producer state and the index of the segment at whose base it stands: the first where all was read.

    Not so for a log with gaps: compaction has taken records away that the side files of old segments still know.
    """
    below = [logs.report_on(files) for files in logs.kept[: logs.scope]]
    has_gap = any(f.kind is Damage.OFFSET_GAP for report in below for f in report.findings)
    joins = all(a.next_offset == b.base_offset for a, b in itertools.pairwise(below))
    if survey.whole_state is None or has_gap or not joins or survey.whole_from >= logs.derive_from:
        return survey.state, logs.derive_from
    if not all(report.is_scanned for report in below):
        return survey.state, logs.derive_from
    return survey.whole_state, survey.whole_from


def _snapshot_finding(survey: Survey, logs: Logs, offset: int, state: ProducerState) -> Finding | None:
    """Return what is wrong with the snapshot at an offset at which the log gives `state`."""
    name = survey.resolved.snapshots.get(offset)
    if name is None and survey.points.running:
        return None  # the broker has the state in memory, and writes it when it rolls or stops
    if name is None or survey.directory / name in {aside.path for aside in survey.resolved.asides}:
        path = survey.directory / snapshot_file_name(Offset(offset))
        scanned = logs.kept[logs.scope :]
        if not scanned or offset < scanned[0].base_offset:
            return None
        return Finding(Damage.SNAPSHOT_MISSING, path, "the producer state at this offset is not there")
    start = logs.start(survey.points.log_start)
    finding = find_difference(survey.fs, survey.directory / name, offset, state, start)
    # A broker at work knows producers of which compaction has left nothing. It reads no snapshot before its next start.
    is_theirs = survey.points.running and finding is not None and finding.kind is Damage.SNAPSHOT_DIFFERS
    return None if is_theirs else finding


def repair_side_files(survey: Survey, logs: Logs, derived: Derived, before: Changes) -> Changes:
    """Return the step that writes transaction indexes and snapshots that differ, and sets stale snapshots aside."""
    steps = [Changes()]
    for files in logs.kept[derived.derive_from :]:
        wanted = derived.side.txn_indexes.get(files.base_offset)
        if wanted is not None:
            steps.append(_repair_txn_index(survey, files, wanted, before))
    for offset, data in derived.side.snapshots.items():
        finding = derived.differing[offset]
        if finding.kind is not Damage.SNAPSHOT_CORRUPT or not before.is_judged(finding.path):
            steps.append(judged(survey, finding))
        steps.append(writing(survey, before, finding.path, data, finding.kind.value))
    steps.append(_set_stale_snapshots_aside(survey, logs, derived.side, before))
    return joined(*steps)


def _repair_txn_index(survey: Survey, files: SegmentFiles, wanted: bytes, before: Changes) -> Changes:
    stat = files.txn_index_stat
    size = 0 if stat is None else stat.size
    # What is longer than it should be differs, however long it says it is.
    looked_at = min(size, max(len(wanted) + 1, _TXN_INDEX_LOOK))
    content = load_checked(survey.fs, files.txn_index, looked_at) if stat is not None else b""
    if content == wanted:
        return Changes()
    refuse_unknown_version(content, files.txn_index)
    verdict = Changes()
    if not before.is_judged(files.txn_index):
        evidence = f"{size} bytes there, {len(wanted)} from the markers in the log"
        verdict = judged(survey, Finding(Damage.TXN_INDEX_DIFFERS, files.txn_index, evidence))
    return joined(verdict, writing(survey, before, files.txn_index, wanted, Damage.TXN_INDEX_DIFFERS.value))


def _set_stale_snapshots_aside(survey: Survey, logs: Logs, side: SideFiles, before: Changes) -> Changes:
    """Set aside snapshots that lie outside the log, or below its scan without a segment.

    One within what a broker scans is what an earlier stop left at the log end of that time. It stays until a broker
    loads the log: an unclean start deletes it unread, a clean one reads the newest alone.
    """
    if survey.points.running:
        return Changes()
    if survey.points.clean and not before.cuts:
        return _set_corrupt_snapshots_aside(survey, side, before)
    bases = {files.base_offset for files in logs.kept}
    first = logs.kept[logs.scope].base_offset if logs.kept[logs.scope :] else INT64_MAX
    gone, start = before.paths_aside(), log_start_of(survey.points, logs)
    end = logs.end(survey.points.log_start)
    corrupt = {v.finding.path for v in before.verdicts if v.finding.kind is Damage.SNAPSHOT_CORRUPT}
    steps = [Changes()]
    for offset, name in survey.resolved.snapshots.items():
        path = survey.directory / name
        if offset in side.offsets or path in gone:
            continue
        is_below = offset <= start and not _feeds_scan(survey, logs, offset, path)
        is_outside = offset > end or is_below or (offset <= first and offset not in bases)
        if is_outside or path in corrupt:
            reason = "no segment begins or ends at this offset"
            verdict = judged(survey, Finding(Damage.SNAPSHOT_STRAY, path, reason))
            steps += [verdict, Changes(asides=(SetAside(path, reason),))]
    return joined(*steps)


def _set_corrupt_snapshots_aside(survey: Survey, side: SideFiles, before: Changes) -> Changes:
    """Set aside what a broker deletes after a clean stop: snapshots that it tries to load and can not.

    Their finding is there already; those at whose offset the log gives a state are rewritten instead.
    """
    corrupt = {finding.path for finding in survey.findings if finding.kind is Damage.SNAPSHOT_CORRUPT}
    corrupt -= before.paths_aside()
    paths = {offset: survey.directory / name for offset, name in survey.resolved.snapshots.items()}
    gone = [path for offset, path in paths.items() if path in corrupt and offset not in side.offsets]
    return Changes(asides=tuple(SetAside(path, "corrupt, and no segment ends at this offset") for path in gone))


def _feeds_scan(survey: Survey, logs: Logs, offset: int, path: PurePath) -> bool:
    """Tell whether a broker's recovery begins with this snapshot, though it removes it in the end.

    It stands at the first segment's base, and knows producers whose records are gone.
    """
    if logs.scope > 0 or offset <= survey.points.log_start or offset != logs.kept[0].base_offset:
        return False
    try:
        return bool(decode_snapshot(read_all(survey.fs, path, SMALL_FILE_LIMIT), Offset(offset)).entries)
    except CorruptData:
        return False


def repair_epochs(survey: Survey, logs: Logs, before: Changes) -> Changes:
    """Return the step that writes the leader epochs where the batches or the log end contradict the file."""
    lost = lost_epochs(survey, logs)
    if lost is not None:
        return judged(survey, lost)
    points, known, fault = survey.points, *_known_epochs(survey, logs)
    scanned = [report for files in logs.kept if (report := logs.report_on(files)).is_scanned]
    flushed = sum(logs.report_on(files).is_scanned for files in logs.kept[: logs.scope])
    log_end = logs.end(points.log_start)
    stop, start = (INT64_MAX, 0) if points.clean and not before.cuts else (log_end, points.log_start)
    if points.running:
        stop = log_end + 1  # a new leader notes its epoch before it has written anything
    # With every segment set aside there is no history left either.
    wanted = derive_epochs(known, scanned, stop, start, flushed) if logs.kept or not before.cuts else []
    is_there = survey.epoch_file.entries is not None
    if fault is None and is_there and wanted == known:
        return Changes()
    path = survey.directory / EPOCHS_NAME
    verdict = Changes()
    if fault is not None:
        verdict = judged(survey, fault)
    elif survey.inventory.stat_of(EPOCHS_NAME) is None:
        if not wanted:
            return Changes()  # what an old broker leaves, or a new log
        evidence = f"the batches show {len(wanted)} leader epochs"
        verdict = judged(survey, Finding(Damage.EPOCHS_MISSING, path, evidence))
    else:
        evidence = f"{len(known)} epochs there, {len(wanted)} after holding them against log and log end {log_end}"
        verdict = judged(survey, Finding(Damage.EPOCHS_DIFFER, path, evidence))
    return joined(verdict, writing(survey, before, path, encode_epochs(wanted), Damage.EPOCHS_DIFFER.value))


def _known_epochs(survey: Survey, logs: Logs) -> tuple[list[EpochStart], Finding | None]:
    """Return the entries of the epoch file that count, and what is wrong with the file as such.

    Those below the local log are all there is to know of a tiered one, so what is whole of a torn file counts.
    """
    file = survey.epoch_file
    local_start = logs.kept[0].base_offset if logs.kept else 0
    torn = bool(file.leading) and not file.is_whole
    if not torn or local_start <= survey.points.log_start or not is_tiered(survey.points, local_start):
        return list(file.entries or ()), file.fault
    evidence = "its last line is cut short, or its lines do not rise"
    return list(file.leading), file.fault or Finding(Damage.EPOCHS_CORRUPT, survey.directory / EPOCHS_NAME, evidence)


def repair_partition_metadata(survey: Survey, before: Changes) -> Changes:
    """Return the step that writes the topic id where its file is missing or corrupt and the metadata log has it."""
    points, path = survey.points, survey.directory / PARTITION_METADATA
    if survey.inventory.stat_of(PARTITION_METADATA) is None:
        if points.topic_ids is None:
            return Changes()  # written by brokers since 2.8, and needed with KRaft only
        kind, evidence = Damage.METADATA_MISSING, "without its topic id a broker sets the partition apart as stray"
    else:
        try:
            decode_partition_metadata(read_all(survey.fs, path, SMALL_FILE_LIMIT))
        except CorruptData as error:
            kind, evidence = Damage.METADATA_CORRUPT, f"{error.reason}: a broker refuses to start"
        else:
            return Changes()
    topic_id = None if points.topic_ids is None else points.topic_ids.get(points.topic)
    if topic_id is None:
        evidence += "; the metadata log does not tell the topic id either"
        return judged(survey, Finding(Damage.METADATA_LOST, path, evidence))
    verdict = judged(survey, Finding(kind, path, evidence))
    return joined(verdict, writing(survey, before, path, encode_partition_metadata(topic_id), kind.value))


def refuse_unknown_version(data: bytes, path: PurePath) -> None:
    """Raise `UnsupportedFormat`, with the path, for a `.txnindex` that a newer broker may have written."""
    try:
        decode_txn_index(data)
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.reason, path=path) from None
    except IndexCorrupt:
        return  # rot, which is rebuilt


def find_difference(fs: ReadFs, path: PurePath, offset: int, state: ProducerState, log_start: int) -> Finding | None:
    """Return what is wrong with a snapshot that should hold `state`, None if nothing is.

    `state` then loses the producers that a right snapshot lacks: a broker had forgotten them, and what follows does not
    know them, whether the fold begins here or earlier.
    Raises `UnsupportedFormat`, with the path, for a version that a newer broker may have written; and `ReadFault`.
    """
    data = read_all(fs, path, SMALL_FILE_LIMIT)
    if state.is_in_snapshot(data):  # as a recovery writes it; a second state of so many producers is costly
        return None
    try:
        snapshot = decode_snapshot(data, Offset(offset))
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.reason, path=path) from None
    except SnapshotCorrupt as error:
        return Finding(Damage.SNAPSHOT_CORRUPT, path, error.reason)
    if _is_valid(snapshot, state, log_start):
        state.forget_all_but(snapshot.entries)
        return None
    evidence = f"{len(snapshot.entries)} producers there, {len(state.entries)} from the log, and they differ"
    return Finding(Damage.SNAPSHOT_DIFFERS, path, evidence)


def _is_valid(snapshot: ProducerState, ours: ProducerState, log_start: int) -> bool:
    """Tell whether a snapshot agrees with the log, though it may know more or less than the log tells.

    A running broker forgets producers that were silent for long, and it remembers some whose records are gone.
    """
    fewer = (ours.entries[p] for p in ours.entries.keys() - snapshot.entries.keys())
    more = (snapshot.entries[p] for p in snapshot.entries.keys() - ours.entries.keys())
    return (
        all(snapshot.entries[p] == ours.entries[p] for p in snapshot.entries.keys() & ours.entries.keys())
        and all(entry.txn_first_offset < 0 for entry in fewer)
        and all(entry.txn_first_offset < 0 and entry.last_offset < log_start for entry in more)
    )
