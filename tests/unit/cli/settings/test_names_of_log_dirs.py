"""Directories are called what they are called, spaces included."""

from __future__ import annotations

from pathlib import Path

from cli.settings.settings import load_settings


def test_a_name_that_was_given_as_an_argument_is_taken_as_it_is() -> None:
    assert load_settings({"log_dirs": [" a ", "b\n"]}, {}).log_dirs == (" a ", "b\n")


def test_a_name_in_a_list_of_toml_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "logmend.toml").write_text('log_dirs = ["a ", " b"]')
    assert load_settings({"config": str(tmp_path / "logmend.toml")}, {}).log_dirs == ("a ", " b")


def test_spaces_around_commas_are_for_the_eye() -> None:
    assert load_settings({}, {"LOGMEND_LOG_DIRS": "a , b,"}).log_dirs == ("a", "b")
