"""Replicas of one partition, each a list of batches, compared without a disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from audit.judge.compare import compare
from audit.judge.differences import Compared
from audit.judge.replicas import Batch, BlockState, Replica, Told, until_of
from audit.tables.kinds import AuditKind
from storage.base.errors import BatchCorrupt

HOLE, DIFFERS, BEHIND = AuditKind.REPLICA_HOLE, AuditKind.REPLICA_DIFFERS, AuditKind.REPLICA_BEHIND


class Log:
    """The batches of one replica: base, last, content, epoch."""

    def __init__(self, *batches: tuple[int, int, str, int], keys: Mapping[int, str] | None = None) -> None:
        self.batches = [Batch(base, last, hash((base, text)), epoch, text) for base, last, text, epoch in batches]
        self.keys = keys or {}


class Memory:
    """A `Fetch` over logs in memory."""

    def __init__(self, logs: list[Log], *, undecodable: bool = False) -> None:
        self.logs, self.undecodable = logs, undecodable

    def batches(self, replica: Replica, first: int, last: int) -> list[Batch]:
        return [batch for batch in self._log(replica).batches if batch.base <= last and batch.last >= first]

    def records(self, replica: Replica, batch: Batch) -> Iterator[Told]:
        if self.undecodable:
            raise BatchCorrupt("a codec of tomorrow")
        keys = self._log(replica).keys
        for offset in range(batch.base, batch.last + 1):
            key = keys.get(offset)
            yield Told(offset, f"{batch.place}{offset}".encode(), None if key is None else key.encode())

    def keys_behind(self, replica: Replica, wanted: Mapping[bytes, int]) -> set[bytes] | None:
        log = self._log(replica)
        there = {offset for batch in log.batches for offset in range(batch.base, batch.last + 1)}
        return {
            key
            for key, after in wanted.items()
            if any(o in there and o > after and log.keys[o].encode() == key for o in log.keys)
        }

    def _log(self, replica: Replica) -> Log:
        return self.logs[int(replica.broker)]


def judged(
    logs: list[Log],
    *,
    marks: list[int | None] | None = None,
    starts: list[int] | None = None,
    compacted: bool = False,
    detail: int = 100,
    undecodable: bool = False,
    unread: dict[int, tuple[int, int]] | None = None,
) -> Compared:
    replicas, blocks = [], {}
    for n, log in enumerate(logs):
        end = max((batch.last + 1 for batch in log.batches), default=0)
        mark = marks[n] if marks else end
        ranges = ((unread or {})[n],) if n in (unread or {}) else ()
        replicas.append(Replica(str(n), f"/{n}", starts[n] if starts else 0, end, mark, ranges))
        for batch in log.batches:
            old = blocks.setdefault(batch.base // 4096, {}).get(n)
            new = BlockState(batch.crc, batch.base, batch.last, batch.epoch)
            if old is not None:
                new = BlockState(old.digest ^ new.digest, old.first, new.last, max(old.max_epoch, new.max_epoch))
            blocks[batch.base // 4096][n] = new
    differing = {
        number: states
        for number, states in blocks.items()
        if len(states) < len(logs) or len({state.digest for state in states.values()}) > 1
    }
    fetch = Memory(logs, undecodable=undecodable) if detail else None
    return compare(replicas, differing, fetch, compacted=compacted, detail_blocks=detail)


def short(compared: Compared) -> list[tuple[AuditKind, int, int, int]]:
    return [(one.kind, one.replica, one.first, one.last) for one in compared.differences]


A, B, C = (0, 9, "a", 0), (10, 19, "b", 0), (20, 29, "c", 1)


def test_equal_replicas_have_no_difference() -> None:
    assert judged([Log(A, B, C)] * 3) == Compared()


def test_a_batch_that_one_lacks_is_a_hole_of_that_one() -> None:
    assert short(judged([Log(A, B, C), Log(A, C), Log(A, B, C)])) == [(HOLE, 1, 10, 19)]


def test_a_block_that_one_lacks_is_a_hole_that_nothing_was_fetched_for() -> None:
    far = (9000, 9009, "z", 1)
    assert short(judged([Log(A, far), Log(far), Log(A, far)], detail=0)) == [(HOLE, 1, 0, 9)]


def test_what_lies_above_the_high_watermark_of_a_replica_it_need_not_hold() -> None:
    assert judged([Log(A, B, C), Log(A)], marks=[30, 10]) == Compared()
    assert judged([Log(A, B), Log(A, (10, 15, "x", 3))], marks=[20, 10]) == Compared()


def test_what_lies_below_the_log_start_of_a_replica_it_need_not_hold() -> None:
    assert judged([Log(A, B, C), Log(C)], starts=[0, 20]) == Compared()
    assert short(judged([Log(A, B, C), Log(C)], starts=[0, 10])) == [(HOLE, 1, 10, 19)]


def test_a_replica_that_ends_below_its_own_high_watermark_is_behind() -> None:
    compared = judged([Log(A, B, C), Log(A), Log(A, B, C)], marks=[30, 30, 30])
    assert short(compared) == [(BEHIND, 1, 10, 29)]
    assert compared.lone == set()


def test_the_other_of_two_is_then_the_only_copy() -> None:
    assert judged([Log(A, B), Log(A)], marks=[20, 20]).lone == {0}


def test_of_different_records_the_minority_is_blamed_and_epochs_are_told() -> None:
    compared = judged([Log(A, B), Log(A, (10, 19, "x", 5)), Log(A, B)])
    assert short(compared) == [(DIFFERS, 1, 10, 19)]
    assert "epoch 0 on 0+2, epoch 5 on 1" in compared.differences[0].evidence


def test_of_two_that_differ_the_newer_epoch_is_believed_and_neither_is_called_the_only_copy() -> None:
    compared = judged([Log(A, B), Log(A, (10, 19, "x", 5))])
    assert short(compared) == [(DIFFERS, 0, 10, 19)]
    assert compared.lone == set()


def test_the_same_records_in_other_batches_are_a_note() -> None:
    halves = ((10, 14, "b", 0), (15, 19, "b", 0))
    compared = judged([Log(A, B, C), Log(A, *halves, C)])
    assert [one.kind for one in compared.differences] == [AuditKind.LAYOUT_DIFFERS]
    assert compared.blamed() == set()


def test_records_that_cannot_be_decoded_are_compared_as_whole_batches() -> None:
    compared = judged([Log(A, B), Log(A, (10, 19, "x", 5)), Log(A, B)], undecodable=True)
    assert short(compared) == [(DIFFERS, 1, 10, 19)]


def test_of_a_range_that_could_not_be_read_nothing_is_said() -> None:
    assert judged([Log(A, B, C), Log(A, C)], unread={1: (10, 19)}) == Compared()


def test_without_anything_fetched_digests_decide_where_they_can() -> None:
    logs = [Log(A, B), Log(A, (10, 19, "x", 5)), Log(A, B)]
    assert short(judged(logs, detail=0)) == [(DIFFERS, 1, 0, 19)]
    assert [one.kind for one in judged(logs, detail=0, marks=[20, 15, 20]).differences] == [AuditKind.NOT_COMPARED]


def test_where_a_high_watermark_is_not_known_the_lowest_known_one_counts() -> None:
    replicas = [Replica("0", "", 0, 50, 40), Replica("1", "", 0, 50, None), Replica("2", "", 0, 50, 30)]
    assert until_of(replicas) == [40, 30, 30]
    assert until_of([Replica("0", "", 0, 50, None), Replica("1", "", 0, 45, None)]) == [45, 45]


def keyed(text: str, gone: set[int]) -> Log:
    batches = [(n, n, "v", 0) for n in range(len(text)) if n not in gone]
    return Log(*batches, keys=dict(enumerate(text)))


def test_compaction_at_other_times_is_no_difference() -> None:
    assert judged([keyed("abcab", set()), keyed("abcab", {0}), keyed("abcab", {0, 1})], compacted=True) == Compared()


def test_the_last_record_of_a_key_must_be_everywhere() -> None:
    compared = judged([keyed("abcab", set()), keyed("abcab", {0, 2}), keyed("abcab", {0})], compacted=True)
    assert short(compared) == [(HOLE, 1, 2, 2)]


def test_what_compacted_replicas_both_have_must_be_equal() -> None:
    other = keyed("abcab", {0, 2})
    other.batches.insert(1, Batch(2, 2, 77, 0, "other"))
    compared = judged([keyed("abcab", {0}), other, keyed("abcab", set())], compacted=True)
    assert short(compared) == [(DIFFERS, 1, 2, 2)]


@pytest.mark.parametrize("compacted", [False, True])
def test_no_replica_at_all_is_no_difference(compacted: bool) -> None:
    assert judged([], compacted=compacted) == Compared()
