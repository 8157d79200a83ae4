"""A broker that was killed, its second disk full: what a recovery makes of it, and what the broker makes of that.

Untouched, a broker starts on such a directory as long as retention has left it something to delete. After a recovery it
must do so as well, whatever became of that, and serve all that it had acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.full_disk import PARTITIONS, Lived, clear, disk, fill, free_bytes, lived, served
from support.command import logmend
from support.needs import need, need_mounts
from support.recovering import tree

PAGE = 4096


@pytest.fixture(scope="module")
def left(kafka_kit: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    directory = tmp_path_factory.mktemp("full")
    need_mounts(directory / "probe")
    need("mkfs.ext4")
    with lived(directory) as made:
        yield made


def tear(log_dir: Path) -> None:
    """Damage the logs as a write that a full disk cut short: a part of a batch, noise; and an index below it."""
    for number, partition in enumerate(sorted(log_dir.glob("orders-*"))):
        active = max(partition.glob("*.log"))
        with active.open("ab") as file:
            file.write(active.read_bytes()[:2000] if number % 2 else b"\xff" * 9000)
        if number == 1:
            index = sorted(partition.glob("*.index"))[1]
            index.write_bytes(b"\x55" + index.read_bytes()[1:])


def serves_all(left: Lived) -> list[str]:
    """Start the broker and return what is wrong with what it serves."""
    broker, wrong = left.broker, []
    for number, log_dir in enumerate(broker.log_dirs[:1]):
        clear(log_dir)
        left.restore(log_dir, number)
    broker.process, broker._was_killed = None, True
    printed = broker.output.stat().st_size
    broker.start()
    try:
        for partition in range(PARTITIONS):
            found, wanted = served(left.cluster, partition), left.acknowledged[partition]
            first = min(found)
            wrong += [f"{partition}@{at}" for at in wanted if at >= first and found.get(at) != wanted[at]]
            wrong += [] if first < max(wanted) - 1000 else [f"{partition} begins at {first}"]
    finally:
        broker.kill()
    said = broker.output.read_bytes()[printed:].decode(errors="replace")
    return wrong + [word for word in ("No space left", "Found invalid offset", "InternalError") if word in said]


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--quarantine", "--discard"])
@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_on_a_full_disk_leftovers_make_the_room_and_the_broker_starts_and_serves_all(
    left: Lived, tmp_path: Path, kind: str, flag: str
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with disk(kind, left.log_dir, tmp_path / "image") as log_dir:
        left.restore(log_dir, 1)
        tear(log_dir)
        fill(log_dir, 0)
        done = logmend("recover", flag, *([kept] if flag == "--quarantine" else []), log_dir)
        assert done.returncode == 0, done.stdout + done.stderr
        assert free_bytes(log_dir) > 1 << 20
        assert not list(log_dir.rglob("kept.*.log.*")), "a log was kept on the full disk"
        assert logmend("recover", "--dry-run", log_dir).returncode == 0
        assert serves_all(left) == []


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("leftovers", [True, False], ids=["leftovers", "none"])
@pytest.mark.parametrize("flag", ["--quarantine", "--discard", ""])
@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_at_every_free_size_a_recovery_is_whole_or_has_changed_nothing(
    left: Lived, tmp_path: Path, kind: str, flag: str, leftovers: bool
) -> None:
    """From no free page up in steps of ten, to the first size at which it is done."""
    for pages in range(0, 400, 10):
        kept = tmp_path / f"kept-{pages}"
        kept.mkdir()
        with disk(kind, left.log_dir, tmp_path / "image") as log_dir:
            left.restore(log_dir, 1)
            for file in () if leftovers else log_dir.glob("*/*.deleted"):
                file.unlink()
            tear(log_dir)
            fill(log_dir, pages * PAGE)
            (log_dir / ".lock").touch()
            was = tree(log_dir)
            places: dict[str, list[object]] = {"--quarantine": ["--quarantine", kept], "--discard": ["--discard"]}
            words = places.get(flag, [])
            done = logmend("recover", *words, log_dir)
            if done.returncode == 0:
                assert logmend("recover", "--dry-run", log_dir).returncode == 0
                return
            assert (done.returncode, "nothing done" in done.stdout) == (5, True), done.stdout + done.stderr
            assert tree(log_dir) == was
            assert not flag or "--quarantine" not in done.stderr
            assert list(kept.iterdir()) == []
    pytest.fail("it was never done")
