"""Three replicas that real brokers wrote: what is destroyed in one comes back from the others, byte for byte."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden.golden import checkpoint, extract
from support.batches import batch_v2
from support.command import logmend
from support.recovering import tree

from storage.batch.batch import reseal
from storage.disk.fs import OsFs
from storage.reading.segment_walk import walk_places

SECTOR = 512
SEED = int(os.environ.get("LOGMEND_HEAL_SEED", "1"))
ROUNDS = int(os.environ.get("LOGMEND_HEAL_ROUNDS", "2"))
WATERMARKS = "replication-offset-checkpoint"
ENDS = (1694, 1011, 1295)


@pytest.fixture
def brokers(tmp_path: Path) -> list[Path]:
    """Return the log directories of three brokers; the second is the one to be damaged."""
    extract("three-brokers", tmp_path)
    log_dirs = [tmp_path / str(number) / "data" for number in range(3)]
    for log_dir in log_dirs:  # as the checkpoints of idle brokers stand after a few seconds
        (log_dir / WATERMARKS).write_text("0\n3\n" + "".join(f"ledger {n} {end}\n" for n, end in enumerate(ENDS)))
    return log_dirs


def logs(log_dir: Path) -> dict[str, bytes]:
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in sorted(log_dir.glob("ledger-*/*.log"))}


def destroy(log_dir: Path, count: int, rng: random.Random) -> int:
    """Overwrite random sectors of the `.log` files; return how many bytes were different before."""
    places = [
        (path, at) for path in sorted(log_dir.glob("ledger-*/*.log")) for at in range(0, path.stat().st_size, SECTOR)
    ]
    changed = 0
    for path, at in rng.sample(places, min(count, len(places))):
        data = bytearray(path.read_bytes())
        size = min(SECTOR, len(data) - at)
        junk = rng.randbytes(size)
        changed += sum(a != b for a, b in zip(data[at : at + size], junk, strict=True))
        data[at : at + size] = junk
        path.write_bytes(data)
    return changed


def heal(damaged: Path, *sources: Path, flags: tuple[str, ...] = ()) -> tuple[int, dict[str, object]]:
    words = [word for source in sources for word in ("--heal-from", source)]
    done = logmend("recover", "--json", "--depth", "full", *flags, *words, damaged)
    assert "Traceback" not in done.stderr
    return done.returncode, dict(json.loads(done.stdout)["results"][0])


def notes(result: dict[str, object]) -> Iterator[dict[str, object]]:
    healing = result["healing"]
    assert isinstance(healing, list)
    return iter(healing)


@pytest.mark.parametrize("sectors", [1, 30, 1000])
def test_destroyed_sectors_come_back_byte_for_byte(brokers: list[Path], sectors: int) -> None:
    healthy = logs(brokers[0])
    assert logs(brokers[1]) == healthy
    rng = random.Random(f"{SEED}-{sectors}")
    for _ in range(ROUNDS):
        assert destroy(brokers[1], sectors, rng) > 0
        status, result = heal(brokers[1], brokers[0], brokers[2])
        assert (status, logs(brokers[1])) == (0, healthy), f"seed {SEED}, {sectors} sectors"
        assert any(note["healed"] for note in notes(result))
    assert logmend("verify", "--depth", "full", brokers[1]).returncode == 0


def test_what_was_there_before_can_be_put_back(brokers: list[Path]) -> None:
    destroy(brokers[1], 20, random.Random(SEED))
    before = tree(brokers[1])
    assert heal(brokers[1], brokers[0])[0] == 0
    assert tree(brokers[1]) != before
    assert logmend("quarantine", "restore", "--all", brokers[1]).returncode == 0
    assert tree(brokers[1]) == before


def test_a_dry_run_says_what_would_be_healed_and_changes_nothing(brokers: list[Path]) -> None:
    destroy(brokers[1], 5, random.Random(SEED))
    before = tree(brokers[1])
    done = logmend("plan", "--depth", "full", "--heal-from", brokers[0], brokers[1])
    assert done.returncode == 1
    assert f"from {brokers[0]}" in done.stdout
    assert tree(brokers[1]) == before


def test_a_torn_tail_is_healed_before_it_would_be_cut(brokers: list[Path]) -> None:
    healthy = logs(brokers[0])
    last = sorted((brokers[1] / "ledger-0").glob("*.log"))[-1]
    data = last.read_bytes()
    last.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    status, result = heal(brokers[1], brokers[2])
    assert (status, logs(brokers[1])) == (0, healthy)
    assert [note["next_offset"] for note in notes(result)] == [checkpoint(brokers[2] / WATERMARKS)["ledger-0"]]


def test_of_a_lost_tail_only_what_is_committed_comes_back(brokers: list[Path]) -> None:
    for log_dir in brokers:
        (log_dir / WATERMARKS).write_text("0\n1\nledger 2 1278\n")
    last = sorted((brokers[1] / "ledger-2").glob("*.log"))[-1]
    healthy = last.read_bytes()
    last.write_bytes(bytes(len(healthy)))
    status, result = heal(brokers[1], brokers[0])
    assert status == 0
    assert [note["next_offset"] for note in notes(result)] == [1278]
    assert 0 < last.stat().st_size < len(healthy)
    assert healthy.startswith(last.read_bytes())


@pytest.mark.parametrize("point", ["all flushed", "nothing flushed"])
def test_a_hole_before_a_batch_that_the_replica_has_needs_no_watermark(brokers: list[Path], point: str) -> None:
    """Both have the very batch behind it, by offset, epoch, size and checksum: then both had the same log up to it."""
    for log_dir in brokers:
        (log_dir / WATERMARKS).write_text("0\n0\n")
        if point == "nothing flushed":
            (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    healthy = logs(brokers[0])
    for name in ("ledger-0", "ledger-1", "ledger-2"):
        first = sorted((brokers[1] / name).glob("*.log"))[0]
        damaged = bytearray(first.read_bytes())
        damaged[:600] = bytes(600)  # the begin of the log
        damaged[20_000:20_512] = bytes(512)
        first.write_bytes(damaged[:-300])  # and the end of a closed segment, of which the size is lost
    status, result = heal(brokers[1], brokers[0], brokers[2])
    assert (status, logs(brokers[1])) == (0, healthy)
    assert [note["healed"] for note in notes(result)] == [True] * 9


def test_a_hole_that_the_replica_fills_with_other_bytes_than_it_has_needs_the_watermark(brokers: list[Path]) -> None:
    first = sorted((brokers[1] / "ledger-0").glob("*.log"))[0]
    data = first.read_bytes()
    end = behind(first, 20_000)
    first.write_bytes(data[:20_000] + data[20_100:end] + data[end:])  # a hundred bytes are missing in the middle
    before = logs(brokers[1])
    for log_dir in brokers:
        (log_dir / WATERMARKS).write_text("0\n1\nledger 0 3\n")
    status, result = heal(brokers[1], brokers[0])
    assert (status, logs(brokers[1])) == (3, before)
    assert "committed" in " ".join(str(note["reason"]) for note in notes(result))
    (brokers[0] / WATERMARKS).write_text(f"0\n1\nledger 0 {ENDS[0]}\n")
    assert heal(brokers[1], brokers[0])[0] == 0
    assert logs(brokers[1])["ledger-0/" + first.name] == data


def test_replicas_that_end_at_different_offsets_agree_on_a_torn_end(brokers: list[Path]) -> None:
    last = sorted((brokers[1] / "ledger-2").glob("*.log"))[-1]
    healthy = last.read_bytes()
    last.write_bytes(bytes(len(healthy)))
    for log_dir, mark in zip(brokers, (1181, 0, 1278), strict=True):
        (log_dir / WATERMARKS).write_text(f"0\n1\nledger 2 {mark}\n")
    status, result = heal(brokers[1], brokers[0], brokers[2])
    (note,) = notes(result)
    assert (status, note["healed"], note["source"]) == (0, True, str(brokers[2]))
    assert note["next_offset"] == 1278
    assert "--heal-uncommitted" in str(note["reason"])


def test_a_torn_end_that_is_not_known_to_be_committed_comes_back_when_told(brokers: list[Path]) -> None:
    for log_dir in brokers:
        (log_dir / WATERMARKS).write_text("0\n0\n")
    healthy = logs(brokers[0])
    last = sorted((brokers[1] / "ledger-2").glob("*.log"))[-1]
    last.write_bytes(bytes(last.stat().st_size))
    empty = brokers[0].parent / "another-disk"
    empty.mkdir()
    status, _ = heal(brokers[1], brokers[0], brokers[2], empty, flags=("--heal-uncommitted",))
    assert (status, logs(brokers[1])) == (0, healthy)


@pytest.mark.parametrize("tail", [bytes(4096), b"rot" * 500], ids=["preallocated", "torn"])
def test_a_replica_with_a_torn_end_of_its_own_gives_what_it_has_before_it(brokers: list[Path], tail: bytes) -> None:
    last, theirs = (sorted((broker / "ledger-2").glob("*.log"))[-1] for broker in (brokers[1], brokers[0]))
    healthy = last.read_bytes()
    last.write_bytes(bytes(len(healthy)))
    end = healthy.index((1278).to_bytes(8, "big"))  # the base offset of its last batch
    theirs.write_bytes(healthy[:end] + tail)
    status, result = heal(brokers[1], brokers[0])
    assert (status, [note["next_offset"] for note in notes(result)]) == (0, [1278])
    assert last.read_bytes() == healthy[:end]


def test_without_replicas_none_can_agree(brokers: list[Path]) -> None:
    done = logmend("recover", "--heal-uncommitted", brokers[1])
    assert done.returncode == 2
    assert "--heal-from" in done.stderr


def test_two_replicas_that_disagree_heal_nothing(brokers: list[Path]) -> None:
    first = sorted((brokers[1] / "ledger-0").glob("*.log"))[0]
    rng = random.Random(SEED)
    damaged = bytearray(first.read_bytes())
    damaged[20_000:20_512] = rng.randbytes(512)
    first.write_bytes(damaged)
    other = sorted((brokers[2] / "ledger-0").glob("*.log"))[0]
    reworded(other, 20_000)
    before = logs(brokers[1])
    status, result = heal(brokers[1], brokers[0], brokers[2])
    assert (status, logs(brokers[1])) == (3, before)
    assert "disagree" in " ".join(str(note["reason"]) for note in notes(result))


def reworded(log: Path, around: int) -> None:
    """Change a byte of a record in the batch around a position, and make its checksum fit."""
    data = bytearray(log.read_bytes())
    with OsFs().open_read(log) as file:
        place = next(p for p in walk_places(file, 0, len(data)) if p.position + p.size > around)
    data[place.position + place.size - 3] ^= 1
    reseal(memoryview(data)[place.position : place.position + place.size])
    log.write_bytes(data)


def behind(log: Path, around: int) -> int:
    """Return where the batch around a position ends."""
    with OsFs().open_read(log) as file:
        return next(
            p.position + p.size
            for p in walk_places(file, 0, log.stat().st_size)
            if p.position <= around < p.position + p.size
        )


def end_before(log: Path, position: int) -> None:
    """Cut a replica's log at a position, and remove its later segments."""
    log.write_bytes(log.read_bytes()[:position])
    for later in log.parent.glob("*.log"):
        if later.name > log.name:
            later.unlink()


