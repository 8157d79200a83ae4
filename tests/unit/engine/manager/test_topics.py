"""Topics are made, altered and deleted; a crash in the middle is finished by the next opening."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from support.managers import NOW, P0, SMALL, A, B, append, open_manager, values
from support.memory_fs import Crashed, MemoryFs

from checkpoint.offsets import LOG_START_OFFSETS, RECOVERY_POINTS, decode_offsets
from engine.logdir.partitions import read_topic_id
from engine.manager.catalog import FILE_NAME, decode_catalog, encode_catalog
from engine.manager.manager import LogManager
from engine.settings.refusals import TopicExists, UnknownTopic
from storage.base.errors import CheckpointCorrupt, ConfigInvalid
from storage.base.names import DirectoryState, parse_directory_name
from storage.base.units import TopicPartition


def disk() -> MemoryFs:
    return MemoryFs({"/a/": b"", "/b/": b""})


def live(fs: MemoryFs, *log_dirs: str) -> list[str]:
    """Return the directories of live partitions."""
    entries = [name for log_dir in log_dirs or ("/a", "/b") for name in fs.entries(A.parent / log_dir)]
    parsed = [parse_directory_name(name) for name in entries if "-" in name and "." not in name.rpartition("-")[2]
              and not name.endswith(("-checkpoint", ".json"))]  # fmt: skip
    return sorted(directory.name for directory in parsed if directory.state is None)


def test_partitions_go_where_the_fewest_are_and_all_have_the_id_of_the_topic() -> None:
    fs = disk()
    with open_manager(fs, [A, B]) as manager:
        manager.topics.create("clicks", 1, {}, NOW)
        topic = manager.topics.create("orders", 3, {}, NOW)
        assert topic.places == {0: B, 1: A, 2: B}
        assert {read_topic_id(fs, place / f"orders-{n}") for n, place in topic.places.items()} == {topic.topic_id}


def test_settings_are_in_force_at_once_and_after_the_next_opening() -> None:
    fs = disk()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {"retention.ms": "5", "segment.bytes": "2000000"}, NOW)
        manager.topics.alter("orders", NOW, settings={"retention.ms": "6"}, unset=["segment.bytes"])
        assert manager.log(P0).config.retention_ms == 6
        assert manager.log(P0).config.segment_bytes == 1 << 30
    with open_manager(fs) as manager:
        assert manager.topics.get("orders").settings == {"retention.ms": "6"}
        assert manager.log(P0).config.retention_ms == 6


def test_partitions_can_be_added_and_never_taken_away() -> None:
    fs = disk()
    with open_manager(fs, [A, B]) as manager:
        manager.topics.create("orders", 1, SMALL, NOW)
        append(manager, "a")
        manager.topics.alter("orders", NOW, partitions=3)
        assert manager.log(TopicPartition("orders", 2)).config.max_segment_bytes == 200
        for number in (3, 2):
            with pytest.raises(ConfigInvalid, match="can only grow"):
                manager.topics.alter("orders", NOW, partitions=number)
    with open_manager(fs, [A, B]) as manager:
        assert manager.topics.get("orders").partitions == 3
        assert values(manager) == ["a"]


@pytest.mark.parametrize(
    ("name", "partitions", "settings"),
    [("a/b", 1, {}), ("orders", 0, {}), ("orders", 1, {"retention.mss": "1"}), ("orders", 1, {"retention.ms": "x"})],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    name: str, partitions: int, settings: dict[str, str]
) -> None:
    fs = disk()
    with open_manager(fs) as manager:
        before = fs.effects
        with pytest.raises(ConfigInvalid):
            manager.topics.create(name, partitions, settings, NOW)
        assert fs.effects == before
        assert manager.topics.all() == []


def test_a_topic_is_made_once_and_one_that_is_not_there_is_named() -> None:
    manager = open_manager(disk())
    manager.topics.create("orders", 1, {}, NOW)
    with pytest.raises(TopicExists, match="orders"):
        manager.topics.create("orders", 1, {}, NOW)
    for call in (manager.topics.get, lambda name: manager.topics.delete(name, NOW)):
        with pytest.raises(UnknownTopic, match="clicks"):
            call("clicks")


def test_a_deleted_topic_is_gone_at_once_and_its_files_after_the_delay() -> None:
    fs = disk()
    manager = open_manager(fs, [A, B])
    manager.topics.create("orders", 2, {}, NOW)
    append(manager, "a")
    manager.log_dirs[0].write_recovery_points()
    manager.topics.delete("orders", NOW)
    assert live(fs) == []
    assert decode_offsets(fs.contents("/a")[RECOVERY_POINTS]) == {}
    assert decode_offsets(fs.contents("/a")[LOG_START_OFFSETS]) == {}
    assert decode_catalog(fs.contents("/b")[FILE_NAME]) == {}
    manager.run_due(NOW + 59_999)
    assert [parse_directory_name(n).state for n in fs.entries(A) if "orders" in n] == [DirectoryState.DELETE]
    manager.run_due(NOW + 61_000)
    assert [name for log_dir in (A, B) for name in fs.entries(log_dir) if "orders" in name] == []


def test_a_deletion_that_was_waiting_goes_on_after_the_next_opening() -> None:
    fs = disk()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {}, NOW)
        manager.topics.delete("orders", NOW)
    manager = open_manager(fs, now_ms=NOW + 100)
    manager.run_due(NOW + 61_100)
    assert [name for name in fs.entries(A) if "orders" in name] == []


def test_what_has_waited_long_enough_by_the_next_opening_goes_with_it() -> None:
    fs = disk()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {}, NOW)
        manager.topics.delete("orders", NOW)
    open_manager(fs, now_ms=NOW + 59_999).close()
    assert [name for name in fs.entries(A) if "orders" in name] != []
    open_manager(fs, now_ms=NOW + 60_000).close()
    assert [name for name in fs.entries(A) if "orders" in name] == []


def test_a_topic_made_anew_has_another_id_and_nothing_of_the_old_one() -> None:
    fs = disk()
    with open_manager(fs) as manager:
        first = manager.topics.create("orders", 1, {"retention.ms": "5"}, NOW).topic_id
        append(manager, "a")
        manager.topics.delete("orders", NOW)
        assert manager.topics.create("orders", 1, {}, NOW).topic_id != first
        assert values(manager) == []
    with open_manager(fs) as manager:
        assert manager.topics.get("orders").settings == {}


def test_a_list_that_was_away_does_not_bring_back_an_older_topic_of_that_name() -> None:
    fs = disk()
    with open_manager(fs, [B, A]) as manager:
        manager.topics.create("orders", 1, {"retention.ms": "5"}, NOW)
        for number in range(5):
            manager.topics.alter("orders", NOW, settings={"retention.ms": str(number)})
    stale = fs.contents("/a")[FILE_NAME]
    with open_manager(fs, [B]) as manager:
        manager.topics.delete("orders", NOW)
        manager.topics.create("orders", 1, {"retention.ms": "77"}, NOW + 1000)
    assert fs.contents("/a")[FILE_NAME] == stale
    with open_manager(fs, [B, A]) as manager:
        assert manager.topics.get("orders").settings == {"retention.ms": "77"}


def test_settings_of_another_topic_of_that_name_are_not_taken() -> None:
    """Where a broker has deleted the topic and made a new one meanwhile."""
    fs = disk()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {"retention.ms": "5"}, NOW)
    listed = decode_catalog(fs.contents("/a")[FILE_NAME])
    fs.remove(A / FILE_NAME)
    other = {"orders": listed["orders"].changed(topic_id=b"another one 1234")}
    with fs.create(A / FILE_NAME) as file:
        file.append(encode_catalog(other))
    with open_manager(fs) as manager:
        assert manager.topics.get("orders").settings == {}
        assert not manager.partition(P0).has_settings


def test_a_list_that_is_lost_in_one_log_directory_is_taken_from_the_other() -> None:
    fs = disk()
    with open_manager(fs, [A, B]) as manager:
        manager.topics.create("orders", 2, {"retention.ms": "5"}, NOW)
    fs.truncate(A / FILE_NAME, 10)
    with open_manager(fs, [A, B]) as manager:
        assert manager.topics.get("orders").settings == {"retention.ms": "5"}


def test_without_any_list_that_can_be_read_nothing_is_opened_and_nothing_changed() -> None:
    fs = disk()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {"retention.ms": "5"}, NOW)
    fs.truncate(A / FILE_NAME, 10)
    before = fs.contents("/a")
    with pytest.raises(CheckpointCorrupt, match=FILE_NAME):
        open_manager(fs)
    assert fs.contents("/a") == before


# ---- crashes


def every_crash(act: Callable[[LogManager], object], *, with_topic: bool) -> Iterator[tuple[MemoryFs, int]]:
    """Yield what crashes of an action may leave, each with the number of the effect before which it died."""
    rng = random.Random(0)
    for effect in itertools.count(1):
        fs = make_disk(with_topic=with_topic)
        manager = open_manager(fs, [A, B])
        fs.stop_before(fs.effects + effect)
        try:
            act(manager)
        except Crashed:
            states, _ = fs.some_crash_states(8, rng)
            yield from ((state.to_fs(fs), effect) for state in states)
        else:
            return


def make_disk(*, with_topic: bool) -> MemoryFs:
    fs = disk()
    with open_manager(fs, [A, B]) as manager:
        if with_topic:
            manager.topics.create("orders", 3, {"retention.ms": "5"}, NOW)
            append(manager, "a")
    return fs


def create(manager: LogManager) -> None:
    manager.topics.create("orders", 3, {"retention.ms": "5"}, NOW)


def delete(manager: LogManager) -> None:
    manager.topics.delete("orders", NOW)


def test_a_topic_whose_making_was_cut_off_is_there_whole_or_not_at_all() -> None:
    outcomes = set()
    for fs, effect in every_crash(create, with_topic=False):
        with open_manager(fs, [A, B]) as manager:
            names = [topic.name for topic in manager.topics.all()]
            outcomes.add(len(names))
            if names:
                topic = manager.topics.get("orders")
                assert sorted(topic.places) == [0, 1, 2], effect
                assert topic.settings == {"retention.ms": "5"}, effect
                append(manager, "a")
            else:
                manager.topics.create("orders", 3, {}, NOW)
    assert outcomes == {0, 1}


def test_a_topic_whose_deletion_was_cut_off_is_gone_or_whole() -> None:
    outcomes = set()
    for fs, effect in every_crash(delete, with_topic=True):
        with open_manager(fs, [A, B]) as manager:
            names = [topic.name for topic in manager.topics.all()]
            outcomes.add(len(names))
            if names:
                assert sorted(manager.topics.get("orders").places) == [0, 1, 2], effect
                assert values(manager) == ["a"], effect
        assert not names or live(fs) == ["orders-0", "orders-1", "orders-2"]
    assert outcomes == {0, 1}
