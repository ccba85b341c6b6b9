"""What each method leaves in the table folder, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import operator
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_contents import MARKER, change_files, changes, fold, others, retire
from tests.rounds import rounds

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Buffer, Landing, LandingTable

pytestmark = pytest.mark.usefixtures("door")


@pytest.fixture
def orders(tmp_path: Path) -> LandingTable:
    return Landing(tmp_path).table("orders", keys=["id"])


def code_of(call: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(LakemirrorError) as caught:
        call(*args, **named)
    return caught.value.code


def test_each_method_writes_its_marker_last_as_int32(orders: LandingTable) -> None:
    rows = [{"id": 1, "name": "a"}]
    written = [orders.insert(rows), orders.update(rows), orders.upsert(rows), orders.delete(rows)]
    for number, (published, marker) in enumerate(zip(written, (0, 1, 2 + 2, 2), strict=True), start=1):
        assert published is not None and published.number == number and published.rows == 1
        assert published.path.name == f"{number:020d}.parquet"
        table = pq.read_table(published.path)
        assert table.column_names[-1] == MARKER
        assert table.schema.field(MARKER).type == pa.int32()
        assert table[MARKER].to_pylist() == [marker]


def test_a_load_has_no_marker(orders: LandingTable) -> None:
    orders.load(pa.table({"id": [1, 2]}))
    assert changes(orders.folder) == [(None, {"id": 1}), (None, {"id": 2})]


def test_an_empty_load_makes_the_table_and_other_empty_changes_leave_nothing(orders: LandingTable) -> None:
    nothing = pa.table({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())})
    assert orders.insert(nothing) is None
    assert change_files(orders.folder) == {}
    published = orders.load(nothing)
    assert published.number == 1
    assert pq.read_schema(published.path).names == ["id", "name"]
    assert orders.delete([]) is None


def test_a_load_without_any_column_is_refused(orders: LandingTable) -> None:
    assert code_of(orders.load, []) == "input-invalid"


def test_a_delete_publishes_the_keys_alone(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("lines", keys=["order", "line"])
    table.delete([{"line": 1, "text": "x", "order": 7}])
    assert changes(table.folder) == [(2, {"line": 1, "order": 7})]


def test_metadata_comes_before_the_first_file(orders: LandingTable) -> None:
    orders.insert([{"id": 1}])
    assert json.loads((orders.folder / "_metadata.json").read_text()) == {"keyColumns": ["id"]}
    assert others(orders.folder) == set()


def test_schema_folder(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("customers", ["id"], "sales")
    table.insert([{"id": 1}])
    assert table.folder == tmp_path / "Files/LandingZone/sales.schema/customers"
    assert list(change_files(table.folder)) == [1]


class Capsule:
    """A library of its own that offers nothing but the Arrow PyCapsule interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class ArrayCapsule:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


TABLE = pa.table({"id": [1, 2], "name": ["a", None]})


@pytest.mark.parametrize(
    "rows",
    [
        lambda: TABLE,
        lambda: TABLE.to_batches()[0],
        lambda: TABLE.to_reader(),
        lambda: Capsule(TABLE),
        lambda: ArrayCapsule(TABLE.to_batches()[0]),
        lambda: pd.DataFrame({"id": [1, 2], "name": ["a", None]}, index=[8, 9]),
        lambda: [{"id": 1, "name": "a"}, {"id": 2}],
        lambda: ({"id": id, "name": name} for id, name in ((1, "a"), (2, None))),
    ],
    ids=["table", "batch", "reader", "stream", "array", "pandas", "dicts", "generator"],
)
def test_rows_in_any_form(orders: LandingTable, rows: Callable[[], Any]) -> None:
    orders.insert(rows())
    assert changes(orders.folder) == [(0, {"id": 1, "name": "a"}), (0, {"id": 2, "name": None})]
    assert pq.read_table(change_files(orders.folder)[1]).schema.types == [pa.int64(), pa.string(), pa.int32()]


@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
def test_one_dict_is_one_row(orders: LandingTable) -> None:
    orders.upsert({"id": 5, "tags": ["x"]})
    assert changes(orders.folder) == [(4, {"id": 5, "tags": '["x"]'})]


