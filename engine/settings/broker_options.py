"""From a broker's `server.properties` to how a log manager works: intervals, the cleaner's means, forgotten producers.

What concerns one log at a time is in `storage.base.config`. Source: Apache Kafka 4.3.0, ServerLogConfigs,
CleanerConfig, TransactionLogConfig, ReplicationConfigs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from engine.settings.options import ManagerOptions
from storage.base.config import LogConfig
from storage.base.errors import ConfigInvalid, printable
from storage.base.numerals import parse_int64
from storage.base.units import INT32_MAX

_INTERVALS: Final = {
    "log.flush.offset.checkpoint.interval.ms": "recovery_points_ms",
    "log.flush.start.offset.checkpoint.interval.ms": "log_starts_ms",
    "replica.high.watermark.checkpoint.interval.ms": "high_watermarks_ms",
    "log.retention.check.interval.ms": "retention_ms",
    "log.cleaner.backoff.ms": "compaction_ms",
    "producer.id.expiration.check.interval.ms": "producers_ms",
}
_LEAST_MEMORY: Final = (1 << 20) + 1
_NO_LIMIT: Final = 1e15


def options_of_broker(
    options: ManagerOptions, properties: Mapping[str, str], sleep: Callable[[float], object]
) -> ManagerOptions:
    """Return `options` as a broker with these properties has them; what these do not set stays.

    `sleep` waits so many seconds: it holds the cleaner to its bytes a second. Raises `ConfigInvalid`.
    """
    intervals = {
        attribute: _whole(name, properties[name], 0)
        for name, attribute in _INTERVALS.items() if name in properties
    }  # fmt: skip
    changes: dict[str, object] = {
        "defaults": LogConfig.of_broker(properties),
        "knows_broker": True,
        "intervals": replace(options.intervals, **intervals),
    }
    if (name := "producer.id.expiration.ms") in properties:
        changes["producer_expiration_ms"] = _whole(name, properties[name], 1)
    if (name := "log.cleaner.dedupe.buffer.size") in properties:
        changes["cleaner_memory_bytes"] = min(_whole(name, properties[name], _LEAST_MEMORY), INT32_MAX)
    if properties.get("log.cleaner.enable", "true").strip().lower() == "false":
        changes["compacts"] = False
    rate = _rate(properties.get("log.cleaner.io.max.bytes.per.second"))
    if rate < _NO_LIMIT:
        changes["cleaner_throttle"] = lambda size: sleep(size / rate)
    return replace(options, **changes)  # type: ignore[arg-type]


def _whole(name: str, text: str, least: int) -> int:
    number = parse_int64(text.strip())
    if number is None or number < least:
        raise ConfigInvalid(f"{name}: {printable(text)} is no whole number from {least}")
    return number


def _rate(text: str | None) -> float:
    """Return bytes a second."""
    if text is None:
        return _NO_LIMIT
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not rate > 0:
        raise ConfigInvalid(f"log.cleaner.io.max.bytes.per.second: {printable(text)} is no number above 0")
    return rate
