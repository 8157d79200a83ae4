"""A file whose name leaves no room for what we put around it is set aside under a shorter one, and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faults import write_tree
from support.log_dirs import OPTIONS, SOUND
from support.recovering import plan, recover, tree

from recovery.evidence.kept import find_kept
from recovery.evidence.manifest import decode, encode, is_plain_name, kept_name
from recovery.evidence.quarantine import restore
from storage.base.errors import CorruptData
from storage.disk.fs import OsFs

PLAN = "0123456789ab"
ROOM = 255
FREES = OPTIONS._replace(frees_deleted=True)


def size(name: str) -> int:
    return len(name.encode("utf-8", "surrogateescape"))


LONG = {
    "deleted": "0" * 20 + ".log." + "x" * 222 + ".deleted",
    "no UTF-8": "0" * 20 + ".log." + "\udcff" * 222 + ".deleted",
    "two bytes a letter": "0" * 20 + ".log." + "ä" * 111 + ".deleted",
    "others": "0" * 20 + ".log." + "y" * 222 + ".deleted",
}


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("length", range(205, 256, 10))
def test_every_kept_name_fits(kind: str, length: int) -> None:
    name = LONG[kind][-length:]
    found = {
        kept_name(name, PLAN),
        kept_name(name, PLAN, 7),
        kept_name(name, PLAN, 2**31 - 1),
        kept_name(name[1:], PLAN),
    }
    assert len(found) == 4
    for kept in found:
        assert size(kept) <= ROOM
        assert (kept[:5], kept[-21:]) == ("kept.", f".{PLAN}.logmend")


def test_a_short_name_is_kept_whole() -> None:
    assert kept_name("0.log", PLAN, 9) == f"kept.0.log.9.{PLAN}.logmend"
    assert kept_name("a" * 229, PLAN) == f"kept.{'a' * 229}.{PLAN}.logmend"


@pytest.mark.parametrize("kind", LONG)
def test_a_long_name_is_set_aside_and_comes_back(tmp_path: Path, kind: str) -> None:
    assert size(LONG[kind]) == ROOM
    home = write_tree(tmp_path / "data", {**SOUND, f"orders-0/{LONG[kind]}": b"what is left"})
    before = tree(home)
    recover(home, FREES)
    assert not (home / "orders-0" / LONG[kind]).exists()
    assert plan(home, FREES).is_empty
    kept, bad = find_kept(OsFs(), [home])
    assert bad == []
    restore(OsFs(), kept)
    assert tree(home) == before


def test_a_manifest_names_no_file_that_there_cannot_be(tmp_path: Path) -> None:
    home = write_tree(tmp_path / "data", {**SOUND, f"orders-0/{LONG['deleted']}": b"what is left"})
    recover(home, FREES)
    (kept,), _ = find_kept(OsFs(), [home])
    assert is_plain_name(LONG["deleted"])
    assert not is_plain_name("x" + LONG["deleted"])
    data = encode(kept.manifest).replace(LONG["deleted"].encode(), b"x" + LONG["deleted"].encode())
    with pytest.raises(CorruptData, match="no plain file name"):
        decode(data, kept.path)
