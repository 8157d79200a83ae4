"""A restore drill: a copy of a log directory is held against what was written down of the original."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from golden.golden import extract
from support.command import logmend
from support.recovering import tree

from storage.batch.batch import reseal
from storage.disk.fs import OsFs
from storage.reading.segment_walk import walk_places

FIRST = "ledger-0/00000000000000000391.log"
INDEX = "ledger-1/00000000000000000000.index"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory, with its manifest beside it."""
    home = extract("three-brokers", tmp_path_factory.mktemp("evidence")) / "0"
    done = logmend("manifest", "--out", home / "manifest", home / "data")
    assert done.returncode == 0, done.stderr
    return home / "data"


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy"))


def manifest(original: Path) -> Path:
    return original.parent / "manifest"


def differences(original: Path, copy: Path) -> list[dict[str, object]]:
    done = logmend("verify", "--json", "--manifest", manifest(original), copy)
    result = json.loads(done.stdout)["results"][0]
    assert (done.returncode == 1) == bool(result["differences"])
    return list(result["differences"])


def test_a_whole_copy_is_as_in_the_manifest_and_is_not_changed_by_looking(original: Path, copy: Path) -> None:
    before = tree(copy)
    done = logmend("verify", "--manifest", manifest(original), copy)
    assert done.returncode == 0
    assert "as in the manifest" in done.stdout
    assert tree(copy) == before


def test_one_bit_one_missing_file_and_one_extra_file_are_all_named(original: Path, copy: Path) -> None:
    data = bytearray((copy / FIRST).read_bytes())
    data[30_000] ^= 1
    (copy / FIRST).write_bytes(data)
    (copy / INDEX).unlink()
    (copy / "ledger-2" / "stranger").write_bytes(b"?")
    found = {str(each["file"]): each for each in differences(original, copy)}
    assert {name: each["what"] for name, each in found.items()} == {
        FIRST: "changed",
        INDEX: "missing",
        "ledger-2/stranger": "extra",
    }
    assert "no longer sound" in str(found[FIRST]["evidence"])
    assert (found[FIRST]["first_offset"], found[FIRST]["last_offset"]) == (391, 768)


def test_a_change_that_every_checksum_allows_is_found_too(original: Path, copy: Path) -> None:
    data = bytearray((copy / FIRST).read_bytes())
    with OsFs().open_read(copy / FIRST) as file:
        place = list(walk_places(file, 0, len(data)))[1]
    data[place.position + place.size - 3] ^= 1
    reseal(memoryview(data)[place.position : place.position + place.size])
    (copy / FIRST).write_bytes(data)
    (found,) = differences(original, copy)
    assert found["what"] == "changed"
    assert f"{place.base_offset} to {place.last_offset} at {place.position}" in str(found["evidence"])


def test_segments_cut_short_are_told_with_what_is_gone(original: Path, copy: Path) -> None:
    (copy / FIRST).write_bytes((copy / FIRST).read_bytes()[:23_415])
    (found,) = differences(original, copy)
    assert (found["file"], found["what"]) == (FIRST, "changed")
    assert "23415 bytes, 62780 in the manifest" in str(found["evidence"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"size": 62780', '"size": 62781'),
        lambda text: text.replace("ledger-0/", "../ledger-0/"),
        lambda text: "\n".join(text.splitlines()[:-1]) + "\n",
        lambda text: "[" * 100_000,
        lambda text: "",
        lambda text: text.replace('"schema_version": 1', '"schema_version": 2'),
    ],
    ids=["half", "a size", "a name outside", "no end", "nested", "nothing", "later version"],
)
def test_a_manifest_that_was_changed_is_refused(original: Path, copy: Path, tmp_path: Path, spoil: object) -> None:
    assert callable(spoil)
    bad = tmp_path / "bad"
    bad.write_text(spoil(manifest(original).read_text()))
    done = logmend("verify", "--manifest", bad, copy)
    assert done.returncode in (2, 4)
    assert "Traceback" not in done.stderr


@pytest.mark.needs("ssh-keygen")
def test_a_signature_over_a_changed_manifest_is_refused(original: Path, tmp_path: Path) -> None:
    key, signed, allowed = tmp_path / "key", tmp_path / "signed", tmp_path / "allowed"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    allowed.write_text(f"ops {key.with_suffix('.pub').read_text()}")
    assert logmend("manifest", "--out", signed, "--sign", key, original).returncode == 0
    check = ("verify", "--manifest", signed, "--allowed-signers", allowed, "--signer")
    assert logmend(*check, "ops", original).returncode == 0
    assert logmend(*check, "somebody", original).returncode == 1
    lines = signed.read_text().splitlines(keepends=True)
    signed.write_text("".join(lines) + "".join(lines).replace(str(original), "/elsewhere"))
    done = logmend(*check, "ops", original)
    assert done.returncode == 1
    assert "the signature does not hold" in done.stderr


def test_a_manifest_is_never_written_over_a_file_nor_into_a_log_directory(original: Path, copy: Path) -> None:
    assert logmend("manifest", "--out", manifest(original), original).returncode == 2
    assert logmend("manifest", "--out", copy / "m", copy).returncode == 2
    assert not (copy / "m").exists()
