"""What a broker does with a directory that was handed over: it scans its active segments, or with a marker nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from interop.broker_load import read_all
from interop.kafka_lab import Cluster
from interop.test_recover_live_broker import (
    CUTS,
    MORE_CUTS,
    REBUILDS,
    appendable_logs,
    check_goes_on,
    check_nothing_was_cut,
    check_readable,
    killed_under_load,
    log_dir_of,
    logmend,
    saying,
    segments,
    start_again,
)

pytestmark = pytest.mark.slow

SCANNED = re.compile(r"\[LogLoader partition=(\S+), .*Recovering unflushed segment (\d+)")
MARKER = ".kafka_cleanshutdown"


def recovered(cluster: Cluster, *flags: str) -> str:
    done = logmend("recover", *flags, "--server-properties", cluster[0].properties)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.deep
def test_a_broker_scans_the_active_segments_alone_after_the_points_have_risen(
    kafka_cluster: Callable[..., Cluster],
) -> None:
    load = killed_under_load(kafka_cluster)
    log_dir = log_dir_of(load.cluster)
    before = appendable_logs(log_dir)
    assert "raised to the log end; a broker will scan" in recovered(load.cluster)
    active = {path.parent.name: int(segments(log_dir, path.parent.name)[-1].stem) for path in before}
    printed = start_again(load.cluster[0])
    scanned = [found.groups() for line in printed if (found := SCANNED.search(line)) and found[1] in active]
    assert scanned
    assert {(name, int(base)) for name, base in scanned} <= set(active.items())
    check_nothing_was_cut(before)
    check_goes_on(load, load.ledger.acknowledged)


def test_with_a_marker_a_broker_scans_nothing_and_goes_on_with_producers_and_transactions(
    kafka_cluster: Callable[..., Cluster],
) -> None:
    load = killed_under_load(kafka_cluster)
    log_dir = log_dir_of(load.cluster)
    before = appendable_logs(log_dir)
    assert "marked as shut down cleanly" in recovered(load.cluster, "--clean-marker", "4.3")
    assert (log_dir / MARKER).exists()
    assert "a broker scans nothing" in recovered(load.cluster)  # a second run leaves the marker
    printed = start_again(load.cluster[0])
    assert saying(printed, "Skipping recovery of")
    scanned = saying(printed, "Recovering unflushed segment", *CUTS, *MORE_CUTS, *REBUILDS)
    assert [line for line in scanned if "partition=__cluster_metadata-0" not in line] == []
    assert not (log_dir / MARKER).exists()
    check_readable(load.ledger.acknowledged, read_all(load.cluster))
    check_nothing_was_cut(before)
    check_goes_on(load, load.ledger.acknowledged)


def test_a_marker_is_refused_for_a_version_that_nobody_tried(tmp_path: object) -> None:
    done = logmend("recover", "--clean-marker", "2.8", tmp_path)
    assert done.returncode == 2
    assert "tested with 4.3 alone" in done.stderr
