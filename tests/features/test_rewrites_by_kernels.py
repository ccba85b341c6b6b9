"""Drops whose data files the kernels rewrite: nested types, mapped names, deleted rows, other writers, failures."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests import preloaded
from tests.commands import CommandRunner

from lakemirror.cli import features as cli_features
from lakemirror.delta import commit as delta_commit
from lakemirror.delta.deletion_vectors import write_vectors
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Snapshot, read_snapshot
from lakemirror.engines.kernels import rewrite
from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import FEATURE_NAMES
from lakemirror.features import kernel_route, plan, route
from lakemirror.features.drop import drop
from lakemirror.features.plan import Wish, make_plan
from lakemirror.maintenance.vacuum import vacuum

ALL = ("columnMapping", "deletionVectors", "typeWidening")
PART = 'a/b%20=:" ü'


def column(number: int, name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": {**mapped, **metadata}}


INNER = {"type": "struct", "fields": [
    column(5, "a", "long", **{"delta.typeChanges": [{"fromType": "short", "toType": "long"}]}),
    column(6, "late", "string"),
]}  # fmt: skip
SCHEMA = {"type": "struct", "fields": [
    column(1, "p", "string"),
    column(2, "id", "long", **{"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}),
    column(3, "s", INNER),
    column(4, "l", {"type": "array", "elementType": INNER, "containsNull": True}),
    column(7, "m", {"type": "map", "keyType": "string", "valueType": INNER, "valueContainsNull": True}),
    column(8, "day", "date"),
]}  # fmt: skip


def old(ids: bool) -> pa.DataType:
    """The struct in old files: a field that was dropped, and one that was widened."""
    gone, a = pa.field("col-9", pa.string()), pa.field("col-5", pa.int16())
    return pa.struct([f.with_metadata({"PARQUET:field_id": f.name[4:]}) if ids else f for f in (gone, a)])


ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": {"a": 5}, "l": [{"a": 1}, None, {"a": None}], "m": {"k": {"a": 7}, "n": None}, "day": 0},
    {"id": 2, "s": None, "l": [], "m": {}, "day": None},
    {"id": 3, "s": {"a": None}, "l": None, "m": None, "day": -700000},
    {"id": None, "s": {"a": -5}, "l": [None], "m": {"": {"a": None}}, "day": 20000},
]


def expected(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as the table's readers must see them."""

    def inner(value: Any) -> Any:
        return value and {"a": value["a"], "late": None}

    epoch = np.datetime64("1970-01-01")
    return [
        {
            "p": PART, "id": row["id"], "s": inner(row["s"]), "l": row["l"] and [inner(each) for each in row["l"]],
            "m": row["m"] if row["m"] is None else [(key, inner(value)) for key, value in row["m"].items()],
            "day": None if row["day"] is None else (epoch + row["day"]).astype(datetime.date),
        }
        for row in rows
    ]  # fmt: skip


def stored(rows: Sequence[dict[str, Any]], ids: bool = True) -> pa.Table:
    """The rows as an old file has them: stored names, narrower types, a field that the table no longer has."""

    def inner(value: Any) -> Any:
        return value and {"col-9": "gone", "col-5": value["a"]}

    def field(number: int, kind: pa.DataType) -> pa.Field:
        return pa.field(f"col-{number}", kind, metadata={"PARQUET:field_id": str(number)} if ids else None)

    kind = old(ids)
    columns = [
        pa.array([row["id"] for row in rows], pa.int32()),
        pa.array([inner(row["s"]) for row in rows], kind),
        pa.array([row["l"] and [inner(each) for each in row["l"]] for row in rows], pa.list_(kind)),
        pa.array(
            [row["m"] and [(k, inner(v)) for k, v in row["m"].items()] for row in rows], pa.map_(pa.string(), kind)
        ),
        pa.array([row["day"] for row in rows], pa.int32()).cast(pa.date32()),
    ]
    fields = [field(number, each.type) for number, each in zip((2, 3, 4, 7, 8), columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def add_of(table: Path, name: str, rows: pa.Table, deleted: Sequence[int] = (), **writing: Any) -> dict[str, Any]:
    pq.write_table(rows, table / name, **writing)
    add = {
        "path": name, "partitionValues": {"col-1": PART}, "size": (table / name).stat().st_size,
        "modificationTime": 0, "dataChange": True, "stats": json.dumps({"numRecords": rows.num_rows}),
    }  # fmt: skip
    if deleted:
        (add["deletionVector"],) = write_vectors(table, [BitMap64(deleted)])
    return add


def make(table: Path, rows: Sequence[Sequence[dict[str, Any]]], deleted: Sequence[int] = (), **more: str) -> Path:
    """A table with one file for each list of rows; `deleted`: row numbers of the first file."""
    (table / "_delta_log").mkdir(parents=True)
    readers = sorted(["columnMapping", "deletionVectors", "typeWidening", "timestampNtz"])
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9", **more}
    metadata = {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["p"], "configuration": configuration, "createdTime": 0,
    }  # fmt: skip
    adds = [add_of(table, f"f{n}.parquet", stored(each), () if n else deleted) for n, each in enumerate(rows)]
    write(table, 0, [
        {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers,
                      "writerFeatures": [*readers, "appendOnly", "invariants"]}},
        {"metaData": metadata}, *({"add": add} for add in adds),
    ])  # fmt: skip
    return table


def write(table: Path, version: int, actions: Sequence[dict[str, Any]]) -> None:
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (table / f"_delta_log/{version:020}.json").write_text(text)


def snapshot(table: Path) -> Snapshot:
    found = read_snapshot(table)
    assert found is not None
    return found


def read(table: Path) -> list[dict[str, Any]]:
    """The rows by delta-rs, which knows neither column mapping nor type widening."""
    deltalake = pytest.importorskip("deltalake")
    found: list[dict[str, Any]] = deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["id"] is None, row["id"] or 0))


