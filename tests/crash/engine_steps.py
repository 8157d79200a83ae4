"""What a running log manager can be asked to do, as steps in any order, and what it has promised by then.

A step that has returned has promised something; one that has begun may have done a part. `Promises.judge` holds what a
machine shows after a crash and a recovery against that.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from support.managers import NOW, P0, batch, open_manager, records
from support.memory_fs import MemoryFs

from engine.manager.manager import LogManager
from recovery.plan.plan import PlanOptions
from storage.base.units import Offset
from storage.disk.fs import Fs

HOME = PurePath("/data")
SETTINGS = {
    "internal.segment.bytes": "340",
    "index.interval.bytes": "100",
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0",
    "retention.ms": "1000",
    "file.delete.delay.ms": "0",
}
LATER = NOW + 2_200
"""By then retention lets go of what was written at `NOW`, and keeps what was written 1,500 ms later."""
OPTIONS = PlanOptions(index_interval_bytes=100)
PRODUCER = 7


@dataclass
class Promises:
    """What was said of the topic `orders`, and of topics made beside it."""

    said: dict[int, str] = field(default_factory=dict)
    """The values as they were acknowledged last, by offset."""
    seen: dict[int, set[str]] = field(default_factory=dict)
    """Every value that may stand at an offset, should a truncation not have reached the disk."""
    flushed: int = 0
    start_from: int = 0
    start_up_to: int = 0
    """Where the log must begin at least, and may begin at most."""
    may_be_gone: set[int] = field(default_factory=set)
    """Offsets whose key had a later record when compaction began."""
    there: dict[str, bool | None] = field(default_factory=dict)
    """Topics that must be there, must not, or may either way."""

    def key(self) -> tuple[object, ...]:
        said, seen = tuple(sorted(self.said.items())), tuple((n, *sorted(v)) for n, v in sorted(self.seen.items()))
        ends = self.flushed, self.start_from, self.start_up_to, *sorted(self.may_be_gone)
        return (said, seen, ends, tuple(sorted(self.there.items())))

    def begin(self, end: int) -> None:
        self.start_up_to = max(self.start_up_to, end)

    def judge(self, manager: LogManager) -> None:
        """Raise `AssertionError` for the first promise that was not kept."""
        names = {topic.name for topic in manager.topics.all()}
        for name, is_there in self.there.items():
            assert is_there is None or (name in names) is is_there, f"topic {name} is {'not ' * is_there}there"
            assert not is_there or manager.topics.get(name).settings == SETTINGS, f"the settings of {name}"
        if P0.topic not in names:
            return
        log = manager.log(P0)
        if self.there[P0.topic] is None and not log.log_end:
            return
        latest = max(self.start_up_to, self.start_from)
        said = f"the log begins at {log.log_start}, not from {self.start_from} to {latest}"
        assert self.start_from <= log.log_start <= latest, said
        # Behind what compaction took nothing tells where a log ended that was truncated there; nor does it in a broker.
        is_lost = any(offset not in self.may_be_gone for offset in range(log.log_end, self.flushed))
        assert not is_lost, f"{self.flushed} was flushed, the log ends at {log.log_end}"
        found = {record.offset: (record.value or b"").decode() for record in records(manager, P0, log.log_start)}
        for offset, value in found.items():
            if offset < self.flushed:
                assert value == self.said[offset], f"{value} at {offset}, which is flushed"
            assert value in self.seen.get(offset, ()), f"{value} at {offset} was never said"
        # The end of a closed segment may be lost, and an empty one behind it not: then a broker leaves a gap as well.
        kept = range(log.log_start, self.flushed)
        missing = [n for n in kept if n not in found and n not in self.may_be_gone]
        assert missing == [], f"{missing} of what was flushed is gone"

    def superseded(self, below: int) -> None:
        """Let compaction of what lies below an offset take every record but the last one of its key."""
        closed = {offset: value.partition("=")[0] for offset, value in sorted(self.said.items()) if offset < below}
        newest = {key: offset for offset, key in closed.items()}
        self.may_be_gone |= {offset for offset, key in closed.items() if newest[key] != offset}


def opened(fs: Fs, home: PurePath = HOME, **more: Any) -> LogManager:
    return open_manager(fs, [home], recovery=OPTIONS, **more)


@dataclass
class Machine:
    """A log manager on a file system, and what it has promised; each step is a method."""

    fs: Fs
    promises: Promises = field(default_factory=Promises)
    manager: LogManager = field(init=False)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1 << 64))
    written: int = 0
    home: PurePath = HOME

    def open(self) -> None:
        self.manager = opened(self.fs, self.home, draw_id=self._draw_id)

    def _draw_id(self) -> bytes:
        return next(self._numbers).to_bytes(16, "little")

    def can(self, name: str) -> bool:
        """Tell whether a step makes sense now."""
        return self._is_there or name in ANYWHERE

    @property
    def _is_there(self) -> bool:
        return any(topic.name == P0.topic for topic in self.manager.topics.all())

    def begin(self) -> None:
        """Make the topic, with two segments of which the first is flushed."""
        self.create()
        for _ in range(2):
            self._append(NOW)
        self.manager.flush(P0, NOW)
        self.promises.flushed = 2
        self.roll()
        self._append(NOW + 1_500)

    # ---- the steps

    def append(self) -> None:
        self._append(NOW + 1_500)

    def _append(self, timestamp: int) -> None:
        log = self.manager.log(P0)
        offset, value = log.log_end, f"k{self.written % 2}={self.written}"
        self.promises.seen.setdefault(offset, set()).add(value)
        entry = log.producers.state.entries.get(PRODUCER)
        sequence = 0 if entry is None else entry.last_sequence + 1
        data = batch(value, timestamp=timestamp, key=value.partition("=")[0].encode(), producer_id=PRODUCER,
                     producer_epoch=0, base_sequence=sequence)  # fmt: skip
        done = self.manager.append(P0, data, timestamp)
        assert done is not None
        assert (done.first_offset, done.is_duplicate) == (offset, False)
        self.promises.said[offset] = value
        self.written += 1

    def roll(self) -> None:
        partition = self.manager.partition(P0)
        partition.rolled_to = partition.log.roll(NOW).base_offset

    def flush(self) -> None:
        self.promises.flushed = self.manager.flush(P0, NOW)
        assert self.promises.flushed == self.manager.log(P0).log_end

    def flush_closed(self) -> None:
        assert self.manager.flush_due(NOW) == []
        self.promises.flushed = max(self.promises.flushed, self.manager.log(P0).recovery_point)

    def retain(self) -> None:
        log = self.manager.log(P0)
        # The first two records are the old ones: if no other is there, the active segment goes as well.
        self.promises.begin(log.log_end if log.log_end <= 2 else log.segments.active.base_offset)
        assert self.manager.retain(LATER) == []

    def compact(self) -> None:
        self.promises.superseded(self.manager.log(P0).segments.active.base_offset)
        assert self.manager.compact(LATER) == []

    def truncate(self) -> None:
        log, promises = self.manager.log(P0), self.promises
        to = Offset(max(log.log_end - 1, log.log_start))
        promises.flushed = min(promises.flushed, to)
        promises.said = {offset: value for offset, value in promises.said.items() if offset < to}
        self.manager.truncate(P0, to, NOW)
        promises.may_be_gone = {offset for offset in promises.may_be_gone if offset < to}

    def delete_records(self) -> None:
        log = self.manager.log(P0)
        to = Offset(min(log.log_start + 1, log.log_end))
        self.promises.begin(to)
        self.manager.delete_records(P0, to)
        self.promises.start_from = to

    def checkpoint(self) -> None:
        (log_dir,) = self.manager.log_dirs
        log_dir.write_recovery_points()
        log_dir.write_log_starts()
        log_dir.write_high_watermarks()

    def remove(self) -> None:
        (log_dir,) = self.manager.log_dirs
        log_dir.remove_due(LATER + 120_000)  # the directories of deleted topics too, which wait for a minute

    def create(self) -> None:
        name = f"other-{len(self.promises.there)}" if self._is_there else P0.topic
        if name == P0.topic:  # anew: nothing was ever said of this one
            self.promises.__init__(there=self.promises.there)  # type: ignore[misc]
        self.promises.there[name] = None
        self.manager.topics.create(name, 1, SETTINGS, NOW)
        self.promises.there[name] = True

    def delete(self) -> None:
        self.promises.there[P0.topic] = None
        self.manager.topics.delete(P0.topic, NOW)
        self.promises.there[P0.topic] = False

    def restart(self) -> None:
        end = self.manager.log(P0).log_end if self._is_there else 0
        self.manager.close()
        self.promises.flushed = end
        self.open()


Step = Callable[[Machine], None]
STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        Machine.append, Machine.roll, Machine.flush, Machine.flush_closed, Machine.retain, Machine.compact,
        Machine.truncate, Machine.delete_records, Machine.checkpoint, Machine.remove, Machine.create, Machine.delete,
        Machine.restart,
    )
}  # fmt: skip
ANYWHERE = {"checkpoint", "remove", "create", "restart"}
"""Steps that need no topic."""


def sequences(most: int) -> list[tuple[str, ...]]:
    """Return every sequence of one to `most` steps; without the topic only what needs none."""
    return [
        names
        for length in range(1, most + 1)
        for names in itertools.product(STEPS, repeat=length)
        if all(_can_stand(names[:number], name) for number, name in enumerate(names))
    ]


def _can_stand(before: Sequence[str], name: str) -> bool:
    there = True
    for step in before:
        there = step == "create" or (there and step != "delete")
    return there or name in ANYWHERE


def begun() -> MemoryFs:
    """Return a disk on which a manager was at work, in a process that is gone: all of it durable."""
    fs = MemoryFs({f"{HOME}/": b""})
    machine = Machine(fs, _numbers=itertools.count(1 << 65))
    machine.open()
    machine.begin()
    return MemoryFs({f"{HOME}/{name}": data for name, data in fs.contents(str(HOME)).items()})


def promises_of_begun() -> Promises:
    promises = Promises(flushed=2, there={P0.topic: True})
    for offset in range(3):
        promises.said[offset] = f"k{offset % 2}={offset}"
        promises.seen[offset] = {promises.said[offset]}
    return promises


@contextlib.contextmanager
def watched(fs: MemoryFs, look: Callable[[MemoryFs], None]) -> Iterator[None]:
    """Call `look` before each effect within, and once behind the last."""
    fs.before_effect = look
    try:
        yield
    finally:
        fs.before_effect = None
    look(fs)


def run(
    names: Sequence[str],
    look: Callable[[MemoryFs, Promises], None],
    start: MemoryFs,
    wrap: Callable[[Fs], Any] | None = None,
) -> int:
    """Run the steps; before each effect of the last one, and behind it, let `look` see machine and promises.

    With `wrap` what is run sees the file system through that. Returns the number of effects of the last step.
    """
    fs = copy.deepcopy(start)
    machine = Machine(fs if wrap is None else wrap(fs), promises_of_begun(), written=3)
    machine.open()
    for name in names[:-1]:
        STEPS[name](machine)
    before = fs.effects
    with watched(fs, lambda at: look(at, machine.promises)):
        STEPS[names[-1]](machine)
    return fs.effects - before
