"""A stock client that produces one record after another, asks for metadata, and notes how long each took.

`honest.py BOOTSTRAP TOPIC`: prints `ready` after its first record, and ends when its standard input does, with a line
of JSON: the seconds that each turn took, and how many records were acknowledged.
"""

from __future__ import annotations

import json
import select
import sys
import time

from confluent_kafka import KafkaException, Producer

WAIT = 120.0


def main() -> None:
    bootstrap, topic = sys.argv[1:]
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "enable.idempotence": True,
        "compression.type": "zstd", "message.timeout.ms": round(WAIT * 1000), "log_level": 0,
    })  # fmt: skip
    seconds: list[float] = []
    acknowledged = 0

    def delivered(error: object, _: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    while not select.select([sys.stdin], [], [], 0.02)[0]:
        began = time.monotonic()
        producer.produce(topic, f"{acknowledged:08d} {'x' * 200}", on_delivery=delivered)
        if producer.flush(WAIT):
            raise KafkaException("a record was not acknowledged")
        producer.list_topics(topic, timeout=WAIT)
        seconds.append(time.monotonic() - began)
        if acknowledged == 1:
            print("ready", flush=True)
            seconds.clear()
    print(json.dumps({"seconds": seconds, "acknowledged": acknowledged}), flush=True)


if __name__ == "__main__":
    main()
