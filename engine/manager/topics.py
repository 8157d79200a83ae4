"""The topics of the open log directories: made, listed, altered and deleted.

A change is written to the list of every log directory before the directories follow, so that the next opening finishes
what a crash interrupts. Topics that are on disk but not in the list are a broker's. Their settings are those in its
metadata log, where that can be read, and what the list says of them counts before. Unless both these and the broker's
own defaults are known, nothing of theirs is deleted or compacted: no setting asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import PurePath

from engine.logdir.log_dir import LogDir
from engine.logdir.partitions import ensure_new_topic_name, make_partition, place_partitions, read_topic_id
from engine.manager.catalog import FILE_NAME as CATALOG
from engine.manager.catalog import Catalog, TopicEntry, merge, read_catalog, write_catalog
from engine.settings.broker_settings import BrokerSettings, read_broker_settings
from engine.settings.identity import is_absent
from engine.settings.options import ManagerOptions
from engine.settings.refusals import NoLogDir, PartitionOffline, TopicExists, UnknownTopic
from storage.base.config import LogConfig
from storage.base.errors import ConfigInvalid, CorruptData, EnvironmentFault
from storage.base.names import DirectoryName
from storage.base.refusals import LogUnusable
from storage.base.units import TopicPartition
from storage.disk.fs import Fs


@dataclass(slots=True)
class Topic:
    """A topic: its id (None: its directories do not tell), settings as given, and where its partitions are.

    `partitions`: the number it was given, else that of the directories. `config` are all settings in force;
    `is_settled`: by them records may be deleted and compacted.
    """

    name: str
    topic_id: bytes | None
    partitions: int
    config: LogConfig
    entry: TopicEntry | None = None
    of_broker: Mapping[str, str] = field(default_factory=dict)
    """What a broker has set for it."""
    is_settled: bool = True
    places: dict[int, PurePath] = field(default_factory=dict)
    """Of the partitions that are there."""

    @property
    def settings(self) -> Mapping[str, str]:
        """What was set for this topic, by Kafka's names."""
        return {} if self.entry is None else self.entry.config


