"""What one step of planning a partition decides: verdicts and actions, as a value that the next step takes over."""

from __future__ import annotations

from itertools import chain
from pathlib import PurePath
from typing import Final, NamedTuple

from recovery.partition.partition import Survey
from recovery.plan.decide import Flushed, Where, judge
from recovery.plan.digest import sha256_of
from recovery.plan.findings import Finding
from recovery.plan.plan import (
    Cut,
    Quarantine,
    Rename,
    ReplaceFile,
    SetAside,
    SpliceSegment,
    SplitLog,
    TruncateTo,
    Verdict,
)
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import Wanted

SWAP: Final = ".swap"
"""Suffix of a file that an interrupted compaction or split has finished."""


class Changes(NamedTuple):
    """Verdicts and actions by kind; `contents` are those of derived files that are at hand, with their paths."""

    verdicts: tuple[Verdict, ...] = ()
    cuts: tuple[Cut, ...] = ()
    copies: tuple[Quarantine, ...] = ()
    splits: tuple[SplitLog, ...] = ()
    splices: tuple[SpliceSegment, ...] = ()
    asides: tuple[SetAside, ...] = ()
    truncates: tuple[TruncateTo, ...] = ()
    renames: tuple[Rename, ...] = ()
    replaces: tuple[ReplaceFile, ...] = ()
    contents: tuple[tuple[PurePath, bytes], ...] = ()

    def paths_aside(self) -> frozenset[PurePath]:
        """Return the paths of the files that are set aside."""
        return frozenset(aside.path for aside in self.asides)

    def is_judged(self, path: PurePath) -> bool:
        """Tell whether there is a verdict on the file."""
        return any(verdict.finding.path == path for verdict in self.verdicts)


def joined(*steps: Changes) -> Changes:
    """Return all that the steps decide, in their order."""
    return Changes._make(tuple(chain.from_iterable(kind)) for kind in zip(*steps, strict=True))


def circumstances(
    survey: Survey, flushed: Flushed = Flushed.NO, *, valid_after: bool = False, held: bool = False
) -> Where:
    """Return where in this partition something was found, as the decision table asks for it."""
    return Where(
        flushed,
        valid_after,
        accept_loss=survey.options.accept_loss,
        log_open=not held,
        trims_padding=survey.trims_padding,
    )


def judged(survey: Survey, *findings: Finding) -> Changes:
    """Return the verdicts on findings in a partition whose log is not held."""
    where = circumstances(survey)
    return Changes(tuple(judge(finding, where) for finding in findings))


def files_aside(files: SegmentFiles, reason: str) -> tuple[SetAside, ...]:
    """Return the actions that set every file of a segment aside."""
    parts = (
        (files.log, files.log_stat),
        (files.index, files.index_stat),
        (files.time_index, files.time_index_stat),
        (files.txn_index, files.txn_index_stat),
    )
    return tuple(SetAside(path, reason) for path, stat in parts if stat is not None)


def replacing(survey: Survey, before: Changes, path: PurePath, wanted: Wanted, reason: str) -> Changes:
    """Return the step that replaces a derived file; one that still carries `.swap` steps aside for the new one.

    `before` are the steps so far: what they set aside is not replaced.
    """
    if path.name.endswith(SWAP):
        target = path.with_name(path.name.removesuffix(SWAP))
        new = ReplaceFile(target, wanted.size, wanted.sha256, replaces=False, reason=reason)
        return Changes(asides=(SetAside(path, "replaced by a new one"),), replaces=(new,))
    replaces = survey.inventory.stat_of(path.name) is not None and path not in before.paths_aside()
    return Changes(replaces=(ReplaceFile(path, wanted.size, wanted.sha256, replaces, reason),))


def writing(survey: Survey, before: Changes, path: PurePath, data: bytes, reason: str) -> Changes:
    """Return the step that replaces a derived file of which the content is at hand."""
    step = replacing(survey, before, path, Wanted(len(data), sha256_of(data)), reason)
    return step._replace(contents=((step.replaces[0].path, data),))
