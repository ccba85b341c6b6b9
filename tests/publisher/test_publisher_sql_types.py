"""Every type of PostgreSQL, SQLite and DuckDB arrives as docs/how-to/publish-from-sql.md says."""

from __future__ import annotations

import datetime as dt
import sqlite3
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing, LandingTable
from lakemirror.publisher.sources.sql_types import Digits, ReadAs, decided
from lakemirror.publisher.sql import publish_sql

pytestmark = pytest.mark.usefixtures("door")

UTC = dt.timezone.utc
POSTGRES: dict[str, tuple[str, pa.DataType, Any, str]] = {
    # column: SQL, type in the change file, value, what the warning says
    "price": ("'12.50'::numeric(30,10)", pa.decimal128(30, 10), Decimal("12.5000000000"), ""),
    "free": ("'-1234.5678'::numeric", pa.decimal128(38, 4), Decimal("-1234.5678"), ""),
    "wide": ("('1' || repeat('0', 40))::numeric(50,0)", pa.string(), "1" + "0" * 40, "--column wide=TYPE"),
    "odd": ("'NaN'::numeric", pa.string(), "NaN", "NaN"),
    "nothing": ("null::numeric", None, None, ""),
    "cash": ("'12.30'::money", pa.decimal128(19, 2), Decimal("12.30"), ""),
    "pause": ("'1 year 2 days 03:00'::interval", pa.string(), "P1Y2DT3H", "ISO 8601 duration"),
    "zoned": ("'12:30:00+02'::timetz", pa.string(), "12:30:00+02", "HH:MM:SS with its offset"),
    "hour": ("'12:30'::time", pa.string(), "12:30:00", "HH:MM:SS"),
    "span": ("int4range(1, 5)", pa.string(), "[1,5)", "int4range"),
    "mood": ("'fine'::mood", pa.string(), "fine", ""),
    "vat": ("'19.5'::rate", pa.decimal128(5, 2), Decimal("19.50"), ""),
    "place": ("row(1, 'a')::place", pa.string(), '{"x": 1, "name": "a"}', "JSON string"),
    "tags": ("array['a', null]", pa.string(), '["a", null]', "JSON string"),
    "prices": ("array[1.50, 2]", pa.string(), "[1.50, 2]", "JSON string"),
    "ever": ("'infinity'::date", pa.date32(), dt.date(9999, 12, 31), "infinite"),
    "since": ("'-infinity'::timestamptz", pa.timestamp("us", "UTC"), dt.datetime(1, 1, 1, tzinfo=UTC), ""),
    "at": ("'2026-03-01 07:08'::timestamp", pa.timestamp("us"), dt.datetime(2026, 3, 1, 7, 8), "without a zone"),
    "doc": ("'{\"a\": 1}'::jsonb", pa.string(), '{"a": 1}', ""),
    "key": ("'00000000-0000-0000-0000-000000000001'::uuid", pa.string(), "00000000-0000-0000-0000-000000000001", ""),
    "host": ("'10.0.0.1'::inet", pa.string(), "10.0.0.1/32", "inet"),
    "raw": ("'\\x01'::bytea", pa.binary(), b"\x01", ""),
    "flags": ("b'101'", pa.string(), "101", "bit"),
    "small": ("1::int2", pa.int16(), 1, ""),
    "real": ("1.5::float4", pa.float32(), 1.5, ""),
}  # fmt: skip


