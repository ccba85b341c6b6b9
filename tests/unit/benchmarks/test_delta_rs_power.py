"""The peer whose commits survive a power cut: which files it syncs after each commit, and in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.peers.delta_rs import DeltaRs, Durable


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was synced so far."""
    found: list[Path] = []
    sync = os.fsync

    def noted(handle: int) -> None:
        found.append(Path(f"/proc/self/fd/{handle}").readlink())
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def files_of(folder: Path, count: int) -> list[Path]:
    """Change files of ten rows each."""
    made = []
    for number in range(count):
        rows = {"id": list(range(number * 10, number * 10 + 10)), "__rowMarker__": [0] * 10}
        pq.write_table(pa.table(rows), folder / f"{number}.parquet")
        made.append(folder / f"{number}.parquet")
    return made


def test_every_commit_syncs_its_data_file_its_entry_and_their_folders(tmp_path: Path, synced: list[Path]) -> None:
    peer = Durable(tmp_path / "tables")
    peer.append_one("orders", files_of(tmp_path, 3))
    table = tmp_path / "tables/orders"
    log = table / "_delta_log"
    assert {path for path in synced if path.suffix == ".parquet"} == set(table.glob("*.parquet"))
    entries = [path for path in synced if path.suffix == ".json"]
    assert entries == [log / f"{version:020}.json" for version in range(3)]
    first = synced.index(entries[0])
    assert synced[first - 1] == table and synced[first - 2].suffix == ".parquet" and synced[first + 1] == log
    assert synced[first + 2 : first + 4] == [table, tmp_path / "tables"]  # the table's own name, once
    assert len(synced) == 3 * 4 + 2


def test_plain_delta_rs_syncs_nothing(tmp_path: Path, synced: list[Path]) -> None:
    DeltaRs(tmp_path / "tables").append_one("orders", files_of(tmp_path, 2))
    assert synced == []
