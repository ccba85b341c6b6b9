"""NOT NULL and other rules that a user set on a mirrored table, from the file to the error that the user reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels import add_files
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.settings.settings import Settings
from lakemirror.storage import LocalStorage


def sync(database: Path) -> Any:
    return MirroredDatabase(database, maintenance=False, engine="local").sync()


def alter(table: Path, configuration: dict[str, str], not_null: str = "", protocol: Any = None) -> None:
    """ALTER TABLE by another writer, by the log alone."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    metadata = dict(snapshot.metadata.value)
    metadata["configuration"] = {**metadata["configuration"], **configuration}
    schema = json.loads(metadata["schemaString"])
    for field in schema["fields"]:
        field["nullable"] = field["nullable"] and field["name"] != not_null
    metadata["schemaString"] = json.dumps(schema)
    actions: list[Any] = [{"commitInfo": {"operation": "CHANGE COLUMN", "timestamp": 1}}, {"metaData": metadata}]
    actions += [{"protocol": protocol}] if protocol else []
    path = table / f"_delta_log/{snapshot.version + 1:020}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def data_files(table: Path) -> int:
    return len(list(table.glob("*.parquet")))


def living(table: Path) -> list[tuple[Any, ...]]:
    snapshot = read_snapshot(table)
    assert snapshot is not None
    target = target_of(str(table), snapshot.metadata.value, ())
    parts = [part for add in snapshot.files.values() for part in live_rows(add, target)]
    return sorted(tuple(row.values()) for part in parts for row in part.to_pylist())


@pytest.mark.parametrize("way", ["insert", "as it is", "upsert"])
def test_a_row_without_a_value_that_is_not_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "as it is":
        monkeypatch.setattr(add_files, "large_enough", lambda sizes: True)
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1], "v": ["a"]})
    assert not sync(tmp_path).failed
    table = tmp_path / "Tables/t"
    alter(table, {}, not_null="v")
    marker = {MARKER: pa.array([4, 4, 4], pa.int32())} if way == "upsert" else {}
    put(tmp_path, "t", 2, {"id": [2, 3, 4], "v": ["b", None, None], **marker})
    error = sync(tmp_path).failed["t"]
    assert (error.code, error.column, error.row) == ("constraint-violated", "v", 2), error
    assert error.file.endswith(f"{2:020}.parquet") and "NOT NULL" in error.message
    snapshot = read_snapshot(table)
    assert snapshot is not None and snapshot.version == 1
    assert data_files(table) == len(snapshot.files), "nothing is left behind"
    put(tmp_path, "t", 2, {"id": [2, 3, 4], "v": ["b", "c", "d"], **marker})
    assert not sync(tmp_path).failed
    after = read_snapshot(table)
    assert after is not None
    fields = {field["name"]: field for field in json.loads(after.metadata.value["schemaString"])["fields"]}
    assert fields["v"]["nullable"] is False, "the user's constraint stays"


def test_a_file_that_lacks_the_column_that_is_not_null(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1], "v": ["a"]})
    assert not sync(tmp_path).failed
    alter(tmp_path / "Tables/t", {}, not_null="v")
    put(tmp_path, "t", 2, {"id": [2]})
    error = sync(tmp_path).failed["t"]
    assert (error.code, error.column) == ("constraint-violated", "v"), error


def test_a_check_without_spark_says_what_is_needed(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    assert not sync(tmp_path).failed
    alter(tmp_path / "Tables/t", {"delta.constraints.positive": "id > 0"})
    put(tmp_path, "t", 2, {"id": [-2]})
    error = sync(tmp_path).failed["t"]
    assert error.code == "spark-needed" and "positive" in error.message and "engine" in error.hint
    assert error.message.startswith("Tables/t: ")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("delta.universalFormat.enabledFormats", "iceberg"),
        ("delta.compatibility.symlinkFormatManifest.enabled", "true"),
    ],
)
def test_properties_that_forbid_an_apply_are_named(tmp_path: Path, name: str, told: str) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    assert not sync(tmp_path).failed
    alter(tmp_path / "Tables/t", {name: told})
    put(tmp_path, "t", 2, {"id": [2]})
    for _ in range(2):
        error = sync(tmp_path).failed["t"]
        assert error.code == "table-feature-unsupported" and name in error.message


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("delta.columnMapping.mode", "name"),  # as it must not be: columns without physical names
        ("delta.enableDeletionVectors", "false"),
        ("delta.dataSkippingNumIndexedCols", "0"),
        ("delta.checkpointInterval", "often"),
        ("delta.logRetentionDuration", "for ever"),
        ("delta.deletedFileRetentionDuration", "interval 0 hours"),
    ],
)
def test_other_properties_change_no_row(tmp_path: Path, name: str, told: str) -> None:
    """Contract section 10: new properties by other clients are fine."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
    assert not sync(tmp_path).failed
    alter(tmp_path / "Tables/t", {name: told})
    put(tmp_path, "t", 2, {"id": [1], "v": ["A"], MARKER: pa.array([1], pa.int32())})
    assert not sync(tmp_path).failed
    assert living(tmp_path / "Tables/t") == [(1, "A"), (2, "b")]


def test_a_table_that_may_only_grow_stops_only_what_takes_rows_away(tmp_path: Path) -> None:
    """Inserts and upserts of new keys take no row away; an update, a delete of a row, a folder made again do."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1], "v": ["a"]})
    assert not sync(tmp_path).failed
    alter(tmp_path / "Tables/t", {"delta.appendOnly": "true"})
    put(tmp_path, "t", 2, {"id": [2], "v": ["b"]})
    put(tmp_path, "t", 3, {"id": [3], "v": ["c"], MARKER: pa.array([4], pa.int32())})
    put(tmp_path, "t", 4, {"id": [99], "v": [None], MARKER: pa.array([2], pa.int32())})
    assert not sync(tmp_path).failed
    version = read_snapshot(tmp_path / "Tables/t").version  # type: ignore[union-attr]
    put(tmp_path, "t", 5, {"id": [3], "v": ["d"], MARKER: pa.array([1], pa.int32())})
    error = sync(tmp_path).failed["t"]
    assert error.code == "table-append-only" and "delta.appendOnly" in error.message and "UNSET" in error.hint
    assert error.message.startswith("Tables/t: ")
    assert read_snapshot(tmp_path / "Tables/t").version == version  # type: ignore[union-attr]
    assert data_files(tmp_path / "Tables/t") == 2, "nothing is left behind"
    (folder(tmp_path, "t") / f"{5:020}.parquet").unlink()
    put(tmp_path, "t", 5, {"id": [5], "v": ["e"]})
    assert not sync(tmp_path).failed


def test_a_running_engine_goes_on_once_the_property_is_unset(tmp_path: Path) -> None:
    scheduler = Scheduler(LocalStorage(tmp_path), Settings(engine="local", maintenance=False), lambda _: None)  # type: ignore[arg-type, return-value]
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    name = TableName("", "t")

    def passes() -> str:
        scheduler.tick()
        scheduler.wait(10)
        error = scheduler.states[name].error
        return error.code if error else ""

    try:
        assert not passes()
        alter(tmp_path / "Tables/t", {"delta.appendOnly": "true"})
        put(tmp_path, "t", 2, {"id": [1], MARKER: pa.array([2], pa.int32())})
        assert passes() == passes() == "table-append-only"
        alter(tmp_path / "Tables/t", {"delta.appendOnly": "false"})
        assert not passes()
    finally:
        scheduler.stop()
    assert scheduler.states[name].position == 2
