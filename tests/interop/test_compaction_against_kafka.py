"""What our compaction leaves of a log, byte for byte beside what Kafka's own leaves of a copy.

40 random logs unless LOGMEND_COMPACTION_SCRIPTS says another number; the seed of the first is LOGMEND_COMPACTION_SEED.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from interop.kafka_lab import Oracle
from interop.scripted_log import CODECS, NOW, Script
from support.batches import TRANSACTIONAL, batch_v2, marker, record
from support.cleaning import compact, write_log
from support.tiers import spread

from storage.base.config import LogConfig
from storage.base.units import Offset
from storage.batch.batch import TimestampType
from storage.batch.legacy import Message, encode_message, encode_wrapper
from storage.cleanup.compaction import Round
from storage.codec.compression import Codec
from storage.disk.fs import OsFs

SCRIPTS = int(os.environ.get("LOGMEND_COMPACTION_SCRIPTS", "40"))
FIRST_SEED = int(os.environ.get("LOGMEND_COMPACTION_SEED", "1"))
ROUNDS = 4


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def shown(oracle: Oracle, file: Path) -> list[dict[str, Any]]:
    """Return headers and records as Kafka reads them, without what depends on how they are compressed."""
    batches = oracle(op="dump", file=str(file), records=True)["batches"]
    assert all(batch["valid"] for batch in batches)
    return [
        {name: value for name, value in batch.items() if name not in ("position", "size", "crc")} for batch in batches
    ]


def check_equal(oracle: Oracle, ours: Path, theirs: Path) -> None:
    """Compare two directories; compressed batches, and what points to places behind them, by what they say."""
    found, wanted = contents(ours), contents(theirs)
    assert found.keys() == wanted.keys()
    differing = {name for name in found if found[name] != wanted[name]}
    for name in sorted(name for name in differing if name.endswith(".log")):
        assert shown(oracle, ours / name) == shown(oracle, theirs / name)
        assert any(batch["codec"] != "none" for batch in shown(oracle, ours / name)), f"{name}: nothing is compressed"
        differing -= {name, name.replace(".log", ".index"), name.replace(".log", ".timeindex")}
    assert differing == set()
    for name in (name for name in found if name.endswith(".log")):
        assert (ours / name).stat().st_mtime_ns == (theirs / name).stat().st_mtime_ns, name


def clean_both(script: Script, theirs: Path, ours: Path, bases: list[int], first_dirty: int) -> int:
    """Clean a copy each with the same arguments; return the next dirty offset."""
    rng = script.rng
    uncleanable = bases[-1] if rng.random() < 0.7 else rng.choice(bases)
    uncleanable = max(uncleanable, min(base for base in bases if base >= first_dirty))
    # Kafka fills its map wrongly where it goes on in a segment with an aborted transaction: see the last test below.
    map_bytes = 1 << 16 if script.has_transactions else rng.choice((1 << 16, 24 * 8, 24 * 30))
    script.oracle(op="now", ms=script.now)
    script.open(theirs)
    asked = {"first_dirty": first_dirty, "uncleanable": uncleanable, "map_bytes": map_bytes}
    cleaned = script.ask("clean", **asked)
    script.ask("close")
    config = LogConfig.from_properties(script.config)
    task = Round(Offset(first_dirty), Offset(uncleanable), script.now)
    done = compact(ours, config, task, map_bytes=map_bytes, io_buffer_bytes=rng.choice((200, 4000, 1 << 19)))
    if first_dirty < uncleanable:
        assert done.next_dirty == cleaned["next_dirty"], asked
        assert done.records_written == cleaned["messages_written"], asked
        assert done.bytes_written == cleaned["bytes_written"] or "none" not in script.codecs or len(script.codecs) > 1
    return done.next_dirty


@pytest.mark.parametrize("seed", spread(range(FIRST_SEED, FIRST_SEED + SCRIPTS), 10))
def test_compaction_leaves_what_kafkas_leaves(seed: int, tmp_path: Path, oracle: Oracle) -> None:
    codecs = ("none",) if seed % 2 else CODECS
    script = Script(seed, oracle, tmp_path / "t-0", codecs, has_transactions=seed % 5 > 1)
    first_dirty = 0
    for number in range(ROUNDS):
        ends = script.rng.random() < 0.8
        state = script.write(script.rng.choice((0, 5, 60)) if number else 60, ends_transactions=ends)
        bases = [segment["base"] for segment in state["segments"]]
        if first_dirty > bases[-1]:
            first_dirty = bases[-1]
        ours, theirs = tmp_path / f"ours-{number}", tmp_path / f"kafka-{number}"
        shutil.copytree(script.directory, ours)
        shutil.copytree(script.directory, theirs)
        first_dirty = clean_both(script, theirs, ours, bases, first_dirty)
        check_equal(oracle, ours, theirs)
        shutil.rmtree(script.directory)
        shutil.copytree(ours, script.directory)  # Kafka goes on with what we wrote
        script.now += script.rng.choice((1, 1500, 100_000))


def written_log(directory: Path, *segments: list[bytes]) -> Path:
    directory.mkdir(parents=True)
    config = LogConfig.from_properties(PLAIN)
    write_log(OsFs(), directory, segments, config)
    return directory


PLAIN = {"index.interval.bytes": "0", "segment.index.bytes": "4096", "delete.retention.ms": "1000"}


def both(oracle: Oracle, ours: Path, first_dirty: int, uncleanable: int, *, clean: bool = True) -> Path:
    """Clean a directory, and let Kafka clean a copy of it; return the copy."""
    theirs = ours.with_name("theirs-0")
    shutil.copytree(ours, theirs)
    log = str(theirs)
    oracle(op="now", ms=NOW)
    oracle(op="open", log=log, dir=theirs, clean=clean, config=PLAIN, recovery_point=uncleanable)
    oracle(op="clean", log=log, first_dirty=first_dirty, uncleanable=uncleanable)
    oracle(op="close", log=log)
    compact(ours, LogConfig.from_properties(PLAIN), Round(Offset(first_dirty), Offset(uncleanable), NOW))
    return theirs


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_become_what_kafka_makes_of_them(magic: int, tmp_path: Path, oracle: Oracle) -> None:
    def messages(first: int, *keys: bytes | None) -> list[Message]:
        kind = TimestampType.LOG_APPEND if magic and first == 8 else TimestampType.CREATE
        return [
            Message(first + n, NOW - 50 + n if magic else -1, kind, key, None if key == b"gone" else b"v%d" % n)
            for n, key in enumerate(keys)
        ]

    segment = [
        encode_message(messages(0, b"a")[0], magic=magic),
        encode_message(messages(1, b"gone")[0], magic=magic),
        *(
            encode_wrapper(messages(2 * codec, b"a", b"k%d" % codec), magic=magic, codec=codec)
            for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
        ),
        encode_wrapper(messages(8, b"b", b"gone"), magic=magic, codec=Codec.GZIP),
        encode_wrapper(messages(10, b"b", None, b"c"), magic=magic, codec=Codec.GZIP),
        encode_message(messages(13, b"last")[0], magic=magic),
    ]
    ours = written_log(tmp_path / "ours-0", segment)
    theirs = both(oracle, ours, 0, 14)
    name = f"{0:020d}.log"
    assert len(shown(oracle, ours / name)) >= 4
    assert shown(oracle, ours / name) == shown(oracle, theirs / name)


def test_kafka_takes_data_for_aborted_where_it_goes_on_behind_the_marker_and_we_do_not(
    tmp_path: Path, oracle: Oracle
) -> None:
    def data(offset: int, sequence: int, key: bytes) -> bytes:
        return batch_v2(
            offset, [record(key=key)], producer_id=7, producer_epoch=0, base_sequence=sequence, attributes=TRANSACTIONAL
        )

    segment = [
        data(0, 0, b"a"),
        marker(1, 7, commit=False),
        batch_v2(2, [record(key=b"b", value=b"old")]),
        data(3, 1, b"b"),
        marker(4, 7, commit=True),
    ]
    ours = written_log(tmp_path / "ours-0", segment, [batch_v2(5, [record(key=b"z")])])
    theirs = both(oracle, ours, 3, 6)
    offsets = [[r["offset"] for b in shown(oracle, d / f"{0:020d}.log") for r in b["records"]] for d in (ours, theirs)]
    assert offsets == [[1, 3, 4, 5], [1, 2, 3, 4, 5]]
