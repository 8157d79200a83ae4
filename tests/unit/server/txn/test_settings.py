"""A broker's properties set for transactions what they set there."""

from __future__ import annotations

import pytest

from server.txn.settings import transactions_of_broker
from server.txn.world import TransactionSettings
from storage.base.errors import ConfigInvalid


def test_without_properties_all_is_at_its_default() -> None:
    assert transactions_of_broker({"group.max.size": "5"}) == TransactionSettings()


def test_each_property_sets_its_own() -> None:
    made = transactions_of_broker({
        "transaction.max.timeout.ms": "1", "transactional.id.expiration.ms": " 2 ",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "4",
    })  # fmt: skip
    assert made == TransactionSettings(1, 2, 3, 4)


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "2147483648"])
def test_what_is_no_number_of_that_kind_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"transaction\.max\.timeout\.ms"):
        transactions_of_broker({"transaction.max.timeout.ms": text})
