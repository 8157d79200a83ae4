"""A stock client that produces one record after another, asks for metadata, and notes how long each took.

`honest.py BOOTSTRAP TOPIC TURNS`: prints `ready` after its first record, begins when it gets a line, and ends with a
line of JSON: the seconds that each turn took, and how many records were acknowledged.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import KafkaException, Producer

WAIT = 120.0


def main() -> None:
    bootstrap, topic, turns = sys.argv[1:]
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "enable.idempotence": True,
        "compression.type": "zstd", "message.timeout.ms": round(WAIT * 1000), "log_level": 0,
    })  # fmt: skip
    seconds: list[float] = []
    acknowledged = 0

    def delivered(error: object, _: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    for turn in range(int(turns) + 1):
        began = time.monotonic()
        producer.produce(topic, f"{acknowledged:08d} {'x' * 200}", on_delivery=delivered)
        if producer.flush(WAIT):
            raise KafkaException("a record was not acknowledged")
        producer.list_topics(topic, timeout=WAIT)
        seconds.append(time.monotonic() - began)
        if not turn:
            print("ready", flush=True)
            sys.stdin.readline()
            seconds.clear()
    print(json.dumps({"seconds": seconds, "acknowledged": acknowledged}), flush=True)


if __name__ == "__main__":
    main()
