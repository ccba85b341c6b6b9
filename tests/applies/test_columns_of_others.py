"""Columns that another writer renamed, dropped or added: no key is guessed, no value is lost (contract section 10)."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.applies.test_applies import no_spark, sync
from tests.landing import MARKER, declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Protocol, read_snapshot
from lakemirror.delta.protocol import MAPPING, protocol_of
from lakemirror.delta.schema import MAPPING_ID, PHYSICAL_NAME, with_mapping
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.target import target_of
from lakemirror.lint import check
from lakemirror.mirror import observe
from lakemirror.mirror.operations import resync
from lakemirror.mirror.schema_evolution import STORED_PROPERTY
from lakemirror.storage import LocalStorage
from lakemirror.verify.proof import Options, verify_database

__all__ = ["no_spark"]

Fields = list[dict[str, Any]]


def altered(table: Path, change: Callable[[Fields], Fields], *, mapped: bool = True, **properties: str | None) -> None:
    """Another writer's ALTER TABLE, as Delta Spark commits it. A property of None is unset."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    before = dict(snapshot.metadata.value)
    configuration = dict(before["configuration"])
    schema = before["schemaString"]
    if mapped:
        names = [each["name"] for each in json.loads(schema)["fields"]]
        schema, highest = with_mapping(schema, int(configuration.get("delta.columnMapping.maxColumnId", 0)), names)
        configuration |= {MAPPING: "name", "delta.columnMapping.maxColumnId": str(highest + 10)}
    configuration |= properties
    configuration = {name: value for name, value in configuration.items() if value is not None}
    schema = json.dumps({"type": "struct", "fields": change(json.loads(schema)["fields"])})
    metadata = {**before, "schemaString": schema, "configuration": configuration}
    protocol: Protocol = protocol_of(metadata, snapshot.protocol)
    actions = [{"commitInfo": {"operation": "ALTER TABLE", "engineInfo": "Other/1"}}, {"metaData": metadata}]
    if protocol != snapshot.protocol:
        actions.append(protocol.to_action())
    path = table / "_delta_log" / f"{snapshot.version + 1:020}.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in actions))


def renamed(old: str, new: str) -> Callable[[Fields], Fields]:
    return lambda fields: [{**each, "name": new} if each["name"] == old else each for each in fields]


def dropped(name: str) -> Callable[[Fields], Fields]:
    return lambda fields: [each for each in fields if each["name"] != name]


def added(name: str, kind: Any, number: int = 5, **more: Any) -> Callable[[Fields], Fields]:
    details = {MAPPING_ID: number, PHYSICAL_NAME: f"col-{number}"}
    return lambda fields: [*fields, {"name": name, "type": kind, "nullable": True, "metadata": details, **more}]