def new_files(table: Path) -> set[str]:
    return {path.name for path in table.rglob("part-*.parquet")}


def refused(act: Callable[[], object]) -> LakemirrorError:
    with pytest.raises(LakemirrorError) as error:
        act()
    return error.value


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_nested_rows_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, in_pieces: bool) -> None:
    """Renamed, dropped, added and widened fields in structs, arrays and maps; also read row by row."""
    if in_pieces:
        monkeypatch.setattr(rewrite, "_BYTES_AT_ONCE", 1)
        monkeypatch.setattr(rewrite, "_LARGE_GROUP", 0)
    table = make(tmp_path / "t", [ROWS, ROWS[:1]], deleted=[1], **{"delta.columnMapping.mode": mode})
    assert drop(table, Wish(ALL)).steps.count("rewrite-columnMapping") == 1
    kept = [ROWS[0], ROWS[0], ROWS[2], ROWS[3]]
    assert read(table) == expected(kept)
    now = snapshot(table)
    assert features_of(now.protocol) == {"timestampNtz", "appendOnly", "invariants", "checkpointProtection"}
    assert [field["name"] for field in now.metadata.schema["fields"]] == ["p", "id", "s", "l", "m", "day"]
    assert all(not action["dataChange"] for action in [*now.files.values(), *now.tombstones.values()])
    assert all(add["partitionValues"] == {"p": PART} for add in now.files.values())
    stats = next(found for add in now.files.values() if (found := json.loads(add["stats"]))["numRecords"] == 3)
    assert stats["nullCount"] == {"id": 1, "s": {"a": 1, "late": 3}, "l": 1, "m": 1, "day": 0}
    assert stats["minValues"] == {"id": 1, "s": {"a": -5}} | {"day": stats["minValues"]["day"]}
    assert stats["maxValues"] == {"id": 3, "s": {"a": 5}, "day": "2024-10-04"}


def test_mapped_names_and_ids_stay_where_the_mapping_stays(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [ROWS], deleted=[0, 3])
    drop(table, Wish(("deletionVectors",)))
    (add,) = snapshot(table).files.values()
    schema = pq.read_schema(next(table.rglob("part-*.parquet")))
    assert schema.names == ["col-2", "col-3", "col-4", "col-7", "col-8"]
    assert add["partitionValues"] == {"col-1": PART} and json.loads(add["stats"])["numRecords"] == 2
    fields = [schema.field("col-3"), *schema.field("col-3").type, *schema.field("col-4").type.value_type]
    assert [field.metadata[b"PARQUET:field_id"] for field in fields] == [b"3", b"5", b"6", b"5", b"6"]
    drop(table, Wish(("columnMapping", "typeWidening")))
    assert read(table) == expected([ROWS[1], ROWS[2]])


def test_types_of_arrow_writers_are_read(tmp_path: Path) -> None:
    """Large lists, large text and dictionaries, as the metadata of a file names them."""
    table = make(tmp_path / "t", [ROWS])
    rows = stored(ROWS)
    lists = rows["col-4"].combine_chunks()
    kind = pa.struct([("col-9", pa.dictionary(pa.int32(), pa.string())), ("col-5", pa.int16())])
    large = pa.array(lists.to_pylist(), pa.large_list(kind))
    keys = rows["col-7"].combine_chunks().cast(pa.map_(pa.large_string(), old(ids=False)))
    pq.write_table(replaced(replaced(rows, "col-4", large), "col-7", keys), table / "f0.parquet")
    assert pq.read_schema(table / "f0.parquet").field("col-4").type == pa.large_list(kind)
    drop(table, Wish(ALL))
    assert read(table) == expected(ROWS)


