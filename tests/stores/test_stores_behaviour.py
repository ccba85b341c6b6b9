"""One suite for every storage: the same landing zone gives the same tables on a disk and in a bucket."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.databases import Database, parquet, place
from tests.landing import MARKER
from tests.model import ModelTable

from lakemirror import failpoints
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.maintenance.vacuum import vacuum


def test_inserts_updates_and_deletes_are_applied_once_and_set_aside(database: Database) -> None:
    database.declare("orders", ["id"])
    database.put("orders", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    database.sync()
    database.put("orders", 2, {"id": [2, 3, 4], "v": ["B", None, "d"], MARKER: [1, 2, 4]})
    result = database.sync()
    assert result.tables["orders"].rows == 3
    assert database.bag("orders") == Counter([(1, "a"), (2, "B"), (4, "d")])
    assert database.sync().tables == {}
    zone = database.files("Files/LandingZone/orders")
    assert f"Files/LandingZone/orders/_ProcessedFiles/{1:020}.parquet" in zone
    assert f"Files/LandingZone/orders/{2:020}.parquet" in zone  # the newest stays for its publisher


def test_schema_folders_partitions_and_delimited_text(database: Database) -> None:
    database.declare("sales.customers", ["id"])
    database.put("sales.customers", 1, {"id": [1], "name": ["Ann"]})
    columns = [{"Name": "id", "DataType": "Int64"}, {"Name": "v", "DataType": "String"}]
    database.declare(
        "text", ["id"], FileFormat="DelimitedText", FileExtension="csv",
        FileFormatTypeProperties={"FirstRowAsHeader": True}, SchemaDefinition={"Columns": columns},
    )  # fmt: skip
    database.write(f"text/{1:020}.csv", b"__rowMarker__,id,v\n0,1,a\n0,2,b\n")
    database.declare("parts", ["id"], isPartitionEnabled=True)
    database.write(f"parts/region=eu north/{1:020}.parquet", parquet({"id": [1], "v": ["x"]}))
    database.write(f"parts/region=us/{1:020}.parquet", parquet({"id": [2], "v": ["y"]}))
    database.sync(settle=0.0)
    assert database.bag("sales.customers") == Counter([(1, "Ann")])
    assert database.bag("text") == Counter([(1, "a"), (2, "b")])
    assert {tuple(sorted(map(str, row))) for row in database.bag("parts")} == {("1", "eu north", "x"), ("2", "us", "y")}


@pytest.mark.full
def test_files_found_by_their_time(database: Database) -> None:
    database.declare("log", ["id"], fileDetectionStrategy="LastUpdateTimeFileDetection")
    database.write("log/one.parquet", parquet({"id": [1], "v": ["a"]}))
    database.sync()
    database.write("log/two.parquet", parquet({"id": [2], "v": ["b"]}))
    database.sync()
    assert database.sync().tables == {}
    assert database.bag("log") == Counter([(1, "a"), (2, "b")])


@pytest.mark.full
def test_a_large_first_load_is_taken_as_it_is_or_written_in_parts(database: Database) -> None:
    rows = 300_000
    table = pa.table({"id": range(rows), "v": [f"value {n % 977} of row {n}" for n in range(rows)]})
    database.declare("big", ["id"])
    database.put("big", 1, table, compression="none")
    database.sync()
    database.put("big", 2, {"id": [5, 299_999], "v": ["five", None], MARKER: [1, 2]})
    database.sync()
    bag = database.bag("big")
    assert sum(bag.values()) == rows - 1
    assert bag[(5, "five")] == 1


def test_a_folder_that_was_made_again_replaces_its_table(database: Database) -> None:
    database.declare("orders", ["id"])
    database.put("orders", 1, {"id": [1, 2], "v": ["a", "b"]})
    database.sync()
    database.storage.delete("Files/LandingZone/orders")
    database.declare("orders", ["id"])
    database.put("orders", 1, {"id": [7], "v": ["z"]})
    database.sync()
    assert database.bag("orders") == Counter([(7, "z")])


def test_a_dropped_table_leaves_and_can_be_restored(database: Database) -> None:
    for name in ("orders", "items"):
        database.declare(name, ["id"])
        database.put(name, 1, {"id": [1], "v": ["a"]})
    database.sync()
    database.storage.delete("Files/LandingZone/orders")
    assert [database.sync().dropped for _ in range(2)] == [[], ["Tables/orders"]]
    assert not database.files("Tables/orders")
    assert any(path.endswith("0.json") for path in database.files("Files/_DroppedTables"))
    database.opened().restore("orders")
    assert database.bag("orders") == Counter([(1, "a")])


@pytest.mark.full
@pytest.mark.parametrize(("before", "after"), [("sales", "sales.customers"), ("sales.customers", "sales")])
def test_a_schema_takes_the_name_of_a_table_that_is_gone_and_the_reverse(
    database: Database, before: str, after: str
) -> None:
    database.declare(before, ["id"])
    database.put(before, 1, {"id": [0]})
    database.sync()
    database.storage.delete(f"Files/LandingZone/{place(before)}")
    database.declare(after, ["id"])
    for number in (1, 2, 3):
        database.put(after, number, {"id": [number]})
    for _ in range(3):
        last = database.opened().sync()
    assert not last.failed
    assert database.bag(after) == Counter([(1,), (2,), (3,)])


@pytest.mark.full
def test_a_default_schema_with_the_name_of_a_table(database: Database) -> None:
    for name in ("dbo", "orders"):
        database.declare(name, ["id"])
        database.put(name, 1, {"id": [name]})
    database.sync()
    for schema in ("dbo", ""):
        for _ in range(3):
            last = database.opened(default_schema=schema).sync()
        assert not last.failed
        for name in ("dbo", "orders"):
            assert database.bag(f"{schema}.{name}" if schema else name) == Counter([(name,)])


@pytest.mark.full
def test_pause_and_quarantine(database: Database) -> None:
    database.declare("orders", ["id"])
    database.put("orders", 1, {"id": [1], "v": ["a"]})
    database.opened().pause("orders")
    assert database.sync().tables == {}
    database.opened().resume("orders")
    database.put("orders", 2, {"id": [1], "v": ["b"], MARKER: [9]})
    with pytest.raises(LakemirrorError, match="row marker"):
        database.sync()
    database.sync(on_bad_file="quarantine")
    reason = f"Files/LandingZone/orders/_QuarantinedFiles/{2:020}.parquet.error.json"
    assert json.loads(database.storage.read(reason))["code"] == "row-marker-invalid"
    assert database.bag("orders") == Counter([(1, "a")])


@pytest.mark.full
def test_compaction_checkpoints_and_vacuum(database: Database) -> None:
    database.declare("orders", ["id"])
    for number in range(1, 24):
        database.put("orders", number, {"id": [number, 1000], "v": [f"v{number}", "x"], MARKER: [4, 4]})
        database.sync()
    table = database.table("orders")
    merge_when_idle(table, all_vectors=True)
    snapshot = read_snapshot(table)
    assert snapshot is not None and snapshot.checkpoint is not None
    assert len(snapshot.files) == 1
    before = database.bag("orders")
    assert vacuum(table, 0.0) > 0
    assert database.bag("orders") == before
    assert sum(before.values()) == 24


@pytest.mark.parametrize("seed", [16, *(pytest.param(seed, marks=pytest.mark.full) for seed in (17, 18, 19))])
def test_random_databases_equal_the_model(database: Database, seed: int) -> None:
    chance = random.Random(seed)
    for name, keys in (("one", ["id"]), ("two", ["id", "part"])):
        model = ModelTable(keys)
        database.declare(name, keys)
        for number in range(1, 9):
            size = chance.choice([1, 3, 40])
            rows: dict[str, list[Any]] = {
                "id": [chance.randrange(30) for _ in range(size)],
                "part": [chance.choice(["a", "b", None]) for _ in range(size)],
                "v": [chance.choice([None, "x", "é", str(number)]) for _ in range(size)],
            }
            markers = [chance.choice([0, 1, 2, 4]) for _ in range(size)] if number > 1 else [4] * size
            database.put(name, number, {**rows, MARKER: markers})
            changes = [
                (marker, {column: rows[column][place] for column in rows}) for place, marker in enumerate(markers)
            ]
            model.apply(rows, changes)
            if chance.random() < 0.5:
                database.sync(batch_files=3)
        database.sync()
        assert database.bag(name, model.columns) == model.bag()


def test_verify_finds_the_tables_sound(database: Database) -> None:
    from lakemirror.verify import verify_database
    from lakemirror.verify.proof import Options

    database.declare("orders", ["id"])
    database.put("orders", 1, {"id": list(range(500)), "v": ["a"] * 500})
    database.put("orders", 2, {"id": [3], "v": ["b"], MARKER: [1]})
    database.sync()
    report = verify_database(database.storage, [], Options(True, True, None, 1))
    assert [finding for table in report.tables for finding in table.findings] == []
    assert report.tables[0].rows == 500


def test_a_file_that_comes_back_while_a_table_without_rows_is_made(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The apply writes no rows before version 0. Either it gives way, or the replay."""
    database.declare("t", ["id"])
    database.write(f"t/{1:020}.parquet", b"PAR1 no rows PAR1")
    database.sync(on_bad_file="quarantine", settle=0.0)
    database.write(f"t/_QuarantinedFiles/{1:020}.parquet", parquet({"id": [1]}))
    database.put("t", 2, {"id": pa.array([], pa.int64())})
    true, codes = failpoints.reach, list[str]()

    def replays(name: str) -> None:
        if name == "apply.before-commit":
            monkeypatch.setattr(failpoints, "reach", true)
            try:
                codes.append("" if database.opened().replay("t").files else "no file")
            except LakemirrorError as error:
                codes.append(error.code)

    monkeypatch.setattr(failpoints, "reach", replays)
    database.sync()
    assert codes in ([""], ["concurrent-commit"])
    assert database.opened().replay("t").files == (codes != [""])
    database.sync()
    assert database.bag("t") == Counter([(1,)])
