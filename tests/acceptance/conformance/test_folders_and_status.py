"""Conformance: folders, schemas, names, status (cases 14 to 17, 30 to 35, 43; 44 to 46: test_vendors_tutorial)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.landing import declare, folder, put
from world import World, lakemirror, step


@step(1)
def type_change(db: Path) -> None:
    declare(db, "c14", ["id"])
    put(db, "c14", 1, {"id": [1], "v": [1]})
    put(db, "c14", 2, {"id": [2], "v": ["text"]})
    put(db, "c14", 3, {"id": [3], "v": [3]})


@step(3)
def mended(db: Path) -> None:
    (folder(db, "c14") / f"{2:020}.parquet").unlink()
    put(db, "c14", 2, {"id": [2], "v": [2]})


def test_14_a_type_change_stops_its_table_and_no_other(world: World) -> None:
    assert world.exit_codes[0] == 3
    assert world.error("c14", after=1) == "type-changed"
    message = world.status[0]["c14"]["errorMessage"]
    assert "'v' is string in this file and bigint in the table" in message and f"{2:020}.parquet" in message
    assert world.status[0]["c14"]["status"] == "Failed"
    assert world.rows("c14", after=2) == {(1, 1): 1}
    assert world.rows("c14", after=3) == {(1, 1): 1, (2, 2): 1, (3, 3): 1}
    assert world.status[2]["c14"]["status"] == "Replicating"


@step(1)
def folders(db: Path) -> None:
    for table in ("c15", "c16", "c17"):
        declare(db, table, ["id"])
        put(db, table, 1, {"id": [1], "old": [1]})
        put(db, table, 2, {"id": [2], "old": [2]})


@step(2)
def folders_change(db: Path) -> None:
    shutil.rmtree(folder(db, "c15"))
    shutil.rmtree(folder(db, "c16"))
    declare(db, "c16", ["id"])
    put(db, "c16", 1, {"id": [5], "new": ["x"]})
    folder(db, "c17").rename(folder(db, "c17_renamed"))


@step(3)
def filled_anew(db: Path) -> None:
    place = folder(db, "c17_renamed")
    for path in place.glob("*.parquet"):
        path.unlink()
    put(db, "c17_renamed", 1, {"id": [9], "old": [9]})


def test_15_a_dropped_folder_drops_its_table(world: World) -> None:
    """Only once it was missing in two passes; the table is kept for a week."""
    assert "c15" in world.versions[1]
    assert "c15" not in world.versions[2]
    assert list((world.database / "Files/_DroppedTables").glob("c15-*"))


def test_16_a_folder_made_again_at_once_is_a_new_table(world: World) -> None:
    assert world.rows("c16", after=2) == {(5, "x"): 1}
    assert world.status[0]["c16"]["id"] != world.status[1]["c16"]["id"]


def test_17_a_renamed_folder_is_a_drop_and_a_new_table(world: World) -> None:
    """The new table starts at number 1; the status says that it waits for it."""
    assert "folder-renamed" in world.warnings("c17_renamed", after=2)
    assert world.waits_for("c17_renamed", after=2) == "number 1, which is in _ProcessedFiles"
    assert world.rows("c17_renamed", after=3) == {(9, 9): 1}
    assert "c17" not in world.versions[2]


@step(1)
def schemas(db: Path) -> None:
    declare(db, "sales.c30", ["id"])
    put(db, "sales.c30", 1, {"id": [1]})
    put(db, "c30", 1, {"id": [2]})
    (db / "Files/LandingZone/_temporary").mkdir()
    put(db, "_temporary/inner", 1, {"id": [1]})
    declare(db, "c32", [])
    put(db, "c32", 1, {"id": [1]})
    shutil.copy(folder(db, "c32") / f"{1:020}.parquet", folder(db, "c32") / f"{2:020}.parquet.tmp")
    shutil.copy(folder(db, "c32") / f"{1:020}.parquet", folder(db, "c32") / "_3.parquet")
    shutil.copy(folder(db, "c32") / f"{1:020}.parquet", folder(db, "c32") / "3.parquet")


def test_30_schema_folders(world: World) -> None:
    assert world.rows("sales.c30", after=1) == {(1,): 1}
    assert world.rows("c30", after=1) == {(2,): 1}
    assert world.status[0]["sales.c30"]["sourceSchemaName"] == "sales"


def test_30_a_default_schema(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    (tmp_path / "mirroring.json").write_text(
        '{"properties": {"target": {"typeProperties": {"defaultSchema": "dbo"}}}}', encoding="utf-8"
    )
    assert lakemirror("sync", tmp_path).returncode == 0
    assert (tmp_path / "Tables/dbo/t/_delta_log").is_dir()


def test_31_a_folder_that_begins_with_an_underscore_is_no_table_and_reported(world: World) -> None:
    assert not any(name.startswith("_") for name in world.status[0])
    warned = {(each["code"], each["file"]) for each in world.replicator[0]["warnings"]}
    assert ("folder-skipped", "Files/LandingZone/_temporary") in warned


def test_32_other_names_are_no_change_files(world: World) -> None:
    assert world.rows("c32") == {(1,): 1}
    ignored = [each for each in world.status[0]["c32"]["warnings"] if each["code"] == "file-ignored"]
    assert [each["file"].rpartition("/")[2] for each in ignored] == ["3.parquet"]
    assert (folder(world.database, "c32") / f"{2:020}.parquet.tmp").exists()


@step(1)
def to_be_cleaned(db: Path) -> None:
    declare(db, "c33", ["id"])
    for number in (1, 2, 3):
        put(db, "c33", number, {"id": [number]})


@step(2)
def cleaned_early(db: Path) -> None:
    shutil.rmtree(folder(db, "c33") / "_ProcessedFiles")
    (folder(db, "c33") / "_FilesReadyToDelete").mkdir()
    shutil.rmtree(folder(db, "c33") / "_FilesReadyToDelete")
    put(db, "c33", 4, {"id": [4]})


def test_33_publishers_may_delete_processed_files_early(world: World) -> None:
    assert world.rows("c33") == {(n,): 1 for n in (1, 2, 3, 4)}
    assert world.error("c33") == ""


def test_34_every_way_of_finding_the_next_number_finds_it(world: World) -> None:
    """The highest number in the folder; that with `_ProcessedFiles`; that of every Parquet file below."""
    place = folder(world.database, "c33")
    direct = [int(p.stem) for p in place.glob("*.parquet")]
    with_processed = direct + [int(p.stem) for p in place.glob("_ProcessedFiles/*.parquet")]
    everything = [int(p.stem) for p in place.rglob("*.parquet")]
    assert max(direct) + 1 == max(with_processed) + 1 == max(everything) + 1 == 5
    first = sorted(p.name for p in place.iterdir() if not p.name.startswith("_"))
    assert first == [f"{4:020}.parquet"]


@step(1)
def empty(db: Path) -> None:
    declare(db, "c35", ["id"])
    put(db, "c35", 1, {"id": pa.array([], pa.int32()), "v": pa.array([], pa.string())})
    declare(db, "c35_waits", ["id"])


def test_35_a_file_without_rows_creates_the_table(world: World) -> None:
    assert world.rows("c35", after=1) == {}
    assert world.types("c35") == {"id": "int", "v": "string"}
    assert world.waits_for("c35_waits") == "the first file"
    assert world.status[0]["c35_waits"]["status"] == "Initialized"


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{7}Z)?")


@pytest.mark.parametrize("after", [1, 2, 3])
def test_43_the_status_files_after_every_pass(world: World, after: int) -> None:
    written = world.monitoring[after - 1]
    for name, table in written.items():
        assert table["status"] in ("Initialized", "Snapshotting", "Replicating", "Reseeding", "Stopped", "Failed")
        assert (table["status"] == "Failed") == bool(table["errorCode"]), name
        assert table["sourceObjectType"] == "Table"
        metrics = table["metrics"]
        assert metrics["processedRowCount"] >= 0 and metrics["processedByte"] >= 0
        assert TIME.fullmatch(metrics["lastSyncTimeUtc"]) and TIME.fullmatch(metrics["lastSourceCommitTimeUtc"])
    assert written["c01"]["metrics"]["processedRowCount"] == 3
    assert {n for n, t in written.items() if t["errorCode"]} == {
        n for n, t in world.status[after - 1].items() if t["errorCode"]
    }
    assert world.replicator[after - 1]["status"] == "Stopped"
    assert world.replicator[after - 1]["errorCode"] == ""
