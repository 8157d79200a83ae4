"""Let many brokers live, one after the other, and note how each life went.

usage: PYTHONPATH=.:tests nice python -m interop.lives --lives 200 --out lives.txt [--version 3.9.1] [--rounds 4]

A line of the file is a life: its seed, Kafka's version, its seconds, the processor's, the looks of `verify`, the
records acknowledged, what stops and kills left under way, and `passed` or the failure. A life that failed leaves its
directories under `--keep`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
import traceback
from pathlib import Path

from interop.kafka_lab import KAFKA
from interop.lived_in import live


def one(seed: int, version: str, rounds: int, keep: Path) -> str:
    """Return the line of one life; the directories of a life that failed are kept."""
    home = Path(tempfile.mkdtemp(prefix=f"life-{seed}-"))
    begun, busy = time.monotonic(), _busy()
    try:
        life = live(home / "kafka", seed, version=version, rounds=rounds, keep=keep)
        records = sum(len(contents) for contents in life.ledger.acknowledged.values())
        said = f"{life.looks} {records} {','.join(sorted(life.states)) or '-'} passed"
        shutil.rmtree(keep / f"seed-{seed}", ignore_errors=True)
    except Exception as error:  # noqa: BLE001 (whatever ends one life, the next one begins)
        place = keep / f"seed-{seed}"
        shutil.rmtree(place / "end", ignore_errors=True)
        shutil.copytree(home, place / "end", dirs_exist_ok=True, ignore_dangling_symlinks=True)
        (place / "failure.txt").write_text(traceback.format_exc())
        said = f"0 0 - FAILED {str(error).strip().splitlines()[:2]}, see {place}"
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return f"{seed} {version} {time.monotonic() - begun:.0f} {_busy() - busy:.0f} {said}"


def _busy() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lives", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first life")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--version", default=KAFKA)
    parser.add_argument("--out", type=Path, default=Path("lives.txt"))
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir(), "lives-that-failed"))
    chosen = parser.parse_args()
    os.environ.setdefault("LOGMEND_QUICK_JVM", "1")
    chosen.keep.mkdir(parents=True, exist_ok=True)
    for seed in range(chosen.seed, chosen.seed + chosen.lives):
        line = one(seed, chosen.version, chosen.rounds, chosen.keep)
        with chosen.out.open("a") as out:
            out.write(line + "\n")


if __name__ == "__main__":
    main()
