"""The settings that a broker had, out of its metadata log as it lies in a log directory: of topics, and of the broker.

What is set for a topic counts before what is set for the broker, that before what is set for all brokers; the rest of
what a broker goes by stands in its `server.properties`. Source: Apache Kafka 4.3.0, ConfigurationsImage,
DynamicBrokerConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from engine.settings.identity import read_identity
from recovery.kraft.topic_ids import read_metadata
from storage.base.config import LogConfig
from storage.base.errors import ConfigInvalid, CorruptData, ReadFault
from storage.batch.kraft_image import ALL_BROKERS, MetadataImage
from storage.disk.fs import ReadFs


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What a metadata log says; `defaults` are those that it was read with, and what is set for the broker."""

    defaults: LogConfig
    image: MetadataImage

    def of(self, topic: str, topic_id: bytes | None) -> Mapping[str, str] | None:
        """Return the settings of a topic, None for one that is not known, or is another one of that name.

        What this version of Kafka's settings does not know is left out: a newer broker may have more.
        """
        if topic_id is None or self.image.topic_ids.get(topic) != topic_id:
            return None
        settings = self.image.topic_configs.get(topic, {})
        return {name: value for name, value in settings.items() if _is_usable(name, value)}


def _is_usable(name: str, value: str) -> bool:
    try:
        LogConfig.from_properties({name: value})
    except ConfigInvalid:
        return False
    return True


def read_broker_settings(fs: ReadFs, log_dirs: Iterable[PurePath], defaults: LogConfig) -> BrokerSettings | None:
    """Return what the metadata log in one of `log_dirs` says, None if there is none that can be read."""
    places = tuple(log_dirs)
    image = read_metadata(fs, places)
    if image is None:
        return None
    for broker in (ALL_BROKERS, _node_of(fs, places)):
        if broker is not None:
            defaults = _with_dynamic(image.broker_configs.get(broker, {}), defaults)
    return BrokerSettings(defaults, image)


def _node_of(fs: ReadFs, log_dirs: Iterable[PurePath]) -> str | None:
    for log_dir in log_dirs:
        try:
            identity = read_identity(fs, log_dir)
        except (CorruptData, ReadFault):
            continue
        if identity is not None:
            return str(identity.node_id)
    return None


def _with_dynamic(settings: Mapping[str, str], defaults: LogConfig) -> LogConfig:
    try:
        return LogConfig.of_broker(settings, defaults)
    except ConfigInvalid:  # of a newer broker; one that takes these is not this one
        return defaults
