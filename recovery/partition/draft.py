"""The plan of one partition in the making: verdicts and actions, and what binds them together."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.markers import PARTITION_METADATA
from recovery.partition.partition import Survey
from recovery.plan.decide import Decision, Flushed, Where, decide
from recovery.plan.digest import sha256_of
from recovery.plan.findings import Finding
from recovery.plan.plan import (
    Action,
    Cut,
    LoadedOffsets,
    Precondition,
    Quarantine,
    RecoveryPlan,
    Rename,
    ReplaceFile,
    Seen,
    SetAside,
    SplitLog,
    TruncateTo,
    Verdict,
)
from recovery.segment.verify import Wanted

_SWAP: Final = ".swap"


class Draft:
    """What will become a `RecoveryPlan`. Actions are collected by kind; `plan` is given them in their order."""

    __slots__ = (
        "asides", "contents", "copies", "cuts", "held", "renames", "replaces", "splits", "survey", "truncates",
        "verdicts",
    )  # fmt: skip

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.verdicts: list[Verdict] = []
        self.contents: dict[PurePath, bytes] = {}
        self.asides: list[SetAside] = []
        self.copies: list[Quarantine] = []
        self.truncates: list[TruncateTo] = []
        self.splits: list[SplitLog] = []
        self.renames: list[Rename] = []
        self.replaces: list[ReplaceFile] = []
        self.cuts: list[Cut] = []
        self.held = False

    def where(self, flushed: Flushed = Flushed.NO, *, valid_after: bool = False) -> Where:
        survey = self.survey
        return Where(
            flushed,
            valid_after,
            replica=False,
            accept_loss=survey.options.accept_loss,
            log_open=not self.held,
            marker=survey.points.marker or survey.options.clean_marker,
        )

    def judge(self, finding: Finding, where: Where | None = None) -> Decision:
        row = decide(finding.kind.subject, where or self.where())
        self.verdicts.append(Verdict(finding, row.letter, row.decision.value))
        return row.decision

    def is_judged(self, path: PurePath) -> bool:
        return any(verdict.finding.path == path for verdict in self.verdicts)

    def write(self, path: PurePath, data: bytes, reason: str) -> None:
        """Plan to write a derived file of which the content is at hand."""
        target = self.replace(path, Wanted(len(data), sha256_of(data)), reason)
        self.contents[target] = data

    def replace(self, path: PurePath, wanted: Wanted, reason: str) -> PurePath:
        """Plan to write a derived file, return its name; one that still carries `.swap` steps aside for the new one."""
        old = self.survey.inventory.stat_of(path.name)
        target = path
        if path.name.endswith(_SWAP):
            target = path.with_name(path.name.removesuffix(_SWAP))
            self.asides.append(SetAside(path, "replaced by a new one"))
            old = None
        gone = {aside.path for aside in self.asides}
        replaces = old is not None and target not in gone
        self.replaces.append(ReplaceFile(target, wanted.size, wanted.sha256, replaces, reason))
        return target

    def trim(self, path: PurePath, size: int, reason: str) -> None:
        old = self.survey.inventory.stat_of(path.name)
        assert old is not None
        self.copies.append(Quarantine(path, size, old.size - size, zeroes=True, reason=reason))
        self.truncates.append(TruncateTo(path, size, old.size))

    def plan(self, actions: tuple[Action, ...], loaded: LoadedOffsets | None, scanned_bytes: int) -> RecoveryPlan:
        """Return the plan."""
        survey = self.survey
        # Names are compared, not paths: there are many of them, and nearly always no action at all.
        wanted = {action.path.name for action in actions if action.path.parent == survey.directory}
        if actions:
            wanted |= {files.log.name for files in survey.resolved.segments}
        entries = survey.inventory.entries
        preconditions = tuple(
            Precondition.of(survey.directory / name, entry.stat) for name, entry in entries.items() if name in wanted
        )
        return RecoveryPlan(
            partition=survey.partition,
            directory=survey.directory,
            verdicts=tuple(sorted(self.verdicts, key=_order)),
            held=self.held,
            preconditions=preconditions,
            actions=actions,
            cuts=tuple(self.cuts),
            loaded=loaded,
            scanned_bytes=scanned_bytes,
            seen=None if loaded is None or actions else self.seen(loaded),
        )

    def seen(self, loaded: LoadedOffsets) -> Seen:
        """Return what is known of a partition in which nothing is to be done."""
        resolved = self.survey.resolved
        segments = resolved.segments
        active = segments[-1].log_stat.size if segments else 0
        unflushed: list[str] = []
        if loaded.recovery_point < loaded.log_end:
            first = max((f.base_offset for f in segments if f.base_offset <= loaded.recovery_point), default=0)
            unflushed += (name for files in segments if files.base_offset >= first for name in files.names_there())
            unflushed += (name for offset, name in resolved.snapshots.items() if offset >= first)
            unflushed += (n for n in (EPOCHS_NAME, PARTITION_METADATA) if n in self.survey.inventory.entries)
        return Seen(active, loaded.log_end in resolved.snapshots, tuple(unflushed))


def _order(verdict: Verdict) -> tuple[str, int, str]:
    finding = verdict.finding
    return finding.path.name, finding.position or 0, finding.kind.value
