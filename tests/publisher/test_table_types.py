"""A publish never makes a file that stops its table: its columns are compared with those that were published before."""

from __future__ import annotations

import contextlib
import json
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from published_contents import change_files, changes, fold

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.column_types import fits, table_type, widens
from lakemirror.publisher import Landing, LandingTable
from lakemirror.publisher.batches import publish_batch, publish_prepared
from lakemirror.publisher.sql import publish_sql
from lakemirror.publisher.table_types import after, note

pytestmark = pytest.mark.usefixtures("door")

INT16, INT32, INT64, DOUBLE = pa.int16(), pa.int32(), pa.int64(), pa.float64()


def table_of(db: Path, **columns: pa.DataType) -> LandingTable:
    return Landing(db).table("t", ["id"], columns=pa.schema(list(columns.items())))


def rows(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), INT64), "v": pa.array(values, kind)})


def widening(db: Path) -> None:
    (db / "mirroring.json").write_text(json.dumps({"lakemirror": {"on_type_change": "widen"}}))


def refused(call: Any, *args: Any) -> LakemirrorError:
    with pytest.raises(LakemirrorError) as caught:
        call(*args)
    assert (caught.value.code, caught.value.column) == ("type-changed", "v")
    return caught.value


def test_a_column_of_a_named_type_that_the_table_cannot_take(tmp_path: Path) -> None:
    table_of(tmp_path).insert(rows([1, 2], INT64))
    error = refused(table_of(tmp_path, v=DOUBLE).insert, rows([1, 2], INT64))
    assert "--recreate" in error.hint and "on_type_change" not in error.hint
    assert list(change_files(table_of(tmp_path).folder)) == [1]
    again = table_of(tmp_path, v=DOUBLE)  # the advice
    again.recreate()
    again.insert(rows([1, 2], INT64))


@pytest.mark.parametrize(
    ("before", "given", "values"),
    [
        (INT64, DOUBLE, [1.0, None]),
        (INT16, INT64, [5]),
        (pa.decimal128(5, 2), DOUBLE, [1.25]),
        (DOUBLE, INT64, [2**52]),
    ],
    ids=str,
)
def test_values_that_fit_get_the_column_s_type(
    tmp_path: Path, before: pa.DataType, given: pa.DataType, values: list[Any]
) -> None:
    table_of(tmp_path).insert(rows([None], before))
    published = table_of(tmp_path).insert(rows(values, given))
    assert published is not None
    found = pq.read_table(published.path)["v"]
    assert (found.type, found.to_pylist()) == (before, values)


