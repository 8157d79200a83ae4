"""A small log directory with every kind of file, as bytes by path, and the places in it that tests damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

from support import recovering
from support.batches import TRANSACTIONAL, batch_v2, marker, record
from support.memory_fs import MemoryFs

from recovery.apply.execute import Executed
from recovery.logdir.survey import plan_log_dir
from recovery.plan.plan import LogDirPlan, PlanOptions
from storage.batch.kraft import MetadataRecord, encode_metadata_record
from storage.disk.fs import Fs

TOP = PurePath("/data")
OPTIONS = PlanOptions(index_interval_bytes=150)
Files = dict[str, bytes]
BASES = (0, 10, 20)
END = 30
POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"
META = b"version=0\nbroker.id=1\n"
EPOCHS = "orders-0/leader-epoch-checkpoint"
MARKER = ".kafka_cleanshutdown"
OURS = (".logmend", ".logmend.json", ".logmend.json.tmp")


def name_of(base: int, suffix: str = "log") -> str:
    return f"{base:020d}.{suffix}"


def place(base: int, suffix: str = "log", partition: str = "orders-0") -> str:
    return f"{partition}/{name_of(base, suffix)}"


def segment(base: int) -> list[bytes]:
    """Return the batches of ten offsets: plain, of an idempotent producer, of a transaction that is aborted, plain."""
    epoch = base // 10
    return [
        batch_v2(base, 2, leader_epoch=epoch),
        batch_v2(base + 2, 2, leader_epoch=epoch, producer_id=7, producer_epoch=0, base_sequence=base // 5),
        batch_v2(
            base + 4, 2, leader_epoch=epoch, producer_id=9, producer_epoch=0, base_sequence=base // 5,
            attributes=TRANSACTIONAL,
        ),
        marker(base + 6, 9, commit=False, leader_epoch=epoch),
        batch_v2(base + 7, 3, leader_epoch=epoch),
    ]  # fmt: skip


def checkpoint(entries: Mapping[str, int]) -> bytes:
    lines = [f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {offset}" for name, offset in entries.items()]
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode()


def on_disk(files: Mapping[str, bytes]) -> MemoryFs:
    return MemoryFs({str(TOP / name): data for name, data in files.items()})


def ours(name: str) -> bool:
    return name.endswith(OURS)


def live(files: Mapping[str, bytes]) -> Files:
    """Return what a broker sees."""
    return {name: data for name, data in files.items() if not ours(name)}


def plan_of(fs: Fs, options: PlanOptions = OPTIONS) -> LogDirPlan:
    return plan_log_dir(fs, TOP, options).plan


def recover(fs: Fs, options: PlanOptions = OPTIONS, created_ms: int = 1, **orders: Any) -> Executed:
    return recovering.recover(TOP, options, fs, created_ms=created_ms, **orders)


def sound(partitions: Iterable[str] = ("orders-0",), point: int = 20) -> Files:
    """Return a log directory in which nothing is to be done, its derived files being what a recovery writes."""
    files = {POINTS: checkpoint({}), STARTS: checkpoint({}), "meta.properties": META}
    for partition in partitions:
        files |= {place(base, partition=partition): b"".join(segment(base)) for base in BASES}
    fs = on_disk(files)
    recover(fs)
    return live(fs.contents(str(TOP))) | {POINTS: checkpoint(dict.fromkeys(partitions, point))}


SOUND = sound()
"""One partition of three segments, flushed up to the last of them."""
Change = Callable[[Files], None]


def damaged(*changes: Change, files: Files | None = None) -> Files:
    made = dict(files or sound())
    for change in changes:
        change(made)
    return made


def _text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def kraft(*records: MetadataRecord) -> Files:
    """Return the files of a KRaft broker with these records in its metadata log."""
    values = [record(n, key=None, value=encode_metadata_record(value)) for n, value in enumerate(records)]
    return {
        f"__cluster_metadata-0/{name_of(0)}": batch_v2(0, values),
        "meta.properties": b"version=1\nnode.id=1\ncluster.id=lab\n",
    }


KRAFT = kraft(
    MetadataRecord(2, 0, _text("orders") + bytes(15) + b"\1" + b"\0"),
    MetadataRecord(4, 0, b"\2" + _text("orders") + _text("remote.storage.enable") + _text("true") + b"\0"),
)
"""The topic `orders` is tiered by its settings."""
