"""Topics of a broker have the settings that its metadata log gives them; ours count before these."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import pytest
from golden.golden import extract
from support.managers import NOW, options

from engine.client.explaining import explain
from engine.manager.manager import LogManager
from engine.manager.topics import Topic
from engine.settings.broker_settings import BrokerSettings, read_broker_settings
from storage.base.config import LogConfig
from storage.batch.kraft_image import ALL_BROKERS, MetadataImage
from storage.disk.fs import OsFs

YEAR_MS = 366 * 24 * 3_600_000


def log_dir_of(name: str, tmp_path: Path) -> PurePath:
    """Return a log directory that a broker left, with its metadata log."""
    return PurePath(extract(name, tmp_path) / "0" / "data")


def opened(log_dir: PurePath, **more: Any) -> LogManager:
    return LogManager.open(OsFs(), [log_dir], NOW, options(**more))


def topic(log_dir: PurePath, name: str, **more: Any) -> Topic:
    with opened(log_dir, **more) as manager:
        return manager.topics.get(name)


def test_a_compacted_topic_of_a_broker_is_compacted_as_the_broker_would(tmp_path: Path) -> None:
    log_dir = log_dir_of("compacted", tmp_path)
    found = topic(log_dir, "profiles", knows_broker=True)
    assert found.is_settled
    assert found.entry is None
    assert found.of_broker == {
        "cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "3000", "internal.segment.bytes": "65536",
    }  # fmt: skip
    assert (found.config.is_compacted, found.config.delete_retention_ms) == (True, 3000)


def test_retention_goes_by_the_settings_of_the_broker_once_its_defaults_are_known(tmp_path: Path) -> None:
    log_dir = log_dir_of("retained", tmp_path)
    with opened(log_dir) as manager:
        before = {str(p.name): p.log.size for _, p in manager.partitions() if p.name.topic == "clicks"}
        assert max(before.values()) > 200_000
        assert not manager.topics.get("clicks").is_settled
        assert manager.retain(NOW + 10 * YEAR_MS) == []
        assert {str(p.name): p.log.size for _, p in manager.partitions() if p.name.topic == "clicks"} == before
    defaults = LogConfig(retention_ms=-1)
    with opened(log_dir, knows_broker=True, defaults=defaults) as manager:
        assert manager.retain(NOW + 10 * YEAR_MS) == []
        after = {str(p.name): p.log.size for _, p in manager.partitions() if p.name.topic == "clicks"}
    assert max(after.values()) < 200_000 + 65_536
    assert min(after.values()) > 0


def test_what_we_set_counts_before_what_the_broker_set_and_leaves_the_rest_of_it(tmp_path: Path) -> None:
    log_dir = log_dir_of("compacted", tmp_path)
    with opened(log_dir) as manager:
        manager.topics.alter("profiles", NOW, settings={"segment.ms": "777"})
    found = topic(log_dir, "profiles")
    assert (found.config.segment_ms, found.config.is_compacted) == (777, True)
    assert found.is_settled
    with opened(log_dir) as manager:
        manager.topics.alter("profiles", NOW, unset=["segment.ms"])
        assert manager.topics.get("profiles").config.segment_ms == 1000


def test_another_topic_of_that_name_has_none_of_it(tmp_path: Path) -> None:
    log_dir = log_dir_of("compacted", tmp_path)
    with opened(log_dir) as manager:
        manager.topics.delete("profiles", NOW)
        manager.topics.create("profiles", 1, {}, NOW)
    found = topic(log_dir, "profiles", knows_broker=True)
    assert (found.of_broker, found.config.is_compacted) == ({}, False)


def test_without_a_metadata_log_nothing_is_known(tmp_path: Path) -> None:
    log_dir = PurePath(extract("kafka-2.8", tmp_path) / "0" / "data")
    assert read_broker_settings(OsFs(), [log_dir], LogConfig()) is None


def test_an_explanation_shows_the_settings_of_the_broker(tmp_path: Path) -> None:
    log_dir = log_dir_of("compacted", tmp_path)
    found = explain(OsFs(), log_dir / "profiles-0", LogConfig(), NOW)
    assert found.is_listed
    assert found.config.cleanup_policy == ("compact",)


def defaults(monkeypatch: pytest.MonkeyPatch, configs: Mapping[str, dict[str, str]], node: int | None) -> LogConfig:
    image = MetadataImage(broker_configs=dict(configs))
    monkeypatch.setattr("engine.settings.broker_settings.read_metadata", lambda *_: image)
    monkeypatch.setattr("engine.settings.broker_settings._node_of", lambda *_: None if node is None else str(node))
    found = read_broker_settings(OsFs(), [], LogConfig(retention_ms=1, retention_bytes=1, segment_ms=1))
    assert found is not None
    return found.defaults


def test_settings_of_one_broker_count_before_those_of_all_and_both_before_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configs = {
        ALL_BROKERS: {"log.retention.ms": "2", "log.retention.bytes": "2", "max.connections": "9"},
        "3": {"log.retention.bytes": "3"},
    }
    found = defaults(monkeypatch, configs, 3)
    assert (found.retention_ms, found.retention_bytes, found.segment_ms) == (2, 3, 1)
    assert defaults(monkeypatch, configs, None).retention_bytes == 2


def test_settings_that_only_a_newer_broker_knows_are_left_out() -> None:
    image = MetadataImage({"t": b"id"}, {"t": {"retention.ms": "5", "of.tomorrow": "1", "cleanup.policy": "shred"}})
    assert BrokerSettings(LogConfig(), image).of("t", b"id") == {"retention.ms": "5"}
    assert BrokerSettings(LogConfig(), image).of("t", None) is None
