"""The open findings of one log directory: gives them ids, tells them as events, and closes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from daemon.ledger.ledger import Ledger, as_text
from daemon.status.model import Clock, Events, OpenFinding
from recovery.plan.findings import Damage, Finding, Severity, Subject
from recovery.report.command_line import command
from storage.base.units import TopicPartition

CHANGED_IN_PLACE = "changed_in_place"
_IN_LOGS: Final = {kind.value for kind in Damage if kind.subject is Subject.LOG}


class OpenFindings:
    """Opens and closes findings. One worker uses it; any thread may call `open`."""

    def __init__(
        self, log_dir: PurePath, ledger: Ledger, clock: Clock, events: Events, flags: tuple[str, ...] = ()
    ) -> None:
        """`flags` are words that each command has to repeat."""
        self.log_dir, self._ledger, self._clock, self._events, self._flags = log_dir, ledger, clock, events, flags

    def open(self) -> tuple[OpenFinding, ...]:
        """Return the open findings, the worst first."""
        return self._ledger.findings(self.log_dir)

    def put(self, name: TopicPartition | None, findings: Iterable[Finding], certainty: str) -> list[OpenFinding]:
        """Open findings on a partition, or on the directory itself; return those that are new."""
        return self._note([self._make(name, f.path, f.kind.value, f.kind.severity, f, certainty) for f in findings])

    def ids(self, findings: Iterable[Finding]) -> set[str]:
        """Return the ids that these findings have, or would have."""
        return {finding_id(self.log_dir, f.path, f.kind.value, f.position) for f in findings}

    def put_changed(self, name: TopicPartition, path: PurePath, size: int, evidence: str, certainty: str) -> None:
        """Open a finding on a closed segment that is sound but holds other batches than before."""
        seen = _Place(evidence, None, size)
        self._note([self._make(name, path, CHANGED_IN_PLACE, Severity.DAMAGE, seen, certainty)])

    def _make(
        self,
        name: TopicPartition | None,
        path: PurePath,
        kind: str,
        severity: Severity,
        seen: Finding | _Place,
        certainty: str,
    ) -> OpenFinding:
        now, (topic, partition) = self._clock.now_ms(), name or (None, None)
        return OpenFinding(
            finding_id(self.log_dir, path, kind, seen.position), self.log_dir, topic, partition, path, kind,
            severity.value, seen.evidence, seen.position, seen.size, seen.first_offset, seen.last_offset,
            seen.next_good_offset, certainty, now, now, self.command_for(name, kind),
        )  # fmt: skip

    def command_for(self, name: TopicPartition | None, kind: str) -> str:
        """Return the next command once the broker is stopped: `recover`, or `verify` where nothing can be repaired.

        What the service reads was flushed, so damage in a log is held until a replica, to be named, fills it.
        """
        words = ["verify" if kind in (CHANGED_IN_PLACE, Damage.READ_ERROR.value) else "recover"]
        if name is not None:
            words += ["--depth", "full", "--topic", name.topic]
        if kind in _IN_LOGS:
            words += ["--heal-from", "REPLICA"]
        return command(*words, *self._flags, self.log_dir)

    def _note(self, found: list[OpenFinding]) -> list[OpenFinding]:
        known = {finding.id: finding for finding in self.open()}
        new = []
        for seen in found:
            before = known.get(seen.id)
            finding = seen if before is None else replace(seen, first_seen_ms=before.first_seen_ms)
            if self._ledger.put_finding(finding):
                new.append(finding)
                self._tell(finding)
        return new

    def _tell(self, finding: OpenFinding) -> None:
        told = {name: getattr(finding, name) for name in finding.__slots__ if not name.endswith("_ms")}
        self._events.tell("finding_opened", **told)

    def close_segment(self, directory: str, base: int, reason: str, *, below: int | None = None) -> None:
        """Close the findings on the files of a segment, with `below` only those below a position of its log.

        A finding `changed_in_place` stays open as long as the file exists.
        """
        prefix = as_text(self.log_dir / directory / f"{base:020d}.")
        is_gone = reason != "sound"
        self._close(
            [
                f for f in self.open()
                if as_text(f.path).startswith(prefix) and (is_gone or f.kind != CHANGED_IN_PLACE)
                and (below is None or (f.position is not None and f.position < below))
            ],
            reason,
        )  # fmt: skip

    def keep_only(self, directory: str, base: int, ids: set[str], reason: str) -> None:
        """Close the findings on the files of a segment that were not seen again: all but `ids`."""
        prefix = as_text(self.log_dir / directory / f"{base:020d}.")
        self._close(
            [f for f in self.open()
             if as_text(f.path).startswith(prefix) and f.id not in ids and f.kind != CHANGED_IN_PLACE],
            reason,
        )  # fmt: skip

    def close_path(self, path: PurePath, reason: str) -> None:
        """Close the findings on one file."""
        self._close([f for f in self.open() if f.path == path], reason)

    def close_directory(self, directory: str, reason: str) -> None:
        """Close the findings on a partition directory that is gone."""
        prefix = as_text(self.log_dir / directory) + "/"
        self._close([f for f in self.open() if as_text(f.path).startswith(prefix)], reason)

    def _close(self, gone: list[OpenFinding], reason: str) -> None:
        for finding in self._ledger.drop_findings(self.log_dir, [finding.id for finding in gone]):
            self._events.tell(
                "finding_closed", log_dir=self.log_dir, topic=finding.topic, partition=finding.partition,
                id=finding.id, kind=finding.kind, reason=reason,
            )  # fmt: skip


class _Place:
    """The place and evidence of a finding without a `Finding`."""

    def __init__(self, evidence: str, position: int | None, size: int | None) -> None:
        self.evidence, self.position, self.size = evidence, position, size
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.next_good_offset: int | None = None


def finding_id(log_dir: PurePath, path: PurePath, kind: str, position: int | None) -> str:
    """Return ten hex digits that the same damage has after any restart."""
    text = "\0".join((as_text(log_dir), as_text(path), kind, str(position)))
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
