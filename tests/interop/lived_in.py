"""The life of one real broker, seeded: load of all kinds while topics, settings and places change, stops and kills.

Beside it stands what an operator wants to be true at any time: `verify` has no alarm for what a healthy broker does.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
from pathlib import Path
from typing import Final

from interop import tiered
from interop.broker_load import CONFIG, Content, Ledger, Load, create_topics, read_all
from interop.kafka_lab import KAFKA, Cluster, is_kraft
from interop.life_changes import DELETED_FROM, RETAINED, TIERED, TURNED, Changes
from interop.test_recover_live_broker import (
    CUTS,
    MORE_CUTS,
    REBUILDS,
    check_readable,
    check_transactions,
    saying,
    start_again,
)
from support.calling import call
from support.waiting import until

SETTINGS: Final = CONFIG | {
    "metadata.log.max.snapshot.interval.ms": "2000",
    "log.retention.check.interval.ms": "700",
    "file.delete.delay.ms": "4000",
    "log.segment.delete.delay.ms": "3000",
    "producer.id.expiration.ms": "5000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}
DEPTHS: Final = ("quick", "full", "records")
STATES: Final = {
    "future": "*-future", "stray": "*-stray", "delete": "*-delete", "cleaned": "*/*.cleaned", "swap": "*/*.swap",
}  # fmt: skip
"""What is under way, by a name for it."""
_PAUSE: Final = 0.05
"""Seconds between two rounds of load: enough for many segments, little enough for many lives on one machine."""


class Life:
    """One broker with two log directories. `ledger` knows what was acknowledged."""

    def __init__(self, cluster: Cluster, seed: int, keep: Path | None = None) -> None:
        """`keep`: a directory in which a log directory is left as it was when `verify` had an alarm."""
        self.cluster, self.broker = cluster, cluster[0]
        self.ledger, self.looks = Ledger(), 0
        self.states: set[str] = set()
        """What a stop or a kill has left of `STATES`."""
        self._seed, self._rng, self._keep = seed, random.Random(seed), keep
        self._rounds = itertools.count()
        without = () if has_tiers(cluster.version) else (TIERED,)
        self.changes = Changes(cluster, self._rng, self.ledger, without)

    def begin(self) -> None:
        """Create the topics that are there all along."""
        create_topics(self.cluster)
        self.changes.begin()

    def round(self, *, kill: bool, changes: int = 4) -> None:
        """Let the broker live for a while under load, look beside it, and end it; it is down afterwards."""
        seed = f"round {next(self._rounds)} {self._rng.random()}"
        load = Load(self.cluster, seed, self.ledger, pause_seconds=_PAUSE)
        load.start()
        try:
            self.changes.fill()
            for change in self._rng.sample(self.changes.kinds(), changes):
                change()
                self.changes.fill()
                self.check_no_alarm(f"beside the running broker after {change.__name__}")
            self._rng.choice(self.changes.last_kinds())()
        finally:
            if kill:
                load.kill()
            else:
                load.end()
                self.broker.stop()
        homes = self.broker.log_dirs
        self.states |= {state for state, names in STATES.items() if any(any(home.glob(names)) for home in homes)}
        if kill:
            self._recover()
        self.check_no_alarm("after the recovery" if kill else "after the clean stop")

    def go_on(self) -> None:
        """Start the broker again: it has nothing to cut and serves all that was promised."""
        printed = start_again(self.broker)
        assert saying(printed, *CUTS, *MORE_CUTS, *REBUILDS) == []
        self.check_no_alarm("just after the start")
        names = tuple(self.ledger.acknowledged)
        contents = read_all(self.cluster, names)
        check_readable(self._promised(contents), contents)
        self._await_transactions()

    def check_no_alarm(self, when: str) -> None:
        """Check that `verify` ends with 0 at every depth, with or without the broker's settings."""
        for depth in DEPTHS:
            settings = self._rng.choice(((), ("--server-properties", self.broker.properties)))
            done = call("verify", "--depth", depth, *(settings or self.broker.log_dirs))
            self.looks += 1
            if done.returncode:
                self._keep_a_copy(f"alarm-{self.looks}")
            alarms = [line for line in done.stdout.splitlines() if not line.startswith("  note ")]
            assert done.returncode == 0, f"{when}, {depth}, {settings}:\n" + "\n".join(alarms) + done.stderr

    def _recover(self) -> None:
        words = self._rng.choice((("--server-properties", self.broker.properties), tuple(self.broker.log_dirs)))
        more = self._rng.choice(((), ("--depth", "full"), ("--clean-marker", "4.3")))
        self._keep_a_copy("killed")
        done = call("recover", *more, *words)
        assert done.returncode == 0, f"{more} {words}\n{done.stdout}{done.stderr}"

    def _keep_a_copy(self, name: str) -> None:
        """Leave a copy of the log directories; the last kill's takes the place of an earlier one."""
        if self._keep is not None:
            place = self._keep / f"seed-{self._seed}" / name
            shutil.rmtree(place, ignore_errors=True)
            with contextlib.suppress(shutil.Error):  # a running broker's files come and go
                shutil.copytree(self.broker.directory, place, symlinks=True)

    def _promised(self, contents: dict[str, dict[int, Content]]) -> dict[str, dict[int, Content]]:
        """Return the acknowledged records that neither a client nor a policy has deleted."""
        promised = {name: dict(records) for name, records in self.ledger.acknowledged.items()}
        first = min(contents[f"{RETAINED}-0"], default=1 << 62)
        for name, start in ((DELETED_FROM, self.changes.deleted_to), (f"{RETAINED}-0", first)):
            promised[name] = {offset: content for offset, content in promised[name].items() if offset >= start}
        turned = promised[f"{TURNED}-0"]
        latest = {key: value for _, (key, value) in sorted(turned.items())}
        promised[f"{TURNED}-0"] = {o: (key, value) for o, (key, value) in turned.items() if latest[key] is not None}
        return promised

    def _await_transactions(self) -> None:
        """Check what a reader of committed records sees: behind a kill the broker has yet to write the last markers."""

        def are_served() -> bool:
            with contextlib.suppress(AssertionError):
                check_transactions(self.ledger, read_all(self.cluster, isolation="read_committed"))
                return True
            return False

        until(are_served, 60)


def has_tiers(version: str) -> bool:
    """Say whether a life of a broker of that version has a tiered topic beside two log directories."""
    return version >= "4."


def has_share_groups(version: str) -> bool:
    """Say whether brokers of that version keep the state of share groups, without being asked to."""
    return tuple(int(part) for part in version.split(".")[:2]) >= (4, 2)


def settings(directory: Path, version: str = KAFKA) -> dict[str, str]:
    """Return the settings of a broker that is to live in `directory`."""
    more = tiered.settings(directory, version) if has_tiers(version) else {}
    if not is_kraft(version):
        more["zookeeper.session.timeout.ms"] = "10000"  # a busy machine is no lost session
    return more | SETTINGS


def live(directory: Path, seed: int, *, version: str = KAFKA, rounds: int = 2, keep: Path | None = None) -> Life:
    """Let a broker live for so many rounds, with a clean stop or a kill behind each; it is stopped at last."""
    with Cluster(directory, version=version, log_dirs=2, config=settings(directory, version)) as cluster:
        life = Life(cluster, seed, keep)
        life.begin()
        if has_share_groups(version):
            life.changes.share()
        for number in range(rounds):
            life.round(kill=number % 2 == (seed // 2) % 2)
            life.go_on()
        life.broker.stop()
        life.check_no_alarm("after the last stop")
    return life
