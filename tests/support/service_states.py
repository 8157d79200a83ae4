"""States of a service as they may come, for whatever shows them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import PurePath

from daemon.status.model import (
    CellVerdict,
    DirState,
    GroupLag,
    ListenerStatus,
    LogDirStatus,
    Mode,
    OpenFinding,
    PartitionCell,
    QuarantineStatus,
    RecoveryProgress,
    RequestStatus,
    ScrubState,
    ScrubStatus,
    ServiceStatus,
    VerificationLag,
)

NOW = 1_800_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
GIB = 1 << 30
TOPICS = ("orders", "payments", "shipments", "clicks", "sessions", "inventory", "__consumer_offsets", "audit-trail",
          "prices", "sensor-readings", "mail-out", "search-terms")  # fmt: skip
NASTY = (
    "<img src=x onerror=alert(1)>",
    "<script>window.pwned=1</script>",
    '"><svg onload=alert(1)>',
    "a\x1b[31mred\x1b[0m",
    "line\nbreak",
    "tab\tand\rreturn",
    "\u202egnirts desrever",
    "\u2066isolate",
    "nul-less\x01\x7f\x85\x9b",
    "not-utf8-\udcff\udc80",
    "{{template}} ${x} %n %s",
    "quote\"back\\slash'",
    "x" * 255,
    "]]><!--",
    "</script>",
    "javascript:alert(1)",
    "\u2028\u2029",
    'dir="a",evil="b"} 1\nfake_metric 1',
)

ONE_BYTE = tuple(bytes([number]).decode("utf-8", "surrogateescape") for number in range(256))
"""Every name of one byte, as Python reads it from a directory."""


def cell(topic: str, partition: int, verified_ms: int | None = NOW - DAY, **other: object) -> PartitionCell:
    made = PartitionCell(topic, partition, 12, 3 * GIB, verified_ms, CellVerdict.SOUND, 0)
    return replace(made, **other)  # type: ignore[arg-type]


def cells(count: int, seed: int = 7, cycle_days: float = 14) -> tuple[PartitionCell, ...]:
    """Return sound partitions of several topics, read at some time within the last cycle."""
    rng = random.Random(seed)
    topics = max(1, min(len(TOPICS), count // 5)) if count <= 1000 else 200
    names = [TOPICS[i] if i < len(TOPICS) else f"stream-{i:03}" for i in range(topics)]
    each = -(-count // topics)
    made = [
        cell(name, number, NOW - int(rng.random() ** 1.3 * cycle_days * 0.95 * DAY), segments=rng.randint(1, 40),
             size_bytes=rng.randint(1, 20 * GIB))
        for name in names for number in range(each)
    ]  # fmt: skip
    return tuple(made[:count])


def scrub(**other: object) -> ScrubStatus:
    made = ScrubStatus(ScrubState.RUNNING, "", 14 * 86400, 8120, 4096 * GIB, 37 * GIB, 812 * GIB, 3.4e6,
                       NOW - 13 * DAY, 0)  # fmt: skip
    return replace(made, **other)  # type: ignore[arg-type]


def finding(**other: object) -> OpenFinding:
    log_dir = PurePath("/var/lib/kafka/data-1")
    made = OpenFinding(
        id="7c1f09", log_dir=log_dir, topic="payments", partition=3,
        path=log_dir / "payments-3" / "00000000000018273645.log", kind="batch_crc", severity="damage",
        evidence="stored checksum 0x1c8d77a2, computed 0x90be4f01", position=536_879_104, size=16_384,
        first_offset=18_311_204, last_offset=18_311_377, next_good_offset=18_311_378, verdict="on disk",
        first_seen_ms=NOW - 3 * HOUR, last_seen_ms=NOW - 4 * 60_000,
        command="logmend recover --accept-loss /var/lib/kafka/data-1",
    )  # fmt: skip
    return replace(made, **other)  # type: ignore[arg-type]


def log_dir(path: str = "/var/lib/kafka/data-1", count: int = 300, **other: object) -> LogDirStatus:
    made = LogDirStatus(
        PurePath(path), Mode.GUARD, DirState.GUARDING, "", NOW - 5 * DAY, broker_pid=2417,
        lag=VerificationLag(2, 18 << 20, 7.0), scrub=scrub(), quarantine=QuarantineStatus(0, 0, None),
        partitions=cells(count), free_bytes=911 * GIB, size_bytes=4096 * GIB, device="8:16",
    )  # fmt: skip
    return replace(made, **other)  # type: ignore[arg-type]


def service(*dirs: LogDirStatus, **other: object) -> ServiceStatus:
    made = ServiceStatus("1.0", "c", 4711, NOW - 9 * DAY, NOW, True, False, dirs or (log_dir(),), {
        "range_verified_bytes": 5 * GIB, "segment_verified_bytes": 812 * GIB, "service_started": 1})  # fmt: skip
    return replace(made, **other)  # type: ignore[arg-type]


def sound(partitions: int = 300) -> ServiceStatus:
    return service(log_dir(count=partitions))


def listener(**other: object) -> ListenerStatus:
    requests = (RequestStatus("Produce", 12_000, 36.0, (10_000, 2_000, *[0] * 12)), RequestStatus("ApiVersions", 40))
    made = ListenerStatus(
        "127.0.0.1:9092", "", "sync", 12, 40, 3 << 30, 7 << 30, 65_536, requests, {"refused": 2},
        (GroupLag("billing", "orders", 1_234), GroupLag("audit\n", "orders", 0)),
    )  # fmt: skip
    return replace(made, **other)  # type: ignore[arg-type]


def serving() -> ServiceStatus:
    return service(log_dir(mode=Mode.OWN, state=DirState.SERVING, broker_pid=None, lag=None), listeners=(listener(),))


def small() -> ServiceStatus:
    return service(log_dir(count=10))


def recovering() -> ServiceStatus:
    progress = RecoveryProgress(640 * GIB, 275 * GIB, 1.9e9, 206, 300, 121, 4077)
    unread = tuple(
        each if i < 121 else replace(each, verified_ms=None, verdict=CellVerdict.UNVERIFIED)
        for i, each in enumerate(cells(300))
    )
    own = log_dir(mode=Mode.OWN, state=DirState.RECOVERING, recovery=progress, partitions=unread, broker_pid=None,
                  lag=None, scrub=None, since_ms=NOW - 3 * 60_000)  # fmt: skip
    return service(own, ready=False)


def damaged() -> ServiceStatus:
    found = (
        finding(),
        finding(id="b0aa31", topic="clicks", partition=17, kind="index_padded", severity="repairable",
                path=PurePath("/var/lib/kafka/data-1/clicks-17/00000000000000000000.timeindex"), position=None,
                size=None,
                evidence="10485756 bytes, of which 8412 are entries", first_offset=None, last_offset=None,
                next_good_offset=None, command="logmend recover /var/lib/kafka/data-1"),
        finding(id="55d2e9", topic="orders", partition=8, kind="changed_in_place", severity="damage",
                evidence="digest of the batches was 9f2c11d07a44be01, is 1b7793e5c02d9f60; every checksum holds",
                path=PurePath("/var/lib/kafka/data-1/orders-8/00000000000000912000.log"), position=0, size=1 << 30,
                first_offset=912_000, last_offset=1_377_402, next_good_offset=None),
    )  # fmt: skip
    bad = {("payments", 3): (CellVerdict.DAMAGED, 1), ("clicks", 17): (CellVerdict.SUSPECT, 1),
           ("orders", 8): (CellVerdict.DAMAGED, 1), ("prices", 2): (CellVerdict.HELD, 1),
           ("mail-out", 20): (CellVerdict.UNREADABLE, 1)}  # fmt: skip
    marked = tuple(
        replace(each, verdict=bad[key][0], findings=bad[key][1])
        if (key := (each.topic, each.partition)) in bad
        else each
        for each in cells(300)
    )
    first = log_dir(partitions=marked, findings=found, quarantine=QuarantineStatus(4, 3 << 20, NOW - 6 * DAY))
    late = cells(120, seed=3)
    second = log_dir(
        "/var/lib/kafka/data-2",
        partitions=tuple(
            replace(each, verified_ms=NOW - 19 * DAY) if i % 17 == 0 else each for i, each in enumerate(late)
        ),
        scrub=scrub(behind_seconds=5.2 * 86400, bytes_due=900 * GIB, oldest_verified_ms=NOW - 19 * DAY,
                    state=ScrubState.YIELDING, reason="the disks are under pressure: 23 % of the last 10 s"),
    )  # fmt: skip
    return service(first, second)


def offline() -> ServiceStatus:
    gone = log_dir("/var/lib/kafka/data-3", 80, state=DirState.OFFLINE, since_ms=NOW - 40 * 60_000,
                   reason="orders-4/00000000000000000000.log: read failed: Input/output error (EIO)", broker_pid=None,
                   scrub=scrub(state=ScrubState.OFF, reason="the directory is offline"))  # fmt: skip
    absent = log_dir("/mnt-kafka/data-4", partitions=(), state=DirState.ABSENT, scrub=None, lag=None, quarantine=None,
                     reason="not mounted", free_bytes=None, size_bytes=None, broker_pid=None)  # fmt: skip
    return service(log_dir(), gone, absent)


def hostile() -> ServiceStatus:
    place = PurePath("/var/lib/" + NASTY[0].replace("/", "") + "\x1b]0;t\x07\u202e")
    found = tuple(
        finding(id=f"h{i}", log_dir=place, topic=name, partition=i,
                path=place / f"{name}-{i}".replace("/", "_") / "0.log", evidence=f"evidence {name}",
                command=f"logmend recover {name}", kind="bad_name", severity="blocking")
        for i, name in enumerate(NASTY)
    )  # fmt: skip
    names = tuple(cell(name, i, verdict=CellVerdict.DAMAGED, findings=1) for i, name in enumerate(NASTY))
    short = tuple(cell(name, 0) for name in ONE_BYTE)
    lags = tuple(GroupLag(name, name, number) for number, name in enumerate(NASTY))
    nasty = log_dir(str(place), partitions=names + short, findings=found, reason=NASTY[2], device=NASTY[1])
    return service(nasty, listeners=(listener(lags=lags),))


STATES = {
    "serving": serving,
    "small": small,
    "sound": sound,
    "large": lambda: sound(10_000),
    "recovering": recovering,
    "damaged": damaged,
    "offline": offline,
    "hostile": hostile,
}
