"""Delimited text on real tables: order, types, completeness, errors (contract sections 2, 4 and 6)."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.landing import declare, folder
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase

COLUMNS = [
    {"Name": "id", "DataType": "Int64"},
    {"Name": "v", "DataType": "String"},
    {"Name": "d", "DataType": "Decimal(9,2)"},
]


def declare_csv(database: Path, table: str, keys: list[str] | None = None, **more: Any) -> None:
    declare(database, table, keys, fileFormat="CSV", SchemaDefinition={"Columns": COLUMNS}, **more)


def put_text(database: Path, table: str, name: str | int, text: str | bytes, age: float = 120.0) -> Path:
    place = folder(database, table) / (f"{name:020}.csv" if isinstance(name, int) else name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text.encode() if isinstance(text, str) else text)
    then = time.time() - age
    os.utime(place, (then, then))
    return place


def sync(database: Path, **options: Any) -> Any:
    return MirroredDatabase(database, **options).sync()


def test_csv_becomes_a_table_with_declared_types(tmp_path: Path) -> None:
    declare_csv(tmp_path, "t", ["id"])
    put_text(tmp_path, "t", 1, 'id,v,d\r\n1,"a, ""b""\r\nc",1.5\r\n2,,\r\n3,"",2')
    put_text(tmp_path, "t", 2, "__rowMarker__,id,v,d\r\n2,1,,\r\n4,2,x,9.99\r\n1,4,new,\r\n,5,no marker,\r\n")
    put_text(tmp_path, "t", f"{3:020}.csv.gz", gzip.compress(b"id,__rowMarker__\r\n3,2\r\n"))
    assert sync(tmp_path).failed == {}
    rows = {tuple(map(str, row)): n for row, n in table_rows(tmp_path, "t").items()}
    assert rows == {("2", "x", "9.99"): 1, ("4", "new", "None"): 1, ("5", "no marker", "None"): 1}
    schema = DeltaTable(tmp_path / "Tables/t").schema()
    assert {f.name: f.type.type for f in schema.fields} == {"id": "long", "v": "string", "d": "decimal(9,2)"}
    assert not list((tmp_path / "Files/_Staged").rglob("*.parquet"))


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_rows_keep_the_order_of_their_file_over_many_parts(spark: Any, tmp_path: Path, engine: str) -> None:
    """The last change of each key wins, though the file is read in parts."""
    declare_csv(tmp_path, "t", ["id"])
    count, keys = 120_000, 7
    lines = [f"{n % keys},{n},4" for n in range(count)]
    put_text(tmp_path, "t", 1, "id,v,__rowMarker__\r\n" + "\r\n".join(lines))
    assert MirroredDatabase(tmp_path, spark=spark, engine=engine).sync().failed == {}
    assert table_rows(tmp_path, "t", ["id", "v"]) == {(k, str(max(range(k, count, keys)))): 1 for k in range(keys)}


def test_a_fresh_file_is_looked_at_twice_within_one_pass(tmp_path: Path) -> None:
    declare_csv(tmp_path, "t")
    put_text(tmp_path, "t", 1, "id,v,d\r\n1,a,1\r\n", age=0)
    begun = time.monotonic()
    assert sync(tmp_path).tables["t"].files == 1
    assert time.monotonic() - begun > 1.0


def test_a_file_that_still_grows_waits(tmp_path: Path) -> None:
    declare_csv(tmp_path, "t")
    path = put_text(tmp_path, "t", 1, "id,v,d\r\n1,a,1\r\n", age=0)
    from lakemirror.landing_zone.zone import scan
    from lakemirror.mirror.step import Replicator
    from lakemirror.storage import LocalStorage

    database = MirroredDatabase(tmp_path)
    storage = LocalStorage(tmp_path)
    (name,) = scan(storage).tables
    replicator = Replicator(storage, name, database.settings)
    now = time.time()

    def look(at: float) -> tuple[int, str]:
        found = replicator.observe(scan(storage).tables[name], now=at)
        waiting = found.pending.waiting
        return len(found.pending.files), waiting.what if waiting else ""

    assert look(now) == (0, f"{path.name} to be complete")
    assert look(now + 0.9)[0] == 0
    with path.open("a") as file:
        file.write("2,b,2\r\n")
    assert look(now + 1.1)[0] == 0  # it has grown: a second more
    assert look(now + 2.0)[0] == 0
    assert look(now + 2.2) == (1, "")
    assert Replicator(storage, name, database.settings).observe(scan(storage).tables[name], now=now + 31).pending.files


def test_a_bad_value_stops_its_table_and_a_good_file_mends_it(tmp_path: Path) -> None:
    declare_csv(tmp_path, "t", ["id"])
    declare_csv(tmp_path, "good")
    put_text(tmp_path, "good", 1, "id,v,d\r\n1,a,1\r\n")
    put_text(tmp_path, "t", 1, "id,v,d\r\n1,a,1\r\n")
    put_text(tmp_path, "t", 2, "id,v,d\r\n2,b,2\r\n3,c,1.999\r\n")
    put_text(tmp_path, "t", 3, "id,v,d\r\n4,d,4\r\n")
    (error,) = sync(tmp_path).failed.values()
    assert (error.code, error.row, error.column) == ("value-invalid", 3, "d")
    assert f"{2:020}.csv, line 3, column d: '1.999' is not decimal(9,2)" in error.message
    assert [row[0] for row in table_rows(tmp_path, "t")] == [1]
    assert [row[0] for row in table_rows(tmp_path, "good")] == [1]
    put_text(tmp_path, "t", 2, "id,v,d\r\n2,b,2\r\n", age=60)
    assert sync(tmp_path).failed == {}
    assert sorted(row[0] for row in table_rows(tmp_path, "t")) == [1, 2, 4]


def test_markers_and_keys_are_checked_as_in_parquet(tmp_path: Path) -> None:
    for table, keys, text in (
        ("marker", ["id"], "id,__rowMarker__\r\n1,4\r\n1,3\r\n"),
        ("word", ["id"], "id,__rowMarker__\r\n1,insert\r\n"),
        ("keyless", [], "id,__rowMarker__\r\n1,4\r\n"),
        ("absent", ["id"], "v,__rowMarker__\r\nx,4\r\n"),
        ("extra", ["id"], "id,more\r\n1,2\r\n"),
    ):
        declare_csv(tmp_path, table, keys)
        put_text(tmp_path, table, 1, "id,v,d\r\n7,a,1\r\n")
        put_text(tmp_path, table, 2, text)
    failed = {table: error.code for table, error in sync(tmp_path).failed.items()}
    assert failed == {
        "marker": "row-marker-invalid",
        "word": "row-marker-invalid",
        "keyless": "key-columns-missing",
        "absent": "key-column-absent",
        "extra": "column-undeclared",
    }
    assert sync(tmp_path, undeclared_columns="string").failed.keys() == failed.keys() - {"extra"}
    assert table_rows(tmp_path, "extra", ["id", "more"]) == {(7, None): 1, (1, "2"): 1}


def test_other_text_by_time_in_partitions_with_upserts_by_default(tmp_path: Path) -> None:
    declare(
        tmp_path, "t", ["id"], fileFormat="DelimitedText", fileExtension="tsv", isPartitionEnabled="true",
        fileDetectionStrategy="lastupdatetimefiledetection", isUpsertDefaultRowMarker="true",
        fileFormatTypeProperties={"columnSeparator": "\\t", "encoding": "utf-16", "nullValue": "N/A"},
    )  # fmt: skip
    put_text(tmp_path, "t", "day=1/later.tsv", "id\tv\r\n1\tsecond\r\n".encode("utf-16"), age=100)
    put_text(tmp_path, "t", "day=1/first.tsv", "id\tv\r\n1\tfirst\r\n2\tN/A\r\n".encode("utf-16"), age=200)
    put_text(tmp_path, "t", "day=2/first.tsv", "id\tv\r\n3\t\r\n".encode("utf-16"), age=100)
    assert sync(tmp_path).failed == {}
    assert table_rows(tmp_path, "t", ["id", "v", "day"]) == {
        ("1", "second", "1"): 1,
        ("2", None, "1"): 1,
        ("3", "", "2"): 1,
    }
    warnings = MirroredDatabase(tmp_path).status().tables[0].warnings
    assert "schema-undeclared" in {w.code for w in warnings}
