"""Tables of PostgreSQL as a capture finds them, and initial loads: all rows of one snapshot, each once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.postgres import Postgres, execute

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.publisher.capture import loaded_rows, source_kinds
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.postgresql import change_log, load
from lakemirror.publisher.capture.postgresql.slot import read_slot
from lakemirror.publisher.capture.postgresql.source import PostgresSource
from lakemirror.publisher.capture.postgresql.source_sessions import connected

pytest.importorskip("psycopg")


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[str]:
    yield postgres_server.database()


class Files:
    """What a load publishes."""

    def __init__(self) -> None:
        self.files: list[pa.Table] = []
        self._lock = threading.Lock()

    def publish(self, rows: pa.RecordBatchReader) -> int:
        table = rows.read_all()
        with self._lock:
            self.files.append(table)
        return table.num_rows

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for file in self.files for row in file.to_pylist())


def loaded(url: str, **options: Any) -> dict[str, Files]:
    """All tables, loaded in one snapshot."""
    found = {}
    with PostgresSource(CaptureOptions(source=url, **options)) as source, source.snapshot():
        for table in source.tables():
            assert table.problem is None, table.problem
            files = found[table.name] = Files()
            assert source.load(table, files.publish) == sum(file.num_rows for file in files.files)
    return found


def test_every_row_of_the_snapshot_is_loaded_once(
    postgres_server: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_rows, "FILE_BYTES", 3 << 20)
    monkeypatch.setattr(load, "BATCH_BYTES", 1 << 20)
    execute(
        database,
        "create table big (id int primary key, word text)",
        "insert into big select n, repeat('x', 600) || n from generate_series(1, 40000) n",
        "delete from big where id % 7 = 0",
        "create table empty (id int primary key, word text)",
        "create table parts (id int, day date, primary key (id, day)) partition by range (day)",
        "create table parts_1 partition of parts for values from ('2026-01-01') to ('2026-02-01')",
        "create table parts_2 partition of parts for values from ('2026-02-01') to ('2027-03-01') partition by list "
        "(id)",
        "create table parts_2a partition of parts_2 default",
        "insert into parts select n, date '2026-01-01' + n % 50 from generate_series(1, 1000) n",
        "create table parent (id int primary key)",
        "create table child (primary key (id)) inherits (parent)",
        "insert into parent values (1)",
        "insert into child values (2)",
    )
    with PostgresSource(CaptureOptions(source=database)) as source, source.snapshot() as snapshot:
        tables = {table.name: table for table in source.tables()}
        execute(
            database,
            "insert into big values (-1, 'late')",
            "update big set word = 'late'",
            "insert into parts values (-1, '2026-01-05')",
            "insert into empty values (1, 'late')",
            "create table young (id int primary key)",
            "insert into young values (1)",
            "vacuum big",
        )
        tables["young"] = next(table for table in source.tables() if table.name == "young")
        assert snapshot > 0
        found = {name: Files() for name in tables}
        counts = {name: source.load(table, found[name].publish) for name, table in tables.items()}
    assert set(tables) == {"big", "empty", "parts", "parent", "child", "young"}
    assert found["big"].rows() == [(n, f"{'x' * 600}{n}") for n in range(1, 40001) if n % 7]
    assert len(found["big"].files) > (6 if postgres_server.version > 13 else 5)  # which is read in one range
    assert max(file.nbytes for file in found["big"].files) < 6 << 20
    assert len(found["parts"].rows()) == counts["parts"] == 1000
    assert (found["parent"].rows(), found["child"].rows()) == ([(1,)], [(2,)])
    assert found["young"].rows() == []
    (nothing,) = found["empty"].files
    assert (nothing.num_rows, nothing.schema) == (0, pa.schema([("id", pa.int32()), ("word", pa.string())]))


def test_random_tables_are_loaded_as_the_database_has_them(database: str) -> None:
    chance = random.Random(seed := random.randrange(10**9))
    for number in range(3):
        rows = [(n, chance.choice([None, chance.randrange(10**6)])) for n in range(chance.randrange(5000))]
        execute(database, f"create table t{number} (id int primary key, value int)")
        if rows:
            values = ", ".join(f"({n}, {'null' if value is None else value})" for n, value in rows)
            execute(database, f"insert into t{number} values {values}")
        execute(database, f"delete from t{number} where id % {chance.randrange(2, 9)} = 0")
    for name, files in loaded(database).items():
        expected = execute(database, f"select id, value from {name}")
        assert sorted(map(str, files.rows())) == sorted(map(str, expected)) if files.rows() else not expected, seed


def test_which_tables_are_captured(database: str) -> None:
    execute(
        database,
        "create schema sales",
        'create table sales."Order Items" ("Order" int, item int, note text, primary key (item, "Order"))',
        "create table sales.secret (id int primary key)",
        "create table keyless (id int)",
        "alter table keyless replica identity full",
        "create table other_key (id int not null, name text unique not null, x int generated always as (id) stored)",
        "alter table other_key replica identity using index other_key_name_key",
        "create unlogged table fast (id int primary key)",
        "create table silent (id int primary key)",
        "alter table silent replica identity nothing",
        "create table odd (id int primary key, flags bit varying)",
        "create view seen as select 1",
    )
    options = CaptureOptions(source=database, exclude=("*.secret",))
    with connected(options) as connection:
        from lakemirror.publisher.capture.postgresql.catalog import read_tables

        tables = {table.qualified: table for table in read_tables(connection, options)}
        pattern = CaptureOptions(source=database, tables=('sales."Order*',), insert_only=("public.keyless",))
        assert [table.name for table in read_tables(connection, pattern)] == ["Order Items"]
        only = CaptureOptions(source=database, tables=("public.keyless",), insert_only=("public.keyless",))
        assert [table.problem for table in read_tables(connection, only)] == [None]
    problems = {name: table.problem and table.problem.code for name, table in tables.items()}
    assert problems == {
        "public.fast": "capture-not-ready", "public.keyless": "capture-no-key", "public.odd": "capture-value",
        "public.other_key": None, "public.silent": "capture-no-key", 'sales."Order Items"': None,
    }  # fmt: skip
    assert tables['sales."Order Items"'].key == ("item", "Order")
    other = tables["public.other_key"]
    assert (other.key, [column.name for column in other.columns], other.left_out) == (
        ("name",),
        ["id", "name"],
        ("x",),
    )
    assert "ALTER TABLE public.keyless ADD PRIMARY KEY" in tables["public.keyless"].problem.hint
    assert "SET LOGGED" in tables["public.fast"].problem.hint
    assert tables["public.odd"].problem.column == "flags"


def test_a_load_ends_when_it_shall(database: str) -> None:
    execute(database, "create table t (id int primary key)", "insert into t select generate_series(1, 1000)")
    with (
        PostgresSource(CaptureOptions(source=database), lambda: True) as source,
        source.snapshot(),
        pytest.raises(load.Stopped),
    ):
        source.load(source.tables()[0], Files().publish)


def test_a_value_that_cannot_be_kept_names_its_row(database: str) -> None:
    execute(
        database,
        "create table t (a int, b text, day date, primary key (b, a))",
        "insert into t select n, 'row', '2026-01-01' from generate_series(1, 100) n",
        "insert into t values (7, 'bad', 'infinity')",
    )
    with PostgresSource(CaptureOptions(source=database)) as source, source.snapshot():
        with pytest.raises(LakemirrorError) as caught:
            source.load(source.tables()[0], Files().publish)
        assert caught.value.code == "capture-value" and "row bad, 7" in caught.value.message
        assert (caught.value.table, caught.value.column) == ("public.t", "day")


def test_a_table_that_is_rewritten_as_its_load_begins(database: str) -> None:
    """It would seem empty: neither PostgreSQL's ALTER TABLE nor its TRUNCATE looks at older snapshots."""
    for statement in ("alter table t alter column id type bigint", "truncate t"):
        execute(database, "drop table if exists t", "create table t (id int primary key)", "insert into t values (1)")
        with PostgresSource(CaptureOptions(source=database)) as source, source.snapshot():
            execute(database, statement)
            with pytest.raises(LakemirrorError) as caught:
                source.load(source.tables()[0], Files().publish)
        assert caught.value.code == "capture-source-failed" and caught.value.retry


