"""The kit itself: what it says of a directory today is what it said when the goldens were made."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden.golden import NAMES, expected, unpack
from interop.kafka_lab import Cluster, KafkaError, Oracle
from support.waiting import until


def timeless(loaded: dict[str, Any]) -> dict[str, Any]:
    """Leave out the largest timestamp of empty segments: it is the file's own time, rounded by tar."""
    for segment in loaded["segments"]:
        if segment["size"] == 0:
            del segment["largest_timestamp"]
    return loaded


@pytest.mark.parametrize("name", NAMES)
def test_kafka_still_loads_each_golden_as_written_beside_it(name: str, oracle: Oracle, tmp_path: Path) -> None:
    verdicts = expected(name)["partitions"]
    for key, directory in unpack(name, tmp_path).items():
        assert timeless(oracle.load(directory, **verdicts[key]["asked"])) == timeless(verdicts[key]["loaded"]), key


def test_an_error_of_kafka_is_raised_with_its_class(oracle: Oracle, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="no open log") as raised:
        oracle(op="state", log="never opened")
    assert raised.value.kind == "java.lang.IllegalStateException"


def test_an_oracle_that_ended_is_an_error_and_not_a_wait(kafka_kit: None) -> None:
    with Oracle() as lonely:
        assert "error" in lonely.ask(op="unheard of")
        lonely.process.send_signal(signal.SIGKILL)
        with pytest.raises((RuntimeError, BrokenPipeError)):
            lonely(op="now", ms=1)


@pytest.mark.slow
def test_a_killed_broker_leaves_its_topic_without_a_clean_mark(kafka_cluster: Callable[..., Cluster]) -> None:
    cluster = kafka_cluster()
    cluster.create_topic("orders", partitions=2)
    (log_dir,) = cluster[0].log_dirs
    log = log_dir / "orders-1" / "00000000000000000000.log"
    until(log.is_file)  # the controller answers before the broker has made it
    cluster[0].kill()
    assert not (log_dir / ".kafka_cleanshutdown").exists()
