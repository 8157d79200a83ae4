"""A compaction that dies anywhere leaves each group as it was or as it was to be, and no key loses its last value.

`LOGMEND_CRASH_STATES` is the number of states for each test: 40 by default, `all` for every one there is;
`LOGMEND_CRASH_SEED` draws another sample.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Mapping

import pytest
from crash.harness import every_crash
from support.batches import TRANSACTIONAL, TS, batch_v2, marker, record
from support.cleaning import compact, records_in, write_log
from support.log_dirs import TOP, checkpoint, on_disk, plan_of, recover
from support.memory_fs import Crashed, FaultFs, MemoryFs

from recovery.plan.plan import PlanOptions
from storage.base.config import LogConfig
from storage.base.errors import WriteFault
from storage.base.units import Offset
from storage.cleanup.compaction import Round
from storage.disk.fs import Fs

STATES = os.environ.get("LOGMEND_CRASH_STATES", "40")
SEED = int(os.environ.get("LOGMEND_CRASH_SEED", "0"))
LIMIT = 1 << 40 if STATES == "all" else int(STATES)
PARTITION = TOP / "t-0"
OPTIONS = PlanOptions(index_interval_bytes=100)
WIDE = LogConfig(index_interval_bytes=100, internal_segment_bytes=100_000, delete_retention_ms=1000)
NARROW = LogConfig(index_interval_bytes=100, internal_segment_bytes=600, delete_retention_ms=1000)
"""With it two segments become one, and there are two groups."""
State = Mapping[str, bytes]


def key(number: int) -> bytes:
    return b"key-%d" % number


def data(offset: int, *numbers: int, producer: int = -1, sequence: int = -1, value: bytes | None = b"v") -> bytes:
    """A batch with a record for each key, of a transaction if it has a producer."""
    records = [record(n, key=key(number), value=value) for n, number in enumerate(numbers)]
    attributes = TRANSACTIONAL if producer >= 0 else 0
    return batch_v2(
        offset, records, producer_id=producer, producer_epoch=min(producer, 0), base_sequence=sequence,
        attributes=attributes,
    )  # fmt: skip


SEGMENTS = (
    [data(0, 1, 2, 3), data(3, 4, producer=7, sequence=0), data(4, 5)],
    [data(5, 4, 1), marker(7, 7, commit=False)],
    [data(8, 2, value=None), data(9, 6, 7), data(11, 8, producer=7, sequence=1)],
    [marker(12, 7, commit=True), data(13, 1, 9)],
)
END = 15


def files(point: int) -> dict[str, bytes]:
    """Return a log directory with one partition, flushed up to `point`."""
    fs = MemoryFs({f"{PARTITION}/": b""})
    write_log(fs, PARTITION, SEGMENTS, WIDE)
    for offset in (5, 8, 12):
        fs.plant(PARTITION / f"{offset:020d}.snapshot", content=fs.contents(str(PARTITION))[f"{END:020d}.snapshot"])
    found = fs.contents(str(TOP)) | {
        "recovery-point-offset-checkpoint": checkpoint({"t-0": point}),
        "log-start-offset-checkpoint": checkpoint({}),
        "meta.properties": b"version=0\nbroker.id=1\n",
    }
    fs = on_disk(found)
    recover(fs, OPTIONS)
    return fs.contents(str(TOP))


def logs(fs: MemoryFs, suffixes: tuple[str, ...] = (".log", ".txnindex")) -> State:
    """Return what of the partition tells old from new: its logs, and its transaction indexes that hold anything."""
    found = fs.contents(str(PARTITION)).items()
    return {name: data for name, data in found if name.endswith(suffixes) and (data or name.endswith(".log"))}


def newest(fs: Fs) -> dict[bytes | None, bytes | None]:
    """Return the last value of each key; a tombstone is as good as no record."""
    values = {name: value for _, name, value in records_in(fs, PARTITION) if name != key(4)}
    return {name: value for name, value in values.items() if value is not None}


def run(fs: Fs, config: LogConfig) -> None:
    compact(PARTITION, config, Round(Offset(0), Offset(END), TS), fs=fs)


def states_of(before: State, config: LogConfig, compared: tuple[str, ...]) -> list[State]:
    """Return what may be left: nothing compacted, the first group, and so on up to all groups."""
    states: list[State] = []
    fs = on_disk(before)

    def look(at: MemoryFs) -> None:
        names = at.entries(PARTITION)
        if not any(name.endswith((".swap", ".cleaned")) for name in names) and logs(at, compared) not in states:
            states.append(logs(at, compared))

    fs.before_effect = look
    run(fs, config)
    fs.before_effect = None
    look(fs)
    return states


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True], ids=["in order", "in any order"])
@pytest.mark.parametrize("point", [0, END], ids=["nothing flushed", "all flushed"])
@pytest.mark.parametrize(("config", "groups"), [(WIDE, 1), (NARROW, 2)], ids=["one group", "two groups"])
def test_a_crash_leaves_each_group_as_it_was_or_as_it_was_to_be(
    config: LogConfig, groups: int, point: int, strict: bool
) -> None:
    before = files(point)
    # A rescan, as of what was not flushed, finds no aborted transaction whose data is gone, nor does a load that finds
    # a `.txnindex` with its name before the `.log` has its own. A broker's does neither; without data nobody asks.
    compared = (".log", ".txnindex") if point and not strict else (".log",)
    allowed = states_of(before, config, compared)
    assert len(allowed) == groups + 1
    wanted = newest(on_disk(before))
    assert len(wanted) == 7

    def check(fs: MemoryFs) -> None:
        assert logs(fs, compared) in allowed, sorted(logs(fs))
        assert newest(fs) == wanted
        assert plan_of(fs, OPTIONS).is_empty
        # What is `.cleaned` counts for nothing and stays: a broker or the engine removes it when it opens the log.
        assert not [name for name in fs.entries(PARTITION) if name.endswith(".swap")]

    every_crash(
        lambda: on_disk(before),
        lambda fs: run(fs, config),
        check,
        lambda fs: (recover(fs, OPTIONS), None)[1],
        limit=LIMIT,
        seed=SEED,
        strict=strict,
        promised=lambda: (),
    )


@pytest.mark.parametrize("method", ["rename", "sync_dir", "sync", "remove"])
def test_a_call_that_fails_leaves_what_a_recovery_puts_in_order(method: str) -> None:
    before = files(END)
    allowed = states_of(before, NARROW, (".log", ".txnindex"))
    counting = FaultFs(on_disk(before), 0, errno.EIO, only=[method])
    run(counting, NARROW)
    assert counting.calls > 1
    for nth in range(1, counting.calls + 1):
        fs = on_disk(before)
        with pytest.raises(WriteFault):
            run(FaultFs(fs, nth, errno.EIO, only=[method]), NARROW)
        recover(fs, OPTIONS)
        assert logs(fs) in allowed
        assert newest(fs) == newest(on_disk(before))


def test_after_a_crash_the_round_can_be_repeated() -> None:
    before = files(END)
    done = on_disk(before)
    run(done, NARROW)
    number = 1
    while True:
        fs = on_disk(before)
        fs.stop_before(number)
        with contextlib.suppress(Crashed):
            run(fs, NARROW)
            break
        (left, *_), _ = fs.some_crash_states(1, random.Random(number))
        again = left.to_fs(fs)
        recover(again, OPTIONS)
        run(again, NARROW)
        assert records_in(again, PARTITION) == records_in(done, PARTITION)
        number += 1
    assert number > 20
