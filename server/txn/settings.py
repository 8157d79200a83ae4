"""What can be set for transactions, by the names and with the defaults of a broker.

Source: Apache Kafka 4.3.0, TransactionStateManagerConfig.
"""

from __future__ import annotations

from collections.abc import Mapping

from server.txn.world import TransactionSettings
from storage.base.errors import ConfigInvalid, printable
from storage.base.numerals import parse_int64
from storage.base.units import INT32_MAX


def transactions_of_broker(properties: Mapping[str, str]) -> TransactionSettings:
    """Return the settings that a broker's properties set; the others are at their defaults. Raises `ConfigInvalid`."""
    plain = TransactionSettings()

    def of(name: str, default: int) -> int:
        if name not in properties:
            return default
        number = parse_int64(properties[name].strip())
        if number is None or not 1 <= number <= INT32_MAX:
            raise ConfigInvalid(f"{name}: {printable(properties[name])} is no whole number from 1 to {INT32_MAX}")
        return number

    return TransactionSettings(
        of("transaction.max.timeout.ms", plain.max_timeout_ms),
        of("transactional.id.expiration.ms", plain.id_expiration_ms),
        of("transaction.abort.timed.out.transaction.cleanup.interval.ms", plain.abort_interval_ms),
        of("transaction.remove.expired.transaction.cleanup.interval.ms", plain.expiration_interval_ms),
    )
