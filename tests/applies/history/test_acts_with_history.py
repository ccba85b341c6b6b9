"""Acts on a table that has history tables: pause and restore."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.applies.test_option_patterns import until
from tests.landing import MARKER, declare, folder, put
from tests.table_rows import read_table

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.mirror.history.row_options import options_kept
from lakemirror.mirror.step import Replicator

SETTINGS: dict[str, Any] = {"engine": "local", "durability": "process", "settle": 0, "drop_after": 0}
HISTORY = {"history": ["changes", "scd2"]}


def sync(database: Path) -> None:
    done = MirroredDatabase(database, **SETTINGS).sync()
    assert all(each.error is None for each in done.tables.values()), done


def counts(database: Path) -> list[int]:
    return [read_table(database / "Tables" / name).num_rows for name in ("t", "t__changes", "t__history")]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    declare(tmp_path, "t", ["id"], lakemirror=HISTORY)
    put(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
    sync(tmp_path)
    assert counts(tmp_path) == [2, 2, 2]
    return tmp_path


def test_a_pause_holds_for_every_table_of_the_folder(mirror: Path) -> None:
    database = MirroredDatabase(mirror, **SETTINGS)
    database.pause("t")
    put(mirror, "t", 2, {"id": [1], "v": ["c"], MARKER: [4]})
    sync(mirror)
    assert counts(mirror) == [2, 2, 2]
    database.resume("t")
    sync(mirror)
    assert counts(mirror) == [2, 3, 3]


def test_a_restored_table_goes_on_with_its_history(mirror: Path) -> None:
    shutil.rmtree(mirror / "Files/LandingZone/t")
    for _ in range(3):
        sync(mirror)
    assert not (mirror / "Tables/t").exists()
    assert MirroredDatabase(mirror, **SETTINGS).restore("t").changed
    sync(mirror)
    assert counts(mirror) == [2, 2, 2]
    declared = json.loads((folder(mirror, "t") / "_metadata.json").read_text())
    assert declared["keyColumns"] == ["id"]
    assert [each["mode"] for each in declared["lakemirror"]["history"]] == HISTORY["history"]
    put(mirror, "t", 1, {"id": [3], "v": ["d"]})
    sync(mirror)
    assert counts(mirror) == [1, 3, 3]
    found = read_table(mirror / "Tables/t__history").sort_by("id")
    assert [end is None for end in found["__END_AT"].to_pylist()] == [False, False, True]


def test_a_dropped_history_is_restored(mirror: Path) -> None:
    """It has no table folder of its own, lacks what was applied meanwhile, and goes on."""
    database = MirroredDatabase(mirror, **SETTINGS)
    database.drop_history("t")
    declare(mirror, "t", ["id"])
    put(mirror, "t", 2, {"id": [1], "v": ["c"], MARKER: [4]})
    sync(mirror)
    for name in ("t__changes", "t__history"):
        assert database.restore(name).text == f"{name} is back in Tables/{name}"
        assert not folder(mirror, name).exists()
    declare(mirror, "t", ["id"], lakemirror=HISTORY)
    put(mirror, "t", 3, {"id": [2], "v": ["d"], MARKER: [4]})
    sync(mirror)
    assert counts(mirror) == [2, 3, 4]
    (status,) = MirroredDatabase(mirror).status().tables
    assert {each.code for each in status.warnings} == {"history-gap"}


def test_a_history_is_dropped_while_an_engine_runs(mirror: Path) -> None:
    """It begins again with the rows of that moment; no change is lost or twice."""
    database, stop = MirroredDatabase(mirror, **SETTINGS, poll=0.0, poll_idle=0.05), threading.Event()
    runs = threading.Thread(target=lambda: database.run(stop=stop))
    runs.start()
    try:
        for number in (2, 3, 4):
            assert MirroredDatabase(mirror).drop_history("t").changed
            put(mirror, "t", number, {"id": [1], "v": [f"{number}"], MARKER: [4]})
            until(lambda number=number: MirroredDatabase(mirror).status().tables[0].position == number)
    finally:
        stop.set()
        runs.join(20)
    assert not MirroredDatabase(mirror).status().tables[0].error_code
    assert counts(mirror) == [2, 1, 3]


def test_options_that_are_taken_back_do_not_come_back(tmp_path: Path) -> None:
    options = {"deletes": "soft", "sequence": "v", "late_days": 3, "freshness": "5m"}
    declare(tmp_path, "t", ["id"], lakemirror=options)
    put(tmp_path, "t", 1, {"id": [1], "v": [1]})
    sync(tmp_path)
    assert kept(tmp_path) == {"deletes": "soft", "sequence": ["v"], "late_days": 3}
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft"})
    put(tmp_path, "t", 2, {"id": [2], "v": [1]})
    sync(tmp_path)
    assert kept(tmp_path) == {"deletes": "soft"}
    declare(tmp_path, "u", ["id"], lakemirror={"sequence": "v"})
    put(tmp_path, "u", 1, {"id": [1], "v": [1]})
    sync(tmp_path)
    declare(tmp_path, "u", ["id"])
    put(tmp_path, "u", 2, {"id": [2], "v": [1]})
    sync(tmp_path)
    assert kept(tmp_path, "u") == {}


def kept(database: Path, table: str = "t") -> dict[str, Any]:
    snapshot = read_snapshot(database / "Tables" / table)
    assert snapshot is not None
    return options_kept(snapshot.metadata.configuration)


def test_a_folder_named_like_what_late_changes_need(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "v"})
    put(tmp_path, "t", 1, {"id": [1], "v": [1]})
    sync(tmp_path)
    put(tmp_path, "t__late", 1, {"id": [1]})
    error = MirroredDatabase(tmp_path, **SETTINGS).sync().failed["t__late"]
    assert isinstance(error, LakemirrorError) and error.code == "table-name-ambiguous"
    put(tmp_path, "u__late", 1, {"id": [1]})
    sync_some = MirroredDatabase(tmp_path, **SETTINGS).sync().failed
    assert set(sync_some) == {"t__late"}
    declare(tmp_path, "u", ["id"], lakemirror={"sequence": "v"})
    put(tmp_path, "u", 1, {"id": [1], "v": [1]})
    failed = MirroredDatabase(tmp_path, **SETTINGS).sync().failed
    assert {name: each.code for name, each in failed.items()} == dict.fromkeys(["t__late", "u"], "table-name-ambiguous")
    assert read_table(tmp_path / "Tables/u__late").num_rows == 1
    assert "Rename one of the two table folders" in failed["u"].hint
    folder(tmp_path, "u__late").rename(folder(tmp_path, "renamed"))
    for _ in range(3):
        failed = MirroredDatabase(tmp_path, **SETTINGS).sync().failed
    assert set(failed) == {"t__late"} and read_table(tmp_path / "Tables/renamed").num_rows == 1


def test_a_change_file_that_changed_meanwhile_leaves_no_files_behind(
    mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(mirror, "t", 2, {"id": [1], "v": ["c"], MARKER: [4]})
    refused: list[str] = []

    def unchanged_but_once(_: Replicator, planned: Any) -> None:
        if not refused:
            refused.append(planned.batch.files[0].file.entry.path)
            raise LakemirrorError("concurrent-commit", "it changed while it was read")

    monkeypatch.setattr(Replicator, "_check_unchanged", unchanged_but_once)
    sync(mirror)
    assert refused and counts(mirror) == [2, 3, 3]
    for table in (mirror / "Tables").iterdir():
        log = "".join(path.read_text() for path in table.glob("_delta_log/*.json"))
        written = [path.name for path in table.glob("*.parquet")]
        assert written and not [name for name in written if name not in log]
        assert len(list(table.glob("*.bin"))) <= 1, "the vector of the commit that was made"
