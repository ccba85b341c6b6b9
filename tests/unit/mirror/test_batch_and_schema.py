"""What footers tell: which files one apply may take, whether it has to look for old rows, what becomes of columns."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.delta.schema import Column, from_delta, is_widened, to_delta
from lakemirror.errors import Bad, TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.column_types import file_columns
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.mirror.next_batch import Limits, next_batch
from lakemirror.mirror.schema_evolution import ColumnRules, evolve
from lakemirror.storage import Entry

MARKER = "__rowMarker__"


def change_file(number: int, rows: dict[str, Any] | pa.Table, **options: Any) -> ChangeFile:
    buffer = io.BytesIO()
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), buffer, **options)
    size = buffer.tell()
    return ChangeFile(Entry(f"t/{number:020}.parquet", size, number), number, pq.read_metadata(buffer))


def batch(
    files: list[ChangeFile], keys: tuple[str, ...] = ("id",), columns: tuple[Column, ...] = (), **more: Any
) -> Any:
    """The batch, if there is one, and why the file after it cannot be applied, if there is one."""
    metadata = TableMetadata(keys, upsert_by_default=more.pop("upsert_by_default", False))
    limits = Limits(more.pop("most_files", 100), more.pop("most_bytes", 10**9))
    try:
        found = next_batch(files, columns, metadata, limits=limits, **more)
    except Bad as bad:
        return None, bad.rejected
    return found, found.rejected


@pytest.mark.parametrize(
    ("rows", "options", "append_only"),
    [
        ({"id": [1]}, {}, True),
        ({"id": [1]}, {"upsert_by_default": True}, False),
        ({"id": [1], MARKER: [0]}, {}, True),
        ({"id": [1], MARKER: ["0"]}, {}, True),
        ({"id": [1, 2], MARKER: [0, None]}, {}, True),
        ({"id": [1, 2], MARKER: [0, None]}, {"upsert_by_default": True}, False),
        ({"id": [1, 2], MARKER: [0, 4]}, {}, False),
        ({"id": [1], MARKER: [0]}, {"mixed": True}, False),
        ({"id": pa.array([], pa.int64()), MARKER: pa.array([], pa.int32())}, {}, True),
    ],
)
def test_append_only(rows: dict[str, Any], options: dict[str, Any], append_only: bool) -> None:
    found, error = batch([change_file(1, rows)], **options)
    assert error is None
    assert found.append_only is append_only


def test_a_marker_column_without_statistics_is_mixed() -> None:
    found, _ = batch([change_file(1, {"id": [1], MARKER: [0]}, write_statistics=False)])
    assert not found.append_only


def test_a_batch_ends_before_the_first_bad_file_and_says_why() -> None:
    files = [change_file(1, {"id": [1]}), change_file(2, {"id": ["x"]}), change_file(3, {"id": [3]})]
    found, error = batch(files)
    assert [f.file.number for f in found.files] == [1]
    assert error.code == "type-changed"
    assert (error.file, error.column) == (files[1].entry.path, "id")
    nothing, same = batch(files[1:], columns=found.columns)
    assert nothing is None
    assert same.message == error.message


def test_a_batch_is_bounded_but_never_empty() -> None:
    files = [change_file(n, {"id": [n]}) for n in (1, 2, 3)]
    assert len(batch(files, most_files=2)[0].files) == 2
    assert len(batch(files, most_bytes=1)[0].files) == 1
    assert batch(files)[0].rows == 3


@pytest.mark.parametrize(
    ("rows", "keys", "code"),
    [
        ({"id": [1], MARKER: [0.5]}, ("id",), "row-marker-invalid"),
        ({"id": [1], MARKER: [True]}, ("id",), "row-marker-invalid"),
        ({"id": [1], MARKER: [[1]]}, ("id",), "row-marker-invalid"),
        ({"v": [1], MARKER: [1]}, ("id",), "key-column-absent"),
        ({"id": [1], "ID": [2]}, ("id",), "columns-ambiguous"),
        ({"id": [1], "": [2]}, ("id",), "column-name-invalid"),
        ({"id": [1], "__LakeMirror_Row__": [2]}, ("id",), "column-name-invalid"),
        ({"id": pa.nulls(2)}, ("id",), "type-unsupported"),
    ],
)
def test_files_that_are_refused_by_their_footer(rows: dict[str, Any], keys: tuple[str, ...], code: str) -> None:
    found, error = batch([change_file(1, rows)], keys)
    assert found is None
    assert error.code == code


def test_inserts_need_no_key_column() -> None:
    found, error = batch([change_file(1, {"v": [1], MARKER: [0]})])
    assert (found.append_only, error) == (True, None)


def columns_of(rows: dict[str, Any]) -> list[Any]:
    return file_columns(change_file(1, rows).footer)


def test_columns_are_added_in_the_order_of_first_sight() -> None:
    table = evolve((), columns_of({"b": [1], MARKER: [0], "a": ["x"]}), "f1")
    assert table == (Column("b", "bigint"), Column("a", "string"))
    table = evolve(table, columns_of({"C": [1.5], "B": pa.array([1], pa.int32())}), "f2")
    assert table == (Column("b", "bigint"), Column("a", "string"), Column("C", "double"))
    assert evolve(table, columns_of({"z": pa.nulls(1)}), "f3") == table, "a column without a type yet"


def test_delta_and_back() -> None:
    types = ["smallint", "int", "bigint", "float", "double", "boolean", "string", "binary", "date", "timestamp"]
    columns = tuple(Column(f"c{i}", t) for i, t in enumerate([*types, "decimal(20,0)"]))
    assert from_delta(to_delta(columns)) == columns
    assert '"nullable": true' in to_delta(columns)
    assert "false" not in to_delta(columns)


def test_type_change_names_both_types() -> None:
    with pytest.raises(TableError) as caught:
        evolve((Column("a", "int"),), columns_of({"A": [1]}), "f")
    assert caught.value.message == "f: column 'A' is bigint in this file and int in the table"


@pytest.mark.parametrize(
    ("column", "file", "widened"),
    [
        ("smallint", pa.int32(), "int"),
        ("smallint", pa.int64(), "bigint"),
        ("smallint", pa.float64(), "double"),
        ("smallint", pa.float32(), None),  # Delta does not
        ("int", pa.int64(), "bigint"),
        ("int", pa.float64(), "double"),
        ("int", pa.float32(), None),
        ("int", pa.decimal128(12, 2), "decimal(12,2)"),
        ("int", pa.decimal128(11, 2), None),
        ("bigint", pa.uint64(), "decimal(20,0)"),
        ("bigint", pa.float64(), None),  # not every number is a double
        ("float", pa.float64(), "double"),
        ("decimal(9,2)", pa.decimal128(12, 4), "decimal(12,4)"),
        ("decimal(9,2)", pa.decimal128(10, 4), None),
        ("decimal(9,0)", pa.int64(), None),  # lossless, but Delta does not
        ("string", pa.int64(), None),
        ("int", pa.string(), None),
        ("date", pa.timestamp("us"), None),
    ],
)
def test_a_column_widens_where_nothing_is_lost_and_delta_can(
    column: str, file: pa.DataType, widened: str | None
) -> None:
    found = columns_of({"a": pa.array([None], file)})
    before = (Column("a", column), Column("b", "string"))
    if widened is None:
        with pytest.raises(TableError, match="column 'a' is"):
            evolve(before, found, "f", ColumnRules(widen=True))
    else:
        assert evolve(before, found, "f", ColumnRules(widen=True)) == (Column("a", widened), Column("b", "string"))
        with pytest.raises(TableError, match="column 'a' is"):
            evolve(before, found, "f")


def test_what_a_schema_says_of_its_columns_stays_and_wider_types_are_recorded() -> None:
    before = to_delta((Column("a", "smallint"), Column("b", "string"))).replace(
        '"metadata": {}', '"metadata": {"id": 1}'
    )
    once = to_delta((Column("a", "int"), Column("b", "string"), Column("c", "date")), before)
    twice = to_delta((Column("a", "bigint"), Column("b", "string"), Column("c", "date")), once)
    fields = {field["name"]: field for field in json.loads(twice)["fields"]}
    assert fields["a"] == {
        "name": "a", "type": "long", "nullable": True,
        "metadata": {"id": 1, "delta.typeChanges": [
            {"toType": "integer", "fromType": "short"}, {"toType": "long", "fromType": "integer"},
        ]},
    }  # fmt: skip
    assert (fields["b"]["metadata"], fields["c"]["metadata"]) == ({"id": 1}, {})
    assert (is_widened(before), is_widened(twice)) == (False, True)


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "{a}", "(a)", "a\nb", "a\tb", "a=b", " "])
def test_names_that_need_column_mapping(name: str) -> None:
    found, _ = batch([change_file(1, {"id": [1], name: [1]})])
    assert [column.name for column in found.columns] == ["id", name]
    assert [warning.code for warning in found.warnings] == ["column-mapping"]
    with pytest.raises(TableError, match="declared reader") as caught:
        evolve((), columns_of({name: [1]}), "f", ColumnRules(map_names=False))
    assert caught.value.code == "column-name-invalid"


def test_a_nul_is_refused_because_readers_lose_the_column() -> None:
    for name in ("a\0b", ""):
        with pytest.raises(TableError, match=r"NUL|without a name") as caught:
            evolve((), columns_of({name: [1]}), "f")
        assert caught.value.code == "column-name-invalid"
        assert "another name" in caught.value.hint and "space" not in caught.value.hint


def test_names_of_the_change_data_feed_are_its_own() -> None:
    assert evolve((), columns_of({"_change_type": [1]}), "f")
    with pytest.raises(TableError, match="change data feed"):
        evolve((), columns_of({"_Change_Type": [1]}), "f", ColumnRules(reserved=frozenset({"_change_type"})))


@pytest.mark.parametrize("name", [
    "__rowmarker__", "RowMarker", "_rowMarker_", " __rowMarker__ ", "__ROWMARKER__ ", "row_marker", "__row_marker__",
    "row-marker", "Row Marker", "__row-Marker__", "r o w_m-arker",
])  # fmt: skip
def test_a_misspelt_row_marker(name: str) -> None:
    """It would be a column, and every row an insert."""
    found, error = batch([change_file(1, {"id": [1]}), change_file(2, {"id": [1], name: [2]})])
    assert len(found.files) == 1
    assert error is not None
    assert (error.code, error.column) == ("row-marker-misspelt", name)
    found, error = batch([change_file(2, {"id": [1], name: [2]})], rules=ColumnRules(misspelt_marker=True))
    assert error is None
    assert [column.name for column in found.columns] == ["id", name]
    found, error = batch([change_file(2, {"id": [1], name: [2], MARKER: [0]})])
    assert error is None, "beside the right one it is a column"


@pytest.mark.parametrize("name", ["rowMarkers", "rowMarker2", "row.marker", "rowmark"])
def test_other_names_are_columns(name: str) -> None:
    found, error = batch([change_file(1, {"id": [1], name: [2]})])
    assert error is None
    assert found.append_only


def test_two_row_marker_columns() -> None:
    rows = pa.Table.from_arrays([pa.array([1])] * 3, ["id", MARKER, MARKER])
    found, error = batch([change_file(1, rows)])
    assert found is None
    assert error is not None
    assert (error.code, error.column) == ("columns-ambiguous", MARKER)
