"""Holes that are filled from replicas, every second one of which is wrong in some way: nothing else is ever taken.

The log as it was before the damage is known here, so an offer that was taken wrongly shows. `LOGMEND_FAULTS=all` makes
ten thousand offers; `LOGMEND_CRASH_SEED` draws others.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import PurePath

import pytest
from support.batches import batch_v2
from support.faults import EVERYTHING
from support.log_dirs import EPOCHS, OPTIONS, POINTS, SOUND, TOP, Files, checkpoint, live, place, segment
from support.memory_fs import MemoryFs

from checkpoint.markers import PARTITION_METADATA
from recovery.apply.execute import execute
from recovery.heal import judging as module
from recovery.heal.healing import plan_healing, recovery_points
from recovery.heal.replica import DirectorySource, Offer, Replicas
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders

OFFERS = 10_000 if EVERYTHING else 250
SEED = int(os.environ.get("LOGMEND_CRASH_SEED", "0"))
REPLICAS = [PurePath("/one"), PurePath("/two")]
WATERMARKS = "replication-offset-checkpoint"
IDS = [b"version: 0\ntopic_id: " + name + b"\n" for name in (b"AAAAAAAAAAAAAAAAAAAAAQ", b"AAAAAAAAAAAAAAAAAAAAAg")]
META = f"orders-0/{PARTITION_METADATA}"
GOOD: Files = {**SOUND, POINTS: checkpoint({"orders-0": 30}), WATERMARKS: checkpoint({"orders-0": 30}), META: IDS[0]}
Poison = Callable[[random.Random, Files, int], None]


def logs(base: int) -> list[bytes]:
    return segment(base)


def with_batches(files: Files, base: int, batches: list[bytes]) -> None:
    files[place(base)] = b"".join(batches)


def rotten(rng: random.Random, files: Files, base: int) -> None:
    data = bytearray(files[place(base)])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    files[place(base)] = bytes(data)


def cut_within_a_batch(rng: random.Random, files: Files, base: int) -> None:
    files[place(base)] = files[place(base)][: rng.randrange(len(files[place(base)]))]


def of_another_epoch(rng: random.Random, files: Files, base: int) -> None:
    """A replica that followed another leader: its batches have other epochs, and so does its epoch file."""
    batches = [bytearray(batch) for batch in logs(base)]
    epoch = base // 10 + rng.choice([1, 2, 7])
    for batch in batches:
        batch[12:16] = epoch.to_bytes(4, "big")
    batches[rng.randrange(len(batches))][57:61] = bytes(4)
    files[place(base)] = b"".join(other(base, epoch))
    if rng.random() < 0.5:
        files[EPOCHS] = b"0\n1\n%d 0\n" % epoch


def other(base: int, epoch: int) -> list[bytes]:
    """Return batches of the same offsets and other content."""
    return [batch_v2(base + at, count, leader_epoch=epoch, max_timestamp=77) for at, count in OFFSETS]


OFFSETS = ((0, 2), (2, 2), (4, 2), (6, 1), (7, 3))


def shifted(rng: random.Random, files: Files, base: int) -> None:
    """Every offset is one higher, or one lower; no checksum covers that."""
    by = rng.choice([-2, -1, 1, 2])
    with_batches(files, base, [moved(batch, by) for batch in logs(base)])


def moved(batch: bytes, by: int) -> bytes:
    return max(int.from_bytes(batch[:8], "big") + by, 0).to_bytes(8, "big") + batch[8:]


def without_a_batch(rng: random.Random, files: Files, base: int) -> None:
    batches = logs(base)
    del batches[rng.randrange(len(batches))]
    with_batches(files, base, batches)


def in_another_order(rng: random.Random, files: Files, base: int) -> None:
    batches = logs(base)
    rng.shuffle(batches)
    with_batches(files, base, batches)


def of_another_topic(_: random.Random, files: Files, base: int) -> None:
    files[META] = IDS[1]
    with_batches(files, base, other(base, base // 10))


def not_known_to_be_committed(rng: random.Random, files: Files, base: int) -> None:
    files[WATERMARKS] = checkpoint({"orders-0": rng.randrange(base + 2)})
    with_batches(files, base, other(base, base // 10))


def without_epochs(_: random.Random, files: Files, base: int) -> None:
    del files[EPOCHS]
    with_batches(files, base, other(base, base // 10))


def of_another_partition(_: random.Random, files: Files, base: int) -> None:
    files[place(base)] = files[place(20 if base < 20 else 0)]


def of_a_shorter_log(rng: random.Random, files: Files, base: int) -> None:
    """A replica that ends with another last batch, which nobody has acknowledged."""
    number = rng.randrange(len(OFFSETS))
    with_batches(files, base, logs(base)[:number] + other(base, base // 10)[number : number + 1])
    for later in (name for name in list(files) if name.startswith("orders-0/0") and name > place(base, "z")):
        del files[later]
    files[WATERMARKS] = checkpoint({"orders-0": base})


POISONS: list[Poison] = [
    rotten, cut_within_a_batch, of_another_epoch, shifted, without_a_batch, in_another_order, of_another_topic,
    not_known_to_be_committed, without_epochs, of_another_partition, of_a_shorter_log,
]  # fmt: skip


def damaged(rng: random.Random) -> tuple[Files, int, str]:
    """Return our log directory with a hole in flushed data, and where it is."""
    base = rng.choice([0, 10])
    files = {
        **GOOD,
        WATERMARKS: checkpoint({"orders-0": rng.choice([0, base])}),
    }  # that it was committed only they know
    batches = logs(base)
    number = rng.randrange(len(batches))
    start = len(b"".join(batches[:number]))
    data = bytearray(files[place(base)])
    for at in rng.sample(range(start + 21, start + len(batches[number])), rng.choice([1, 3])):
        data[at] ^= rng.randrange(1, 256)
    files[place(base)] = bytes(data)
    return files, base, f"batch {number} of {base}"


def offered(rng: random.Random, counts: Counter[str]) -> str:
    """Heal one log; return what is wrong, or nothing."""
    files, base, where = damaged(rng)
    replicas = [dict(GOOD) for _ in range(rng.choice([1, 1, 2]))]
    poison = rng.choice(POISONS) if rng.random() < 0.6 else None
    if poison is not None:
        poison(rng, rng.choice(replicas), base)
    fs = MemoryFs({str(TOP / name): data for name, data in files.items()})
    for at, replica in zip(REPLICAS, replicas, strict=False):
        for name, data in replica.items():
            fs.plant(at / name, content=data)
    plan = plan_log_dir(fs, TOP, OPTIONS._replace(depth="full")).plan
    sources = tuple(DirectorySource(fs, at) for at in REPLICAS[: len(replicas)])
    healing = plan_healing(fs, plan, Replicas(sources), recovery_points(fs, TOP))
    if not healing.plan.is_empty:
        execute(
            fs, healing.plan, lambda _: b"", Orders(healing.plan.plan_id, 1, "test"), SilentReporter(),
            healed=healing.contents,
        )  # fmt: skip
    now = live(fs.contents(str(TOP)))
    name = "a good one" if poison is None else poison.__name__
    counts[f"{name}: {'filled' if now == {**files, place(base): GOOD[place(base)]} else 'refused'}"] += 1
    if now not in (files, {**files, place(base): GOOD[place(base)]}):
        return f"{name} was taken for {where}"
    if poison is None and now == files:
        return f"a good one was refused for {where}: {[note.reason for note in healing.notes]}"
    return ""


def all_offers(count: int) -> tuple[list[str], Counter[str]]:
    rng, counts = random.Random(f"offers-{SEED}"), Counter[str]()
    return [why for _ in range(count) if (why := offered(rng, counts))], counts


def test_no_offer_is_taken_that_is_not_what_was_lost() -> None:
    wrong, counts = all_offers(OFFERS)
    print(dict(sorted(counts.items())), f"seed {SEED}")
    assert wrong == []
    assert {name.partition(":")[0] for name in counts} == {"a good one", *(poison.__name__ for poison in POISONS)}
    assert sum(number for name, number in counts.items() if name.endswith("refused")) > OFFERS // 8


Patch = pytest.MonkeyPatch


def no_neighbours(patch: Patch) -> None:
    patch.setattr(module, "_neighbours", lambda *_: (True, True))


def no_offsets(patch: Patch) -> None:
    """Any batches that are no more than there is room for."""
    no_neighbours(patch)
    take = module._Stream.take

    def taken(self: module._Stream, offer: Offer) -> None:
        self.expected = offer.header.base_offset
        take(self, offer)

    patch.setattr(module._Stream, "take", taken)
    patch.setattr(module._Stream, "end", lambda _: None)


def no_epochs(patch: Patch) -> None:
    no_neighbours(patch)
    patch.setattr(module._Stream, "_take_epoch", lambda *_: None)


def no_watermark(patch: Patch) -> None:
    patch.setattr(module, "_refuse_uncommitted", lambda *_: "")


@pytest.mark.parametrize("bug", [no_neighbours, no_offsets, no_epochs, no_watermark])
def test_without_one_of_the_looks_a_wrong_offer_is_taken(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    wrong, _ = all_offers(250)
    assert wrong


def test_a_replica_whose_offsets_are_all_too_high_is_refused_although_a_batch_of_it_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, replica = dict(GOOD), dict(GOOD)
    start = len(logs(0)[0])
    files[place(0)] = files[place(0)][: start + 70] + b"?" + files[place(0)][start + 71 :]
    with_batches(replica, 0, [moved(batch, 2) for batch in logs(0)])
    fs = MemoryFs({str(TOP / name): data for name, data in files.items()})
    for name, data in replica.items():
        fs.plant(REPLICAS[0] / name, content=data)
    plan = plan_log_dir(fs, TOP, OPTIONS._replace(depth="full")).plan

    def healed() -> list[tuple[bool, str]]:
        replicas = Replicas((DirectorySource(fs, REPLICAS[0]),))
        healing = plan_healing(fs, plan, replicas, recovery_points(fs, TOP))
        return [(note.healed, note.reason) for note in healing.notes]

    ((is_healed, reason),) = healed()
    assert not is_healed
    assert "another batch than this log" in reason
    monkeypatch.setattr(module, "_neighbours", lambda *_: (None, None))
    assert [is_healed for is_healed, _ in healed()] == [True], "nothing else would have refused it"
