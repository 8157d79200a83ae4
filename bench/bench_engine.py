"""How fast the log engine is beside Kafka's own log classes, on the same disk, in turns.

- `append`: batches of 16 KiB and of 1 KiB, without a flush and with one every so many MiB, a batch a call as a leader
  takes them; and 64 batches a call as a follower does, beside Kafka's leader and beside Kafka's follower;
- `read`: the whole log in steps of 1 MiB, the next offset found in what was read, beside Kafka's `read`, and beside
  reading the file in steps of 1 MiB, which knows nothing of batches;
- `find`: the batch of a random offset, the first record from a random time on; Kafka's `read` of one byte and
  `fetchOffsetByTimestamp`. The log is opened in the regular way before, so that indexes are read from their files;
- `compact`: values of 100 bytes, every key written eight times, a million keys in the full size; our figure is of a
  process of its own, and its resident memory is told;
- `retain`: logs of many segments, of which nine in ten are deleted, files included.

Kafka is 4.3.0, `UnifiedLog` and `Cleaner` in one warm JVM, timed inside of it; ours is `storage.log.log.Log`, right
here. Both sides get the same bytes. Times are medians of rounds in turn, the first is not counted, the page cache is
warm.

Usage: python bench/bench_engine.py [--mib 1024] [--repeat 3] [--only append,read] [--json FILE] [--scratch DIR]
Needs Java and Maven. `--mib` scales everything: log sizes, keys of compaction, segments of retention.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness import WATCHED, about, head, line, measure, row, write_json
from interop.engine_pair import Epochs
from interop.kafka_lab import Oracle
from logs import in_segments, payload
from support.cleaning import compact, write_log

from engine.logdir.partition import retained_segments
from storage.base.config import LogConfig
from storage.base.rows import BatchRows
from storage.base.units import Offset
from storage.base.varint import encode_varint
from storage.batch.batch import BatchHeader, encode_batch_v2, parse_header
from storage.cleanup.compaction import Round
from storage.cleanup.retention import LogEnds, RetentionPolicy, retain
from storage.disk.buffers import page_aligned
from storage.disk.fs import OsFs
from storage.kernel.scan import walk_headers
from storage.log.log import Log
from storage.log.log_types import LogSetup

TS: Final = 1_700_000_000_000
SIZES: Final = (16384, 1024)
MIB: Final = 1 << 20
FLUSH_MIB: Final = 16
CALL: Final = 64
KINDS: Final = 64
LOOK_UPS: Final = 20_000
SEGMENT: Final = 64 << 20
SETTINGS: Final = {"segment.bytes": str(SEGMENT), "retention.ms": "-1"}
COMPACTED: Final = {"segment.bytes": str(SEGMENT), "cleanup.policy": "compact"}
ROUNDS_OF_KEYS: Final = 8
RECORDS: Final = 100
TINY: Final = {"internal.segment.bytes": "4096", "retention.ms": "-1"}


# ---- logs of ours


def open_log(directory: Path, settings: dict[str, str], *, is_clean: bool = True, now_ms: int = TS) -> Log:
    directory.mkdir(parents=True, exist_ok=True)
    config = LogConfig.from_properties(settings)
    return Log.open(OsFs(), directory, config, LogSetup(Epochs(directory)), now_ms=now_ms, is_clean=is_clean)


def made_batches(size: int) -> list[bytes]:
    """Return batches of about `size` bytes as a producer without an id sends them."""
    made = []
    for seed in range(KINDS):
        data, count = payload(size - 61 - 90, seed)
        header = BatchHeader(
            0, last_offset_delta=count - 1, base_timestamp=TS, max_timestamp=TS + count - 1, record_count=count
        )
        made.append(encode_batch_v2(header, data))
    return made


# ---- append


def append_ours(place: Path, batches: list[bytes], total: int, flush_every: int) -> float:
    log = open_log(place / "log-0", SETTINGS)
    done = number = 0
    start = time.perf_counter()
    while done < total:
        batch = batches[number % KINDS]
        log.append_as_leader(batch, leader_epoch=0, now_ms=TS)
        done += len(batch)
        number += 1
        if flush_every and number % flush_every == 0:
            log.flush()
    taken = time.perf_counter() - start
    log.close_abruptly()
    shutil.rmtree(place / "log-0")
    return taken


def replicate_ours(place: Path, batches: list[bytes], total: int) -> float:
    """As a follower: the offsets are set before the clock runs, by call, since a leader has done that."""
    log = open_log(place / "log-0", SETTINGS)
    done, offset, taken = 0, 0, 0.0
    while done < total:
        call = bytearray()
        for batch in batches:
            call += offset.to_bytes(8, "big") + b"\0\0\0\0".join((batch[8:12], batch[16:]))
            offset += parse_header(batch).record_count
        start = time.perf_counter()
        log.append_as_follower(call, leader_epoch=0, now_ms=TS)
        taken += time.perf_counter() - start
        done += len(call)
    log.close_abruptly()
    shutil.rmtree(place / "log-0")
    return taken


def append_theirs(oracle: Oracle, place: Path, batches: list[bytes], total: int, **more: Any) -> float:
    directory = place / "theirs-0"
    directory.mkdir()
    (place / "batches").write_bytes(b"".join(batches))
    oracle(op="open", log="bench", dir=directory, clean=True, config=SETTINGS)
    told = oracle(op="bench_append", log="bench", file=place / "batches", bytes=total, **more)
    oracle(op="close", log="bench", abruptly=True)
    shutil.rmtree(directory)
    return float(told["ms"]) / 1000


def appends(place: Path, oracle: Oracle, mib: int, repeat: int) -> Iterator[dict[str, Any]]:
    for size in SIZES:
        batches, total = made_batches(size), mib * MIB // (2 if size < 4096 else 1)
        every = FLUSH_MIB * MIB // size

        def ours(flush_every: int, batches: list[bytes] = batches, total: int = total) -> float:
            return append_ours(place, batches, total, flush_every)

        def theirs(batches: list[bytes] = batches, total: int = total, **more: Any) -> float:
            return append_theirs(oracle, place, batches, total, **more)

        found = measure(
            {
                "ours": lambda ours=ours: ours(0),
                "kafka": lambda theirs=theirs: theirs(),
                "ours, flushed": lambda ours=ours, every=every: ours(every),
                "kafka, flushed": lambda theirs=theirs, every=every: theirs(flush_every=every),
                "ours, many": lambda b=batches, t=total: replicate_ours(place, b, t),
                "kafka, many": lambda theirs=theirs: theirs(batches_a_call=CALL, follower=True),
            },
            repeat,
        )
        what = f"append, {total // MIB} MiB of {size} B batches"
        yield row(what, found["ours"], found["kafka"], ">= 1.5" if size > 4096 else ">= 0.5")
        yield row(f"{what}, flush every {FLUSH_MIB} MiB", found["ours, flushed"], found["kafka, flushed"], "")
        target = "" if size > 4096 else ">= 1.5"
        yield row(f"{what}, {CALL} a call / leader", found["ours, many"], found["kafka"], target)
        yield row(f"{what}, {CALL} a call / follower", found["ours, many"], found["kafka, many"], "")


# ---- read


def written_log(place: Path, size: int, total: int) -> Path:
    """Write a log and close it cleanly; each batch has a time of its own."""
    directory = place / f"read-{size}-0"
    log = open_log(directory, SETTINGS)
    batches = made_batches(size)
    done = number = 0
    while done < total:
        header = parse_header(batches[number % KINDS])
        moved = header._replace(base_timestamp=TS + number, max_timestamp=TS + number + header.record_count - 1)
        batch = encode_batch_v2(moved, batches[number % KINDS][61:])
        log.append_as_leader(batch, leader_epoch=0, now_ms=TS + number)
        done += len(batch)
        number += 1
    log.close()
    return directory


def read_ours(log: Log, rows: BatchRows, buffer: memoryview) -> float:
    start = time.perf_counter()
    offset = log.log_start
    while offset < log.log_end:
        fetched = log.read(offset, MIB)
        assert fetched.file is not None
        count = fetched.file.read_into(fetched.position, buffer[: fetched.size])
        walked = walk_headers(buffer[:count], rows)
        offset = Offset(rows.last_offset[walked.count - 1] + 1)
    return time.perf_counter() - start


def read_file(directory: Path, buffer: memoryview) -> float:
    start = time.perf_counter()
    for path in sorted(directory.glob("*.log")):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer[:MIB]):
                pass
    return time.perf_counter() - start


def find_ours(log: Log, wanted: list[int], *, by_time: bool) -> float:
    total = 0
    start = time.perf_counter()
    if by_time:
        for timestamp in wanted:
            found = log.offset_for_time(timestamp)
            assert found is not None
            total += found.offset
    else:
        for offset in wanted:
            total += log.read(Offset(offset), 1).size
    assert total
    return time.perf_counter() - start


def reads(place: Path, oracle: Oracle, mib: int, repeat: int) -> Iterator[dict[str, Any]]:
    for size in SIZES:
        directory = written_log(place, size, mib * MIB // 2)
        copy = place / "theirs-0"
        shutil.copytree(directory, copy)
        log = open_log(directory, SETTINGS)
        oracle(op="open", log="bench", dir=copy, clean=True, config=SETTINGS, recovery_point=log.log_end)
        rows, buffer = BatchRows(4096), page_aligned(2 * MIB)
        rng = random.Random(size)
        offsets = [rng.randrange(log.log_end) for _ in range(LOOK_UPS)]
        last = log.segments.active.max_timestamp
        times = [rng.randrange(TS, last) for _ in range(LOOK_UPS)]

        def kafka(op: str, **more: Any) -> float:
            return float(oracle(op=op, log="bench", **more)["ms"]) / 1000

        found = measure(
            {
                "ours": lambda log=log, rows=rows, buffer=buffer: read_ours(log, rows, buffer),
                "file": lambda directory=directory, buffer=buffer: read_file(directory, buffer),
                "kafka": lambda kafka=kafka: kafka("bench_read"),
                "ours, offsets": lambda log=log, offsets=offsets: find_ours(log, offsets, by_time=False),
                "kafka, offsets": lambda kafka=kafka, offsets=offsets: kafka("bench_find", wanted=offsets),
                "ours, times": lambda log=log, times=times: find_ours(log, times, by_time=True),
                "kafka, times": lambda kafka=kafka, times=times: kafka("bench_find", wanted=times, by_time=True),
            },
            repeat,
        )
        oracle(op="close", log="bench", abruptly=True)
        log.close_abruptly()
        shutil.rmtree(copy)
        shutil.rmtree(directory)
        what = f"read, {mib // 2} MiB of {size} B batches"
        yield row(f"{what} / reading the file", found["ours"], found["file"], ">= 0.8")
        yield row(f"{what} / Kafka", found["ours"], found["kafka"], "")
        what = f"find {LOOK_UPS:,} offsets, {size} B batches"
        yield row(what, found["ours, offsets"], found["kafka, offsets"], ">= 0.5")
        yield row(f"find {LOOK_UPS:,} times, {size} B batches", found["ours, times"], found["kafka, times"], ">= 0.5")


# ---- compact


def keyed_batches(keys: int) -> Iterator[bytes]:
    """Yield batches with every key once a round, in another order each round."""
    rng = random.Random(1)
    offset = 0
    for turn in range(ROUNDS_OF_KEYS):
        for first in range(0, keys, RECORDS):
            value = rng.randbytes(100)
            records = []
            for delta in range(min(RECORDS, keys - first)):
                number = (first + delta) * (2 * turn + 1) % keys
                body = b"\0\0" + encode_varint(delta) + b"\x20key-%012d\xc8\x01" % number + value + b"\0"
                records.append(encode_varint(len(body)) + body)
            header = BatchHeader(
                offset, leader_epoch=0, last_offset_delta=len(records) - 1, base_timestamp=TS, max_timestamp=TS,
                record_count=len(records),
            )  # fmt: skip
            yield encode_batch_v2(header, b"".join(records))
            offset += len(records)


def map_bytes_for(keys: int) -> int:
    return keys * 24 * 10 // 7


def compact_here(directory: Path, keys: int) -> None:
    """Compact in this process, for which it was started; print seconds and the most MiB that were resident.

    What getrusage tells would be that of the process before, if it had more.
    """
    task = Round(Offset(0), Offset(keys * ROUNDS_OF_KEYS), TS)
    start = time.perf_counter()
    compact(directory, LogConfig.from_properties(COMPACTED), task, map_bytes=map_bytes_for(keys))
    taken = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()
    print(json.dumps([taken, int(status.partition("VmHWM:")[2].split()[0]) / 1024]))


def compactions(place: Path, oracle: Oracle, mib: int, repeat: int) -> Iterator[dict[str, Any]]:
    keys = mib * 1000
    source = place / "keys-0"
    source.mkdir()
    write_log(OsFs(), source, in_segments(keyed_batches(keys), SEGMENT))
    size = sum(path.stat().st_size for path in source.glob("*.log"))
    resident = 0.0

    def ours() -> float:
        nonlocal resident
        copy = place / "ours-0"
        shutil.copytree(source, copy)
        command = [sys.executable, __file__, "--compact", str(copy), "--keys", str(keys)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        taken, mib_used = json.loads(done.stdout)
        resident = max(resident, mib_used)
        shutil.rmtree(copy)
        return float(taken)

    def theirs() -> float:
        copy, end = place / "theirs-0", keys * ROUNDS_OF_KEYS
        shutil.copytree(source, copy)
        oracle(op="open", log="bench", dir=copy, clean=True, config=COMPACTED, recovery_point=end)
        start = time.perf_counter()
        oracle(op="clean", log="bench", first_dirty=0, uncleanable=end, map_bytes=map_bytes_for(keys), io_bytes=262_144)
        taken = time.perf_counter() - start
        oracle(op="close", log="bench", abruptly=True)
        shutil.rmtree(copy)
        return taken

    found = measure({"ours": ours, "kafka": theirs}, repeat)
    buffer = map_bytes_for(keys) / MIB
    what = f"compact, {size // MIB} MiB, {keys:,} keys"
    print(f"   our process had {resident:.0f} MiB resident at most, of them {buffer:.0f} are the offset map")
    yield row(what, found["ours"] | {"resident_mib": resident, "map_mib": buffer}, found["kafka"], ">= 1")
    shutil.rmtree(source)


# ---- retain


def make_segments(directory: Path, segments: int) -> int:
    """Write closed segments of a batch each, with the indexes that such small ones have; return their bytes."""
    directory.mkdir(parents=True)
    batch = made_batches(1024)[0]
    header = parse_header(batch)
    count = header.record_count
    for number in range(segments):
        base = number * count
        name = f"{base:020d}"
        (directory / f"{name}.log").write_bytes(base.to_bytes(8, "big") + batch[8:12] + bytes(4) + batch[16:])
        (directory / f"{name}.index").write_bytes(b"")
        closing = header.max_timestamp.to_bytes(8, "big") + (count - 1).to_bytes(4, "big")
        (directory / f"{name}.timeindex").write_bytes(closing)
    return segments * len(batch)


def retain_ours(directory: Path, settings: dict[str, str]) -> float:
    log = open_log(directory, settings)
    log.set_high_watermark(log.log_end)
    start = time.perf_counter()
    policy = RetentionPolicy.of(log.config)
    found = retain(retained_segments(log.segments.all), policy, LogEnds(log.log_start, log.log_end, log.log_end), TS)
    log.set_log_start(found.log_start)
    bases = {verdict.segment.base_offset for verdict in found.deletable}
    gone = log.delete_segments(segment for segment in log.segments.all if segment.base_offset in bases)
    log.close_removed()
    for path in gone:
        OsFs().remove(path)
    taken = time.perf_counter() - start
    log.close_abruptly()
    assert found.deletable
    return taken


def retentions(place: Path, oracle: Oracle, mib: int, repeat: int) -> Iterator[dict[str, Any]]:
    segments = mib * 10_000 // 1024
    source = place / "segments-0"
    size = make_segments(source, segments)
    settings = TINY | {"retention.bytes": str(size // 10)}
    copy = place / "copy-0"

    def fresh() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)

    def ours() -> float:
        fresh()
        return retain_ours(copy, settings)

    def theirs() -> float:
        fresh()
        end = oracle(op="open", log="bench", dir=copy, clean=True, config=settings, recovery_point=1 << 40)["log_end"]
        oracle(op="high_watermark", log="bench", offset=end)
        start = time.perf_counter()
        assert oracle(op="retain", log="bench")["deleted"]
        taken = time.perf_counter() - start
        oracle(op="close", log="bench", abruptly=True)
        return taken

    found = measure({"ours": ours, "kafka": theirs}, repeat)
    yield row(f"retain, 9 of 10 of {segments:,} segments go", found["ours"], found["kafka"], "")
    shutil.rmtree(copy)
    shutil.rmtree(source)


PARTS: Final = {"append": appends, "read": reads, "compact": compactions, "retain": retentions}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the log engine beside Kafka's own log classes.")
    parser.add_argument("--mib", type=int, default=1024, help="size of the largest log; everything else follows")
    parser.add_argument("--repeat", type=int, default=3, help="counted repetitions")
    parser.add_argument("--only", default=",".join(PARTS), help="some of: %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument("--scratch", metavar="DIR", help="where to make the logs: needs three times the size")
    parser.add_argument("--compact", type=Path, metavar="DIRECTORY", help="for the program itself")
    parser.add_argument("--keys", type=int, help="for the program itself")
    asked = parser.parse_args()
    if asked.compact:
        compact_here(asked.compact, asked.keys)
        return
    if not (shutil.which("java") and shutil.which("mvn")):
        sys.exit("bench_engine.py: needs Java and Maven")
    print(about(asked.repeat, kafka=True))
    print(head(), flush=True)
    rows = []
    with tempfile.TemporaryDirectory(dir=asked.scratch) as scratch, Oracle(heap="1g", patience_seconds=900) as oracle:
        WATCHED.add(oracle.process.pid)
        for part in asked.only.split(","):
            for told in PARTS[part](Path(scratch), oracle, asked.mib, asked.repeat):
                print(line(told), flush=True)
                rows.append(told)
    write_json(asked.json, asked.repeat, rows)


if __name__ == "__main__":
    main()
