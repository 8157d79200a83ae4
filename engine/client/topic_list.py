"""The topics of log directories as their files are: nothing is locked, recovered or changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from engine.client.view import LogView
from engine.logdir.partitions import read_topic_id
from engine.manager.catalog import Catalog, TopicEntry, merge, read_catalog
from engine.settings.broker_settings import BrokerSettings, read_broker_settings
from engine.settings.options import ManagerOptions
from engine.settings.refusals import UnknownTopic
from storage.base.errors import CorruptData, EnvironmentFault, FileVanished
from storage.base.names import METADATA_TOPIC, parse_directory_name
from storage.base.units import Offset, TopicPartition
from storage.disk.fs import FileKind, ReadFs


class PartitionLook(NamedTuple):
    """One partition. `fault`: why its log cannot be read, empty where it can; `damage`: why it ends early."""

    number: int
    log_dir: PurePath | None
    log_start: Offset = Offset(0)
    log_end: Offset = Offset(0)
    segments: int = 0
    size: int = 0
    fault: str = ""
    damage: str = ""


class TopicLook(NamedTuple):
    """One topic: its id (None: its directories do not tell), what is set for it here and by a broker.

    `is_settled`: its settings are known, so that retention and compaction may work on it.
    """

    name: str
    topic_id: bytes | None
    settings: Mapping[str, str]
    of_broker: Mapping[str, str]
    is_listed: bool
    is_settled: bool
    partitions: tuple[PartitionLook, ...]


def list_topics(fs: ReadFs, log_dirs: Sequence[PurePath], options: ManagerOptions) -> list[TopicLook]:
    """Return the topics in order of their names. Raises `CorruptData` for a list of topics, and `ReadFault`."""
    catalog = merge([read_catalog(fs, log_dir) for log_dir in log_dirs])
    broker = read_broker_settings(fs, log_dirs, options.defaults)
    places: dict[str, dict[int, PurePath]] = {}
    for log_dir in log_dirs:
        for name in _partitions_in(fs, log_dir):
            places.setdefault(name.topic, {}).setdefault(name.partition, log_dir)
    shown = [_look(fs, name, found, catalog, broker, options) for name, found in sorted(places.items())]
    return [topic for topic in shown if topic is not None]


def look_up(topics: Sequence[TopicLook], name: str) -> TopicLook:
    """Return the topic of a name; raises `UnknownTopic`."""
    for topic in topics:
        if topic.name == name:
            return topic
    raise UnknownTopic(name)


def find_partitions(fs: ReadFs, log_dirs: Sequence[PurePath], topic: str) -> dict[int, PurePath]:
    """Return the directories of a topic's partitions by number."""
    return {
        name.partition: log_dir / str(name)
        for log_dir in log_dirs
        for name in _partitions_in(fs, log_dir)
        if name.topic == topic
    }


def _partitions_in(fs: ReadFs, log_dir: PurePath) -> Iterator[TopicPartition]:
    for name, stat in fs.entries(log_dir).items():
        with contextlib.suppress(CorruptData):
            directory = parse_directory_name(name)
            if stat.kind is FileKind.DIRECTORY and directory.state is None:
                yield directory.partition


def _look(
    fs: ReadFs,
    name: str,
    places: Mapping[int, PurePath],
    catalog: Catalog,
    broker: BrokerSettings | None,
    options: ManagerOptions,
) -> TopicLook | None:
    """Return a topic that is on disk, None for the metadata log and for one that is being deleted."""
    topic_id = _topic_id(fs, [log_dir / f"{name}-{number}" for number, log_dir in places.items()])
    listed = catalog.get(name)
    entry = listed if listed is not None and topic_id in (listed.topic_id, None) else None
    if name == METADATA_TOPIC or (entry is not None and entry.deleting):
        return None
    of_broker = None if broker is None else broker.of(name, topic_id)
    numbers = range(_count(places, entry))
    return TopicLook(
        name, topic_id, {} if entry is None else entry.config, of_broker or {}, entry is not None,
        entry is not None or (of_broker is not None and options.knows_broker),
        tuple(_look_at_partition(fs, TopicPartition(name, number), places.get(number)) for number in numbers),
    )  # fmt: skip


def _count(places: Mapping[int, PurePath], entry: TopicEntry | None) -> int:
    return max(max(places) + 1, 0 if entry is None else entry.partitions)


def _topic_id(fs: ReadFs, directories: Sequence[PurePath]) -> bytes | None:
    for directory in directories:
        with contextlib.suppress(CorruptData, EnvironmentFault):
            if (topic_id := read_topic_id(fs, directory)) is not None:
                return topic_id
    return None


def _look_at_partition(fs: ReadFs, name: TopicPartition, log_dir: PurePath | None) -> PartitionLook:
    if log_dir is None:
        return PartitionLook(name.partition, None, fault="no log directory that was named has it")
    try:
        with contextlib.closing(_view(fs, log_dir / str(name))) as view:
            size = sum(segment.size for segment in view.segments)
            numbers = view.log_start, view.log_end, len(view.segments), size
            return PartitionLook(name.partition, log_dir, *numbers, damage=view.damage)
    except (CorruptData, EnvironmentFault) as fault:
        return PartitionLook(name.partition, log_dir, fault=str(fault))


def _view(fs: ReadFs, directory: PurePath) -> LogView:
    try:
        return LogView(fs, directory)
    except FileVanished:  # a running broker has removed a segment meanwhile
        return LogView(fs, directory)
