"""The service's part of logmend.toml: every key, what is refused and how, what a reload changes."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from daemon.service.access import Operation, Pattern, Permission, Resource, Rule
from daemon.service.config import (
    KEYS,
    LOG_DIR,
    TABLES,
    TOP,
    DirConfig,
    ServiceConfig,
    changes,
    parse_service,
    put_in_force,
)
from daemon.status.model import Mode
from storage.base.errors import ConfigInvalid

EXAMPLE = Path(__file__).resolve().parents[4] / "systemd" / "logmend.toml"


def parse(text: str) -> ServiceConfig:
    return parse_service(tomllib.loads(text), "l.toml")


def uncommented(text: str) -> str:
    """Return the example with every key in force; sentences stay comments."""
    return re.sub(r"(?m)^#(?=[a-z_]+ = |\[\[)", "", text)


def test_without_a_file_the_defaults_hold() -> None:
    assert parse("") == ServiceConfig()


def test_the_example_holds_nothing_but_defaults() -> None:
    assert parse(EXAMPLE.read_text()) == ServiceConfig()


def test_the_keys_of_the_example_are_all_there_are_and_their_values_the_defaults() -> None:
    document = tomllib.loads(uncommented(EXAMPLE.read_text()))
    shown = {(name, key) for name in TABLES for key in document[name]}
    assert shown == {(name, setting.key) for name, settings in TABLES.items() for setting in settings}
    assert {setting.key for setting in TOP} <= set(document)
    assert set(document["log_dir"][0]) == {setting.key for setting in LOG_DIR}
    log_dirs = (DirConfig(PurePath("/var/lib/kafka/data-0")),)
    found = parse_service({key: document[key] for key in KEYS}, "l.toml")
    assert found == replace(ServiceConfig(), log_dirs=log_dirs)


def test_values_mean_what_they_say() -> None:
    found = parse(
        '[scrub]\ncycle = "36h"\nrate = "512KiB"\nhours = ["22-2", "12-13"]\npressure_slow = 5.5\nenabled = false\n'
        '[guard]\nverify_within = "1.5min"\n[notify]\ncommand = ["/bin/page", "it"]\n[http]\nlisten = ["[::1]:0"]\n'
    )
    assert found.scrub.cycle_seconds == 36 * 3600
    assert found.scrub.max_bytes_per_second == 512 * 1024
    assert found.scrub.hours == {22, 23, 0, 1, 12}
    assert (found.scrub.pressure_low, found.scrub.enabled) == (5.5, False)
    assert found.guard.verify_within_seconds == 90
    assert found.notify.command == ("/bin/page", "it")
    assert found.http.listen == ("[::1]:0",)
    assert found.guard.scrub == found.scrub


def test_a_listener_that_others_can_reach_needs_tls_and_users_or_a_word() -> None:
    outside = '[listener]\nlisten = "192.0.2.1:9092"\n'
    safe = parse(outside + 'tls_certificate = "/c"\nusers = "/u"\nsuper_users = ["User:root"]\n').listener
    assert (safe.listen, safe.tls_certificate, safe.users) == ("192.0.2.1:9092", "/c", "/u")
    assert parse(outside + "insecure = true\n").listener.insecure
    for half in ('tls_certificate = "/c"\n', 'users = "/u"\n', ""):
        with pytest.raises(ConfigInvalid, match="others can reach"):
            parse(outside + half)
    assert parse("").listener.listen == ""


def test_a_rule_is_written_in_the_words_of_kafka_or_of_its_tools() -> None:
    text = 'listen = "[::1]:9092"\nusers = "/u"\n[[listener.acl]]\nprincipal = "User:alice"\npermission = "deny"\n'
    text += 'operations = ["Read", "DESCRIBE_CONFIGS", "AlterConfigs"]\nresource = "Topic"\n'
    text += 'name = "or"\npattern = "Prefixed"\n'
    (rule,) = parse("[listener]\n" + text).listener.rules
    operations = frozenset((Operation.READ, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS))
    assert rule == Rule("User:alice", operations, Resource.TOPIC, "or", Pattern.PREFIXED, Permission.DENY)


def test_log_dirs_are_guarded_unless_they_are_said_to_be_ours() -> None:
    found = parse('[[log_dir]]\npath = "/a"\n[[log_dir]]\npath = "/b"\nmode = "own"\n')
    assert [(str(each.path), each.mode) for each in found.log_dirs] == [("/a", Mode.GUARD), ("/b", Mode.OWN)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[scrub]\ncicle = 3", r"l\.toml: unknown key scrub\.cicle = 3 \(allowed: enabled, cycle,"),
        ('[scrub]\ncycle = "14"', r"scrub\.cycle: '14' is not a span such as .* from 1min to 3650d"),
        ('[scrub]\ncycle = "1s"', r"scrub\.cycle: '1s' is not a span"),
        ('[scrub]\nrate = "50MB"', r"scrub\.rate: '50MB' is not a size such as"),
        ('[scrub]\nhours = ["24-3"]', r"scrub\.hours: \['24-3'\] is not a list of parts of the day"),
        ('[scrub]\nhours = ["3-3"]', r"scrub\.hours: \['3-3'\] is not"),
        ("[scrub]\nenabled = 1", r"scrub\.enabled: 1 is not true or false"),
        ("[scrub]\nsick_errors = 0", r"scrub\.sick_errors: 0 is not a whole number from 1 to"),
        ("[scrub]\nsick_errors = true", r"scrub\.sick_errors: True is not a whole number"),
        ("[scrub]\npressure_stop = 101", r"scrub\.pressure_stop: 101 is not a number from 0 to 100"),
        ("[scrub]\npressure_slow = 50", r"scrub\.pressure_stop: 40\.0 is less than pressure_slow"),
        ("scrub = 3", r"scrub: 3 is not a table: write \[scrub\] above its keys"),
        ('[log]\nlevel = "loud"', r'log\.level: \'loud\' is not one of "debug", "info", "warning", "error"'),
        ('[notify]\ncommand = "page me"', r"notify\.command: 'page me' is not a list of words"),
        ('[notify]\ncommand = ["page"]', r"notify\.command: \['page'\] is not a list whose first word is the absolute"),
        ('[http]\nlisten = ["0.0.0.0:80"]', r"http: listen = 0\.0\.0\.0:80: other machines can reach this host"),
        ('[http]\nlisten = "unix"', r"http\.listen: 'unix' is not a list of"),
        ('[http]\nhosts = [""]', r"http\.hosts: \[''\] is not a list of names"),
        ('[listener]\nlisten = "9092"', r"listener\.listen: '9092' is not a host and a port, such as"),
        ('[listener]\nlisten = "::1:9092"', r"listener\.listen: '::1:9092' is not a host and a port"),
        (
            '[listener]\nlisten = "kafka.example.org:9092"',
            r"listener\.listen: others can reach kafka\.example\.org: set",
        ),
        ('[listener]\nlisten = "0.0.0.0:9092"\ninsecure = true', r"listener\.advertise: is missing; clients cannot"),
        (
            '[listener]\nlisten = "[::1]:9092"\nadvertise = "a:0"',
            r"listener\.advertise: clients cannot connect to port 0",
        ),
        ('[listener]\nlisten = "[::1]:9092"\ntls_key = "/k"', r"listener\.tls_key: it needs a tls_certificate"),
        ("[listener]\nauto_create = true", r"listener\.auto_create: nothing is served without listener\.listen"),
        ('[listener]\nlisten = "[::1]:9092"\nusers = "/u"', r"listener\.users: no rule lets them do anything"),
        ('[listener]\nlisten = "[::1]:9092"\nsuper_users = ["User:a"]', r"listener\.acl: without listener\.users"),
        (
            '[listener]\nsuper_users = ["a"]',
            r'listener\.super_users: .* is not a list of principals, such as \["User:admin"\]',
        ),
        (
            '[[listener.acl]]\nprincipal = "User:a"\noperations = ["READ"]\nresource = "TOPIX"\nname = "a"',
            r"listener\.acl: .* resource is one of TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, not 'TOPIX'",
        ),
        (
            '[[listener.acl]]\nprincipal = "User:a"\noperations = ["READ"]\nresource = "TOPIC"',
            r"listener\.acl: .* principal or name is missing in one",
        ),
        ('[listener]\nflush = "often"', r'listener\.flush: \'often\' is not one of "none", "interval", "sync"'),
        ('state_dir = "here"', r"l\.toml: state_dir: 'here' is not an absolute path"),
        ('log_dir = "/a"', r"log_dir: '/a' is not a list of tables"),
        ('[[log_dir]]\nmode = "own"', r"log_dir 1: path is missing"),
        ('[[log_dir]]\npath = "a"', r"log_dir 1: path: 'a' is not an absolute path"),
        ('[[log_dir]]\npath = "/a"\nmode = "rent"', r'log_dir 1: mode: \'rent\' is not one of "guard", "own"'),
        ('[[log_dir]]\npath = "/a"\n[[log_dir]]\npath = "/a"', r"log_dir 2: path: /a appears twice"),
    ],
)
def test_what_is_wrong_is_named_with_its_key_its_value_and_what_is_allowed(text: str, told: str) -> None:
    with pytest.raises(ConfigInvalid, match=told):
        parse(text)


def test_names_that_are_shown_in_errors_do_no_harm() -> None:
    with pytest.raises(ConfigInvalid, match=r"\\x1b"):
        parse('[scrub]\n"a\\u001b[31m" = 3')


def test_a_reload_changes_what_can_change_and_says_what_cannot() -> None:
    old = parse('[scrub]\ncycle = "14d"\n[log]\nlevel = "info"\n')
    new = parse(
        'state_dir = "/s"\n[[log_dir]]\npath = "/a"\n[scrub]\ncycle = "7d"\n[log]\nlevel = "debug"\nformat = "json"\n'
    )
    live, fixed = changes(old, new)
    assert live == ["scrub.cycle", "log.level"]
    assert fixed == ["log_dir", "state_dir", "log.format"]
    result = put_in_force(old, new)
    assert (result.scrub.cycle_seconds, result.guard.scrub.cycle_seconds, result.log.level) == (604800, 604800, "debug")
    assert (result.log.format, result.state_dir, result.log_dirs) == ("auto", "", ())
    assert changes(result, new) == ([], fixed)
