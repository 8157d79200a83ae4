"""Hostile bytes for every parser that is written in Python: only typed errors may come out, and they come soon.

usage: fuzz_parsers.py [PARSER ...] [--seconds N] [--seed SEED] [--plain] [--list] [--keep]

Begins with bytes that real brokers wrote (tests/golden) and changes them: led by coverage where the package atheris is
installed, else, or with --plain, at random from the seed. The first failure ends it, and is written to a file whose
name is printed; `fuzz_parsers.py PARSER FILE` runs that alone.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[number]) for number in (1, 2)]

from golden import golden
from support.batches import TRANSACTIONAL, batch_v2, legacy, marker, record
from support.kio_messages import request_frame, request_of
from support.log_dirs import SOUND, place
from support.memory_fs import MemoryFs

from checkpoint.leader_epoch import decode_epochs, decode_lines
from checkpoint.markers import (
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    decode_quorum_state,
)
from checkpoint.offsets import decode_offsets
from cli.inspect.dump_files import Wish, dump_file
from cli.recover.plan_file import decode_plan
from cli.settings.settings import parse_properties, parse_toml
from recovery.evidence.manifest import Item, Manifest, encode
from recovery.evidence.manifest import decode as decode_manifest
from recovery.logdir.survey import plan_log_dir
from recovery.plan.plan import PlanOptions
from server.api.versions import VERSIONS, serves
from storage.base.errors import ConfigInvalid, CorruptData, printable
from storage.base.names import parse_directory_name, parse_file_name, parse_root_file_name
from storage.base.units import Offset
from storage.batch.batch import ensure_sound, split_batches
from storage.batch.control import decode_control
from storage.batch.kraft import check_snapshot, decode_metadata_record
from storage.batch.legacy import decode_messages
from storage.batch.record import records_of
from storage.codec.compression import compress, decompress
from storage.index.indexes import IndexKind, decode_offset_index, decode_time_index, used_length
from storage.index.txn_index import decode_txn_index
from storage.producers.producer_state import decode_snapshot, find_snapshot_fault
from wire.frame import Budget, FrameInvalid, FrameReader
from wire.messages import decode as decode_request
from wire.messages import read_header
from wire.reading import MessageInvalid

EXPECTED = (CorruptData, ConfigInvalid, FrameInvalid, MessageInvalid)
"""What a parser may raise; anything else is a fault of ours."""
SLOWEST = 5.0
"""Seconds that one input of at most 64 KiB may take."""
LIMIT = 1 << 16
SAMPLES = "two-disks transactions kafka-0.9 kafka-0.10 codecs compacted".split()  # noqa: SIM905 (as they are listed)
HERE = PurePath("/data")


def batches(data: bytes) -> None:
    for batch in split_batches(memoryview(data)):
        ensure_sound(batch)


def records(data: bytes) -> None:
    for _ in records_of(memoryview(data), limit=1 << 20):
        pass


def messages(data: bytes) -> None:
    for _ in decode_messages(memoryview(data), limit=1 << 20):
        pass


def codecs(data: bytes) -> None:
    if data:
        decompress(data[0] % 5, memoryview(data)[1:], magic=data[0] % 3, limit=1 << 20)


def control(data: bytes) -> None:
    if data:
        at = 1 + data[0] % 8
        decode_control(data[1:at], data[at:])


def snapshot(data: bytes) -> None:
    find_snapshot_fault(decode_snapshot(data))


def kraft_snapshot(data: bytes) -> None:
    check_snapshot(split_batches(memoryview(data)))


def indexes(data: bytes) -> None:
    for kind, decode in ((IndexKind.OFFSET, decode_offset_index), (IndexKind.TIME, decode_time_index)):
        decode(memoryview(data)[: used_length(memoryview(data), kind)], Offset(0))
        with contextlib.suppress(*EXPECTED):
            decode(data, Offset(0))


def names(data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    parse_file_name(name)
    parse_root_file_name(name)
    shown = printable(name)
    assert "\n" not in shown, "a name of more than one line"
    assert shown.isprintable(), "a name that cannot be shown"
    parse_directory_name(name)


def _plan(files: dict[str, bytes]) -> None:
    fs = MemoryFs({str(HERE / name): data for name, data in files.items()})
    plan = plan_log_dir(fs, HERE, PlanOptions(depth="records")).plan
    assert all(finding.evidence.isprintable() for finding in plan.findings)


def log_dir(data: bytes) -> None:
    """Plan the recovery of a log directory in which one kind of file is hostile."""
    if data:
        files = sorted(SOUND)
        _plan({**SOUND, files[data[0] % len(files)]: data[1:]})


def dump(data: bytes) -> None:
    """Dump bytes as each kind of file."""
    kinds = ["log", "index", "timeindex", "txnindex", "snapshot"]
    if data:
        path = HERE / "orders-0" / f"{0:020d}.{kinds[data[0] % len(kinds)]}"
        for _ in dump_file(MemoryFs({str(path): data[1:]}), path, Wish(records=True, data=True)):
            pass


def wire_frames(data: bytes) -> None:
    """Receive bytes in pieces, of a size by the first of them, as the listener does."""
    budget = Budget(1 << 20)
    reader, step = FrameReader(1 << 18, budget.account()), 1 + (data[0] if data else 0) * 16 + (len(data) >> 14)
    view, position = memoryview(data), 0
    while position < len(data) and reader.may_read():
        target = reader.target()
        if target is None:
            for frame in reader.feed(view[position : position + step]):
                wire_requests(frame.data)
                frame.release()
            position += step
        else:
            count = min(step, len(target), len(data) - position)
            target[:count] = view[position : position + count]
            reader.filled(count)
            position += count
        assert budget.used <= 1 << 20, "more memory than the budget"
    reader.abandon()


def wire_requests(data: bytes | memoryview) -> None:
    """Read bytes as the listener does a frame."""
    header = read_header(memoryview(data))
    if serves(header.api_key, header.api_version):
        decode_request(memoryview(data), header)


PARSERS: dict[str, Callable[[bytes], object]] = {
    "batches": batches,
    "records": records,
    "messages": messages,
    "codecs": codecs,
    "control": control,
    "metadata_record": decode_metadata_record,
    "kraft_snapshot": kraft_snapshot,
    "indexes": indexes,
    "txn_index": decode_txn_index,
    "snapshot": snapshot,
    "epochs": decode_epochs,
    "epoch_lines": decode_lines,
    "offsets": decode_offsets,
    "clean_shutdown": decode_clean_shutdown,
    "meta_properties": decode_meta_properties,
    "partition_metadata": decode_partition_metadata,
    "quorum_state": decode_quorum_state,
    "properties": lambda data: parse_properties(data, "server.properties"),
    "toml": lambda data: parse_toml(data, "logmend.toml"),
    "manifest": lambda data: decode_manifest(data, HERE),
    "plan": decode_plan,
    "names": names,
    "log_dir": log_dir,
    "dump": dump,
    "wire_frames": wire_frames,
    "wire_requests": wire_requests,
}


def made() -> list[bytes]:
    """Return small inputs of every kind."""
    draw = random.Random(0)
    requests = [request_frame(request_of(key, found.highest, draw))[:2000] for key, found in VERSIONS.items()]
    text = [b"version=1\nnode.id=1\nlog.dirs=/a,/b\\\n  /c\n", b'log_dirs = ["/a"]\njobs = 2\n', b"0\n1\norders 0 5\n"]
    item = Item("cut", "00000000000000000000.log", "torn_tail", "kept.x.0123456789ab.logmend", 5, 6)
    packed = [bytes([n]) + compress(n % 5, b"some bytes, some bytes" * 9, magic=2) for n in range(10) if n % 3 == 2]
    return [
        *text,
        encode(Manifest("0123456789ab", "/data", 1, "1", (item,))),
        batch_v2(0, 3), marker(5, 7, commit=True), legacy(3), legacy(4, 0), record(),
        batch_v2(9, 2, producer_id=4, producer_epoch=1, base_sequence=0, attributes=TRANSACTIONAL),
        *packed,
        *requests,
        b"".join(len(request).to_bytes(4, "big") + request for request in requests[-3:]),
        *SOUND.values(),
        *(bytes([number]) + data for number, data in enumerate(SOUND[name] for name in sorted(SOUND))),
        place(0).encode(),
    ]  # fmt: skip


def corpus() -> list[bytes]:
    """Return what brokers wrote, in pieces of at most 4 KiB, and what was made by hand."""
    found = set(made())
    with tempfile.TemporaryDirectory() as directory:
        for name in SAMPLES:
            golden.extract(name, Path(directory))
        for path in sorted(Path(directory).rglob("*")):
            if path.is_file():
                found.add(path.read_bytes()[:4096].rstrip(b"\0"))
    return sorted(found)


KEPT = Path(__file__).parent / "corpus"
MOST_KEPT, LONGEST_KEPT = 60, 200


def kept(name: str) -> list[bytes]:
    """Return the inputs that earlier fuzzing of a parser has found to reach something new."""
    path = KEPT / f"{name}.hex"
    return [bytes.fromhex(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(name: str, found: Iterable[bytes]) -> None:
    """Add to the inputs that are kept the shortest of those that were found, a line of hex digits each."""
    short = {data for data in (*kept(name), *found) if 0 < len(data) <= LONGEST_KEPT}
    if short:
        KEPT.mkdir(exist_ok=True)
        chosen = sorted(short, key=lambda data: (len(data), data))
        step = max(len(chosen) // MOST_KEPT, 1)
        (KEPT / f"{name}.hex").write_text("".join(f"{data.hex()}\n" for data in chosen[::step][:MOST_KEPT]))


def mutated(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Return the bytes with one to four changes."""
    now = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(now) + 1), rng.choice([1, 1, 2, 4, 8, 61])
        other = rng.choice(others)
        start = rng.randrange(len(other) + 1)
        change = rng.randrange(7)
        if change == 0 and now:
            now[at % len(now)] ^= 1 << rng.randrange(8)
        elif change == 1:
            now[at : at + size] = rng.randbytes(size)
        elif change == 2:
            now[at : at + size] = rng.choice([b"\xff", b"\0", b"\x7f", b"\x80"]) * size
        elif change == 3:
            del now[at : at + size]
        elif change == 4:
            del now[at:]
        elif change == 5:
            now[at:at] = other[start : start + 200]
        else:
            now[at : at + 200] = other[start : start + 200]
    return bytes(now[:LIMIT])


