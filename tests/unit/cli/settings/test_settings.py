"""Where settings come from, which of several wins, and the messages for those that cannot be used."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import daemon.service.config
from cli.settings import settings
from cli.settings.settings import KEYS, SERVICE_KEYS, Settings, load_settings, parse_properties, parse_toml
from storage.base.errors import ConfigInvalid


@pytest.fixture(autouse=True)
def no_system_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DEFAULT_FILE", tmp_path / "absent.toml")


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


EXAMPLE = Path(__file__).resolve().parents[4] / "systemd" / "logmend.toml"
WITHOUT_DEFAULT = {"jobs", "metadata_dir", "quarantine", "user"}
"""Their value depends on the machine, or there is none."""


def test_the_example_has_every_key_with_the_default_where_there_is_one() -> None:
    text = re.sub(r"(?m)^#(?=[a-z_]+ = |\[\[)", "", EXAMPLE.read_text())
    shown = tomllib.loads(text)
    assert set(shown) == {key.name for key in KEYS} | {"server_properties", *SERVICE_KEYS}
    with_default = [key for key in KEYS if key.name not in WITHOUT_DEFAULT]
    assert {key.name: key.parse(shown[key.name]) for key in with_default} == {
        key.name: key.default() for key in with_default
    }
    assert {key.name for key in KEYS if key.default() is None} == WITHOUT_DEFAULT - {"jobs"}
    beneath = text.index("# No defaults: ")
    assert all(text.index(f"\n{name} = ") > beneath for name in WITHOUT_DEFAULT)
    assert all(text.index(f"\n{key.name} = ") < beneath for key in with_default)
    jobs = next(key for key in KEYS if key.name == "jobs")
    assert jobs.parse(shown["jobs"]) == shown["jobs"]


def test_without_anything_the_defaults_hold() -> None:
    found = load_settings({}, {})
    assert (found.log_dirs, found.depth, found.index_interval_bytes) == ((), "quick", 4096)
    assert set(found.origins.values()) == {"default"}


def test_a_flag_wins_over_the_environment_that_over_toml_and_that_over_the_broker(tmp_path: Path) -> None:
    properties = write(tmp_path / "server.properties", "log.dirs=/a\nlog.index.interval.bytes=1\n")
    toml = write(tmp_path / "l.toml", f'index_interval_bytes = 2\nserver_properties = "{properties}"\n')
    seen = []
    for flags, environment in (
        ({"index_interval_bytes": "4"}, {"LOGMEND_INDEX_INTERVAL_BYTES": "3"}),
        ({}, {"LOGMEND_INDEX_INTERVAL_BYTES": "3"}),
        ({}, {}),
    ):
        found = load_settings({"config": toml, **flags}, environment)
        seen.append((found.index_interval_bytes, found.origins["index_interval_bytes"]))
    broker_only = load_settings({"server_properties": properties}, {})
    seen.append((broker_only.index_interval_bytes, broker_only.origins["index_interval_bytes"]))
    assert seen == [
        (4, "flag"),
        (3, "environment LOGMEND_INDEX_INTERVAL_BYTES"),
        (2, f"{toml}: index_interval_bytes"),
        (1, f"{properties}: log.index.interval.bytes"),
    ]


def broker(tmp_path: Path, text: str, **flags: object) -> Settings:
    return load_settings({"server_properties": write(tmp_path / "server.properties", text), **flags}, {})


def test_log_dirs_of_a_broker_are_its_list_and_the_metadata_directory_each_once(tmp_path: Path) -> None:
    found = broker(tmp_path, "log.dir=/ignored\nlog.dirs = /a , /b,\nmetadata.log.dir=/m\n")
    assert found.log_dirs == ("/a", "/b", "/m")
    assert broker(tmp_path, "log.dirs=/a,/b\nmetadata.log.dir=/a\n").log_dirs == ("/a", "/b")


def test_log_dir_counts_where_log_dirs_is_missing_or_empty(tmp_path: Path) -> None:
    assert broker(tmp_path, "log.dir=/one\n").log_dirs == ("/one",)
    assert broker(tmp_path, "log.dirs=\nlog.dir=/one\n").log_dirs == ("/one",)


def test_named_directories_are_taken_and_the_file_gives_the_settings(tmp_path: Path) -> None:
    found = broker(tmp_path, "log.index.size.max.bytes=1048576\nlog.dirs=/a\n", log_dirs=["/named"])
    assert found.log_dirs == ("/named",)
    assert found.segment_index_bytes == 1048576


def test_a_broker_file_without_directories_is_refused_rather_than_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"neither log\.dirs nor log\.dir"):
        broker(tmp_path, "broker.id=1\n")


def test_a_value_that_the_broker_takes_from_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"log\.dirs takes its value from elsewhere"):
        broker(tmp_path, "log.dirs=${env:DATA}\n")


def test_properties_are_read_as_java_reads_them() -> None:
    data = b"# comment\nlog.dirs: /a,\\\n   /b\nname\\u0041 = \xe9\n"
    assert parse_properties(data, "p") == {"log.dirs": "/a,/b", "nameA": "é"}


def test_a_broken_escape_in_properties_names_the_file() -> None:
    with pytest.raises(ConfigInvalid, match=r"server\.properties p:"):
        parse_properties(b"a=\\u00zz\n", "p")


def test_an_unknown_toml_key_is_refused_with_the_nearest_and_all_known_ones() -> None:
    with pytest.raises(ConfigInvalid, match=r"unknown key job = 3; did you mean jobs\? \(allowed: log_dirs, .*user"):
        parse_toml(b"job = 3", "l.toml")


def test_a_log_dir_that_is_no_table_is_refused_lest_a_slip_be_overlooked() -> None:
    with pytest.raises(
        ConfigInvalid, match=r"log_dir: '/a' is no table.*\[\[log_dir\]\].*log_dirs for a list of names"
    ):
        parse_toml(b'log_dir = "/a"', "l.toml")


def test_the_directories_that_the_service_guards_are_those_of_every_command(tmp_path: Path) -> None:
    text = '[[log_dir]]\npath="/a"\n[[log_dir]]\npath="/b"\nmode="guard"\n[[log_dir]]\npath="/c"\nmode="own"\n'
    toml = write(tmp_path / "l.toml", text)
    found = load_settings({"config": toml}, {})
    assert (found.log_dirs, found.origins["log_dirs"]) == (("/a", "/b"), f"{toml}: log_dir")
    toml = write(tmp_path / "m.toml", 'log_dirs = ["/d"]\n' + text)
    assert load_settings({"config": toml}, {}).log_dirs == ("/d",)


def test_the_commands_know_the_keys_of_the_service() -> None:
    assert daemon.service.config.KEYS == SERVICE_KEYS


@pytest.mark.parametrize("data", [b"=", b"\xff", b"a = " + b"[" * 5000])
def test_what_is_not_toml_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigInvalid, match="not TOML"):
        parse_toml(data, "l.toml")


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("LOGMEND_JOBS", "0", "from 1 to 256"),
        ("LOGMEND_JOBS", "many", "from 1 to 256"),
        ("LOGMEND_JOBS", "9" * 5000, "from 1 to 256"),
        ("LOGMEND_DEPTH", "deep", "quick, full, records"),
        ("LOGMEND_SEGMENT_INDEX_BYTES", "11", "from 12"),
        ("LOGMEND_USER", "no-such-user-here", "a user of this machine"),
    ],
)
def test_a_value_out_of_bounds_names_its_origin_and_what_is_allowed(variable: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigInvalid, match=rf"environment {variable}.*{allowed}"):
        load_settings({}, {variable: value})


def test_a_boolean_is_no_number() -> None:
    with pytest.raises(ConfigInvalid, match="jobs"):
        load_settings({"jobs": True}, {})


def test_an_empty_variable_is_as_if_it_were_not_set() -> None:
    assert load_settings({}, {"LOGMEND_DEPTH": ""}).depth == "quick"


def test_a_user_may_be_given_by_number_or_name() -> None:
    assert load_settings({"user": "1001"}, {}).user == 1001
    assert load_settings({"user": "root"}, {}).user == 0


def test_a_missing_settings_file_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="cannot be read: No such file"):
        load_settings({"config": str(tmp_path / "none.toml")}, {})


def test_what_may_lose_data_is_no_setting() -> None:
    names = {key.name for key in settings.KEYS}
    assert names.isdisjoint({"accept_loss", "discard"})


def test_log_dirs_with_half_a_character_are_refused_and_two_halves_are_one(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"log.dirs=/volumes/\\ud83d\\ude00\n")
    assert load_settings({"server_properties": str(path)}, {}).log_dirs == ("/volumes/\U0001f600",)
    path.write_bytes(b"log.dirs=/volumes/\\ud83d\n")
    with pytest.raises(ConfigInvalid, match="half a character"):
        load_settings({"server_properties": str(path)}, {})