def test_partition_values_may_be_longer_than_names_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PART", "ü" * 300)
    table = make(tmp_path / "t", [ROWS])
    drop(table, Wish(ALL))
    assert read(table) == expected(ROWS) and read(table)[0]["p"] == "ü" * 300


def test_a_file_whose_rows_are_all_deleted_leaves_no_file(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [ROWS, ROWS[:1]], deleted=[0, 1, 2, 3])
    drop(table, Wish(ALL))
    assert read(table) == expected(ROWS[:1]) and len(new_files(table)) == 1


def replaced(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place).with_type(values.type), values)


OTHER_FILES: dict[str, tuple[dict[str, Any], Callable[[pa.Table], pa.Table], str]] = {
    "other types": ({}, lambda rows: replaced(rows, "col-2", pa.array(["1"] * 4)), "'col-2' is stored as string"),
    "wider types": ({}, lambda rows: replaced(rows, "col-2", pa.array([1] * 4, pa.uint64())), "stored as uint64"),
    "other nesting": ({}, lambda rows: replaced(rows, "col-3", pa.array([1] * 4)), "'col-3' is stored as int64"),
    "legacy days": (
        {}, lambda rows: rows.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}), "legacy calendar",
    ),
    "no ids": ({"delta.columnMapping.mode": "id"}, lambda _: stored(ROWS, ids=False), "another field id"),
    "names by id": (
        {"delta.columnMapping.mode": "id"},
        lambda rows: rows.rename_columns(["other", *rows.column_names[1:]]).cast(
            pa.schema([rows.schema.field(0).with_name("other"), *list(rows.schema)[1:]])
        ),
        "another name",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHER_FILES)
def test_the_reason_for_spark_is_known_before_the_first_step(tmp_path: Path, what: str) -> None:
    """The plan names the reason; without a session nothing changes; a table in an object store is refused."""
    properties, change, reason = OTHER_FILES[what]
    table = make(tmp_path / "t", [ROWS[:1], ROWS], **properties)
    add_of(table, "f1.parquet", change(stored(ROWS)))
    step = next(step for step in make_plan(snapshot(table), Wish(ALL)).steps if step.route)
    assert step.route is not None and step.route.by == "Delta Spark" and reason in step.route.reason
    shown = CommandRunner().invoke(cli_features.app, ["plan", str(table), "--drop", ",".join(ALL)])
    assert f"by Delta Spark, because {step.route.reason}" in shown.stdout
    error = refused(lambda: drop(table, Wish(ALL)))
    assert error.code == "spark-unsupported" and reason in error.message
    assert snapshot(table).version == 0 and not new_files(table)
    assert route.choose(False, reason).by == "nobody" and route.choose(True, None).shown == "by kernels"


def test_a_table_in_a_store_that_nobody_rewrites_is_refused_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", [ROWS], **{"delta.compatibility.symlinkFormatManifest.enabled": "true"})
    monkeypatch.setattr(plan, "route_of", lambda now, *more: route.choose(False, route.route_of(now, *more).reason))
    error = refused(lambda: drop(table, Wish(ALL)))
    assert error.code == "table-feature-unsupported" and "keeps manifest files" in error.message
    assert snapshot(table).version == 0


@pytest.mark.parametrize("what", ["missing", "no parquet", "other rows"])
def test_a_file_that_contradicts_the_log_is_named_before_the_first_step(tmp_path: Path, what: str) -> None:
    table = make(tmp_path / "t", [ROWS, ROWS])
    file = table / "f1.parquet"
    if what == "missing":
        file.unlink()
    elif what == "no parquet":
        file.write_bytes(b"PAR1 is not enough")
    else:
        pq.write_table(stored(ROWS[:2]), file)
    error = refused(lambda: drop(table, Wish(ALL)))
    assert error.code == "table-unreadable" and "f1.parquet" in error.message
    assert snapshot(table).version == 0 and not new_files(table)