def test_columns_of_later_dicts_are_not_lost(orders: LandingTable) -> None:
    orders.insert([{"id": 1}, {"id": 2, "late": "x"}])
    assert changes(orders.folder) == [(0, {"id": 1, "late": None}), (0, {"id": 2, "late": "x"})]


def test_all_columns_are_nullable_but_the_marker(orders: LandingTable) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    orders.insert(pa.Table.from_pydict({"id": [1]}, schema=schema))
    assert pq.read_schema(change_files(orders.folder)[1]).field("id").nullable


def test_small_batches_become_one_row_group(orders: LandingTable) -> None:
    batches = [pa.record_batch({"id": [number]}) for number in range(500)]
    orders.insert(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    footer = pq.read_metadata(change_files(orders.folder)[1])
    assert (footer.num_rows, footer.num_row_groups) == (500, 1)
    statistics = footer.row_group(0).column(1).statistics
    assert (statistics.min, statistics.max) == (0, 0)  # tells the engine that nothing is merged


def test_given_markers_keep_their_order(orders: LandingTable) -> None:
    orders.changes(pa.table({MARKER: ["0", "4", "2", None], "id": [1, 2, 1, 3]}))
    table = pq.read_table(change_files(orders.folder)[1])
    assert table.column_names == ["id", MARKER]
    assert table[MARKER].to_pylist() == [0, 4, 2, None]
    assert table.schema.field(MARKER).type == pa.int32()


def test_given_markers_under_another_name(orders: LandingTable) -> None:
    orders.changes([{"op": 4, "id": 1}], marker="op")
    assert changes(orders.folder) == [(4, {"id": 1})]


@pytest.mark.parametrize("markers", [[0, 7], [0, 3], ["0", "x"], [0.0, 0.5]])
def test_a_wrong_marker_is_refused_and_nothing_is_published(orders: LandingTable, markers: list[Any]) -> None:
    assert code_of(orders.changes, pa.table({"id": [1, 2], MARKER: markers})) == "row-marker-invalid"
    assert change_files(orders.folder) == {}
    assert not list(orders.folder.glob("_publishing-*"))


def test_the_wrong_marker_is_named_with_its_row(orders: LandingTable) -> None:
    batches = [pa.record_batch({"id": [1], MARKER: [0]}), pa.record_batch({"id": [2, 3], MARKER: [4, 9]})]
    with pytest.raises(LakemirrorError, match="row 3 has the marker 9") as caught:
        orders.changes(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert caught.value.row == 3


def test_markers_where_none_belong(orders: LandingTable) -> None:
    assert code_of(orders.insert, [{"id": 1, MARKER: 0}]) == "input-invalid"
    assert code_of(orders.changes, [{"id": 1}]) == "input-invalid"


@pytest.mark.parametrize("rows", [7, "text", b"bytes", [1, 2], object(), [{1: "a"}]])
def test_what_is_no_rows_is_refused(orders: LandingTable, rows: Any) -> None:
    assert code_of(orders.insert, rows) == "input-invalid"


def test_values_that_do_not_fit(tmp_path: Path, orders: LandingTable) -> None:
    assert code_of(orders.insert, [{"id": 1, "x": "a"}, {"id": 2, "x": 5}]) == "value-invalid"
    assert code_of(orders.insert, [{"id": 10**38}]) == "value-invalid"
    assert code_of(orders.insert, pd.DataFrame({"id": [1, "a"]})) == "value-invalid"
    typed = Landing(tmp_path).table("typed", ["id"], columns=pa.schema([("id", pa.int8())]))
    assert code_of(typed.insert, [{"id": 300}]) == "value-invalid"
    assert code_of(typed.insert, pa.table({"id": [300]})) == "value-invalid"


def test_updates_need_keys(tmp_path: Path) -> None:
    log = Landing(tmp_path).table("log")
    assert log.insert([{"line": "a"}]) is not None
    for method in (log.update, log.upsert, log.delete, log.publish_snapshot):
        assert code_of(method, [{"line": "a"}]) == "key-columns-missing"
    assert not (log.folder / "_metadata.json").exists()


def test_rows_without_a_key_column(orders: LandingTable) -> None:
    for method in (orders.load, orders.insert, orders.upsert, orders.delete):
        assert code_of(method, [{"name": "a"}]) == "key-column-absent"
    assert code_of(orders.insert, [{"id": None}]) == "key-column-absent"  # no type, so no column
    assert orders.insert([{"ID": 1}]) is not None  # names are matched without regard to case


def test_columns_that_differ_in_case_alone(orders: LandingTable) -> None:
    assert code_of(orders.insert, [{"id": 1, "name": "a", "Name": "b"}]) == "columns-ambiguous"


@pytest.mark.parametrize("name", ["", "_x", ".x", "a/b", "a\\b", "..", " a", "a\0"])
def test_names_that_make_no_table(tmp_path: Path, name: str) -> None:
    assert code_of(Landing(tmp_path).table, name) == "input-invalid"
    if name:
        assert code_of(Landing(tmp_path).table, "orders", None, name) == "input-invalid"


def test_keys_are_taken_from_the_folder(tmp_path: Path, orders: LandingTable) -> None:
    orders.insert([{"id": 1}])
    again = Landing(tmp_path).table("orders")
    assert again.keys == ("id",)
    assert again.delete([{"id": 1}]) is not None


def test_other_keys_are_refused_and_the_same_in_another_order_are_not(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.table("t", ["a", "b"]).insert([{"a": 1, "b": 2}])
    landing.table("t", ["b", "a"]).insert([{"a": 1, "b": 2}])
    table = landing.table("t", ["a"])
    assert code_of(table.insert, [{"a": 1, "b": 2}]) == "key-columns-changed"
    assert list(change_files(table.folder)) == [1, 2]


def test_keys_declared_late_keep_the_rest_of_the_metadata(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", ["id"])
    table.folder.mkdir(parents=True)
    (table.folder / "_metadata.json").write_text('\ufeff{"KeyColumns": [], "IsUpsertDefaultRowMarker": true}')
    table.insert([{"id": 1}])
    written = json.loads((table.folder / "_metadata.json").read_text())
    assert written == {"keyColumns": ["id"], "IsUpsertDefaultRowMarker": True}


def test_metadata_that_only_the_engine_forgives(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t")
    table.folder.mkdir(parents=True)
    (table.folder / "_metadata.json").write_text('{"keyColumns": ["id"],}')  # as in the vendor's own sample
    table.upsert([{"id": 1}])
    assert table.keys == ("id",)
    (table.folder / "_metadata.json").write_text('{"keyColumns": [],}')
    assert code_of(Landing(tmp_path).table("t", ["id"]).insert, [{"id": 1}]) == "metadata-invalid"


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("{", "metadata-invalid"),
        ("[]", "metadata-invalid"),
        ('{"keyColumns": "id"}', "metadata-invalid"),
        ('{"FileFormat": "csv"}', "not-supported"),
        ('{"isPartitionEnabled": "true"}', "not-supported"),
    ],
)
def test_metadata_that_this_publisher_must_not_write_under(orders: LandingTable, metadata: str, code: str) -> None:
    orders.folder.mkdir(parents=True)
    (orders.folder / "_metadata.json").write_text(metadata)
    assert code_of(orders.insert, [{"id": 1}]) == code
    assert change_files(orders.folder) == {}
    assert (orders.folder / "_metadata.json").read_text() == metadata


@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
def test_dicts_take_on_the_types_of_before(tmp_path: Path, orders: LandingTable) -> None:
    day = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
    orders.insert([{"id": 1, "price": 1.5, "tags": ["a"], "at": day}])
    again = Landing(tmp_path).table("orders", ["id"])  # another process, another day
    again.insert([{"id": 2, "price": 2, "tags": ["b"], "at": day}])
    again.insert([{"id": 3, "price": None}])
    schemas = [pq.read_schema(path) for path in change_files(orders.folder).values()]
    assert schemas[1] == schemas[0]
    assert schemas[2].field("price").type == pa.float64()
    assert code_of(again.insert, [{"id": 4, "price": "dear"}]) == "type-changed"
    assert code_of(again.insert, [{"id": 4.5}]) == "value-invalid"


def test_a_number_of_its_own(orders: LandingTable) -> None:
    orders.insert([{"id": 2}], number=2)
    orders.insert([{"id": 3}])
    orders.insert([{"id": 1}], number=1)
    assert changes(orders.folder) == [(0, {"id": 1}), (0, {"id": 2}), (0, {"id": 3})]
    assert code_of(orders.insert, [{"id": 1}], number=2) == "publish-conflict"


def test_drop_and_recreate(orders: LandingTable) -> None:
    orders.insert([{"id": 1, "x": 1}])
    orders.insert([{"id": 2, "x": 2}])
    orders.recreate()
    assert {path.name for path in orders.folder.iterdir()} - {"_sequence"} == {"_metadata.json"}
    orders.insert([{"id": "a", "x": "other types now"}])
    assert changes(orders.folder) == [(0, {"id": "a", "x": "other types now"})]
    orders.drop()
    assert list(orders.folder.parent.iterdir()) == []
    orders.drop()  # a second time: nothing to do


def test_recreate_keeps_keys_that_only_the_folder_knew(tmp_path: Path, orders: LandingTable) -> None:
    orders.insert([{"id": 1}])
    again = Landing(tmp_path).table("orders")
    again.recreate()
    assert again.keys == ("id",)


def test_fold_of_a_life(orders: LandingTable) -> None:
    orders.load([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    orders.update([{"id": 1, "v": "c"}])
    orders.delete([{"id": 2}])
    orders.upsert([{"id": 3, "v": "d"}])
    assert fold(changes(orders.folder), ["id"]) == [{"id": 1, "v": "c"}, {"id": 3, "v": "d"}]


def test_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    table = Landing(tmp_path / "file").table("t", ["id"])
    for method in (table.insert, table.load, table.publish_snapshot):
        assert code_of(method, [{"id": 1}]) == "storage-unavailable"
    table.drop()  # there is none


METHODS = {"insert": 0, "update": 1, "upsert": 4, "delete": 2}
CALLS = st.lists(
    st.tuples(
        st.sampled_from([*METHODS, "changes"]),
        st.lists(
            st.fixed_dictionaries(
                {"k": st.sampled_from([None, 1, 2, 3]), "v": st.sampled_from([None, "x", "y"])},
                optional={MARKER: st.sampled_from([0, 1, 2, 4])},
            ),
            max_size=4,
        ),
        st.booleans(),
    ),
    max_size=8,
)


@given(CALLS, st.sampled_from([None, 1, 3, 100]))
@settings(max_examples=rounds(20, 60), deadline=None)
def test_any_calls_fold_to_what_was_asked_for(
    calls: list[tuple[str, list[dict[str, Any]], bool]], gather: int | None
) -> None:
    """Whatever is gathered into one file and whatever has been moved aside, the changes come in their order."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    wanted: list[tuple[int | None, dict[str, Any]]] = []
    buffer = None if gather is None else Buffer(rows=gather, seconds=3600)
    with tempfile.TemporaryDirectory() as db, Landing(db).table("t", ["k"], columns=schema, buffer=buffer) as table:
        for method, rows, applied in calls:
            plain = [{"k": row["k"], "v": row["v"]} for row in rows]
            markers = [row.get(MARKER, 0) for row in rows] if method == "changes" else [METHODS[method]] * len(rows)
            if method == "changes":
                given_rows = pa.Table.from_pylist(plain, schema).append_column(MARKER, pa.array(markers, pa.int64()))
                table.changes(given_rows)
            else:
                getattr(table, method)(pa.Table.from_pylist(plain, schema))
            wanted.extend(zip(markers, plain, strict=True))
            if applied and table.folder.is_dir():
                retire(table.folder)
        table.flush()
        found = changes(table.folder) if table.folder.is_dir() else []
        assert [marker for marker, _ in found] == [marker for marker, _ in wanted]
        by_key = operator.itemgetter("k", "v")
        assert sorted(map(str, map(by_key, fold(found, ["k"])))) == sorted(map(str, map(by_key, fold(wanted, ["k"]))))
