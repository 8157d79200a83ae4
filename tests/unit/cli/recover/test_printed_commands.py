"""Every command that a command prints is run as it is printed, and in the end the finding is gone."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.calling import call
from support.command import ROOT
from support.runbook_cases import flip, sound

LOG = "orders-1/00000000000000000000.log"
PRINTED = re.compile(r"\b(logmend (?:verify|plan|recover) .*)$", re.MULTILINE)
Damage = Callable[[Path], None]


def rot(data: Path) -> None:
    flip(data / LOG, 20_000)


def rot_and_a_bad_index(data: Path) -> None:
    rot(data)
    flip(data / "clicks-0" / "00000000000000000000.index", 12)


def torn_end(data: Path) -> None:
    log = data / "orders-1" / "00000000000000000934.log"
    log.write_bytes(log.read_bytes()[:-50])


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which nothing is wrong; all lies below its high watermarks."""
    return sound(tmp_path_factory.mktemp("replica") / "data")


def commands(text: str) -> list[str]:
    return PRINTED.findall(text)


def run(line: str, data: Path, replica: Path) -> str:
    """Run a printed line on the directory `data`, for the replica that it leaves to the operator."""
    words = [str(replica) if word == "REPLICA" else word for word in shlex.split(line)]
    assert words[-1] == str(data)
    done = call(*words[1:])
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stdout + done.stderr


def follow(first: Sequence[object], data: Path, replica: Path, *, heals: bool) -> list[str]:
    """Run what each output proposes until there is nothing more; return the lines.

    Of two proposals the first is taken once if it `heals`: what this replica can not fill is lost then.
    """
    done = call(*first)
    lines: list[str] = []
    proposed = commands(done.stdout + done.stderr)
    while proposed:
        assert len(lines) < 5, lines
        tried = any("--heal-from" in line for line in lines)
        lines.append(proposed[0 if heals and not tried else -1])
        proposed = commands(run(lines[-1], data, replica))
    return lines


@pytest.mark.parametrize("heals", [True, False], ids=["from a replica", "with the loss accepted"])
@pytest.mark.parametrize("name", ["verify", "plan", "recover"])
@pytest.mark.parametrize("damage", [rot, rot_and_a_bad_index, torn_end])
def test_what_is_printed_ends_the_finding(
    tmp_path: Path, replica: Path, damage: Damage, name: str, heals: bool
) -> None:
    data = Path(shutil.copytree(replica, tmp_path / "data"))
    damage(data)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={data}\n")
    first = [name, "--depth", "full", "--topic", "[oc]*", "--server-properties", properties]
    lines = follow(first, data, replica, heals=heals)
    assert lines or name == "recover"
    for line in lines:
        assert "--depth full --topic '[oc]*'" in line
        assert f"--server-properties {properties}" in line
    assert call("verify", "--depth", "full", data).returncode == 0, lines


@pytest.mark.parametrize("more", [["--accept-loss"], ["--heal-from"]], ids=" ".join)
def test_who_mends_looks_where_the_damage_may_be(tmp_path: Path, replica: Path, more: list[str]) -> None:
    data = Path(shutil.copytree(replica, tmp_path / "data"))
    rot(data)
    call("recover", *more, *([replica] if more == ["--heal-from"] else []), data)
    assert call("verify", "--depth", "full", data).returncode == 0


def test_a_depth_that_was_asked_for_is_kept(tmp_path: Path, replica: Path) -> None:
    data = Path(shutil.copytree(replica, tmp_path / "data"))
    rot(data)
    before = (data / LOG).read_bytes()
    assert call("recover", "--depth", "quick", "--accept-loss", data).returncode == 0
    assert (data / LOG).read_bytes() == before


def test_a_replica_comes_before_the_loss(tmp_path: Path, replica: Path) -> None:
    data = Path(shutil.copytree(replica, tmp_path / "data"))
    rot(data)
    heal, loss = commands(call("recover", "--depth", "full", data).stdout)
    assert "--heal-from REPLICA" in heal
    assert "--accept-loss" in loss


def test_the_readme_s_commands_repair_what_they_speak_of(tmp_path: Path, replica: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (heal,) = re.findall(r"logmend recover .*--heal-from .*", text)
    data = Path(shutil.copytree(replica, tmp_path / "data"))
    rot(data)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={data}\n")
    words = shlex.split(heal.replace("/etc/kafka/server.properties", str(properties)).replace("REPLICA", str(replica)))
    assert call(*words[1:]).returncode == 0
    assert call("verify", "--depth", "full", data).returncode == 0
