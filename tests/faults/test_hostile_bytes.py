"""Every single bit, every length, every sector of a small segment: detected, or proved harmless, or known and counted.

A bit that the format protects by nothing cannot be detected by anybody. Those bits are listed here, and each is held to
do what docs/understand/crash-safety.md says: no crash, no cut, and no byte changed but in derived files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from support.batches import batch_v2, legacy, record
from support.faults import EVERYTHING
from support.log_dirs import POINTS, SOUND, TOP, Files, checkpoint, live, on_disk, place, recover
from support.tiers import deep

from recovery.logdir.survey import plan_log_dir
from recovery.plan.findings import Severity
from recovery.plan.plan import PlanOptions, Quarantine, TruncateTo
from storage.codec.compression import Codec, compress

LOG = "orders-0/00000000000000000000.log"
OPTIONS = PlanOptions(depth="records", index_interval_bytes=100)
BATCHES = 3
CODECS = [codec for codec in Codec if codec != Codec.NONE]


def compressed(base: int, codec: Codec) -> bytes:
    payload = compress(codec, b"".join(record(n, value=b"some bytes, " * 4) for n in range(3)), magic=2)
    return batch_v2(base, payload=payload, records=[record()] * 3, attributes=codec)


FORMS: dict[str, list[bytes]] = {
    "v0": [legacy(n, 0, value=b"value %d" % n) for n in range(BATCHES)],
    "v1": [legacy(n, 1, value=b"value %d" % n) for n in range(BATCHES)],
    "v2": [batch_v2(2 * n, 2) for n in range(BATCHES)],
    **{f"v2 {codec.name.lower()}": [compressed(3 * n, codec) for n in range(BATCHES)] for codec in CODECS},
}
FORM_CASES = [form if form in ("v0", "v1", "v2", "v2 zstd") else deep(form) for form in FORMS]


class Seen(NamedTuple):
    """What planning made of one log: the position of the first damage in it, and whether anything was found at all."""

    cut_at: int | None
    noticed: bool
    stopped: bool


def files_of(log: bytes, derived: Files) -> Files:
    return {**derived, LOG: log}


def sound(batches: list[bytes]) -> Files:
    """Return a recovered log directory, flushed to nowhere, that holds the batches."""
    fs = on_disk({LOG: b"".join(batches), POINTS: checkpoint({"orders-0": 0})})
    recover(fs, OPTIONS)
    return live(fs.contents(str(TOP)))


def look(files: Files) -> Seen:
    plan = plan_log_dir(on_disk(files), TOP, OPTIONS).plan
    cuts = [a for p in plan.partitions for a in p.actions if isinstance(a, TruncateTo) and a.path.suffix == ".log"]
    copies = {a.path: a for p in plan.partitions for a in p.actions if isinstance(a, Quarantine)}
    for cut in cuts:
        assert copies[cut.path].position == cut.size, "what is cut is not what is kept"
        assert copies[cut.path].size == cut.old_size - cut.size
    noticed = not plan.is_empty or any(f.kind.severity is not Severity.NOTE for f in plan.findings)
    return Seen(cuts[0].size if cuts else None, noticed, plan.stopped)


def flips(log: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield position, bit and the log for each bit; every byte and, by default, three of its bits."""
    for position in range(len(log)):
        for bit in range(8) if EVERYTHING else {0, position % 8, 7}:
            changed = bytearray(log)
            changed[position] ^= 1 << bit
            yield position, bit, bytes(changed)


def place_in(batches: list[bytes], position: int) -> tuple[int, int]:
    """Return where the batch with this byte begins, and the place of the byte in it."""
    start = 0
    for batch in batches:
        if position < start + len(batch):
            return start, position - start
        start += len(batch)
    raise AssertionError(position)


UNPROTECTED = {"base offset": range(8), "leader epoch": range(12, 16)}
"""Bytes that lie outside of the checksum. Of v0 and v1 there is only the offset."""


def field(form: str, at: int) -> str:
    found = next((name for name, places in UNPROTECTED.items() if at in places), "protected")
    return "protected" if found == "leader epoch" and form in ("v0", "v1") else found


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 900)
@pytest.mark.parametrize("form", FORM_CASES)
def test_every_flipped_bit_is_found_where_it_is_or_lies_where_no_checksum_reaches(form: str) -> None:
    batches = FORMS[form]
    log, derived = b"".join(batches), sound(batches)
    assert look(derived) == Seen(None, noticed=False, stopped=False)
    counts: Counter[str] = Counter()
    for position, bit, changed in flips(log):
        seen = look(files_of(changed, derived))
        start, at = place_in(batches, position)
        name = field(form, at)
        if name == "protected":
            assert seen.noticed, f"byte {at} bit {bit} of the batch at {start} is not noticed"
            assert seen.stopped or seen.cut_at == start, f"byte {at} bit {bit} at {start}: cut at {seen.cut_at}"
        else:
            # Either order, neighbours or the epoch file give it away, or nothing can.
            assert seen.cut_at is None or seen.cut_at <= start + len(batches[0]), f"byte {at} bit {bit}: {seen.cut_at}"
        counts[f"{name}, {'found' if seen.noticed else 'not found'}"] += 1
    print(f"{form}: {dict(sorted(counts.items()))}")
    assert counts["protected, not found"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("form", FORM_CASES)
def test_every_length_is_cut_at_the_last_whole_batch(form: str) -> None:
    batches = FORMS[form]
    log, derived = b"".join(batches), sound(batches)
    borders = [sum(map(len, batches[:n])) for n in range(BATCHES + 1)]
    for size in range(len(log)):
        seen = look(files_of(log[:size], derived))
        border = max(each for each in borders if each <= size)
        assert seen.cut_at == (None if border == size else border), f"{size} bytes"


@pytest.mark.slow
@pytest.mark.parametrize("filling", [b"\0", b"\xff", b"\x01"])
def test_every_sector_of_every_file_that_is_overwritten_is_repaired_or_reported(filling: bytes) -> None:
    """Sectors of 512 bytes of a log with every kind of file: after recovery the log is clean and nothing was lost."""
    wide = {**SOUND, place(20): SOUND[place(20)] + b"".join(batch_v2(30 + n, payload=b"p" * 200) for n in range(12))}
    fs = on_disk(wide)
    recover(fs, OPTIONS)
    files = live(fs.contents(str(TOP)))
    for name, data in files.items():
        for at in range(0, len(data), 512):
            size = min(512, len(data) - at)
            hurt = {**files, name: data[:at] + filling * size + data[at + size :]}
            other = on_disk(hurt)
            plan = plan_log_dir(other, TOP, OPTIONS).plan
            if plan.stopped or plan.is_held:
                continue
            recover(other, OPTIONS)
            after = other.contents(str(TOP))
            logs = [path for path in files if path.endswith(".log")]
            assert all(hurt[path].startswith(after.get(path, b"")) for path in logs), f"{name} at {at}"
            assert plan_log_dir(other, TOP, OPTIONS).plan.is_empty, f"{name} at {at}"


@pytest.mark.slow
@pytest.mark.parametrize("appended", [1, 11, 12, 16, 17, 60, 61, 64, 512])
@pytest.mark.parametrize("filling", [b"\0", b"\xff", b"\x02"])
def test_whatever_stands_behind_the_last_batch_is_cut_there(appended: int, filling: bytes) -> None:
    for batches in FORMS.values():
        log = b"".join(batches)
        seen = look(files_of(log + filling * appended, sound(batches)))
        assert seen.cut_at == len(log)