def rows(table: Path) -> Counter[str]:
    """The table's rows as readers see them: by logical name, without NULLs."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    target = target_of(str(table), snapshot.metadata.value)
    return Counter(
        json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True)
        for add in snapshot.files.values()
        for part in live_rows(add, target)
        for row in part.to_pylist()
    )


def bag(*given: dict[str, Any]) -> Counter[str]:
    return Counter(json.dumps(each, sort_keys=True) for each in given)


def changes(marker: int, **columns: Any) -> dict[str, Any]:
    return {**columns, MARKER: pa.array([marker] * len(next(iter(columns.values()))), pa.int32())}


def mirrored(database: Path, **settings: Any) -> Path:
    declare(database, "t", ["id"])
    put(database, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
    sync(database, **settings)
    return database / "Tables/t"


def again(database: Path) -> list[str]:
    """What `verify` finds that is wrong."""
    found = verify_database(LocalStorage(database)).findings
    return [each.code for each in found if each.severity == "error"]


LOST: dict[str, tuple[list[Callable[[Fields], Fields]], str]] = {
    "renamed": ([renamed("id", "x")], "its values are in 'x'"),
    "dropped": ([dropped("id")], "dropped"),
    "dropped and added": ([dropped("id"), added("id", "long")], "'id' (dropped)"),
    "renamed and added": ([renamed("id", "x"), added("ID", "long")], "its values are in 'x'"),
    "swapped": ([renamed("id", "x"), renamed("v", "id")], "its values are in 'x'"),
}


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("how", LOST)
def test_a_lost_key_column_stops_the_table_and_verify_sees_it(tmp_path: Path, how: str, pending: bool) -> None:
    table = mirrored(tmp_path)
    acts, told = LOST[how]
    for act in acts:
        altered(table, act)
    before = rows(table)
    if pending:
        put(tmp_path, "t", 2, changes(2, id=pa.array([None], pa.int64())))
        put(tmp_path, "t", 3, changes(4, id=[1], v=["c"]))
    failed = MirroredDatabase(tmp_path).sync().failed["t"]
    assert failed.code == "key-columns-missing-in-table" and "'id'" in failed.message and told in failed.message
    assert not failed.retry and "resync" in failed.hint
    assert "key-columns-missing-in-table" in [finding.code for finding in check(tmp_path)]
    assert rows(table) == before
    assert again(tmp_path) == ["verify-key-column-missing"]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("moment", ["identity.before-marker", "apply.before-write", "apply.before-commit"])
def test_a_key_column_that_is_lost_after_the_look(tmp_path: Path, meanwhile: Any, moment: str, recorded: bool) -> None:
    """Nothing is planned or committed on another version than the one that was looked at; also where nobody has
    recorded how keys are stored."""
    table = mirrored(tmp_path)
    put(tmp_path, "t", 2, changes(4, id=[1], v=["c"]))
    done = meanwhile(moment, lambda: altered(table, dropped("id"), **({} if recorded else {STORED_PROPERTY: None})))
    assert MirroredDatabase(tmp_path).sync().failed["t"].code == "key-columns-missing-in-table"
    assert done and rows(table) == bag({"v": "a"}, {"v": "b"}), "only the column is gone"


@pytest.mark.parametrize("how", LOST)
def test_verify_sees_that_changes_were_applied_on_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """As an engine left the table that guessed keys. Nothing but a new load puts it right."""
    table = mirrored(tmp_path)
    for act in LOST[how][0]:
        altered(table, act)
    with monkeypatch.context() as patch:
        patch.setattr(observe, "check_needed_columns", lambda *_: None)
        put(tmp_path, "t", 2, changes(4, id=[1]))
        MirroredDatabase(tmp_path).sync()
    if how != "swapped":  # there the type has changed, and nothing was applied
        assert sum(rows(table).values()) == 3
    assert again(tmp_path) == ["verify-key-column-missing"]


def test_renamed_back_the_table_goes_on(tmp_path: Path) -> None:
    table = mirrored(tmp_path)
    altered(table, renamed("id", "x"))
    put(tmp_path, "t", 2, changes(4, id=[1], v=["c"]))
    assert MirroredDatabase(tmp_path).sync().failed
    altered(table, renamed("x", "ID"))
    sync(tmp_path)
    assert rows(table) == bag({"ID": 1, "v": "c"}, {"ID": 2, "v": "b"}) and not again(tmp_path)


@pytest.mark.parametrize("how", LOST)
def test_a_resync_is_a_way_out(tmp_path: Path, how: str) -> None:
    table = mirrored(tmp_path)
    for act in LOST[how][0]:
        altered(table, act)
    put(tmp_path, "t", 2, changes(4, id=[1], v=["c"]))
    assert MirroredDatabase(tmp_path).sync().failed
    resync(LocalStorage(tmp_path), "t")
    sync(tmp_path)
    put(tmp_path, "t", 3, changes(2, id=[2]))
    sync(tmp_path)
    assert rows(table) == bag({"id": 1, "v": "c"}) and not again(tmp_path)


def test_a_folder_that_is_made_again_is_a_way_out(tmp_path: Path) -> None:
    table = mirrored(tmp_path)
    altered(table, renamed("id", "x"))
    assert MirroredDatabase(tmp_path).sync().failed
    shutil.rmtree(folder(tmp_path, "t"))
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [7], "v": ["z"]})
    sync(tmp_path)
    put(tmp_path, "t", 2, changes(4, id=[7], v=["y"]))
    sync(tmp_path)
    assert rows(table) == bag({"id": 7, "v": "y"}) and not again(tmp_path)


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (renamed("v", "w"), "renamed column 'v' to 'w'"),
        (dropped("v"), "dropped column 'v'"),
    ],
)
def test_another_column_that_comes_again_is_said(tmp_path: Path, act: Callable[[Fields], Fields], told: str) -> None:
    table = mirrored(tmp_path)
    altered(table, act)
    put(tmp_path, "t", 2, changes(4, id=[1], v=["c"]))
    sync(tmp_path)
    put(tmp_path, "t", 3, changes(4, id=[3], v=["d"]))
    sync(tmp_path)
    (status,) = MirroredDatabase(tmp_path).status().tables
    (warned,) = [each for each in status.warnings if each.code == "column-added-again"]
    assert told in warned.message
    other = {"w": "b"} if "renamed" in told else {}
    assert rows(table) == bag({"id": 1, "v": "c"}, {"id": 2, **other}, {"id": 3, "v": "d"}) and not again(tmp_path)


def test_a_key_that_no_file_has_typed_yet_is_not_lost(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id", "part"])
    put(tmp_path, "t", 1, changes(4, id=[1], part=pa.nulls(1), v=["a"]))
    sync(tmp_path)
    altered(tmp_path / "Tables/t", lambda fields: fields)
    put(tmp_path, "t", 2, changes(4, id=[1], part=pa.nulls(1), v=["b"]))
    sync(tmp_path)
    put(tmp_path, "t", 3, changes(4, id=[1], part=["x"], v=["c"]))
    sync(tmp_path)
    assert rows(tmp_path / "Tables/t") == bag({"id": 1, "v": "b"}, {"id": 1, "part": "x", "v": "c"})
    assert not again(tmp_path)


ARRAY = {"type": "array", "elementType": "string", "containsNull": True}
POINT = {
    "type": "struct",
    "fields": [
        {"name": "x", "type": "long", "nullable": True, "metadata": {}},
        {"name": "more", "type": ARRAY, "nullable": True, "metadata": {}},
    ],
}
MAP = {"type": "map", "keyType": "string", "valueType": POINT, "valueContainsNull": True}
VALUES: dict[str, tuple[Any, Any]] = {
    "array": (ARRAY, ["a", "b"]),
    "struct": (POINT, {"x": 1, "more": ["p"]}),
    "map": (MAP, [("k", {"x": 2, "more": None})]),
}


def with_values(database: Path, kind: Any, value: Any, **settings: Any) -> Path:
    """A table of three rows in one file, in which another writer filled a column `other` of its own."""
    declare(database, "t", ["id"])
    put(database, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    sync(database, **settings)
    table = database / "Tables/t"
    plain = {"name": "other", "type": kind, "nullable": True, "metadata": {}}
    altered(table, lambda fields: [*fields, plain], mapped=False)
    snapshot = read_snapshot(table)
    assert snapshot is not None
    target = target_of(str(table), snapshot.metadata.value)
    (old,) = snapshot.files.values()
    held = pa.concat_tables(live_rows(old, target))
    place = held.schema.get_field_index("other")
    filled = held.set_column(place, "other", pa.array([value, None, value], held.schema.field("other").type))
    (add,) = write_rows(filled.to_batches(), target)
    info = {"commitInfo": {"operation": "WRITE", "engineInfo": "Other/1"}}
    actions = [info, {"remove": removed(old, 0, data_change=True)}, {"add": add}]
    path = table / "_delta_log" / f"{snapshot.version + 1:020}.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in actions))
    return table


@pytest.mark.parametrize("settings", [{}, {"deletion_vectors": False}, {"change_data_feed": True}], ids=str)
@pytest.mark.parametrize("name", VALUES)
def test_a_column_that_lakemirror_cannot_write(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    """New rows are NULL in it; other rows keep their values, also where their file is written again."""
    kind, value = VALUES[name]
    table = with_values(tmp_path, kind, value, **settings)
    put(tmp_path, "t", 2, {"id": [4], "v": ["d"]})
    sync(tmp_path, **settings)
    put(tmp_path, "t", 3, changes(4, id=[2, 5, 1], v=["B", "e", "A"]))
    sync(tmp_path, **settings)
    new = [{"id": 1, "v": "A"}, {"id": 2, "v": "B"}, {"id": 4, "v": "d"}, {"id": 5, "v": "e"}]
    assert rows(table) == bag(*new, {"id": 3, "v": "c", "other": value}) and not again(tmp_path)
    assert not verify_database(LocalStorage(tmp_path), (), Options(against_files=True)).exit_code
    if settings.get("change_data_feed"):
        told = deltalake.DeltaTable(str(table))
        assert "other" in {field.name for field in told.schema().fields}
        feed = [row for path in table.glob("_change_data/*") for row in pq.read_table(path).to_pylist()]
        (old,) = [row for row in feed if row["id"] == 1 and row["_change_type"] == "update_preimage"]
        assert old["other"] == value
        assert {row["other"] is None for row in feed if row["_change_type"] == "update_postimage"} == {True}


@pytest.mark.parametrize("settings", [{"deletion_vectors": False}, {"change_data_feed": True}], ids=str)
def test_rows_that_cannot_be_written_again_stay(tmp_path: Path, settings: dict[str, Any]) -> None:
    table = mirrored(tmp_path, **settings)
    plain = {"name": "other", "type": "variant", "nullable": True, "metadata": {}}
    altered(table, lambda fields: [*fields, plain], mapped=False)
    put(tmp_path, "t", 2, {"id": [4], "v": ["d"]})
    sync(tmp_path, **settings)
    put(tmp_path, "t", 3, changes(4, id=[1], v=["A"]))
    failed = MirroredDatabase(tmp_path, **settings).sync().failed["t"]
    assert failed.code == "table-feature-unsupported" and "'other'" in failed.message and "variant" in failed.message


def test_a_variant_is_null_in_new_rows(tmp_path: Path) -> None:
    table = mirrored(tmp_path)
    plain = {"name": "other", "type": "variant", "nullable": True, "metadata": {}}
    altered(table, lambda fields: [*fields, plain], mapped=False)
    put(tmp_path, "t", 2, changes(4, id=[1], v=["A"]))
    sync(tmp_path, batch_files=1)
    snapshot = read_snapshot(table)
    assert snapshot is not None and "variant" in snapshot.metadata.value["schemaString"]
    put(tmp_path, "t", 3, changes(4, id=[1], other=["A"]))
    assert MirroredDatabase(tmp_path).sync().failed["t"].code == "type-changed"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"nullable": False}, "'other' is NOT NULL"),
        ({"metadata": {"CURRENT_DEFAULT": "array()"}}, "'other' has a default value"),
        ({"metadata": {"delta.generationExpression": "array(v)"}}, "generated columns"),
    ],
)
def test_a_column_that_must_be_filled_stops_the_table(tmp_path: Path, more: dict[str, Any], told: str) -> None:
    table = mirrored(tmp_path)
    altered(table, lambda fields: [*fields, {"name": "other", "type": ARRAY, "metadata": {}, **more}], mapped=False)
    put(tmp_path, "t", 2, {"id": [4], "v": ["d"]})
    failed = MirroredDatabase(tmp_path).sync().failed["t"]
    assert failed.code == "table-feature-unsupported" and told in failed.message


def test_compaction_leaves_a_column_that_it_cannot_write(tmp_path: Path) -> None:
    table = with_values(tmp_path, *VALUES["array"])
    for number in range(2, 70):
        put(tmp_path, "t", number, {"id": [number + 10], "v": ["x"]})
    sync(tmp_path, batch_files=1)
    kept = [row for row in rows(table).elements() if "other" in row]
    assert len(kept) == 2 and sum(rows(table).values()) == 71
