"""Reads partition 0 of `orders` with kafka-python, a line of JSON for each record, until the client raises: argument is
the address. The last line is the name of what it raised."""

from __future__ import annotations

import json
import sys

from kafka import KafkaConsumer, TopicPartition

consumer = KafkaConsumer(
    bootstrap_servers=sys.argv[1], auto_offset_reset="none", enable_auto_commit=False, fetch_max_wait_ms=100,
    reconnect_backoff_ms=10, reconnect_backoff_max_ms=100, retry_backoff_ms=10,
)  # fmt: skip
place = TopicPartition("orders", 0)
consumer.assign([place])
consumer.seek(place, 0)
try:
    for record in consumer:
        print(json.dumps([record.offset, record.value.decode()]), flush=True)
except Exception as error:  # noqa: BLE001 (which one it is, is what is asked)
    print(json.dumps(type(error).__name__), flush=True)
