"""Mutated log directories given to Kafka's own loader and to a recovery, and what told the two results apart.

usage: PYTHONPATH=.:tests python -m interop.differential COUNT [--first SEED] [--out FILE] [--at DIRECTORY]

Prints how often each rule explained a difference, and the seeds that none explains. A seed stands for one golden, one
of its partitions, one or two damages of support/mutate.py, and whether the clean shutdown marker is there.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from golden import golden
from interop.differences import Outcome, explain
from interop.kafka_lab import Oracle
from support.mutate import mutate
from support.recovering import kept_by_us, options_of, tree

from checkpoint.leader_epoch import FILE_NAME as EPOCHS
from recovery.apply.execute import execute
from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import restore
from recovery.logdir.log_dir import MARKER, read_log_dir
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from recovery.plan.plan import LogDirPlan, PlanOptions
from storage.base.errors import LogmendError
from storage.base.names import parse_directory_name
from storage.disk.fs import OsFs

METADATA: Final = "__cluster_metadata-0"
INDEX_ROOM: Final = 1 << 16
INDEXES: Final = (".index", ".timeindex", ".txnindex")
FS: Final = OsFs()


@dataclass(frozen=True, slots=True)
class Case:
    """One mutated log directory: `root` holds it, and beside its one partition at most the metadata log."""

    seed: int
    name: str
    key: str
    base: Path
    damages: list[dict[str, Any]]
    options: PlanOptions
    config: dict[str, str]

    def directory(self, where: str) -> Path:
        """The partition's directory in one of the copies."""
        return self.base / where / self.key

    def root(self, where: str) -> Path:
        """The log directory in one of the copies."""
        return self.directory(where).parent


@dataclass(slots=True)
class Sources:
    """The unpacked goldens, each unpacked once."""

    at: Path
    expected: dict[str, dict[str, Any]] = field(default_factory=dict)

    def of(self, name: str) -> tuple[Path, dict[str, Any]]:
        """Return where a golden lies, and what is expected of it."""
        if name not in self.expected:
            golden.extract(name, self.at / name)
            for path in (self.at / name).rglob(f"{METADATA}/*index"):
                with path.open("r+b") as file:  # less of the 10 MiB that a broker preallocates: they cost time only
                    file.truncate(min(path.stat().st_size, INDEX_ROOM))
            self.expected[name] = golden.expected(name)
        return self.at / name, self.expected[name]


def build(seed: int, sources: Sources, base: Path) -> Case:
    """Make the directory of a seed, as `original` below `base`."""
    rng = random.Random(f"differential-{seed}")
    name = rng.choice(golden.NAMES)
    source, expected = sources.of(name)
    keys = sorted(expected["partitions"])
    metadata = _metadata_logs(source)
    key = rng.choice(metadata) if metadata and rng.random() < 0.06 else rng.choice(keys)
    root = _lay_out(source, key, base, marker=rng.random() < 0.3)
    place = root if rng.random() < 0.3 else base / "original" / key
    damages = mutate(place, seed, rng.choice([1, 1, 2]))
    return _case(seed, name, key, base, damages, sources)


def plant(damage: Callable[[Path], object], name: str, key: str, sources: Sources, base: Path) -> Case:
    """Make a directory without marker, damaged by a function that is given the partition's directory."""
    source, _ = sources.of(name)
    _lay_out(source, key, base, marker=False)
    damage(base / "original" / key)
    return _case(-1, name, key, base, [], sources)


def _metadata_logs(source: Path) -> list[str]:
    return sorted(str(path.relative_to(source)) for path in source.glob(f"*/data*/{METADATA}"))


def _lay_out(source: Path, key: str, base: Path, *, marker: bool) -> Path:
    shutil.rmtree(base, ignore_errors=True)
    root = base / "original" / Path(key).parent
    root.mkdir(parents=True)
    for path in (source / key).parent.iterdir():
        if path.is_file():
            shutil.copy2(path, root)
    shutil.copytree(source / key, base / "original" / key)
    if marker:
        (root / MARKER).write_text('{"version":0,"brokerEpoch":7}')
    else:
        (root / MARKER).unlink(missing_ok=True)
    return root


def _case(seed: int, name: str, key: str, base: Path, damages: list[dict[str, Any]], sources: Sources) -> Case:
    source, expected = sources.of(name)
    broker = Path(key).parts[0]
    for log in _metadata_logs(source):  # after the damages: what can be told from it is not what is tested here
        if Path(log).parts[0] == broker and not (base / "original" / log).exists():
            shutil.copytree(source / log, base / "original" / log)
    asked = expected["partitions"].get(key)
    options = options_of(expected["config"], metadata_dir=str(base / "recovered" / broker / "data"))
    return Case(seed, name, key, base, damages, options, asked["asked"]["config"] if asked else {})