POISONS = (
    "other epoch",
    "behind the watermark",
    "other topic id",
    "itself rotten",
    "a hole of its own",
    "no such partition",
)


@pytest.mark.parametrize("poison", POISONS)
def test_a_replica_that_may_be_wrong_is_refused_and_the_reason_told(brokers: list[Path], poison: str) -> None:
    source, partition = brokers[0], brokers[0] / "ledger-0"
    first = sorted((brokers[1] / "ledger-0").glob("*.log"))[0]
    log = sorted(partition.glob("*.log"))[0]
    expected = "epoch"
    match poison:
        case "other epoch":
            (partition / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
        case "behind the watermark":  # and without the batch behind the hole, which would prove it
            for log_dir in brokers:
                (log_dir / WATERMARKS).write_text("0\n1\nledger 0 3\n")
            end_before(log, behind(first, 20_000))
            expected = "committed"
        case "other topic id":
            (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAEA")
            expected = "topic id"
        case "itself rotten":
            rotten = bytearray(log.read_bytes())
            rotten[20_100] ^= 1
            log.write_bytes(rotten)
            expected = "checksum"
        case "a hole of its own":
            log.write_bytes(log.read_bytes()[:10_000])
            expected = "batch"
        case _:
            shutil.rmtree(partition)
            expected = "ledger-0"
    damaged = bytearray(first.read_bytes())
    damaged[20_000:20_512] = bytes(512)
    first.write_bytes(damaged)
    before = logs(brokers[1])
    status, result = heal(brokers[1], source)
    assert (status, logs(brokers[1])) == (3, before)
    assert expected in " ".join(str(note["reason"]) for note in notes(result))
    assert not any(note["healed"] for note in notes(result))


def test_a_plan_of_the_audit_names_the_sources(brokers: list[Path], tmp_path: Path) -> None:
    healthy = logs(brokers[0])
    destroy(brokers[1], 10, random.Random(SEED))
    plan = tmp_path / "heal.json"
    heals = [{"log_dir": str(brokers[1]), "source": {"log_dir": str(brokers[2])}}]
    plan.write_text(json.dumps({"document": "heal_plan", "heals": heals}))
    status, result = heal(brokers[1], plan)
    assert (status, logs(brokers[1])) == (0, healthy)
    assert {note["source"] for note in notes(result)} == {str(brokers[2])}
    plan.write_text("[]")
    assert logmend("recover", "--heal-from", plan, brokers[1]).returncode == 2


def test_a_source_that_is_the_damaged_directory_is_wrong_usage(brokers: list[Path]) -> None:
    done = logmend("recover", "--heal-from", brokers[1], brokers[1])
    assert done.returncode == 2
    assert "to be healed" in done.stderr


def test_what_no_index_could_point_to_is_not_put_into_a_segment(tmp_path: Path) -> None:
    """Compacted: the only batch of a lost segment lies more than 2 147 483 647 offsets behind the one before it."""
    far = 2**31 + 10
    batches = {0: batch_v2(0, 2), far: batch_v2(far, 2), far + 5: batch_v2(far + 5, 2)}
    for broker, bases in (("ours", (0, far + 5)), ("theirs", (0, far, far + 5))):
        partition = tmp_path / broker / "kept-0"
        partition.mkdir(parents=True)
        for base in bases:
            (partition / f"{base:020d}.log").write_bytes(batches[base])
        (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        for name in (WATERMARKS, "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
            (tmp_path / broker / name).write_text(f"0\n1\nkept 0 {far + 7}\n")
    (tmp_path / "ours" / "kept-0" / f"{0:020d}.log").write_bytes(batches[0][:-4] + b"rot!")
    before = logs_of(tmp_path / "ours")
    status, result = heal(tmp_path / "ours", tmp_path / "theirs")
    assert not any(note["healed"] for note in notes(result)), list(notes(result))
    assert "a segment cannot hold" in " ".join(str(note["reason"]) for note in notes(result))
    assert (status, logs_of(tmp_path / "ours")) == (3, before)


def logs_of(log_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log_dir.glob("kept-0/*.log")}
