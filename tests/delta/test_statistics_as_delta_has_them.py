"""The statistics of a data file are those that Delta Spark writes, whatever the table's properties choose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakemirror.delta.commit import commit as put_commit
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.log import latest_commits, read_snapshot
from lakemirror.delta.statistics_columns import COUNT, NAMES
from lakemirror.engines.kernels.nested_types import stored_type
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.target import target_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = "1L, named_struct('City', 'x', 'at', named_struct('x', 2L, 'l', array(1))), map('k', 1), 5L, 'v', 7.25D"
VALUES = {
    "id": [1], "Place": [{"City": "x", "at": {"x": 2, "l": [1]}}], "m": [[("k", 1)]], "a.b": [5], "v": ["v"],
    "w": [7.25],
}  # fmt: skip
AT = pa.struct([pa.field("x", pa.int64()), pa.field("l", pa.list_(pa.field("element", pa.int32())))])
SCHEMA = pa.schema(
    {
        "id": pa.int64(), "Place": pa.struct([pa.field("City", pa.string()), pa.field("at", AT)]),
        "m": pa.map_(pa.string(), pa.int32()), "a.b": pa.int64(), "v": pa.string(), "w": pa.float64(),
    }
)  # fmt: skip


def leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for name, value in values.items():
        found |= leaves(value, (*above, name)) if isinstance(value, dict) else {(*above, name): value}
    return found


def stored(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values with the names that data files have for fields of structs."""
    if not pa.types.is_struct(kind):
        return values.cast(kind)
    fields = list(kind)
    return pa.StructArray.from_arrays([stored(values.field(n), f.type) for n, f in enumerate(fields)], fields=fields)


def choose(path: Path, choice: Mapping[str, str]) -> None:
    """Makes these the table's own properties of statistics: a commit as `ALTER TABLE` makes it, without its time."""
    before = read_snapshot(path)
    assert before is not None
    kept = {name: value for name, value in before.metadata.configuration.items() if name not in (COUNT, NAMES)}
    metadata = {**before.metadata.value, "configuration": {**kept, **choice}}
    info = commit_info(before, "SET TBLPROPERTIES", {})
    assert put_commit(str(path), before, [{"commitInfo": info}, {"metaData": metadata}]) is not None


@pytest.mark.parametrize("mapping", [pytest.param("none", marks=pytest.mark.full), "name"])
def test_the_same_columns_have_statistics(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, Place STRUCT<City: STRING, at: STRUCT<x: BIGINT, l: ARRAY<INT>>>,"
        f" m MAP<STRING, INT>, `a.b` BIGINT, v STRING, w DOUBLE) USING delta"
        f" TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}')"
    )
    seen = set()
    for choice in [
        {}, {COUNT: "0"}, {COUNT: "1"}, {COUNT: "3"}, {COUNT: "5"}, {COUNT: "-1"}, {NAMES: "v,id"},
        {NAMES: "PLACE.at.x"}, {NAMES: "Place.City, `a.b`", COUNT: "1"}, {NAMES: ""},
    ]:  # fmt: skip
        choose(path, choice)
        spark.sql(f"INSERT INTO delta.`{path}` SELECT {ROW}")
        _, actions = next(latest_commits(path))
        (of_spark,) = (json.loads(action["add"]["stats"]) for action in actions if "add" in action)
        snapshot = read_snapshot(path)
        assert snapshot is not None
        target = target_of(str(tmp_path), snapshot.metadata.value)
        given = pa.table(VALUES, SCHEMA).combine_chunks().to_batches()[0]
        kinds = [stored_type(column.type, with_ids=column.field_id is not None) for column in target.columns]
        arrays = [stored(values, kind) for values, kind in zip(given.columns, kinds, strict=True) if kind is not None]
        (add,) = write_rows([pa.RecordBatch.from_arrays(arrays, names=given.schema.names)], target)
        ours = json.loads(add["stats"])
        assert ours["numRecords"] == of_spark["numRecords"] == 1
        for kind in ("minValues", "maxValues", "nullCount"):
            assert leaves(ours[kind]) == leaves(of_spark.get(kind) or {}), (choice, kind)
        seen.add(tuple(leaves(ours["nullCount"])))
    assert len(seen) > 6, "the properties make a difference"
