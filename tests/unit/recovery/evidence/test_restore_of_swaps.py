"""Taking back a recovery that finished an interrupted swap."""

from __future__ import annotations

import shutil
from pathlib import Path

from golden import golden
from support.recovering import recover, tree

from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import restore
from storage.disk.fs import OsFs


def test_a_trimmed_index_of_a_finished_swap_gets_its_suffix_and_its_zeroes_back(tmp_path: Path) -> None:
    golden.extract("three-brokers", tmp_path)
    log_dir = tmp_path / "0" / "data"
    partition = log_dir / "ledger-1"
    last = max(partition.glob("*.log"))
    for suffix in (".log", ".index", ".timeindex"):
        path = last.with_suffix(suffix)
        shutil.copy2(path, path.with_name(path.name + ".swap"))
    index = last.with_suffix(".index.swap")
    with index.open("ab") as file:
        file.write(bytes(64))
    (log_dir / ".kafka_cleanshutdown").write_text("")
    before = tree(log_dir)
    recover(log_dir)
    assert not index.exists()
    assert last.with_suffix(".index").stat().st_size < before[f"ledger-1/{index.name}"][0]
    kept, unreadable = find_kept(OsFs(), [log_dir])
    assert not unreadable
    restore(OsFs(), kept)
    assert tree(log_dir) == before
