"""Clients that are commands: kcat, and the tools that come with Kafka."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any, Final

from clients.running import java_command

COMMAND_SECONDS: Final = 150.0
TOOLS: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
}
"""The classes behind the scripts of Kafka's `bin`."""


def run(words: Sequence[str], *, given: str = "", status: int = 0) -> str:
    """Return what a command prints; that it ends otherwise than with `status` fails, with what it said."""
    done = subprocess.run(
        words, input=given, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False, errors="replace"
    )
    assert done.returncode == status, (
        f"{words} ended with {done.returncode}:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    )
    return done.stdout


def tool(name: str, *words: str, bootstrap: str, given: str = "", status: int = 0) -> str:
    """Return what one of Kafka's tools prints."""
    return run([*java_command(), TOOLS[name], "--bootstrap-server", bootstrap, *words], given=given, status=status)


def json_lines(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects among the lines."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
