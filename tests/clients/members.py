"""Members of a group, one driver each, and waiting until they have what they should."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

from clients.running import Driver
from support.waiting import until

PATIENCE_SECONDS: Final = 120.0


class Member:
    """A consumer of a group that reads all the time."""

    def __init__(self, driver: Driver, group: str, topic: str, strategy: str, **more: Any) -> None:
        self.driver = driver
        driver.ask("join", group=group, topic=topic, strategy=strategy, **more)

    @property
    def state(self) -> dict[str, Any]:
        """What it has now; that it has failed is an error."""
        told = dict(self.driver.ask("state"))
        assert not told["error"], f"{self.driver.name}: {told['error']}\n{self.driver.said()}"
        return told

    def assigned(self) -> list[int]:
        return sorted(map(int, self.state["assigned"]))

    def values(self) -> list[str]:
        """Return the values that it has read, in the order of each partition."""
        return [value for found in self.state["records"].values() for _, value in found]

    def leave(self) -> None:
        self.driver.ask("leave")


def wait_for_shares(members: Sequence[Member], shares: Iterable[int]) -> None:
    """Wait until the members have all partitions among them, and so many each; the order does not matter."""
    wanted = sorted(shares)

    def holds() -> bool:
        assigned = [member.assigned() for member in members]
        return sorted(map(len, assigned)) == wanted and sorted(itertools.chain(*assigned)) == list(range(sum(wanted)))

    until(holds, PATIENCE_SECONDS, say=lambda: [(member.driver.name, member.assigned()) for member in members])


def wait_for_values(members: Sequence[Member], values: Iterable[str]) -> None:
    """Wait until each of these was read by one of the members."""
    wanted = set(values)

    def missing() -> set[str]:
        return wanted - {value for member in members for value in member.values()}

    until(lambda: not missing(), PATIENCE_SECONDS, say=lambda: f"never read: {sorted(missing())[:20]}")