def fault_of(parse: Callable[[bytes], object], data: bytes) -> str:
    """Run one input; return what is wrong, or nothing."""
    began = time.perf_counter()
    try:
        parse(data)
    except EXPECTED:
        pass
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the finding)
        return f"{type(error).__name__}: {error}"
    took = time.perf_counter() - began
    return f"it took {took:.1f} s" if took > SLOWEST else ""


def fuzz_plainly(
    name: str, seeds: Sequence[bytes], seconds: float, seed: int, most: int = sys.maxsize
) -> tuple[int, bytes | None, str]:
    """Return how many inputs were tried, the first that failed, and why."""
    rng, parse, tried = random.Random(f"{name}-{seed}"), PARSERS[name], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and tried < most:
        data = mutated(rng.choice(seeds), rng, seeds)
        tried += 1
        if why := fault_of(parse, data):
            return tried, data, why
    return tried, None, ""


def fuzz_by_coverage(name: str, seeds: Iterable[bytes], seconds: int, seed: int, *, keeps: bool = False) -> int:
    """Run atheris in a process of its own, for it never returns; return its exit status."""
    with tempfile.TemporaryDirectory() as directory:
        for number, data in enumerate([*seeds, *kept(name)]):
            (Path(directory) / f"{number}").write_bytes(data)
        flags = [f"-max_total_time={seconds}", f"-seed={seed + 1}", f"-max_len={LIMIT}", "-timeout=20"]
        status = subprocess.run(
            [sys.executable, __file__, "--atheris", name, directory, *flags, "-print_final_stats=1"], check=False
        ).returncode
        if keeps and not status:  # what was found has a digest for its name, what was there a number
            keep(name, [path.read_bytes() for path in Path(directory).iterdir() if not path.name.isdecimal()])
        return status


