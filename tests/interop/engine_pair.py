"""Two logs that are told the same, the engine's and Kafka's; whatever they answer or leave differently is raised."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from interop.kafka_lab import Oracle

from checkpoint import leader_epoch
from checkpoint.leader_epoch import EpochStart
from storage.base.config import LogConfig
from storage.base.errors import BatchCorrupt, LogmendError
from storage.base.refusals import (
    AppendTooLarge,
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransaction,
    OffsetOutOfRange,
    OffsetsOutOfOrder,
    OutOfOrderSequence,
    RecordTooLarge,
    UnexpectedOffset,
)
from storage.base.units import Epoch, Offset
from storage.disk.fs import OsFs
from storage.log.log import Log
from storage.log.log_read import locate
from storage.log.log_types import Appended, Isolation, LogSetup, Truncated
from storage.producers.producers import Origin
from storage.reading.segment_walk import walk_places

START_MS: Final = 1_700_000_000_000
NAME: Final = "orders-0"
ISOLATIONS: Final = {
    "LOG_END": Isolation.LOG_END, "HIGH_WATERMARK": Isolation.HIGH_WATERMARK, "TXN_COMMITTED": Isolation.COMMITTED,
}  # fmt: skip
REFUSALS: Final[dict[str, tuple[type[LogmendError], ...]]] = {
    "RecordTooLargeException": (RecordTooLarge,),
    "RecordBatchTooLargeException": (AppendTooLarge,),
    "RecordValidationException": (InvalidRecord,),
    "InvalidTimestampException": (InvalidTimestamp,),
    "InvalidRecordException": (InvalidRecord,),
    "CorruptRecordException": (BatchCorrupt,),
    "OutOfOrderSequenceException": (OutOfOrderSequence,),
    "InvalidProducerEpochException": (InvalidProducerEpoch,),
    "InvalidTxnStateException": (InvalidTransaction,),
    "TransactionCoordinatorFencedException": (CoordinatorFenced,),
    "UnexpectedAppendOffsetException": (UnexpectedOffset,),
    "OffsetsOutOfOrderException": (OffsetsOutOfOrder,),
    "OffsetOutOfRangeException": (OffsetOutOfRange,),
    # Not meant as answers: what a broker's own encoder trips over.
    "UnsupportedOperationException": (InvalidRecord,),
    "IllegalArgumentException": (InvalidRecord,),
}


class Epochs:
    """The epoch file of a log, as the manager of the logs keeps it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / leader_epoch.FILE_NAME
        self.entries: list[EpochStart] = leader_epoch.read_epochs(OsFs(), self.path) if self.path.exists() else []

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        self._keep(leader_epoch.assign(self.entries, epoch, start_offset))

    def truncate_from_end(self, end_offset: Offset) -> None:
        self._keep(leader_epoch.truncate_from_end(self.entries, end_offset))

    def truncate_from_start(self, start_offset: Offset) -> None:
        self._keep(leader_epoch.truncate_from_start(self.entries, start_offset))

    def clear(self) -> None:
        self._keep([])

    def _keep(self, entries: list[EpochStart]) -> None:
        if entries != self.entries:
            self.entries = entries
            leader_epoch.write_epochs(OsFs(), self.path, entries)


