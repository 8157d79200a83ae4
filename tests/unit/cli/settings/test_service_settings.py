"""The configuration of the service: directories that are named need not stand in the broker's file, too."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest

from cli.settings.service_settings import read_service
from daemon.service.config import DirConfig
from daemon.status.model import Mode
from storage.base.errors import ConfigInvalid


def test_a_file_of_the_broker_without_log_dirs_gives_the_rest_for_a_directory_that_is_named(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.index.interval.bytes=1000\n")
    read = read_service({"own": ["/data"], "server_properties": str(properties)}, {})
    assert read.config.log_dirs == (DirConfig(PurePath("/data"), Mode.OWN),)
    assert read.settings.index_interval_bytes == 1000


def test_the_same_holds_for_a_directory_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("log.index.interval.bytes=1000\n")
    config = tmp_path / "l.toml"
    config.write_text(
        f'server_properties = "{tmp_path}/server.properties"\n[[log_dir]]\npath = "/data"\nmode = "own"\n'
    )
    read = read_service({"config": str(config)}, {})
    assert read.config.log_dirs == (DirConfig(PurePath("/data"), Mode.OWN),)
    assert read.settings.index_interval_bytes == 1000


def test_without_any_directory_the_file_of_the_broker_has_to_name_them(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("log.index.interval.bytes=1000\n")
    with pytest.raises(ConfigInvalid, match=r"neither log\.dirs nor log\.dir"):
        read_service({"server_properties": f"{tmp_path}/server.properties"}, {})
