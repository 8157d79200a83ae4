"""How fast the scanner and the fold are, for both kernels, beside the checksum alone over the same bytes.

Everything is in memory: 256 MiB of batches of one size, read in windows. Each number is the best of three runs in one
process; MB are 10**6 bytes. `crc` is one checksum over all bytes, `crc/bat` one call from Python for each batch; the
last two columns are ratios to the former. Without the C kernel only Python is measured.

Usage: python bench/bench_scan.py [MiB]
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from storage.base.rows import BatchRows, Stop
from storage.kernel.fold import SegmentFold
from storage.kernel.python import reference
from storage.kernel.scan import Kernel, kernel_name

SIZES = (170, 1024, 16384)
WINDOWS = (256 << 10, 1 << 20, 8 << 20)
ROWS = 8192
TS = 1_700_000_000_000
REPEATS = 3


def make_log(size: int, total: int) -> bytearray:
    """Return sound batches of `size` bytes each; every batch has other offsets, timestamps and so another checksum."""
    log = bytearray(total // size * size)
    payload = bytes((n * 167 + 13) & 0xFF for n in range(size - 61))
    for n in range(len(log) // size):
        tail = struct.pack(">hiqqqhii", 0, 9, TS + 10 * n, TS + 10 * n + 9, 4000 + n % 16, 1, n, 10) + payload
        crc = reference.crc32c(memoryview(tail))
        log[n * size : (n + 1) * size] = struct.pack(">qiibI", 10 * n, size - 12, 3, 2, crc) + tail
    return log


def run(kernel: Kernel, log: memoryview, window: int, rows: BatchRows, fold: SegmentFold | None) -> None:
    position = next_offset = 0
    while position < len(log):
        piece = log[position : position + window]
        scanned = kernel.scan_batches(piece, rows, position=position, next_offset=next_offset)
        assert scanned.stop in {Stop.END, Stop.NEED_MORE, Stop.ROWS_FULL}
        if fold is not None:
            fold.add(rows, scanned.count)
        next_offset = rows.last_offset[scanned.count - 1] + 1
        position += scanned.size


def best(log: memoryview, work: Callable[[], object]) -> float:
    """Return MB/s."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return len(log) / min(times) / 1e6


def sum_batches(kernel: Kernel, log: memoryview, size: int) -> None:
    crc32c = kernel.crc32c
    for position in range(0, len(log), size):
        crc32c(log[position + 21 : position + size])


def kernels() -> dict[str, Kernel]:
    if kernel_name() == "python":
        return {"python": reference}
    from storage.kernel import native  # noqa: PLC0415 (only where it was built)

    return {"c": native, "python": reference}


def measure(name: str, kernel: Kernel, log: memoryview, size: int, rows: BatchRows) -> None:
    plain = best(log, lambda: kernel.crc32c(log))
    single = best(log, lambda: sum_batches(kernel, log, size))
    for window in WINDOWS:
        scan = best(log, lambda n=window: run(kernel, log, n, rows, None))
        both = best(log, lambda n=window: run(kernel, log, n, rows, SegmentFold(0, kernel=name)))
        speeds = f"{scan:7.0f} {both:7.0f} {plain:7.0f} {single:7.0f} {scan / plain:8.2f} {both / plain:8.2f}"
        print(f"{name:7} {kernel.crc_name():13} {size:6} {window >> 10:7}K {speeds}")


def main() -> None:
    total = int(sys.argv[1]) << 20 if len(sys.argv) > 1 else 256 << 20
    rows = BatchRows(ROWS)
    print("MB/s    crc            batch   window    scan   +fold     crc crc/bat scan/crc fold/crc")
    for size in SIZES:
        log = memoryview(make_log(size, total))
        for name, kernel in kernels().items():
            measure(name, kernel, log, size, rows)


if __name__ == "__main__":
    main()