def run(case: Case, oracle: Oracle) -> Outcome:
    """Let both have a copy each, compare, let Kafka open ours, and take ours back."""
    for copy in ("kafka", "recovered"):
        shutil.copytree(case.base / "original", case.base / copy, symlinks=True)
    root, name = case.root("recovered"), case.directory("recovered").name
    outcome = Outcome(case.seed, case.name, case.key, case.damages, points=_points(case, "kafka"))
    outcome.theirs = _opened(case, "kafka", oracle)
    planned = plan_log_dir(FS, root, case.options)
    _describe(outcome, planned.plan, name)
    execute(FS, planned.plan, planned.content_of, Orders(planned.plan.plan_id, 1, "test"), SilentReporter())
    outcome.empty_again = plan_log_dir(FS, root, case.options).plan.is_empty
    shutil.copytree(case.base / "recovered", case.base / "opened", symlinks=True)
    before = contents(case.directory("opened"))
    outcome.ours = _opened(case, "opened", oracle)
    after = contents(case.directory("opened"))
    outcome.changed = _differing(before, after)
    if "error" not in outcome.theirs:
        outcome.files = _differing(contents(case.directory("kafka")), after)
    outcome.not_restored = _take_back(case)
    return outcome


def _take_back(case: Case) -> str:
    """Restore everything from quarantine; return what then differs from the directory as it was, or nothing."""
    kept, unreadable = find_kept(FS, [case.root("recovered")])
    try:
        restore(FS, kept)
    except LogmendError as error:
        return str(error)
    now, then = tree(case.base / "recovered"), tree(case.base / "original")
    differing = [name for name in sorted(now.keys() | then.keys()) if now.get(name) != then.get(name)]
    return ", ".join([*(bad.reason for bad in unreadable), *differing])


def _points(case: Case, where: str) -> dict[str, Any]:
    points = read_log_dir(FS, case.root(where), None).points_of(parse_directory_name(case.directory(where).name))
    return {
        "log_start": points.log_start,
        "recovery_point": points.recovery_point or 0,
        "clean": points.clean,
        "point_known": points.recovery_point is not None,
        "metadata": points.metadata,
    }


def _opened(case: Case, where: str, oracle: Oracle) -> dict[str, Any]:
    points = _points(case, where)
    asked = {name: points[name] for name in ("log_start", "recovery_point", "clean")}
    state = oracle.ask(op="open", log=where, dir=case.directory(where), config=case.config, **asked)
    if "error" not in state:
        oracle(op="close", log=where, abruptly=True)
        for producer in state["producers"]:  # how many of the last batches are known depends on where replay began
            producer["batches"] = producer["batches"][-1:]
    return state


def _describe(outcome: Outcome, plan: LogDirPlan, name: str) -> None:
    (partition,) = (p for p in plan.partitions if p.partition == name)
    outcome.held, outcome.stopped = partition.held, plan.stopped
    outcome.verdicts = [
        {
            "row": v.row,
            "decision": v.decision,
            "kind": v.finding.kind.value,
            "file": v.finding.path.name,
            "position": v.finding.position,
            "offset": v.finding.first_offset,
        }
        for v in (*plan.verdicts, *partition.verdicts)
    ]
    outcome.cuts = [
        {"file": cut.path.name, "position": cut.position, "size": cut.size, "offset": cut.first_offset}
        for cut in partition.cuts
    ]
    outcome.marker_removed = bool(plan.before)


def contents(directory: Path) -> dict[str, bytes]:
    """Return what a broker reads: indexes without padding, snapshots as sorted entries, nothing that we keep."""
    found = {}
    for path in sorted(directory.iterdir()):
        if not path.is_file() or kept_by_us(path.name):
            continue
        data = path.read_bytes()
        if path.suffix in INDEXES:
            data = data.rstrip(b"\0")
        elif path.suffix == ".snapshot":
            data = b"".join(sorted(data[at : at + 46] for at in range(10, len(data), 46)))
        elif path.name == EPOCHS:
            data = data.rstrip(b"\n")  # the same entries with the last line break or without
        found[path.name] = data
    return found


def _differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[list[Any]]:
    """Return name, size here and size there of each file that differs; an empty one is as good as none but for logs."""
    found: list[list[Any]] = []
    for name in sorted(one.keys() | other.keys()):
        here, there = one.get(name), other.get(name)
        if here == there or (not here and not there and not name.endswith(".log")):
            continue
        found.append([name, None if here is None else len(here), None if there is None else len(there)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, help="one JSON line for each seed")
    parser.add_argument("--at", type=Path, help="where to work; by default a temporary directory")
    args = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(dir=args.at) as at, Oracle() as oracle:
        sources = Sources(Path(at) / "sources")
        for seed in range(args.first, args.first + args.count):
            outcome = run(build(seed, sources, Path(at) / "case"), oracle)
            names, unexplained = explain(outcome)
            counts.update(names)
            if unexplained:
                sys.stdout.write(f"UNEXPLAINED seed {seed}: {', '.join(unexplained)} ({outcome.damages})\n")
                sys.stdout.flush()
            if args.out:
                with args.out.open("a") as out:
                    out.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
    for name, count in counts.most_common():
        sys.stdout.write(f"{count:7} {name}\n")


if __name__ == "__main__":
    main()
