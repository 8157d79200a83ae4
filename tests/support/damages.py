"""Kinds of damage to the directory of `support.log_dirs`, each a function of the files, each with something to do."""

from __future__ import annotations

from collections.abc import Callable

from support.batches import batch_v2
from support.log_dirs import END, MARKER, POINTS, STARTS, Files, checkpoint, place, segment

KINDS: dict[str, Callable[[Files], None]] = {}
LAST = place(20)


def kind(function: Callable[[Files], None]) -> Callable[[Files], None]:
    KINDS[function.__name__] = function
    return function


def flip(files: Files, name: str, position: int) -> None:
    data = bytearray(files[name])
    data[position] ^= 0x41
    files[name] = bytes(data)


# ---- the log, above the recovery point


@kind
def torn_tail(files: Files) -> None:
    files[LAST] = files[LAST][:-9]


@kind
def zero_tail(files: Files) -> None:
    files[LAST] += bytes(700)


@kind
def noise_in_the_middle(files: Files) -> None:
    flip(files, LAST, len(segment(20)[0]) + 70)


@kind
def damage_with_later_segments(files: Files) -> None:
    files[POINTS] = checkpoint({"orders-0": 3})
    flip(files, place(0), len(b"".join(segment(0)[:2])) + 40)


@kind
def garbage_between_segments(files: Files) -> None:
    files[POINTS] = checkpoint({"orders-0": 0})
    files[place(10)] += b"garbage, and no batch at all" * 30


@kind
def batch_no_broker_writes(files: Files) -> None:
    """A transaction is open, and a batch of the same producer that belongs to none follows."""
    files[LAST] = b"".join(segment(20)[:3]) + batch_v2(
        26, 1, leader_epoch=2, producer_id=9, producer_epoch=0, base_sequence=8
    )


@kind
def batch_there_twice(files: Files) -> None:
    batches = segment(20)
    files[LAST] = b"".join([*batches[:3], batches[1], *batches[3:]])


@kind
def neighbours_exchanged(files: Files) -> None:
    batches = segment(20)
    files[LAST] = b"".join([*batches[:3], batches[4], batches[3]])


@kind
def everything_unflushed_is_gone(files: Files) -> None:
    files[LAST] = bytes(len(files[LAST]))


# ---- derived files


@kind
def indexes_missing(files: Files) -> None:
    for suffix in ("index", "timeindex"):
        del files[place(20, suffix)]


@kind
def indexes_wrong(files: Files) -> None:
    for suffix in ("index", "timeindex"):
        flip(files, place(20, suffix), 3)


@kind
def txn_index_wrong(files: Files) -> None:
    flip(files, place(20, "txnindex"), 20)


@kind
def snapshots_wrong(files: Files) -> None:
    flip(files, place(20, "snapshot"), 30)
    del files[place(END, "snapshot")]


@kind
def stray_snapshot(files: Files) -> None:
    """At the base of no segment, and below what a broker scans; one above is what an earlier stop left, and stays."""
    files[place(15, "snapshot")] = files[place(10, "snapshot")]


@kind
def epochs_wrong(files: Files) -> None:
    files["orders-0/leader-epoch-checkpoint"] = b"0\n1\n0 99\n"


@kind
def epochs_missing(files: Files) -> None:
    del files["orders-0/leader-epoch-checkpoint"]


@kind
def closed_index_padded(files: Files) -> None:
    for suffix, width in (("index", 8), ("timeindex", 12)):
        files[place(10, suffix)] += bytes(width * 20)


@kind
def flushed_index_wrong(files: Files) -> None:
    flip(files, place(0, "index"), 12)
    del files[place(10, "timeindex")]


# ---- what interrupted work leaves


def _renamed(files: Files, base: int, suffix: str, *, keep: bool = False) -> None:
    for part in ("log", "index", "timeindex", "txnindex"):
        data = files[place(base, part)] if keep else files.pop(place(base, part))
        files[place(base, part) + suffix] = data


@kind
def leftover_deleted(files: Files) -> None:
    _renamed(files, 0, ".deleted")
    files[place(10, "snapshot") + ".deleted"] = files[place(10, "snapshot")]


def leftover_cleaned(files: Files) -> None:
    """Add what a compaction leaves that was cut off; there is nothing to do about it."""
    _renamed(files, 10, ".cleaned", keep=True)
    files[place(10) + ".cleaned"] = b"".join(segment(10)[:2])


@kind
def swap_not_yet_in_place(files: Files) -> None:
    """A finished compaction of the first two segments, of which nothing has been renamed yet."""
    compacted = b"".join(segment(0)[:2] + segment(10)[3:])
    for part in ("index", "timeindex", "txnindex"):
        files[place(0, part) + ".swap"] = b""
    files[place(0, "index") + ".swap"] = files[place(0, "index")]
    files[place(0) + ".swap"] = compacted


@kind
def swap_half_renamed(files: Files) -> None:
    for part in ("index", "timeindex"):
        files[place(0, part) + ".swap"] = files.pop(place(0, part))


@kind
def orphans(files: Files) -> None:
    files[place(5, "index")] = b"orphan"
    files[place(15, "txnindex")] = bytes(34)


@kind
def orphan_of_a_lost_log(files: Files) -> None:
    del files[LAST]
    files[POINTS] = checkpoint({"orders-0": 10})


# ---- the top


@kind
def points_missing(files: Files) -> None:
    del files[POINTS]


@kind
def points_corrupt(files: Files) -> None:
    files[POINTS] = files[POINTS][:-4]


@kind
def points_beyond_the_end(files: Files) -> None:
    files[POINTS] = checkpoint({"orders-0": END + 1000})


@kind
def log_start_beyond_the_end(files: Files) -> None:
    files[STARTS] = checkpoint({"orders-0": END + 1000})


@kind
def log_start_inside(files: Files) -> None:
    """Records were deleted on request up to 13, and the broker died before it did the rest."""
    files[STARTS] = checkpoint({"orders-0": 13})


@kind
def cut_below_the_log_start(files: Files) -> None:
    files[STARTS] = checkpoint({"orders-0": 27})
    flip(files, LAST, len(b"".join(segment(20)[:2])) + 40)


@kind
def other_checkpoints_corrupt(files: Files) -> None:
    files["replication-offset-checkpoint"] = b"0\n1\n"
    files["cleaner-offset-checkpoint"] = b"\0" * 20


@kind
def marker_beside_bad_derived_files(files: Files) -> None:
    files[MARKER] = b'{"version":0,"brokerEpoch":5}'
    files[POINTS] = checkpoint({"orders-0": END})
    flip(files, place(END, "snapshot"), 30)
    flip(files, place(0, "index"), 5)


@kind
def marker_beside_padding(files: Files) -> None:
    """Beside a marker the padding goes; once the marker is gone it may as well stay, which a broker takes as usual."""
    files[MARKER] = b'{"version":0,"brokerEpoch":5}'
    files[POINTS] = checkpoint({"orders-0": END})
    files[place(20, "timeindex")] += bytes(120)
