"""Every type of PostgreSQL: a load and the stream give the very same value, or both refuse it.

`recorded_events.json` has what Debezium 3.6 gives under `EVENT_PROPERTIES`: type, SQL of the value, value of the event.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.postgres import Postgres, execute
from tests.postgres_types import TYPES, is_known

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.loaded_rows import converted
from lakemirror.publisher.capture.postgresql.catalog import SourceTable, read_tables
from lakemirror.publisher.capture.postgresql.float_texts import double_text, single_text
from lakemirror.publisher.capture.postgresql.slot import exported_snapshot
from lakemirror.publisher.capture.postgresql.source_sessions import connected, reading
from lakemirror.publisher.capture.postgresql.types import SourceColumn

psycopg = pytest.importorskip("psycopg")

RECORDED: list[tuple[str, str, Any]] = json.loads((Path(__file__).parent / "recorded_events.json").read_text("utf-8"))
REFUSED = ("time[]", "timetz[]", "varbit", "place[]", "rate[]", "hstore[]")


@pytest.fixture(scope="module")
def database(postgres_server: Postgres) -> Iterator[str]:
    url = postgres_server.database()
    execute(url, *TYPES)
    yield url


def loaded(url: str, kinds: list[tuple[str, str]], **options: Any) -> tuple[SourceTable, pa.Table]:
    """A table with these types, and what a load reads of one row with these values and one without any."""
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(kinds))
    values = ", ".join(value for _, value in kinds)
    execute(url, "drop table if exists t", f"create table t (id int primary key, {columns})",
            "alter table t replica identity full")  # fmt: skip
    execute(url, f"insert into t values (1, {values}), (2{', null' * len(kinds)})")
    given = CaptureOptions(source=url, tables=("public.t",), **options)
    with connected(given) as connection, exported_snapshot(given) as snapshot:
        (table,) = read_tables(connection, given)
        with reading(given, snapshot.id) as reader, reader.cursor() as cursor:
            cursor.execute(f"select {', '.join(each.load_expression for each in table.columns)} from t order by id")
            return table, cursor.fetch_arrow_table().combine_chunks()


def event(column: SourceColumn, value: Any) -> pa.Array:
    """The value as the parsed event has it, with a NULL after it."""
    if pa.types.is_floating(column.arrow_type):
        return pa.array([float(value), None], pa.float64())
    if isinstance(value, list) and "NaN" in value:
        value = [float(each) for each in value]
    return pa.array([value, None])


def outcome(convert: Any, values: pa.Array) -> tuple[pa.DataType, Any] | str:
    try:
        found = convert(values)
    except BadValue as bad:
        assert bad.place == 0
        return "refused"
    value = found.cast(pa.int64())[0].as_py() if pa.types.is_timestamp(found.type) else found[0].as_py()
    assert found.null_count == (2 if value is None else 1) and len(found) == 2
    return found.type, "NaN" if isinstance(value, float) and math.isnan(value) else value


def test_a_load_and_the_stream_agree(postgres_server: Postgres, database: str) -> None:
    known = [each for each in RECORDED if is_known(postgres_server.version, *each[:2])]
    table, rows = loaded(database, [(kind, value) for kind, value, _ in known])
    refused = set()
    for column, (kind, value, given), array in zip(table.columns[1:], known, rows.columns[1:], strict=True):
        if column.refused:
            refused.add(kind)
            continue
        of_load = outcome(column.from_load, array.chunk(0))
        of_event = outcome(column.from_event, event(column, given))
        assert of_load == of_event or (kind, value) == ("date[]", "array['infinity'::date]"), (kind, value)
        if of_load != "refused":
            assert of_load[0] == column.arrow_type, kind
    assert refused == {*REFUSED, "varbit(20)", "varbit(1)"}
    assert {kind for kind, *_ in RECORDED} > {"numeric", "uuid", "interval", "text[]", "hstore", "mood", "point"}


def test_infinite_values_and_numbers_become_what_is_wanted(database: str) -> None:
    kinds = [("date", "'infinity'"), ("timestamp", "'-infinity'"), ("timestamptz", "'infinity'"),
             ("numeric(5,2)", "'NaN'"), ("numeric", "'12.5'"), ("numeric", "'NaN'")]  # fmt: skip
    table, rows = loaded(database, kinds, infinite="null", numeric="decimal(38,9)")
    events = [-2147472692, -9223372036832400000, "infinity", "NAN", "12.5", "NAN"]
    for column, array, given in zip(table.columns[1:], rows.columns[1:], events, strict=True):
        for found in (column.from_load(array.chunk(0)), column.from_event(event(column, given))):
            assert found.type == column.arrow_type
            assert found.to_pylist() == ([Decimal("12.5"), None] if given == "12.5" else [None, None]), column
    assert table.columns[5].arrow_type == pa.decimal128(38, 9)
    table, rows = loaded(database, [("numeric", "'1234.5678'")], numeric="decimal(6,2)")
    with pytest.raises(LakemirrorError) as caught:
        converted(table, rows.to_batches()[0])
    assert (caught.value.code, caught.value.column, caught.value.table) == ("capture-value", "c0", "public.t")
    assert "row 1" in caught.value.message and "--numeric" in caught.value.hint
    with pytest.raises(LakemirrorError) as caught:
        converted(*(lambda found: (found[0], found[1].to_batches()[0]))(loaded(database, kinds[:1])))
    assert "--infinite null" in caught.value.hint and "infinite" in caught.value.message


def test_floating_point_numbers_have_the_text_of_the_database(database: str) -> None:
    chance = random.Random(seed := random.randrange(10**9))
    doubles = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(500)]
    doubles += [
        chance.randrange(1, 10 ** chance.randrange(1, 18)) * 10.0 ** chance.randrange(-8, 18) for _ in range(500)
    ]
    doubles += [0.0, -0.0, 1e15, 1e14, 1e-4, 1e-5, 2.0**53, 2.0**60, 9007199254740993e3]
    singles = [struct.unpack("f", chance.randbytes(4))[0] for _ in range(500)]
    singles += [struct.unpack("f", struct.pack("f", float(chance.randrange(10**9))))[0] for _ in range(500)]
    with psycopg.connect(database) as connection:
        for kind, numbers, text in (("float8", doubles, double_text), ("float4", singles, single_text)):
            given = "unnest(%s::float8[]) with ordinality as given(number, place)"
            query = f"select number::{kind}::text from {given} order by place"
            found = [each for (each,) in connection.execute(query.encode(), (numbers,)).fetchall()]
            assert found == [text(number) for number in numbers], seed


def test_types_whose_large_values_are_not_marked_as_unsent_need_the_whole_row(database: str) -> None:
    """Debezium gives NULL, or ends, for these values where an update did not send them."""
    kinds = ("float8[]", "numeric[]", "timestamp[]", "mood[]", "bit(9000)", "dtags", "int2[]")
    options = CaptureOptions(source=database, tables=("public.t",))
    for kind in (*kinds, "text[]", "uuid[]", "bytea[]", "int[]", "bit(64)", "place"):
        execute(database, "drop table if exists t", f"create table t (id int primary key, value {kind})")
        with connected(options) as connection:
            (table,) = read_tables(connection, options)
            assert (table.problem is not None) == (kind in kinds), kind
            if table.problem is not None:
                statement = table.problem.hint.removeprefix("Run in the source: ").partition(";")[0]
                execute(database, statement)
                assert read_tables(connection, options)[0].problem is None, kind