class Topics:
    """All topics. `fenced` takes a log directory offline when the disk fails on it."""

    def __init__(
        self,
        fs: Fs,
        log_dirs: Sequence[LogDir],
        options: ManagerOptions,
        fenced: Callable[[LogDir], AbstractContextManager[None]],
    ) -> None:
        self._fs, self._log_dirs, self._options, self._fenced = fs, log_dirs, options, fenced
        self._topics: dict[str, Topic] = {}
        self._entries: Catalog = {}
        self._broker: BrokerSettings | None = None
        self.revision = 0
        """Rises with each change."""

    def get(self, name: str) -> Topic:
        """Return a topic; raises `UnknownTopic`."""
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopic(name) from None

    def all(self) -> list[Topic]:
        """Return all topics in order of their names."""
        return [topic for _, topic in sorted(self._topics.items())]

    # ---- loading

    def read_lists(self) -> None:
        """Read the lists of all log directories; nothing is changed.

        Raises `CorruptData` if none can be read: by the defaults, what is to be compacted would be deleted. And
        `ConfigInvalid` for a setting.
        """
        catalogs: list[Catalog] = []
        bad: list[CorruptData] = []

        def read(log_dir: LogDir) -> None:
            try:
                catalogs.append(read_catalog(self._fs, log_dir.path))
            except CorruptData as fault:
                bad.append(fault)

        self._in_each(read)
        self._entries = merge(catalogs)
        if bad and not self._entries:
            raise bad[0]
        for entry in self._entries.values():
            self._config(entry.config)
        self._broker = read_broker_settings(
            self._fs, [log_dir.path for log_dir in self._online()], self._options.defaults
        )

    def load(self, now_ms: int) -> None:
        """Finish what a crash interrupted, and open every partition. Raises `CorruptData` where no recovery looked.

        A log directory without a list gets one: it is ours from now on.
        """
        self._finish_deletions(now_ms)
        self._finish_making()
        self._in_each(lambda log_dir: self._open_all(log_dir, now_ms))
        unfinished = [entry for entry in self._entries.values() if entry.making]
        if unfinished:
            self._entries |= {entry.topic: entry.changed(making={}) for entry in unfinished}
            self._in_each(self._write_list)
        self._in_each(self._mark)
        for topic in self._topics.values():
            topic.entry = self._entry_for(topic.name, topic.topic_id)

    def _mark(self, log_dir: LogDir) -> None:
        if is_absent(self._fs, log_dir.path / CATALOG):
            self._write_list(log_dir)

    def _online(self) -> list[LogDir]:
        return [log_dir for log_dir in self._log_dirs if log_dir.offline is None]

    def _in_each(self, work: Callable[[LogDir], object]) -> None:
        """Do `work` in each log directory; where the disk fails, that one goes offline alone."""
        for log_dir in self._online():
            try:
                work(log_dir)
            except (EnvironmentFault, LogUnusable) as fault:
                log_dir.go_offline(str(fault))

    def _open_all(self, log_dir: LogDir, now_ms: int) -> None:
        for directory, topic_id in list(self._directories(log_dir)):
            self._open(log_dir, directory, topic_id, now_ms)

    def _directories(self, log_dir: LogDir) -> Iterable[tuple[DirectoryName, bytes | None]]:
        for directory in log_dir.directories():
            if directory.state is None:
                yield directory, read_topic_id(self._fs, log_dir.path / directory.name)

    def _finish_deletions(self, now_ms: int) -> None:
        for entry in [entry for entry in self._entries.values() if entry.deleting]:

            def delete(log_dir: LogDir, entry: TopicEntry = entry) -> None:
                found = [(d.partition, topic_id) for d, topic_id in self._directories(log_dir)]
                gone = [name for name, topic_id in found if name.topic == entry.topic]
                if all(topic_id in (entry.topic_id, None) for name, topic_id in found if name.topic == entry.topic):
                    log_dir.delete(gone, now_ms)

            self._in_each(delete)
            del self._entries[entry.topic]
            self._in_each(self._write_list)

    def _finish_making(self) -> None:
        there: set[TopicPartition] = set()
        self._in_each(lambda log_dir: there.update(d.partition for d in log_dir.directories() if d.state is None))

        def make(log_dir: LogDir) -> None:
            for entry in self._entries.values():
                for number, place in entry.making.items():
                    name = TopicPartition(entry.topic, number)
                    # Not in another directory than was meant: it may be there already, and would lie in two.
                    is_here = place == str(log_dir.path) or len(self._log_dirs) == 1
                    if is_here and name not in there:
                        make_partition(self._fs, log_dir.path, name, entry.topic_id, self._options.draw_id())

        self._in_each(make)

    def _entry_for(self, topic: str, topic_id: bytes | None) -> TopicEntry | None:
        """Return the entry of a topic, None if it is about another topic of that name."""
        entry = self._entries.get(topic)
        return entry if entry is not None and topic_id in (entry.topic_id, None) else None

    def _open(self, log_dir: LogDir, directory: DirectoryName, topic_id: bytes | None, now_ms: int) -> None:
        name = directory.partition
        entry = self._entry_for(name.topic, topic_id)
        topic = self._topics.get(name.topic)
        if topic is None:
            topic = self._found(name.topic, topic_id, entry)
            self._topics[name.topic] = topic
        log_dir.open_partition(directory.name, topic.config, now_ms, has_settings=topic.is_settled)
        topic.places[name.partition] = log_dir.path
        topic.partitions = max(topic.partitions, name.partition + 1)

    def _found(self, name: str, topic_id: bytes | None, entry: TopicEntry | None) -> Topic:
        """Return a topic that is on disk."""
        of_broker = None if self._broker is None else self._broker.of(name, topic_id)
        settings = {} if entry is None else entry.config
        return Topic(
            name, topic_id, 0 if entry is None else entry.partitions, self._config(settings, of_broker), entry,
            of_broker or {}, entry is not None or (of_broker is not None and self._options.knows_broker),
        )  # fmt: skip

    def _config(self, settings: Mapping[str, str], of_broker: Mapping[str, str] | None = None) -> LogConfig:
        """Return the settings in force: ours, then those of a broker's topic, then the defaults."""
        defaults = self._options.defaults if self._broker is None else self._broker.defaults
        return LogConfig.from_properties({**(of_broker or {}), **settings}, defaults)

    # ---- changing

    def judge(self, settings: Mapping[str, str]) -> LogConfig:
        """Return the settings that a new topic with these would have; raises `ConfigInvalid`."""
        return self._config(settings)

    def create(self, name: str, partitions: int, settings: Mapping[str, str], now_ms: int) -> Topic:
        """Make a topic, durably; each partition goes where the fewest are by then.

        Raises `TopicExists`, `ConfigInvalid` for a name, a number or a setting, and `WriteFault`; what is half done
        then is finished by the next opening.
        """
        ensure_new_topic_name(name)
        if name in self._topics:
            raise TopicExists(name)
        if partitions < 1:
            raise ConfigInvalid(f"{partitions} partitions: one is the least")
        config = self._config(settings)
        before = self._entries.get(name)
        # Above what a log directory that is away may still list of an older topic of that name.
        revision = max(now_ms, 1 if before is None else before.revision + 1)
        entry = TopicEntry(name, self._options.draw_id(), partitions, dict(settings), revision)
        topic = Topic(name, entry.topic_id, partitions, config, entry)
        self._make(topic, range(partitions), entry, now_ms)
        self._topics[name] = topic
        return topic

    def _make(self, topic: Topic, numbers: range, entry: TopicEntry, now_ms: int) -> None:
        places = place_partitions(numbers, self._counts())
        entry = entry.changed(making={number: str(place) for number, place in places.items()})
        self._write_lists([entry])
        by_path = {log_dir.path: log_dir for log_dir in self._log_dirs}
        for number, place in places.items():
            name, log_dir = TopicPartition(topic.name, number), by_path[place]
            with self._fenced(log_dir):
                make_partition(self._fs, place, name, entry.topic_id, self._options.draw_id())
                log_dir.open_partition(str(name), topic.config, now_ms, has_settings=True)
            topic.places[number] = place
        topic.entry = entry.changed(making={})
        self._write_lists([topic.entry])

    def _counts(self) -> dict[PurePath, int]:
        counts = {log_dir.path: len(log_dir.partitions) for log_dir in self._online()}
        if not counts:
            raise NoLogDir({log_dir.path: (log_dir.offline or "", log_dir.status) for log_dir in self._log_dirs})
        return counts

    def _write_lists(self, changed: Iterable[TopicEntry]) -> None:
        """Write the list to every log directory; one that is offline is brought up to date when it is opened again."""
        self.revision += 1
        self._entries |= {entry.topic: entry for entry in changed}
        for log_dir in self._online():
            with self._fenced(log_dir):
                self._write_list(log_dir)

    def _write_list(self, log_dir: LogDir) -> None:
        write_catalog(self._fs, log_dir.path, self._entries)

    def alter(
        self,
        name: str,
        now_ms: int,
        *,
        partitions: int | None = None,
        settings: Mapping[str, str] | None = None,
        unset: Iterable[str] = (),
    ) -> Topic:
        """Change settings, in force at once, and add partitions up to a number; durable when this returns.

        Raises `UnknownTopic`, `ConfigInvalid`, and `WriteFault`.
        """
        topic = self.get(name)
        if partitions is not None and partitions <= topic.partitions:
            raise ConfigInvalid(f"topic {name} has {topic.partitions} partitions; their number can only grow")
        wanted = {key: value for key, value in {**topic.settings, **(settings or {})}.items() if key not in {*unset}}
        config = self._config(wanted, topic.of_broker)
        entry = topic.entry or TopicEntry(name, topic.topic_id or self._options.draw_id(), topic.partitions)
        entry = entry.changed(config=wanted)
        self._write_lists([entry])
        topic.entry, topic.config, topic.is_settled = entry, config, True
        for log_dir in self._online():
            for partition in log_dir:
                if partition.name.topic == name:
                    partition.log.config, partition.has_settings = config, True
        if partitions is not None:
            before, topic.partitions = topic.partitions, partitions
            self._make(topic, range(before, partitions), entry.changed(partitions=partitions), now_ms)
        return topic

    def delete(self, name: str, now_ms: int) -> None:
        """Delete a topic: its directories are put out of the way at once, and removed after the delay.

        Raises `UnknownTopic`, `PartitionOffline` if one of its log directories is offline, and `WriteFault`.
        """
        topic = self.get(name)
        for log_dir in self._log_dirs:
            if log_dir.offline is not None and log_dir.path in topic.places.values():
                number = next(n for n, place in topic.places.items() if place == log_dir.path)
                raise PartitionOffline(TopicPartition(name, number), log_dir.offline)
        entry = topic.entry or TopicEntry(name, topic.topic_id or self._options.draw_id(), topic.partitions)
        self._write_lists([entry.changed(deleting=True)])
        for log_dir in self._online():
            with self._fenced(log_dir):
                log_dir.delete([p.name for p in log_dir if p.name.topic == name], now_ms)
        del self._topics[name], self._entries[name]
        self._write_lists(())