@pytest.mark.parametrize(
    ("before", "given", "values"),
    [(INT64, DOUBLE, [1.0, 1.5]), (INT16, INT64, [5, 70_000]), (DOUBLE, INT64, [1, 2**53 + 1]),
     (INT64, pa.string(), [None, "2"]), (pa.string(), INT64, [None, 2]), (pa.date32(), pa.timestamp("us"), [None, 0]),
     (pa.decimal128(5, 2), DOUBLE, [1.25, 1.125]), (INT64, pa.bool_(), [None, True])],
    ids=str,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
def test_values_that_do_not_fit_are_refused_with_their_row(
    tmp_path: Path, before: pa.DataType, given: pa.DataType, values: list[Any]
) -> None:
    table = table_of(tmp_path)
    table.insert(rows([None], before))
    for method in (table.insert, table_of(tmp_path).upsert, table_of(tmp_path).publish_snapshot, table.load):
        assert refused(method, rows(values, given)).row == 2
    assert list(change_files(table.folder)) == [1]
    table.delete(rows(values, given))  # only its keys are looked at


def test_a_table_that_another_program_deletes_starts_again(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.insert(rows([1], INT64))
    table_of(tmp_path).drop()
    table.insert(rows(["text"], pa.string()))
    assert changes(table.folder) == [(0, {"id": 0, "v": "text"})]


def test_frames_too(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.insert(pd.DataFrame({"id": [1], "v": [1]}))
    table.insert(pd.DataFrame({"id": [2, 3], "v": [2, None]}))  # floats, to pandas
    assert [row["v"] for _, row in changes(table.folder)] == [1, 2, None]
    assert refused(table.insert, pd.DataFrame({"id": [4, 5], "v": [1, 0.5]})).row == 2


def test_a_file_without_the_column_does_not_forget_it(tmp_path: Path) -> None:
    """Neither do files of other programs, nor narrower ones."""
    table = table_of(tmp_path)
    table.insert(rows([1], INT64))
    table.delete([{"id": 0}])
    table_of(tmp_path).insert([{"id": 1, "w": "text"}])
    refused(table_of(tmp_path).insert, [{"id": 2, "v": "text"}])
    foreign = pa.table({"id": pa.array([3], INT64), "V": pa.array([3], INT16)})
    pq.write_table(foreign, table.folder / f"{4:020d}.parquet")
    table_of(tmp_path).insert(rows([2**40], INT64))
    refused(table_of(tmp_path).insert, [{"id": 2, "v": "text"}])
    refused(table_of(tmp_path).insert, rows(["text"], pa.string()))
    assert list(change_files(table.folder)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("bad", [b"", b"no Parquet at all", "string"], ids=str)
def test_behind_a_bad_file_the_last_good_one_counts(tmp_path: Path, bad: bytes | str) -> None:
    table = table_of(tmp_path)
    table.insert([{"id": 1, "v": 1.5}])
    if isinstance(bad, bytes):
        (table.folder / f"{2:020d}.parquet").write_bytes(bad)
    else:  # of another program: it stops the table
        pq.write_table(rows(["text"], pa.string()), table.folder / f"{2:020d}.parquet")
    published = table_of(tmp_path).insert([{"id": 2, "v": 2}])
    assert published is not None and pq.read_schema(published.path).field("v").type == DOUBLE


def test_behind_nothing_but_bad_files_nothing_is_guessed(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.folder.mkdir(parents=True)
    bad = table.folder / f"{1:020d}.parquet"
    bad.write_bytes(b"no Parquet at all")
    for _ in range(2):
        with pytest.raises(LakemirrorError) as caught:
            table.insert([{"id": 1}])
        assert (caught.value.code, caught.value.file) == ("file-unreadable", bad.name)
    pq.write_table(pa.table({"id": ["a"]}), bad)  # the advice
    with pytest.raises(LakemirrorError, match="type-changed"):
        table.insert([{"id": 1}])
    table.insert([{"id": "b"}])


def test_a_widening_that_the_database_allows(tmp_path: Path) -> None:
    """The advice of the error, followed: from the snapshot of smallint to the table of bigint."""
    publish = lambda values, kind: table_of(tmp_path).publish_snapshot(rows(values, kind))  # noqa: E731
    publish([1, 2, 3], INT16)
    assert "set on_type_change to widen in mirroring.json" in refused(publish, [1, 2, 70_000], INT64).hint
    widening(tmp_path)
    published = publish([1, 2, 70_000], INT64)
    assert published is not None and published.rows == 1
    assert publish([1, 2, 70_000], INT64) is None
    assert publish([1, 2, 70_000], INT32) is None
    published = publish([1, 2, 2**40], INT64)
    assert published is not None and published.rows == 1
    folder = table_of(tmp_path).folder
    assert [row["v"] for row in fold(changes(folder), ["id"])] == [1, 2, 2**40]
    refused(publish, [1, 2, 1.5], DOUBLE)
    done = MirroredDatabase(tmp_path, engine="local").sync()
    assert not done.failed


def test_the_engine_s_advice_for_a_wider_file(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.insert(rows([1], INT32))
    pq.write_table(rows([2**40], INT64), table.folder / f"{2:020d}.parquet")
    (error,) = MirroredDatabase(tmp_path, engine="local").sync().failed.values()
    assert error.code == "type-changed" and "on_type_change to widen" in error.hint
    widening(tmp_path)
    assert not MirroredDatabase(tmp_path, engine="local").sync().failed


def test_a_watermark_widens(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    url, query = f"duckdb:///{tmp_path}/a.duckdb", "select * from t"

    def publish(*statements: str) -> Any:
        with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
            for statement in statements:
                connection.execute(statement)
        return publish_sql(table_of(tmp_path), url, query, watermark="tick")

    publish("create table t (id bigint, v smallint, tick integer)", "insert into t values (1, 1, 1), (2, 2, 2)")
    wide = ("alter table t alter v type bigint", "alter table t alter tick type bigint")
    refused(publish, *wide, "insert into t values (3, 70000, 3)")
    widening(tmp_path)
    published = publish()
    assert published is not None and published.rows == 1
    assert publish() is None
    assert [row["v"] for row in fold(changes(table_of(tmp_path).folder), ["id"])] == [1, 2, 70_000]
    assert not MirroredDatabase(tmp_path, engine="local").sync().failed


def test_the_advice_for_a_number_of_a_query_that_does_not_fit(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    url, query = f"duckdb:///{tmp_path}/a.duckdb", "select * from t"

    def put(value: str) -> None:
        with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
            connection.execute(f"create or replace table t as select 1 as id, {value}::hugeint as v")

    put("5")
    publish_sql(table_of(tmp_path), url, query)
    put("170141183460469231731687303715884105727")
    with pytest.raises(LakemirrorError) as caught:
        publish_sql(table_of(tmp_path), url, query)
    assert (caught.value.code, caught.value.row, caught.value.column) == ("value-invalid", 1, "v")
    assert "--types v=text" in caught.value.hint and "--recreate" in caught.value.hint
    again = table_of(tmp_path, v=pa.string())
    again.recreate()
    publish_sql(again, url, query)
    assert changes(again.folder) == [(None, {"id": 1, "v": "170141183460469231731687303715884105727"})]


def test_every_method_widens(tmp_path: Path) -> None:
    table_of(tmp_path).insert(rows([1], INT32))
    assert "on_type_change" in refused(table_of(tmp_path).upsert, [{"id": 0, "v": 2**41}]).hint
    widening(tmp_path)
    table_of(tmp_path).upsert([{"id": 0, "v": 2**39}])
    table_of(tmp_path).upsert(rows([2**40], INT64))
    table_of(tmp_path).upsert(rows([1], INT32))
    table_of(tmp_path).upsert([{"id": 0, "v": 2**41}])
    table_of(tmp_path, v=INT64).upsert(rows([1], INT32))
    assert not MirroredDatabase(tmp_path, engine="local").sync().failed


KINDS = [
    INT16, INT32, INT64, pa.uint64(), pa.float32(), DOUBLE, pa.decimal128(5, 2), pa.decimal128(30, 2), pa.string(),
    pa.bool_(), pa.date32(), pa.timestamp("us"),
]  # fmt: skip


def test_types_after_a_file_are_those_that_the_engine_has() -> None:
    for before in KINDS:
        for given in KINDS:
            one, other = str(table_type(before)), str(table_type(given))
            found = after({"v": before}, pa.schema([("V", given)]))
            assert list(found) == ["v"]
            assert found["v"] == (given if widens(one, other) and not fits(other, one) else before)


def test_what_a_footer_notes_is_small() -> None:
    schema = pa.schema([(f"c{number}", INT64) for number in range(1000)])
    assert len(note({field.name: field.type for field in schema}, schema)) < 500


def test_a_decimal_of_more_digits(tmp_path: Path) -> None:
    table_of(tmp_path).insert([{"id": 1, "v": D("1.5")}])
    with pytest.raises(LakemirrorError, match="row 1, column v"):
        table_of(tmp_path).insert([{"id": 2, "v": D("1.25")}])


def open_twice(db: Path) -> tuple[LandingTable, LandingTable]:
    """Two publishers of a table with a column `id`; both know its types."""
    one, other = table_of(db), table_of(db)
    one.insert({"id": 7})
    other.types_before()
    return one, other


def types_of(table: LandingTable) -> list[pa.DataType]:
    _, *later = change_files(table.folder).values()
    return [pq.read_schema(path).field("v").type for path in later]


def test_another_publisher_gave_the_column_a_type_meanwhile(tmp_path: Path) -> None:
    one, other = open_twice(tmp_path)
    one.upsert(rows([1], INT64))
    error = refused(other.upsert, rows(["x"], pa.string()))
    assert error.row == 1
    assert list(change_files(other.folder)) == [1, 2]
    assert not [path for path in other.folder.parent.rglob("_publishing*") if path.is_file()]
    other.upsert(rows([2.0], DOUBLE))  # fits as a value
    one.upsert(rows([3], INT16))
    assert types_of(one) == [INT64, INT64, INT16]
    assert [row["v"] for _, row in changes(one.folder) if "v" in row] == [1, 2, 3]


def test_values_are_cast_before_they_get_their_number(tmp_path: Path) -> None:
    one, other = open_twice(tmp_path)
    one.upsert(rows([1], INT64))
    published = other.upsert(rows([5.0], DOUBLE))
    assert published is not None and (published.number, types_of(one)) == (3, [INT64, INT64])


def test_a_named_type_that_another_publisher_contradicts(tmp_path: Path) -> None:
    one, other = table_of(tmp_path), table_of(tmp_path, v=DOUBLE)
    one.insert({"id": 7})
    other.types_before()
    one.upsert(rows([1], INT64))
    refused(other.upsert, rows([1.0], DOUBLE))
    assert list(change_files(one.folder)) == [1, 2]


def test_two_first_files_at_once(tmp_path: Path) -> None:
    one, other = table_of(tmp_path), table_of(tmp_path)
    assert (one.types_before(), other.types_before()) == ({}, {})
    one.upsert(rows([1], INT64))
    refused(other.upsert, rows(["x"], pa.string()))


def test_a_snapshot_beside_another_publisher(tmp_path: Path) -> None:
    one, other = open_twice(tmp_path)
    one.upsert(rows([1], INT64))
    other.publish_snapshot(rows([1.0, 2.0], DOUBLE))
    other.publish_snapshot(rows([1.0, 3.0], DOUBLE))
    assert types_of(one) == [INT64, INT64, INT64]


def test_a_file_notes_the_columns_that_another_publisher_brought(tmp_path: Path) -> None:
    one, other = open_twice(tmp_path)
    one.upsert(rows([1], INT64))
    other.upsert({"id": 0})
    assert table_of(tmp_path).types_before() == {"id": INT64, "v": INT64}


def test_a_prepared_file_meets_a_type_of_another_publisher(tmp_path: Path) -> None:
    one, other = open_twice(tmp_path)
    fits, text = other.prepare(rows([2.0], DOUBLE)), other.prepare(rows(["x"], pa.string()))
    assert fits is not None and text is not None
    one.upsert(rows([1], INT64))
    assert publish_batch(other, "q", 1, [fits]) == 1
    refused(publish_batch, other, "q", 2, [text])
    refused(publish_prepared, other, [text])
    assert types_of(one) == [INT64, INT64]


def test_a_lost_number_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that holds no lock, as in a store, takes the number between the look and the link."""
    one, other = open_twice(tmp_path)
    number = type(other.place).number

    def slow(place: Any, kept: str, name: str) -> None:
        monkeypatch.undo()
        with contextlib.ExitStack() as unlocked:
            unlocked.enter_context(pytest.MonkeyPatch.context()).setattr(
                type(one.place), "locked", lambda _: contextlib.nullcontext()
            )
            one.upsert(rows([1], INT64))
        number(place, kept, name)

    monkeypatch.setattr(type(other.place), "number", slow)
    refused(other.upsert, rows(["x"], pa.string()))
    assert list(change_files(other.folder)) == [1, 2]


def test_a_table_is_recreated_once_the_rows_are_written(tmp_path: Path) -> None:
    table, again = table_of(tmp_path), table_of(tmp_path, v=INT64)
    table.insert(rows(["x"], pa.string()))
    again.recreate_first()
    with pytest.raises(LakemirrorError):
        again.insert({"id": 1, "v": "y"})
    assert [row["v"] for _, row in changes(table.folder)] == ["x"]
    published = again.insert({"id": 1, "v": 5})
    assert published is not None and published.number == 1
    assert (again.keys, changes(table.folder)) == (("id",), [(0, {"id": 1, "v": 5})])
    again.insert({"id": 2, "v": 6})
    assert list(change_files(table.folder)) == [1, 2]