def published(table: LandingTable, url: str, query: str, **given: Any) -> tuple[pa.Table, list[str]]:
    """The newest change file, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        publish_sql(table, url, query, **given)
    return pq.read_table(max(table.folder.glob("0*.parquet"))), [str(each.message) for each in caught]


@pytest.fixture(scope="module")
def database(postgres: str) -> str:
    import adbc_driver_postgresql.dbapi

    with adbc_driver_postgresql.dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in ("create type mood as enum ('fine', 'bad')", "create domain rate as numeric(5,2)",
                          "create type place as (x int, name text)",
                          "create table growing (id int, amount numeric, changed numeric)"):  # fmt: skip
            cursor.execute(statement)
    return postgres


def test_postgresql_types(database: str, tmp_path: Path) -> None:
    table = Landing(tmp_path).table("types")
    query = "select " + ", ".join(f"{sql} as {name}" for name, (sql, *_) in POSTGRES.items())
    found, warned = published(table, database, query)
    (row,) = found.to_pylist()
    for name, (_, kind, value, warning) in POSTGRES.items():
        if kind is None:
            assert name not in found.column_names
            continue
        assert (found.schema.field(name).type, row[name]) == (kind, value), name
        said = [each for each in warned if f"column {name} " in each or (warning == "infinite" and "infinite" in each)]
        assert len(said) == bool(warning) and all(warning in each for each in said), (name, said)
    _, again = published(table, database, query)
    assert again == []


def test_a_number_without_precision_keeps_its_first_type(database: str, tmp_path: Path) -> None:
    import adbc_driver_postgresql.dbapi

    table = Landing(tmp_path).table("growing", ["id"])
    query = "select * from growing"
    with adbc_driver_postgresql.dbapi.connect(database, autocommit=True) as emptied, emptied.cursor() as cursor:
        cursor.execute("truncate growing")

    def put(*values: str) -> tuple[pa.Table, list[str]]:
        with adbc_driver_postgresql.dbapi.connect(database, autocommit=True) as made, made.cursor() as cursor:
            cursor.execute(f"insert into growing values {', '.join(values)}")
        return published(table, database, query, watermark="changed")

    assert put("(1, 1.25, 1)", "(2, null, 1)")[0]["amount"].to_pylist() == [Decimal("1.25"), None]
    found, warned = put("(3, 2.5, 2)")
    assert (found["amount"].to_pylist(), found["id"].to_pylist(), warned) == ([Decimal("2.50")], [3], [])
    with pytest.raises(LakemirrorError) as caught:
        put("(4, 2.555, 3)")
    assert (caught.value.code, caught.value.column) == ("value-invalid", "amount")
    assert "--types amount=" in caught.value.hint
    chosen = Landing(tmp_path).table("chosen", ["id"], columns=pa.schema([("amount", pa.float64())]))
    assert published(chosen, database, query)[0]["amount"].type == pa.float64()


def test_sqlite_decimals(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("create table t (id integer primary key, price decimal(10,2), note text, rate real)")
    connection.execute("insert into t values (1, 0.1, 'a', 0.5), (2, 12345678.9, null, 1)")
    connection.commit()
    table = Landing(tmp_path).table("t", ["id"])
    found, warned = published(table, f"sqlite:///{tmp_path}/a.db", "select * from t order by id")
    assert found["price"].to_pylist() == [Decimal("0.10"), Decimal("12345678.90")]
    assert (found.schema.field("rate").type, warned) == (pa.float64(), [])
    connection.execute("insert into t values (3, 0.125, 'c', 1)")
    connection.commit()
    with pytest.raises(LakemirrorError) as caught:
        publish_sql(table, f"sqlite:///{tmp_path}/a.db", "select * from t")
    assert caught.value.code == "value-invalid"


SQLITE: list[tuple[str, list[Any], pa.DataType | None, list[Any] | int]] = [
    # declared type, stored values, type and values of the column, or the number of the row that is refused
    ("integer", [], pa.int64(), []),
    ("bigint", [None, 2**63 - 1], pa.int64(), [None, 2**63 - 1]),
    ("int", [1, "text"], None, 2),
    ("integer", [1, 1.5], None, 2),
    ("integer", [b"1"], None, 1),
    ("varchar(9)", [None], pa.string(), [None]),
    ("text", ["01", 5], pa.string(), ["01", "5"]),  # SQLite stores 5 as text here
    ("text", ["a", b"a"], None, 2),
    ("real", [1, 0.1], pa.float64(), [1.0, 0.1]),
    ("double precision", [1.5, "x"], None, 2),
    ("blob", [b"a", None], pa.binary(), [b"a", None]),
    ("blob", [b"a", "a"], None, 2),
    ("decimal(18,2)", [12345678901234.56, 5], pa.decimal128(18, 2), [Decimal("12345678901234.56"), 5]),
    ("decimal(5,2)", [1.5, 0.125], None, 2),
    ("decimal(5,2)", [1.5, "x"], None, 2),
    ("", [None], None, []),
    ("", [None, 5], pa.int64(), [None, 5]),
    ("", [5, 1.5], pa.float64(), [5.0, 1.5]),
    ("", [1.5, 2**53 + 1], None, 2),
    ("", ["a", 5], None, 2),
    ("", [5, "5"], None, 2),
    ("boolean", [1, 0], pa.int64(), [1, 0]),
    ("datetime", ["2026-01-02 03:04:05"], pa.string(), ["2026-01-02 03:04:05"]),
    ("numeric", [], None, []),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "values", "kind", "found"), SQLITE, ids=str)
def test_sqlite_s_declared_types_count(
    tmp_path: Path, declared: str, values: list[Any], kind: pa.DataType | None, found: list[Any] | int
) -> None:
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute(f"create table t (id integer primary key, v {declared})")
        connection.executemany("insert into t (v) values (?)", [(value,) for value in values])
    table, url, query = Landing(tmp_path).table("t", ["id"]), f"sqlite:///{tmp_path}/a.db", "select * from t"
    if isinstance(found, int):
        with pytest.raises(LakemirrorError) as caught:
            publish_sql(table, url, query)
        assert (caught.value.code, caught.value.row, caught.value.column) == ("value-invalid", found, "v")
        assert not table.place.has(f"{1:020d}.parquet")
        return
    published = publish_sql(table, url, query)
    assert published is not None
    content = pq.read_table(published.path)
    assert ("v" in content.column_names) == (kind is not None)
    if kind is not None:
        assert (content["v"].type, content["v"].to_pylist()) == (kind, found)


def test_the_type_of_a_sqlite_column_is_fixed_by_its_first_value(tmp_path: Path) -> None:
    """And what a later value needs is what the hint says."""
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    connection.execute("create table t (id integer primary key, v)")
    url, query = f"sqlite:///{tmp_path}/a.db", "select * from t"
    connection.execute("insert into t values (1, null)")
    publish_sql(Landing(tmp_path).table("t", ["id"]), url, query)
    connection.execute("insert into t values (2, 7)")
    publish_sql(Landing(tmp_path).table("t", ["id"]), url, query)
    connection.execute("insert into t values (3, 'text')")
    for _ in range(2):
        with pytest.raises(LakemirrorError) as caught:
            publish_sql(Landing(tmp_path).table("t", ["id"]), url, query)
        assert (caught.value.code, caught.value.row) == ("value-invalid", 3)
        assert "--column v=string --recreate" in caught.value.hint
    again = Landing(tmp_path).table("t", ["id"], columns=pa.schema([("v", pa.string())]))
    again.recreate()
    published = publish_sql(again, url, query)
    assert published is not None and pq.read_table(published.path)["v"].to_pylist() == [None, "7", "text"]
    with pytest.raises(LakemirrorError, match="column v: text beside"):  # a number is no text unless the user says so
        publish_sql(Landing(tmp_path).table("t", ["id"]), url, query)


DUCKDB: dict[str, tuple[str, pa.DataType, Any, str]] = {
    "price": ("12.5::decimal(30,10)", pa.decimal128(30, 10), Decimal("12.5000000000"), ""),
    "huge": ("170141183460469231731687303715884105727::hugeint", pa.string(), "170141183460469231731687303715884105727",
             "--column huge=TYPE"),
    "big": ("5::hugeint", pa.decimal128(38, 0), Decimal(5), ""),
    "pause": ("interval 1 day", pa.string(), "1 day", "DuckDB"),
    "tags": ("['a', 'b']", pa.string(), '["a","b"]', "JSON string"),
    "place": ("{'x': 1}", pa.string(), '{"x":1}', "JSON string"),
    "mood": ("'fine'::enum('fine', 'bad')", pa.string(), "fine", ""),
    "ever": ("'infinity'::date", pa.date32(), dt.date(9999, 12, 31), "infinite"),
    "at": ("timestamptz '2026-03-01 07:08:00+00'", pa.timestamp("us", "UTC"),
           dt.datetime(2026, 3, 1, 7, 8, tzinfo=UTC), ""),
    "key": ("'00000000-0000-0000-0000-000000000001'::uuid", pa.string(), "00000000-0000-0000-0000-000000000001", ""),
}  # fmt: skip


def test_duckdb_types(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    duckdb.connect(str(tmp_path / "a.duckdb")).close()
    query = "select " + ", ".join(f"{sql} as {name}" for name, (sql, *_) in DUCKDB.items())
    table = Landing(tmp_path).table("types")
    found, warned = published(table, f"duckdb:///{tmp_path}/a.duckdb", query)
    (row,) = found.to_pylist()
    for name, (_, kind, value, warning) in DUCKDB.items():
        assert (found.schema.field(name).type, row[name]) == (kind, value), name
        said = [each for each in warned if f"column {name} " in each or (warning == "infinite" and "infinite" in each)]
        assert len(said) == bool(warning) and all(warning in each for each in said), (name, said)


def test_a_watermark_streams_from_duckdb(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect(str(tmp_path / "a.duckdb"))
    connection.execute("create table t as select range as id, range // 100 as changed from range(200000)")
    connection.close()
    table, counts = Landing(tmp_path).table("t", ["id"]), []
    given: dict[str, Any] = {"watermark": "changed", "progress": counts.append}
    url = f"duckdb:///{tmp_path}/a.duckdb"
    assert published(table, url, "select * from t", **given)[0].num_rows == 200_000
    assert counts[-1] == 200_000 and len(counts) > 1
    assert publish_sql(table, url, "select * from t", watermark="changed") is None


def test_decisions_about_numbers() -> None:
    column = ReadAs("a", "text", undecided=True)
    assert decided(column, Digits(30, 8)).kind == pa.decimal128(38, 8)
    assert decided(column, Digits(1, 38)).kind is None
    assert decided(column, Digits(31, 8)).kind is None
    assert decided(column, Digits(None, None)).kind == pa.null()
