"""Let a real broker live and stop it cleanly twice, with another index interval the second time; pack what it leaves.

usage: PYTHONPATH=tests python -m golden.make_lived_in OUT

OUT/lived-in.tar.gz holds the log directory, modes included: metadata snapshots that a broker made read-only, files that
wait for their deletion, snapshots of earlier stops.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path

from interop.broker_load import CONFIG, Ledger, Load, create_topics
from interop.kafka_lab import Cluster
from support.waiting import until

SETTINGS = CONFIG | {"metadata.log.max.snapshot.interval.ms": "1000", "file.delete.delay.ms": "600000"}
INTERVALS = ("512", "9000")


def _has_snapshots(data: Path, count: int) -> bool:
    return len(list(data.glob("__cluster_metadata-0/*.checkpoint"))) >= count


def main(out: Path) -> None:
    """Write the archive into `out`."""
    with tempfile.TemporaryDirectory() as home, Cluster(Path(home), config=SETTINGS) as cluster:
        broker, ledger = cluster[0], Ledger()
        data = broker.log_dirs[0]
        for number, interval in enumerate(INTERVALS, 1):
            cluster.config["log.index.interval.bytes"] = interval
            if broker.process is None:
                broker.start()
            else:
                create_topics(cluster)
            load = Load(cluster, interval, ledger)
            load.start()
            until(lambda: len(list(data.glob("profiles-0/*.log.deleted"))) >= 2)
            until(partial(_has_snapshots, data, number + 1))
            load.end()
            broker.stop()
        with tarfile.open(out / "lived-in.tar.gz", "w:gz") as archive:
            archive.add(data, "0/data")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
