"""The state that our own commits give a table: columns, mapping, partitions, protocol (contract sections 4, 6, 10)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lakemirror.delta.log import Protocol, Snapshot
from lakemirror.delta.schema import Column, from_delta
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.target import target_of
from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import FileColumn
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.mirror.apply import state_actions
from lakemirror.mirror.next_batch import CONSTANT, Batch, BatchFile
from lakemirror.mirror.planner import Base, check_deletes, check_writable, configuration_after, metadata_after
from lakemirror.mirror.position import Detection


def view(*, replaces: bool = False) -> Any:
    metadata = TableMetadata(("A B",))
    return SimpleNamespace(
        is_recreated=replaces, identity="id", files=SimpleNamespace(metadata=metadata), detection=Detection()
    )


def batch(*columns: Column, constants: tuple[str, ...] = (), append_only: bool = True) -> Batch:
    held = [FileColumn(c.name, pa.string(), "string", encoding=CONSTANT if c.name in constants else "")
            for c in columns]  # fmt: skip
    file: Any = SimpleNamespace(constants=tuple((name, "x") for name in constants))
    return Batch((BatchFile(file, tuple(held)),), columns, append_only)


def metadata(
    before: dict[str, Any], given: Batch, properties: dict[str, str] | None = None, *, replaces: bool = False
) -> dict[str, Any]:
    columns = from_delta(before["schemaString"]) if before and not replaces else ()
    configuration = configuration_after(before, properties or {})
    return metadata_after(before, columns, given, view(replaces=replaces), configuration)


def as_snapshot(value: dict[str, Any], versions: tuple[int, int] = (1, 2)) -> Any:
    return SimpleNamespace(metadata=SimpleNamespace(value=value), protocol=Protocol(*versions))


def test_mapping_is_turned_on_with_the_rows(tmp_path: Path) -> None:
    before = metadata({}, batch(Column("id", "bigint")))
    assert target_of("/t", before, ("ID",)).columns[0].physical_name == "id"
    both = batch(Column("id", "bigint"), Column("a b", "string"))
    after = metadata(before, both)
    assert metadata(before, both) == after, "files and commit agree on the names"
    id_, new, gone = target_of("/t", after, ("ID", "gone")).columns
    assert (gone.name, gone.stored) == ("gone", False)
    assert (id_.physical_name, id_.field_id) == ("id", 1), "files hold it by its name"
    assert new.field_id == 2 and new.physical_name.startswith("col-")
    assert after["configuration"]["delta.columnMapping.maxColumnId"] == "2"
    actions = state_actions(as_snapshot(before), after)
    assert [next(iter(action)) for action in actions] == ["protocol", "metaData"]
    assert actions[0]["protocol"]["minReaderVersion"] == 2
    assert "columnMapping" in actions[0]["protocol"]["writerFeatures"]
    assert state_actions(as_snapshot(after, (2, 5)), after) == []
    replaced = metadata(after, batch(Column("c", "int")), replaces=True)
    (column,) = target_of("/t", replaced, ()).columns
    assert column.field_id == 3, "no id is given twice"
    assert target_of("/t", after, ("ID", "gone")).key_columns == ("id", "gone")


def test_a_mapped_table_is_read_by_another_reader(tmp_path: Path) -> None:
    value = metadata({}, batch(Column("id", "bigint"), Column("a b", "string")))
    target = target_of(str(tmp_path), value, ("id",))
    adds = write_rows([pa.record_batch({"id": [1], "a b": ["x"]})], target)
    (tmp_path / "_delta_log").mkdir()
    actions = [*state_actions(None, value), *({"add": add} for add in adds)]
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    table = deltalake.DeltaTable(tmp_path)
    query = deltalake.QueryBuilder().register("t", table).execute('SELECT id, "a b" FROM t WHERE id = 1')
    assert pa.table(query).to_pylist() == [{"id": 1, "a b": "x"}]


def test_partitions_are_those_that_folders_give() -> None:
    columns = (Column("id", "bigint"), Column("region", "string"))
    new = metadata({}, batch(*columns, constants=("region",)))
    assert new["partitionColumns"] == ["region"]
    assert target_of("/t", new, ()).partition_columns == ("region",)
    assert metadata(new, batch(*columns))["partitionColumns"] == ["region"]
    plain = metadata({}, batch(*columns))
    assert metadata(plain, batch(*columns, constants=("region",)))["partitionColumns"] == []
    assert metadata(plain, batch(*columns, constants=("region",)), replaces=True)["partitionColumns"] == ["region"]
    assert metadata({}, batch(columns[1], constants=("region",)))["partitionColumns"] == []


def test_properties_show_in_the_target() -> None:
    on = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    value = metadata({}, batch(Column("id", "bigint")), properties=on)
    target = target_of("/t", value, ())
    assert target.vectors and target.feed
    (protocol, _) = state_actions(None, value)
    assert protocol["protocol"]["minReaderVersion"] == 3
    assert {"deletionVectors", "changeDataFeed"} <= set(protocol["protocol"]["writerFeatures"])


@pytest.mark.parametrize(
    ("configuration", "append_only", "code"),
    [({"delta.appendOnly": "true"}, False, "table-append-only"), ({"delta.appendOnly": "true"}, True, ""),
     ({"delta.universalFormat.enabledFormats": "iceberg"}, True, "table-feature-unsupported"), ({}, False, "")],
)  # fmt: skip
def test_what_stops_an_apply(configuration: dict[str, str], append_only: bool, code: str) -> None:
    value = metadata({}, batch(Column("id", "bigint")))
    value["configuration"] |= configuration
    snapshot: Snapshot = as_snapshot(value)
    found = ""
    try:
        check_writable(value, Base("Tables/t", "", snapshot))
        if not append_only:
            check_deletes(value, Base("Tables/t", "", snapshot))
    except TableError as error:
        found = error.code
        assert error.hint and "Tables/t" in error.message
    assert found == code
