"""`check` says of a landing zone what the engine then does: the same errors, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import declare, put

from lakemirror import MirroredDatabase
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.lint import check

FILES: dict[str, list[dict[str, Any]]] = {
    "plain": [{"id": [1]}, {"id": [2]}],
    "a marker in other case": [{"id": [1], "__rowmarker__": [0]}],
    "a marker without underscores": [{"id": [1], "RowMarker": [0]}],
    "a marker with a hyphen": [{"id": [1], "row-marker": [0]}],
    "a name with a NUL": [{"id": [1], "a\0b": [0]}],
    "a marker and one like it": [{"id": [1], "rowmarker": [0], "__rowMarker__": [0]}],
    "a marker of dates": [{"id": [1], "__rowMarker__": pa.array([0], pa.date32())}],
    "a marker of text": [{"id": [1], "__rowMarker__": ["0"]}],
    "a name that Delta refuses": [{"id": [1], "a b": [1]}],
    "a reserved name": [{"id": [1], "_change_type": ["x"]}],
    "a type that Delta lacks": [{"id": [1], "h": pa.array([1], pa.float16())}],
    "a wider type": [{"id": pa.array([1], pa.int32())}, {"id": pa.array([2], pa.int64())}],
    "a narrower type": [{"id": pa.array([1], pa.int64())}, {"id": pa.array([2], pa.int32())}],
    "another type": [{"id": [1]}, {"id": ["x"]}],
    "names that differ in case": [{"id": [1], "a": [1], "A": [1]}],
    "an update without keys": [{"id": [1], "__rowMarker__": [1]}],
    "an unknown marker": [{"id": [1], "__rowMarker__": [7]}],
}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "lenient": {"row_marker_misspelt": "column", "on_type_change": "widen"},
    "strict": {"column_mapping": False, "change_data_feed": True},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("files", FILES)
def test_the_same_errors(tmp_path: Path, files: str, settings: str) -> None:
    for number, columns in enumerate(FILES[files], 1):
        put(tmp_path, "orders", number, columns)
    assert_agreed(tmp_path, SETTINGS[settings])


@pytest.mark.parametrize("undeclared", ["error", "string"])
def test_text_with_undeclared_columns(tmp_path: Path, undeclared: str) -> None:
    folder = tmp_path / LANDING_ZONE / "orders"
    folder.mkdir(parents=True)
    declared = {"columns": [{"name": "id", "dataType": "Int32"}]}
    metadata = {
        "keyColumns": ["id"],
        "fileFormat": "DelimitedText",
        "fileExtension": "csv",
        "SchemaDefinition": declared,
    }
    (folder / "_metadata.json").write_text(json.dumps(metadata))
    (folder / f"{1:020}.csv").write_text("id,extra\r\n1,x\r\n")
    assert_agreed(tmp_path, {"undeclared_columns": undeclared, "settle": 0})


@pytest.mark.parametrize("columns", [{}, {"n": [True]}, {"n": pa.nulls(1)}, {"n": pa.nulls(1, pa.int64())}])
def test_a_sequence_that_orders_nothing(tmp_path: Path, columns: dict[str, Any]) -> None:
    declare(tmp_path, "orders", ["id"], lakemirror={"sequence": "n"})
    put(tmp_path, "orders", 1, {"id": [1], **columns})
    assert_agreed(tmp_path, {})


TRACKED = {"history": {"mode": "scd2", "track": ["v"]}}
OPTIONS: list[tuple[list[dict[str, Any]], str]] = [
    ([{"history": {"mode": "scd2", "track": ["price"]}}], "metadata-invalid"),
    ([{"deletes": "soft"}, TRACKED], "deletes-mode-changed"),
    ([{"history": "scd2"}, TRACKED], "history-track-changed"),
    ([TRACKED, {**TRACKED, "sequence": "n"}], "history-track-changed"),
    ([{"deletes": "soft", "sequence": "n", **TRACKED}] * 2, ""),
]


@pytest.mark.parametrize("text", [False, True], ids=["Parquet", "text"])
@pytest.mark.parametrize(("options", "code"), OPTIONS, ids=str)
def test_options_that_a_table_cannot_follow(
    tmp_path: Path, options: list[dict[str, Any]], code: str, text: bool
) -> None:
    kinds = [{"name": name, "dataType": kind} for name, kind in (("id", "Int64"), ("v", "String"), ("n", "Int64"))]
    form = {"fileFormat": "CSV", "SchemaDefinition": {"columns": kinds}} if text else {}
    for number, each in enumerate(options, 1):
        declare(tmp_path, "orders", ["id"], lakemirror=each, **form)
        if text:
            path = tmp_path / LANDING_ZONE / f"orders/{number:020}.csv"
            path.write_bytes(f"id,v,n\r\n1,a,{number}\r\n".encode())
        else:
            put(tmp_path, "orders", number, {"id": [1], "v": ["a"], "n": [number]})
        (tmp_path / "mirroring.json").write_text(json.dumps({"lakemirror": {"settle": 0}}))
        found = {each.code for each in check(tmp_path, settle=0) if each.severity == "error"}
        assert found == ({code} if code and number == len(options) else set())
        assert {error.code for error in MirroredDatabase(tmp_path).sync().failed.values()} == found


@pytest.mark.parametrize("waiting", [None, {"n": [2]}, {}], ids=["no file waits", "the files have it", "they lack it"])
@pytest.mark.parametrize("history", [[], ["changes"], ["scd2"]], ids=str)
def test_a_sequence_that_applied_files_lack(tmp_path: Path, history: list[str], waiting: dict[str, Any] | None) -> None:
    """Applied files need none; versions need it in the rows with which they begin."""
    declare(tmp_path, "orders", ["id"])
    put(tmp_path, "orders", 1, {"id": [1]})
    assert not MirroredDatabase(tmp_path).sync().failed
    declare(tmp_path, "orders", ["id"], lakemirror={"sequence": "n", "history": history})
    for number in (2, 3) if waiting is not None else ():
        put(tmp_path, "orders", number, {"id": [1], **(waiting or {})})
    found = [each.code for each in check(tmp_path, settle=0) if each.severity == "error"]
    assert found == ["sequence-missing"] * (history == ["scd2"] or waiting == {})
    assert found == [error.code for error in MirroredDatabase(tmp_path).sync().failed.values()]


def assert_agreed(database: Path, settings: dict[str, Any]) -> None:
    (database / "mirroring.json").write_text(json.dumps({"lakemirror": settings}))
    errors = [each for each in check(database) if each.severity == "error"]
    assert not [each.message for each in errors if each.message.startswith((f"{each.file}:", f"{each.file}, row"))]
    found = {each.code for each in errors}
    failed = {error.code for error in MirroredDatabase(database).sync().failed.values()}
    assert found == failed, (found, failed)


def test_a_name_that_is_there_twice_is_said_once(tmp_path: Path) -> None:
    folder = tmp_path / LANDING_ZONE / "orders"
    folder.mkdir(parents=True)
    pq.write_table(pa.table([[1], [1], [2]], ["id", "a", "a"]), folder / f"{1:020}.parquet")
    found = [(each.code, each.message) for each in check(tmp_path)]
    assert found == [("columns-ambiguous", "the column a is there twice")]
    failed = MirroredDatabase(tmp_path).sync().tables["orders"].error
    assert failed is not None and failed.code == "columns-ambiguous"
    assert failed.message.endswith("the column a is there twice")
