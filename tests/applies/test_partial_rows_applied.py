"""Partial rows through a whole database (contract section 3a): any cut, both formats, and what `verify` says."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.landing import MARKER, declare, folder, put
from tests.model import ModelTable
from tests.rounds import rounds
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.landing_zone.row_markers import UNCHANGED
from lakemirror.lint import check
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options

TYPES = {"k": pa.int64(), "a": pa.string(), "b": pa.int32(), "c": pa.float64()}
VALUES: dict[str, list[Any]] = {"a": ["x", 'y, "z"', None], "b": [1, -2, None], "c": [0.5, None]}
DELIMITED = {
    "fileFormat": "DelimitedText", "fileExtension": "csv",
    "SchemaDefinition": {"Columns": [
        {"Name": "k", "DataType": "Int64"}, {"Name": "a", "DataType": "String"}, {"Name": "b", "DataType": "Int32"},
        {"Name": "c", "DataType": "Double"},
    ]},
}  # fmt: skip


def sync(database: Path, **options: Any) -> Any:
    return MirroredDatabase(database, engine="local", durability="process", settle=0, **options).sync()


def findings(database: Path) -> tuple[Any, ...]:
    return tuple(verify_database(LocalStorage(database), (), Options(against_files=True)).findings)


def field(value: Any) -> str:
    return "" if value is None else '"' + str(value).replace('"', '""') + '"'


def write(database: Path, number: int, changes: list[Any], held: list[str], names: list[list[str]], form: str) -> None:
    columns = ["k", *held, MARKER, *([UNCHANGED] if any(names) else [])]
    records = [
        {**row, MARKER: marker, UNCHANGED: each or None} for (marker, row), each in zip(changes, names, strict=True)
    ]
    if form == "Parquet":
        kinds = {**TYPES, MARKER: pa.int32(), UNCHANGED: pa.list_(pa.string())}
        put(database, "t", number, pa.table({c: pa.array([r[c] for r in records], kinds[c]) for c in columns}))
        return
    for record, each in zip(records, names, strict=True):
        record[UNCHANGED] = json.dumps(each) if each else None
        for name in each:  # nobody reads it
            if name in held:
                record[name] = "no number, nothing"
    lines = [",".join(columns), *(",".join(field(record[c]) for c in columns) for record in records)]
    path = folder(database, "t") / f"{number:020}.csv"
    path.write_text("".join(f"{line}\r\n" for line in lines))


@settings(max_examples=rounds(6, 100), deadline=None)
@given(st.data())
def test_any_cut_gives_the_model_s_table(data: Any) -> None:
    form = data.draw(st.sampled_from(["Parquet", "DelimitedText"]))
    model = ModelTable(("k",))
    with tempfile.TemporaryDirectory() as place:
        database = Path(place)
        declare(database, "t", ["k"], **(DELIMITED if form != "Parquet" else {}))
        options: dict[str, Any] = {
            "batch_files": data.draw(st.sampled_from([1, 2, 1000])), "change_data_feed": data.draw(st.booleans()),
            "deletion_vectors": data.draw(st.booleans()), "partial_row_missing": "null",
        }  # fmt: skip
        for number in range(1, data.draw(st.integers(2, 6))):
            held = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, unique=True))
            known = sorted({*held, *(c for c in model.columns if c != "k")})
            changes, names = [], []
            for _ in range(data.draw(st.integers(1, 6))):
                row = {"k": data.draw(st.integers(1, 3))} | {c: data.draw(st.sampled_from(VALUES[c])) for c in held}
                marker = data.draw(st.sampled_from([0, 1, 2, 4, 4]))
                partial = marker in (1, 4) and model.count(row) <= 1
                names.append(data.draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if partial else [])
                model.apply(["k", *held], [(marker, row)], [names[-1]])
                changes.append((marker, row))
            write(database, number, changes, held, names, form)
            if data.draw(st.booleans()):
                assert not sync(database, **options).failed
        result = sync(database, **options)
        assert not result.failed, result.failed
        assert table_rows(database, "t", model.columns) == model.bag()
        assert not findings(database)


def test_a_missing_row_stops_the_table_or_is_counted(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, pa.table({"k": [1], "a": ["x"], "b": [1]}))
    gone = pa.table({"k": [1, 2, 3], "b": [5, 6, 7], MARKER: [4, 4, 4], UNCHANGED: [["a"], ["a"], ["A", "a"]]})
    put(tmp_path, "t", 2, gone)
    error = sync(tmp_path).tables["t"].error
    assert error.code == "partial-row-missing" and error.row == 2 and error.file.endswith("2.parquet")
    assert table_rows(tmp_path, "t", ["k", "a", "b"]) == {(1, "x", 1): 1}, "the file before is applied"
    again = pa.table({"k": [9], MARKER: [4], UNCHANGED: [["a", "b"]]})
    put(tmp_path, "t", 3, again)
    result = sync(tmp_path, partial_row_missing="null", batch_files=1)
    assert not result.failed
    assert table_rows(tmp_path, "t", ["k", "a", "b"]) == {
        (1, "x", 5): 1, (2, None, 6): 1, (3, None, 7): 1, (9, None, None): 1,
    }  # fmt: skip
    (table,) = json.loads((tmp_path / "Files/Monitoring/tables.json").read_text())["tables"]
    (warned,) = [each for each in table["warnings"] if each["code"] == "partial-row-missing"]
    assert warned["message"].startswith("3 partial rows had no row")
    assert not findings(tmp_path)


def test_a_bad_partial_row_is_quarantined(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, pa.table({"k": [1], "a": ["x"]}))
    put(tmp_path, "t", 2, pa.table({"k": [1], "a": ["y"], MARKER: [0], UNCHANGED: [["a"]]}))
    put(tmp_path, "t", 3, pa.table({"k": [1], "a": ["z"], MARKER: [4], UNCHANGED: [["b"]]}))
    put(tmp_path, "t", 4, pa.table({"k": [1], "b": ["new"], MARKER: [4], UNCHANGED: [["a"]]}))
    assert not sync(tmp_path, on_bad_file="quarantine").failed
    assert table_rows(tmp_path, "t", ["k", "a", "b"]) == {(1, "x", "new"): 1}
    assert not findings(tmp_path)


@pytest.mark.parametrize(
    "rows",
    [
        {"k": [1], "a": ["x"], MARKER: [0], UNCHANGED: [["a"]]},
        {"k": [1], "a": ["x"], MARKER: [4], UNCHANGED: [["k"]]},
        {"k": [1], "a": ["x"], MARKER: [4], UNCHANGED: [["aa"]]},
        {"k": [1], "a": ["x"], MARKER: [4], UNCHANGED: [5]},
        {"k": [1], "a": ["x"], MARKER: [4], UNCHANGED: ["a"]},
    ],
)
def test_check_says_what_the_engine_says(tmp_path: Path, rows: dict[str, Any]) -> None:
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, rows)
    found = [(each.code, each.row) for each in check(tmp_path) if each.severity == "error"]
    error = sync(tmp_path).tables["t"].error
    assert found == [(error.code, error.row)] == [("partial-row-invalid", None if rows[UNCHANGED] == [5] else 1)]


def test_a_table_of_inserts_may_have_the_column(tmp_path: Path) -> None:
    """Without a name in it, and without keys; it is no column of the table."""
    declare(tmp_path, "t")
    put(tmp_path, "t", 1, pa.table({"a": ["x"], UNCHANGED: pa.array([None], pa.list_(pa.string()))}))
    put(tmp_path, "t", 2, pa.table({"a": ["y"], UNCHANGED: pa.array([[]], pa.list_(pa.string()))}))
    assert not sync(tmp_path).failed
    assert table_rows(tmp_path, "t", ["a"]) == {("x",): 1, ("y",): 1}
    put(tmp_path, "t", 3, pa.table({"a": ["z"], UNCHANGED: [["a"]]}))
    assert sync(tmp_path).tables["t"].error.code == "partial-row-invalid"


def test_a_row_takes_its_values_into_another_partition(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["k"], isPartitionEnabled=True)
    for region, number, rows in (
        ("eu", 1, {"k": [1, 2], "a": ["x", "y"]}),
        ("eu", 2, {"k": [1], "a": ["?"], MARKER: [4], UNCHANGED: [["a"]]}),
        ("us", 1, {"k": [2], "a": ["?"], MARKER: [4], UNCHANGED: [["A"]]}),
    ):
        path = folder(tmp_path, "t") / f"region={region}" / f"{number:020}.parquet"
        path.parent.mkdir(exist_ok=True, parents=True)
        pq.write_table(pa.table(rows), path)
        assert not sync(tmp_path).failed
    assert table_rows(tmp_path, "t", ["k", "a", "region"]) == {(1, "x", "eu"): 1, (2, "y", "us"): 1}


def test_names_that_need_column_mapping(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, {"k": [1, 2], "a b": ["x", "y"]})
    assert not sync(tmp_path).failed
    put(tmp_path, "t", 2, {"k": [1], "a b": ["?"], MARKER: [4], UNCHANGED: [["A b"]]})
    assert not sync(tmp_path).failed
    assert table_rows(tmp_path, "t", ["k", "a b"]) == {(1, "x"): 1, (2, "y"): 1}


def test_a_misspelt_column_is_no_column_of_the_table(tmp_path: Path) -> None:
    """Else the columns that it names would become NULL."""
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, {"k": [1], "a": ["x"], "unchanged_columns": [7]})
    put(tmp_path, "t", 2, {"k": [1], MARKER: [4], "__unchanged_columns__": [["a"]]})
    found = [(each.code, each.column) for each in check(tmp_path) if each.severity == "error"]
    error = sync(tmp_path).tables["t"].error
    assert found == [(error.code, error.column)] == [("partial-row-invalid", "__unchanged_columns__")]
    assert table_rows(tmp_path, "t") == {(1, "x", 7): 1}


def test_a_column_that_widens_in_the_same_batch(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, {"k": [1, 2], "a": pa.array([5, 6], pa.int32()), "t": ["p", "q"]})
    null = pa.array([None], pa.int64())
    put(tmp_path, "t", 2, pa.table({"k": [1], "a": null, "t": ["z"], MARKER: [4], UNCHANGED: [["a"]]}))
    put(tmp_path, "t", 3, pa.table({"k": [2], "a": pa.array([2**40]), MARKER: [4], UNCHANGED: [["t"]]}))
    put(tmp_path, "t", 4, pa.table({"k": [2, 1], MARKER: [1, 1], UNCHANGED: [["t", "a"], ["A"]]}))
    assert not sync(tmp_path, on_type_change="widen").failed
    assert table_rows(tmp_path, "t", ["k", "a", "t"]) == {(1, 5, None): 1, (2, 2**40, "q"): 1}


def change(k: int, a: str | None, marker: int, names: list[str] | None = None, size: int = 1) -> pa.Table:
    """One change, then `size` - 1 rows of other keys."""
    more = size - 1
    return pa.table({
        "k": [k, *range(1000, 1000 + more)], "a": [a, *(f"row {n}" for n in range(more))],
        MARKER: pa.array([marker] + [0] * more, pa.int32()),
        UNCHANGED: pa.array([names] + [None] * more, pa.list_(pa.string())),
    })  # fmt: skip


def test_the_last_of_several_rows_stays_the_last_when_small_files_are_merged(tmp_path: Path) -> None:
    """The older file is the larger one."""
    declare(tmp_path, "t", ["k"])
    for number, rows in enumerate((change(1, "old", 0, size=500), change(1, "new", 0)), 1):
        put(tmp_path, "t", number, rows)
        assert not sync(tmp_path, maintenance=False).failed
    assert merge_when_idle(str(tmp_path / "Tables/t"), all_vectors=True)
    put(tmp_path, "t", 3, change(1, None, 4, ["a"]))
    assert not sync(tmp_path).failed
    assert [row for row in table_rows(tmp_path, "t", ["k", "a"]) if row[0] == 1] == [(1, "new")]


def test_the_last_of_several_rows_stays_the_last_when_its_older_file_is_written_again(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, pa.concat_tables([change(1, "old", 0), change(2, "x", 0)]))
    assert not sync(tmp_path, deletion_vectors=False).failed
    put(tmp_path, "t", 2, pa.concat_tables([change(1, "new", 0), change(2, "y", 4)]))
    assert not sync(tmp_path, deletion_vectors=False).failed
    put(tmp_path, "t", 3, change(1, None, 4, ["a"]))
    assert not sync(tmp_path, deletion_vectors=False).failed
    assert sorted(table_rows(tmp_path, "t", ["k", "a"])) == [(1, "new"), (2, "y")]


def test_the_last_of_several_rows_stays_the_last_beside_a_partial_one(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, pa.concat_tables([change(1, "old", 0), change(2, "x", 0)]))
    assert not sync(tmp_path).failed
    other, partial, insert = change(3, "z", 0), change(1, None, 4, ["a"]), change(1, "new", 0)
    put(tmp_path, "t", 2, pa.concat_tables([other, partial, insert], promote_options="default"))
    assert not sync(tmp_path).failed
    assert sorted(table_rows(tmp_path, "t", ["k", "a"])) == [(1, "new"), (1, "old"), (2, "x"), (3, "z")]
    put(tmp_path, "t", 3, change(1, None, 4, ["a"]))
    assert not sync(tmp_path).failed
    assert sorted(table_rows(tmp_path, "t", ["k", "a"])) == [(1, "new"), (2, "x"), (3, "z")]
