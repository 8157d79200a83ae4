"""`--heal-from`: fills holes in logs with what replicas have, before anything is cut."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path, PurePath

from cli.settings.targets import absolute
from recovery.apply.execute import Applying, execute
from recovery.heal.epochs import plan_epoch_healing
from recovery.heal.healing import HealNote, plan_healing, recovery_points
from recovery.heal.replica import DirectorySource, Replicas, ReplicaSource
from recovery.plan.orders import Orders
from recovery.plan.plan import LogDirPlan
from storage.base.errors import ConfigInvalid, EnvironmentFault, printable
from storage.base.quantities import Address, parse_address
from storage.disk.fs import Fs, OsFs, ReadFs, ReadOnlyFs


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add where good bytes may be taken from."""
    parser.add_argument(
        "--heal-from",
        action="append",
        default=[],
        metavar="DIR|HOST:PORT|FILE",
        help="fill holes from this log directory of a replica, from the leaders of a live cluster, or from what "
        "`audit plan-heal` wrote into FILE; may be repeated",
    )
    parser.add_argument("--heal-config", metavar="FILE", help="a Kafka client's properties: TLS and SASL for HOST:PORT")


def add_healing(parser: argparse.ArgumentParser) -> None:
    """Add where good bytes may be taken from, and what of them."""
    add_sources(parser)
    parser.add_argument(
        "--heal-uncommitted",
        action="store_true",
        help="take for the end of a log also what is not known to be committed, as far as all replicas named agree",
    )


def replicas_of(arguments: argparse.Namespace, log_dirs: Sequence[PurePath]) -> Replicas:
    """Return what may be taken from which replicas; raises as `sources_of` does, and without any to agree."""
    if arguments.heal_uncommitted and not arguments.heal_from:
        raise ConfigInvalid("--heal-uncommitted takes what replicas agree on: name each with --heal-from")
    return Replicas(sources_of(arguments, log_dirs), uncommitted=arguments.heal_uncommitted)


def sources_of(arguments: argparse.Namespace, log_dirs: Sequence[PurePath]) -> tuple[ReplicaSource, ...]:
    """Return the replicas that were named; `ConfigInvalid` for one that is no directory, or is what is to be healed."""
    if not arguments.heal_from:
        return ()
    fs = ReadOnlyFs(OsFs())
    sources: list[ReplicaSource] = []
    for name in _with_planned(arguments.heal_from, log_dirs):
        place = absolute(name)
        if not place_exists(fs, place) and (address := _address(name)) is not None:
            sources.append(_broker(address, arguments.heal_config))
            continue
        try:
            fs.entries(place)
        except EnvironmentFault as error:
            raise ConfigInvalid(f"--heal-from {printable(name)}: {error}") from None
        if place in log_dirs:
            raise ConfigInvalid(f"--heal-from {printable(name)}: this is the log directory that is to be healed")
        sources.append(DirectorySource(fs, place))
    return tuple(sources)


def _with_planned(names: Sequence[str], log_dirs: Sequence[PurePath]) -> list[str]:
    """Return the names; a file with a plan of the audit is replaced by the log directories that the plan names."""
    found: list[str] = []
    for name in names:
        found += planned_sources(name, log_dirs) if Path(name).is_file() else [name]
    return list(dict.fromkeys(found))


def planned_sources(name: str, log_dirs: Sequence[PurePath]) -> list[str]:
    """Return the log directories from which an audit's plan would heal these; `ConfigInvalid` for no such plan."""
    try:
        plan = json.loads(Path(name).read_bytes())
        if plan["document"] != "heal_plan":
            raise ValueError(plan["document"])
        pairs = [(str(one["log_dir"]), str(one["source"]["log_dir"])) for one in plan["heals"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigInvalid(f"--heal-from {printable(name)}: no plan as `logmend audit plan-heal` writes it") from None
    mine = {str(log_dir) for log_dir in log_dirs}
    return sorted({source for damaged, source in pairs if damaged in mine or not mine})


def place_exists(fs: ReadFs, place: PurePath) -> bool:
    """Tell whether there is anything of this name."""
    try:
        fs.stat(place)
    except EnvironmentFault:
        return False
    return True


def _address(name: str) -> Address | None:
    try:
        return parse_address(name)
    except ValueError:
        return None


def _broker(address: Address, config: str | None) -> ReplicaSource:
    if find_spec("kio") is None or find_spec("scramp") is None:
        raise ConfigInvalid("--heal-from HOST:PORT needs more packages: pip install 'logmend[heal]'")
    from cli.heal.broker_source import BrokerSource  # noqa: PLC0415 (an extra, and half a second of kio)
    from cli.heal.kafka_client import read_client_properties  # noqa: PLC0415 (as above)

    properties = read_client_properties(config) if config else {}
    return BrokerSource(address.host, address.port, properties)


def preview(fs: ReadFs, plan: LogDirPlan, replicas: Replicas) -> tuple[HealNote, ...]:
    """Return what a first round of healing would fill, and what it would not, and why."""
    holes = plan_healing(fs, plan, replicas, recovery_points(fs, plan.log_dir))
    return (*plan_epoch_healing(fs, plan, replicas.sources).notes, *holes.notes)


def heal_round(
    fs: Fs, plan: LogDirPlan, replicas: Replicas, orders: Orders, reporter: Applying
) -> tuple[bool, tuple[HealNote, ...]]:
    """Fill what can be filled of the holes that `plan` found, lost epochs first; tell what came of each.

    Behind what was filled a plan may find more: plan and call it again. Raises as `execute` does, and
    `ReplicaUnusable` for a replica that is gone meanwhile.
    """
    epochs = plan_epoch_healing(fs, plan, replicas.sources)
    if not epochs.plan.is_empty:
        orders = orders._replace(plan_id=epochs.plan.plan_id, created_ms=time.time_ns() // 1_000_000)
        execute(fs, epochs.plan, epochs.contents.__getitem__, orders, reporter)
        _await_later(orders.created_ms)
        return True, tuple(epochs.notes)
    healing = plan_healing(fs, plan, replicas, recovery_points(fs, plan.log_dir))
    if healing.plan.is_empty:
        return False, (*epochs.notes, *healing.notes)
    orders = orders._replace(plan_id=healing.plan.plan_id, created_ms=time.time_ns() // 1_000_000)
    execute(fs, healing.plan, lambda _: b"", orders, reporter, healed=healing.contents)
    _await_later(orders.created_ms)
    return True, tuple(healing.notes)


def _await_later(than_ms: int) -> None:
    """Return in a later millisecond: plans are told apart by their times."""
    while time.time_ns() // 1_000_000 <= than_ms:
        time.sleep(0.001)