def run_atheris(name: str, arguments: list[str]) -> None:
    """Hand this process over to atheris."""
    import atheris  # type: ignore[import-untyped] # noqa: PLC0415 (optional: led by coverage where it is there)

    parse = PARSERS[name]
    atheris.instrument_all()

    def one(data: bytes) -> None:
        with contextlib.suppress(*EXPECTED):
            parse(data)

    atheris.Setup([__file__, *arguments], one)
    atheris.Fuzz()


def _has_atheris() -> bool:
    try:
        import atheris  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


def main() -> None:
    if sys.argv[1:2] == ["--atheris"]:
        run_atheris(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parsers", nargs="*")
    parser.add_argument("--seconds", type=int, default=60, help="for each parser")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true", help="add what is found to the corpus of the repository")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(PARSERS))
        return
    if len(arguments.parsers) == 2 and arguments.parsers[1] not in PARSERS:
        PARSERS[arguments.parsers[0]](Path(arguments.parsers[1]).read_bytes())
        return
    seeds = corpus()
    by_coverage = not arguments.plain and _has_atheris()
    for name in arguments.parsers or PARSERS:
        if by_coverage:
            if status := fuzz_by_coverage(name, seeds, arguments.seconds, arguments.seed, keeps=arguments.keep):
                sys.exit(f"{name}: atheris ended with {status}")
            continue
        tried, data, why = fuzz_plainly(name, seeds, arguments.seconds, arguments.seed)
        print(f"{name}: {tried} inputs, seed {arguments.seed}{': ' + why if why else ''}", flush=True)
        if data is not None:
            Path(f"failed-{name}").write_bytes(data)
            sys.exit(f"written to failed-{name}")


if __name__ == "__main__":
    main()
