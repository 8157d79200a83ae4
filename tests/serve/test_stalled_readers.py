"""Readers that ask and do not read cost hardly any memory, and hold up nobody else."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from clients.targets import Listener
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from serve.serving import QUIET, WAIT, consumer, read_all
from support.waiting import until

READERS = int(os.environ.get("LOGMEND_STALLED_READERS", "100"))
RECORDS, SIZE = 60, 900_000
MEMORY_LIMIT = 48 << 20
"""By how much the process may grow; the answers that were asked for come to gigabytes."""


def fetch(partition_bytes: int) -> bytes:
    """Return a Fetch of version 4 for all of the first partition of `big`."""
    body = struct.pack(">hhih", 1, 4, 7, -1) + struct.pack(">iiiib", -1, 100, 1, 50 << 20, 0)
    body += struct.pack(">i", 1) + b"\0\3big" + struct.pack(">iiqi", 1, 0, 0, partition_bytes)
    return struct.pack(">i", len(body)) + body


def resident(pid: int) -> int:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) << 10


def files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def stalled(address: tuple[str, int]) -> socket.socket:
    """Return a connection that has asked for fifty megabytes three times and reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(address)
    made.sendall(fetch(50 << 20) * 3)
    return made


def unread(readers: list[socket.socket]) -> int:
    """Return how many of them have been sent something."""
    count = 0
    for each in readers:
        each.setblocking(False)
        try:
            count += bool(each.recv(4, socket.MSG_PEEK))
        except BlockingIOError:
            continue
    return count


def test_memory_stays_flat_under_readers_that_do_not_read_and_others_are_served(tmp_path: Path) -> None:
    with Listener(tmp_path / "data", tmp_path / "out", "--flush", "none") as listener:
        assert listener.process is not None
        host, port = listener.bootstrap.rsplit(":", 1)
        conf = {"bootstrap.servers": listener.bootstrap, **QUIET}
        admin = AdminClient(conf)
        admin.create_topics([NewTopic("big", 1, 1)])["big"].result(WAIT)
        producer = Producer({**conf, "compression.type": "none", "linger.ms": 0})
        for _ in range(RECORDS):
            producer.produce("big", os.urandom(SIZE))
        assert producer.flush(WAIT) == 0
        with consumer(listener.bootstrap) as warm:
            assert len(read_all(warm, "big")[0]) == RECORDS
        before, files_before = resident(listener.process.pid), files(listener.process.pid)
        readers = [stalled((host, int(port))) for _ in range(READERS)]
        until(lambda: unread(readers) == READERS, WAIT)
        grown = resident(listener.process.pid) - before
        opened = files(listener.process.pid) - files_before - READERS
        with consumer(listener.bootstrap) as other:
            assert len(read_all(other, "big")[0]) == RECORDS
        for each in readers:
            each.close()
        assert grown < MEMORY_LIMIT, f"{grown >> 20} MiB for {READERS} readers"
        assert opened <= 2, "a file is open once for all readers"