def test_a_failure_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t", [ROWS, ROWS, ROWS])

    def fails(add: Any, *others: Any) -> Any:
        if add["path"] == "f1.parquet":
            raise ValueError("a page is damaged")
        return rewrite.rewrite_file(add, *others)

    monkeypatch.setattr(kernel_route, "rewrite_file", fails)
    error = refused(lambda: drop(table, Wish(ALL)))
    assert error.code == "table-unreadable" and "a page is damaged" in error.message and not new_files(table)
    monkeypatch.undo()
    drop(table, Wish(ALL))
    assert len(read(table)) == 12


def test_only_what_other_commits_change_is_rewritten_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, rewritten = make(tmp_path / "t", [ROWS, ROWS[:2], ROWS[:1]]), list[str]()
    real = delta_commit.commit

    def raced(*given: Any, **named: Any) -> int:
        if len(rewritten) == 3:  # another writer appends a file, deletes one, and deletes rows of another
            now = snapshot(table)
            one, two = (next(add for add in now.files.values() if add["path"] == f"f{n}.parquet") for n in (1, 2))
            less = add_of(table, "f1.parquet", stored(ROWS[:2]), deleted=[0])
            write(table, now.version + 1, [
                {"commitInfo": {"timestamp": 0, "operation": "MERGE", "operationParameters": {}}},
                {"remove": {"path": "f2.parquet", "deletionTimestamp": 0, "dataChange": True, "size": two["size"]}},
                {"remove": {"path": one["path"], "deletionTimestamp": 0, "dataChange": True}}, {"add": less},
                {"add": add_of(table, "new.parquet", stored(ROWS[3:]))},
            ])  # fmt: skip
        return real(*given, **named)

    def counted(add: Any, *others: Any) -> Any:
        rewritten.append(add["path"])
        return rewrite.rewrite_file(add, *others)

    monkeypatch.setattr(kernel_route, "commit", raced)
    monkeypatch.setattr(kernel_route, "rewrite_file", counted)
    drop(table, Wish(ALL))
    assert sorted(rewritten) == ["f0.parquet", "f1.parquet", "f1.parquet", "f2.parquet", "new.parquet"]
    assert read(table) == sorted(expected([*ROWS, ROWS[1], ROWS[3]]), key=lambda r: (r["id"] is None, r["id"] or 0))
    assert len(new_files(table)) == 3, "files of a lost race are removed"


def test_another_schema_in_between_is_a_concurrent_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t", [ROWS])
    real = delta_commit.commit

    def raced(*given: Any, **named: Any) -> int:
        now = snapshot(table)
        value = {**now.metadata.value, "description": "changed"}
        info = {"timestamp": 0, "operation": "SET", "operationParameters": {}}
        write(table, now.version + 1, [{"commitInfo": info}, {"metaData": value}])
        return real(*given, **named)

    monkeypatch.setattr(kernel_route, "commit", raced)
    assert refused(lambda: kernel_route.rewrite(table, "columnMapping")).code == "concurrent-commit"
    assert not new_files(table)
    monkeypatch.undo()
    drop(table, Wish(ALL))
    assert read(table) == expected(ROWS) and snapshot(table).metadata.value["description"] == "changed"


def command(table: Path, failpoint: str) -> subprocess.CompletedProcess[str]:
    words = ["features", "drop", str(table), ",".join(ALL), "--yes"]
    return preloaded.run(
        [sys.executable, "-m", "lakemirror.cli", *words],
        env={**os.environ, "LAKEMIRROR_FAILPOINT": failpoint}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("name", FEATURE_NAMES)
def test_killed_at_a_failpoint(tmp_path: Path, name: str) -> None:
    """The files of the table stay, the next run ends the drop, and a vacuum removes what the killed run has left."""
    table = make(tmp_path / "t", [ROWS, ROWS[:1]], deleted=[1])
    before = set(snapshot(table).files)
    assert command(table, name).returncode == -signal.SIGKILL
    assert set(snapshot(table).files) == before and (left := new_files(table))
    drop(table, Wish(ALL))
    assert read(table) == expected([ROWS[0], ROWS[0], ROWS[2], ROWS[3]])
    vacuum(str(table), 8 * 86400, now=time.time() + 2 * 86400)
    named = {unquote(add["path"]).rpartition("/")[2] for add in snapshot(table).files.values()}
    assert not left & new_files(table) and new_files(table) == named


@pytest.mark.parametrize("name", FEATURE_NAMES)
def test_a_failing_disk(tmp_path: Path, name: str) -> None:
    table = make(tmp_path / "t", [ROWS, ROWS[:1]])
    done = command(table, f"{name}:1:error")
    assert done.returncode == 3 and "storage-unavailable" in done.stderr and "Traceback" not in done.stderr
    assert not new_files(table)
    assert command(table, "").returncode == 0
    assert len(read(table)) == 5