def test_a_slot_is_reported_and_given_back(database: str) -> None:
    options = CaptureOptions(source=database)
    name = options.slot
    with connected(options) as connection:
        assert read_slot(connection, name) is None and source_kinds.give_back(options) == []
        slot = f"select pg_create_logical_replication_slot('{name}', 'pgoutput')"
        execute(database, slot, f"create publication {name}",
                "create table t (id int)", "insert into t select generate_series(1, 1000)")  # fmt: skip
        found = read_slot(connection, name)
        assert found is not None and found.kept_back > 50_000 and found.confirmed > 0
        assert (found.active, found.wal_status) == (False, "reserved")
        assert source_kinds.give_back(options) == [f"slot {name}", f"publication {name}"]
        assert read_slot(connection, name) is None


def test_a_table_with_a_change_that_is_too_large_never_has_the_rows_of_another(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream leaves it out by all names that the log has for it, as long as the slot gives the change; meanwhile no
    other table may have such a name, in the log or now."""
    left_out: dict[int, Any] = {}
    monkeypatch.setattr(change_log, "_LEFT_OUT", left_out)
    options = CaptureOptions(source=database)
    execute(database, *(f"create table {name} (id int primary key, v text)" for name in ("a", "b", "c")))
    insert = "insert into {} values (1, repeat('x', {}))"
    with PostgresSource(options) as source:
        log = source.log
        log.make()
        log.publish([("public", name) for name in ("a", "b", "c")])
        execute(database, insert.format("a", 1), insert.format("b", 9), 'alter table a rename to "große"')
        execute(database, insert.format('"große"', 5000).replace("1,", "2,"))
        numbers = {(each.schema, each.name): each.form.number for each in source.tables()}
        error = log._too_large(numbers)
        assert error is not None and (error.code, error.table) == ("capture-value", "public.große")
        assert log.properties()["table.exclude.list"] == "public\\.a,public\\.große"
        with pytest.raises(TableError, match="große: a change that takes"):
            log.stream(0, numbers, lambda _: True)
        del numbers["public", "große"]
        stream = log.stream(0, numbers, lambda _: True)
        assert log._too_large(numbers).table == "public.b"  # type: ignore[union-attr]  # the largest that is not known
        del left_out[numbers.pop(("public", "b"))]

        execute(database, "alter table c rename to a")
        with pytest.raises(LakemirrorError) as caught:
            stream._handler([])
        assert caught.value.retry
        for change in ("update a set v = 'y'", insert.format("a", 1)):
            with pytest.raises(LakemirrorError, match=r"were both public\.a") as caught:
                log.stream(0, numbers, lambda _: True)
            assert caught.value.code == "capture-position-lost" and not caught.value.retry
            execute(database, change)
        execute(database, "alter table a rename to c")
        left_out.clear()  # another process, which finds the other table in the log
        error = log._too_large(numbers)
        assert error is not None and error.code == "capture-position-lost"

        execute(database, f"select pg_replication_slot_advance('{options.slot}', pg_current_wal_lsn())")
        log.stream(0, numbers, lambda _: True)
        assert not left_out and "table.exclude.list" not in log.properties() and log._too_large(numbers) is None


def test_a_source_that_does_not_answer() -> None:
    for url, code in (
        ("postgresql://bob:s3cret@127.0.0.1:1/db", "capture-source-failed"),
        ("postgresql://bob:s3cret@[/db", "input-invalid"),
        ("mysql://bob:s3cret@h/db", "input-invalid"),
    ):
        with pytest.raises(LakemirrorError) as caught, PostgresSource(CaptureOptions(source=url)):
            pass
        error: BaseException | None = caught.value
        assert caught.value.code == code
        while error is not None:
            assert "s3cret" not in str(error)
            error = error.__cause__ or error.__context__
