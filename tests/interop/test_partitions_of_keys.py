"""Keys go to the partitions that the Java client itself chooses."""

from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path

import pytest
from interop.kafka_lab import jars

from storage.batch.murmur2 import murmur2, partition_for_key


def by_java(keys: list[bytes], partitions: int) -> list[tuple[int, int]]:
    """Return hash and partition of each key."""
    source = Path(__file__).with_name("Partitions.java")
    text = "".join(base64.b64encode(key).decode() + "\n" for key in keys)
    command = ["java", "-cp", jars(), str(source), str(partitions)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=120)
    return [(int(value), int(partition)) for value, partition in map(str.split, done.stdout.splitlines())]


@pytest.mark.parametrize("partitions", [1, 7, 50])
def test_every_key_goes_where_the_java_client_sends_it(kafka_kit: None, partitions: int) -> None:
    rng = random.Random(partitions)
    keys = [b"", b"\0", b"\xff" * 9, *(rng.randbytes(rng.randrange(40)) for _ in range(3000))]
    keys += [f"customer-{number}".encode() for number in range(1000)]
    assert [(murmur2(key), partition_for_key(key, partitions)) for key in keys] == by_java(keys, partitions)