class Pair:
    """Two logs that are told the same; each method asks both, compares, and returns the engine's answer."""

    def __init__(self, oracle: Oracle, directory: Path, config: dict[str, str]) -> None:
        self.oracle, self.config = oracle, config
        self.ours, self.theirs = directory / "ours" / NAME, directory / "theirs" / NAME
        for place in (self.ours, self.theirs):
            place.mkdir(parents=True)
        self.now = START_MS
        self.log_start = 0
        self.removed: list[Path] = []
        self.open()

    def open(self) -> None:
        self.oracle(op="now", ms=self.now)
        self.epochs = Epochs(self.ours)
        config = LogConfig.from_properties(self.config)
        self.log = Log.open(
            OsFs(),
            self.ours,
            config,
            LogSetup(self.epochs),
            now_ms=self.now,
            log_start=Offset(self.log_start),
            is_clean=True,
        )
        self.removed += [Path(path) for path in self.log.removed_on_open]
        self.oracle(
            op="open", log="pair", dir=str(self.theirs), clean=True, config=self.config, log_start=self.log_start,
            recovery_point=self.log.log_end,
        )  # fmt: skip
        self.compare_states()

    def both(self, ours: Any, **theirs: Any) -> tuple[Any, dict[str, Any]] | None:
        """Ask both sides; None if both refused, for the same reason."""
        answer = self.oracle.ask(log="pair", **theirs)
        try:
            found, refusal = ours(), None
        except LogmendError as error:
            found, refusal = None, error
        if refusal is not None:
            kind = answer.get("error", "no error").rpartition(".")[2]
            assert isinstance(refusal, REFUSALS.get(kind, ())), f"{refusal!r} against {answer}"
            return None
        assert "error" not in answer, f"{answer} against {found}"
        return found, answer

    def append(self, data: bytes, epoch: int, *, follower: bool) -> Appended | None:
        def ours() -> Appended | None:
            if follower:
                return self.log.append_as_follower(data, leader_epoch=epoch, now_ms=self.now)
            return self.log.append_as_leader(data, leader_epoch=epoch, now_ms=self.now)

        raw = base64.b64encode(data).decode()
        return self._appended(self.both(ours, op="append_raw", bytes=raw, epoch=epoch, follower=follower))

    def marker(self, data: bytes, epoch: int, **asked: Any) -> Appended | None:
        def ours() -> Appended | None:
            return self.log.append_as_leader(
                data, leader_epoch=epoch, now_ms=self.now, origin=Origin.COORDINATOR,
                transaction_version=asked["transaction_version"],
            )  # fmt: skip

        return self._appended(self.both(ours, op="marker", epoch=epoch, **asked))

    @staticmethod
    def _appended(answers: tuple[Any, dict[str, Any]] | None) -> Appended | None:
        if answers is None:
            return None
        ours: Appended | None = answers[0]
        theirs = answers[1]
        if ours is None:
            assert theirs["last"] == -1, theirs
            return None
        assert (ours.first_offset, ours.last_offset) == (theirs["first"], theirs["last"])
        if not ours.is_duplicate:
            assert (ours.max_timestamp, ours.append_time_ms) == (theirs["max_timestamp"], theirs["log_append_time"])
        else:
            assert ours.max_timestamp == theirs["log_append_time"]
        return ours

    def read(self, offset: int, max_bytes: int, isolation: str, min_one: bool) -> None:
        answers = self.both(
            lambda: self.log.read(Offset(offset), max_bytes, isolation=ISOLATIONS[isolation], min_one=min_one),
            op="read", offset=offset, max_bytes=max_bytes, isolation=isolation, min_one=min_one,
        )  # fmt: skip
        if answers is None:
            return
        fetched, theirs = answers
        batches = []
        if fetched.file is not None:
            places = walk_places(fetched.file, fetched.position, fetched.position + fetched.size)
            batches = [[place.base_offset, place.last_offset] for place in places]
            assert len(fetched.load()) == fetched.size, fetched
        aborted = [[txn.producer_id, txn.first_offset] for txn in fetched.aborted or ()]
        asked = offset, max_bytes, isolation, min_one
        assert fetched.size == theirs["size"], f"{asked}: {fetched.size} against {theirs['size']}"
        end = batches[-1][1] if batches else offset - 1
        beyond = [txn for txn in theirs["aborted"] if txn not in aborted and txn[1] > end]  # may be told, need not
        wanted = [txn for txn in theirs["aborted"] if txn not in beyond]
        assert aborted == wanted, f"{asked}: {aborted} against {theirs['aborted']}"
        assert batches == theirs["batches"], f"{asked}: {batches} against {theirs['batches']}"

    def offset_for_time(self, timestamp: int) -> None:
        answers = self.both(
            lambda: self.log.offset_for_time(timestamp), op="offset_by_time", timestamp=timestamp
        )  # fmt: skip
        if answers is not None:
            ours, theirs = answers
            wanted = (theirs["timestamp"], theirs["offset"]) if "offset" in theirs else None
            assert (None if ours is None else tuple(ours)) == wanted

    def plain(self, op: str, ours: Any, **asked: Any) -> None:
        answers = self.both(ours, op=op, **asked)
        if answers is not None and isinstance(answers[0], Truncated):
            self.removed += [Path(path) for path in answers[0].removed]

    def tick(self, ms: int) -> None:
        self.now += ms
        self.oracle(op="now", ms=self.now)

    # ---- comparing

    def compare_states(self) -> None:
        theirs = self.oracle(op="state", log="pair")
        log = self.log
        ours = {
            "log_start": log.log_start,
            "log_end": log.log_end,
            "high_watermark": log.high_watermark,
            "last_stable": self._batch_of(log.last_stable_offset),
            "segments": [(s.base_offset, s.size, s.largest().timestamp) for s in log.segments],
            "epochs": [list(entry) for entry in self.epochs.entries],
            "producers": self._producers(),
        }
        wanted = {
            **{key: theirs[key] for key in ("log_start", "log_end", "high_watermark", "epochs")},
            "last_stable": self._batch_of(theirs["last_stable"]),
            "segments": [(s["base"], s["size"], self._timestamp(s)) for s in theirs["segments"]],
            "producers": theirs["producers"],
        }
        for key, value in ours.items():
            assert value == wanted[key], f"{key}: {value} against {wanted[key]}"

    def _batch_of(self, offset: int) -> int:
        """Return where the batch that holds it begins, or the log ends: Kafka moves a stable offset there."""
        place = locate(self.log.segments, Offset(offset))
        return self.log.log_end if place is None else place.batch.base_offset

    def _timestamp(self, segment: dict[str, Any]) -> int:
        """Return the largest timestamp; what is far from the script's clock is the modification time of the file."""
        known = int(segment["largest_timestamp"])
        return known if known < START_MS + 10**10 else -1

    def _producers(self) -> list[dict[str, Any]]:
        producers = self.log.producers
        return [
            {
                "id": entry.producer_id,
                "epoch": entry.producer_epoch,
                "batches": [
                    [seen.last_sequence, seen.last_offset, seen.last_offset - seen.first_offset, seen.timestamp]
                    for seen in producers.seen(entry)
                ],
                "last_timestamp": entry.timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "txn_first_offset": entry.txn_first_offset,
            }
            for entry in sorted(producers.state.entries.values())
        ]

    def close(self) -> None:
        """Close both cleanly and compare every file."""
        self.compare_states()
        self.log_start = self.log.log_start
        self.log.close()
        for path in self.removed:
            path.unlink(missing_ok=True)  # the name may have been given twice
        self.removed = []
        self.oracle(op="tasks", log="pair")
        self.oracle(op="flush", log="pair", force_active=True)
        self.oracle(op="close", log="pair")
        ours, theirs = contents(self.ours), contents(self.theirs)
        for name in sorted(ours.keys() | theirs.keys()):
            assert ours.get(name) == theirs.get(name), f"{name}: {ours.get(name)} against {theirs.get(name)}"

    def swap(self) -> None:
        """Let each side go on with what the other one has closed."""
        aside = self.ours.parent / "aside"
        self.ours.rename(aside)
        self.theirs.rename(self.ours)
        aside.rename(self.theirs)


def contents(directory: Path) -> dict[str, object]:
    """Return every file, snapshots as sets of entries; empty files of epochs and of transactions count as none."""
    found: dict[str, object] = {}
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        if path.suffix == ".snapshot":
            found[path.name] = sorted(data[at : at + 46] for at in range(10, len(data), 46))
        elif data not in (b"", b"0\n0\n") or path.suffix not in ("", ".txnindex"):
            found[path.name] = data.hex()
    return found
