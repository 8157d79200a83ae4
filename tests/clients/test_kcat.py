"""kcat, as Debian has it: an older librdkafka, which asks in older versions of the requests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from clients import left
from clients.commands import run
from clients.running import Drivers
from clients.targets import OF_OURS, Target
from clients.test_write import codecs_in_log

pytestmark = pytest.mark.needs("kcat")

EACH = 20
BITS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def lines(first: int, count: int) -> str:
    return "".join(f"r{number}\n" for number in range(first, first + count))


def kcat(target: Target, *words: str, given: str = "", status: int = 0) -> str:
    return run(["kcat", "-b", target.bootstrap, "-m", "60", *words], given=given, status=status)


@pytest.mark.inspect
def test_kcat_lists_a_directory_that_a_broker_left(inspected: Target) -> None:
    listed = json.loads(kcat(inspected, "-L", "-J"))
    assert {one["topic"]: len(one["partitions"]) for one in listed["topics"]}.items() >= left.TOPICS.items()


@pytest.mark.inspect
def test_kcat_reads_every_codec_and_finds_offsets_by_time(inspected: Target) -> None:
    count = left.PER_CODEC * len(left.CODECS)
    read = kcat(inspected, "-C", "-t", "codecs", "-p", "0", "-o", "beginning", "-e", "-q", "-X", "check.crcs=true")
    assert read == lines(0, count)
    assert kcat(inspected, "-Q", "-t", f"codecs:0:{left.START_MS + 57}").strip() == "codecs [0] offset 57"


@pytest.mark.inspect
def test_kcat_reads_committed_only(inspected: Target) -> None:
    isolated = ("-X", "isolation.level=read_committed")
    read = kcat(inspected, "-C", "-t", "payments", "-p", "0", "-o", "beginning", "-e", "-q", *isolated)
    assert read == lines(0, 10) + lines(20, 10)


@pytest.mark.inspect
@OF_OURS
def test_kcat_is_told_at_once_that_nothing_is_written(inspected: Target) -> None:
    words = ["kcat", "-b", inspected.bootstrap, "-P", "-t", "orders", "-p", "0"]
    with pytest.raises(AssertionError, match="Topic authorization failed"):
        run(words, given="lost\n")


@pytest.mark.write
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_kcat_writes_every_codec(acks: str, written: Target, clients: Drivers, topic: Callable[..., str]) -> None:
    name = topic()
    for at, codec in enumerate(BITS):
        words = ["-P", "-t", name, "-p", "0", "-z", codec, "-X", f"acks={acks}"]
        # Repeated, so that compressing is worth its while: librdkafka sends what would grow as it is.
        kcat(written, *words, given="".join(f"r{number}{'.' * 100}\n" for number in range(at * EACH, (at + 1) * EACH)))
        found = clients("confluent").ask("consume", topic=name, partitions=[0], count=(at + 1) * EACH)
        assert found == {"0": [[number, f"r{number}"] for number in range((at + 1) * EACH)]}
    assert codecs_in_log(written.log_dir, name) == {at: {bits} for at, bits in enumerate(BITS.values())}


@pytest.mark.write
def test_kcat_writes_idempotently(written: Target, clients: Drivers, topic: Callable[..., str]) -> None:
    name = topic(3)
    kcat(written, "-P", "-t", name, "-X", "enable.idempotence=true", given=lines(0, 3 * EACH))
    found = clients("confluent").ask("consume", topic=name, partitions=[0, 1, 2], count=3 * EACH)
    assert sorted(value for part in found.values() for _, value in part) == sorted(lines(0, 3 * EACH).split())


@pytest.mark.groups
def test_kcat_goes_on_as_a_group(written: Target, clients: Drivers, topic: Callable[..., str]) -> None:
    name = topic(2)
    words = ["-G", f"kcat-{name}", "-e", "-q", "-X", "auto.offset.reset=earliest", name]
    for first in (0, EACH):
        clients("confluent").ask("produce", topic=name, partitions=[0, 1], first=first, count=EACH)
        assert sorted(kcat(written, *words).split()) == sorted(lines(first, EACH).split())
    assert clients("java").ask("committed", group=f"kcat-{name}", topic=name, partitions=[0, 1]) == [EACH, EACH]


@pytest.mark.txn
def test_kcat_writes_in_a_transaction(written: Target, clients: Drivers, topic: Callable[..., str]) -> None:
    name = topic()
    words = ["-P", "-t", name, "-p", "0", "-X", f"transactional.id=kcat-{os.getpid()}"]
    kcat(written, *words, given=lines(0, EACH))
    found = clients("java").ask("consume", topic=name, partitions=[0], count=EACH, isolation="committed")
    assert [value for _, value in found["0"]] == lines(0, EACH).split()
