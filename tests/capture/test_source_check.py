"""What a source still needs: each statement that `check` names gives it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import BINARIES, NOT_INSTALLED, Postgres, execute

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_position import TableState, write_state
from lakemirror.publisher.capture.captured_tables import CapturedTables
from lakemirror.publisher.capture.postgresql.catalog import read_tables
from lakemirror.publisher.capture.postgresql.source_sessions import connected
from lakemirror.publisher.capture.source_kinds import check as check_source
from lakemirror.publisher.capture.source_needs import Need
from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.capture.table_folders import table_folders

pytest.importorskip("psycopg")


@pytest.fixture
def bare() -> Iterator[Postgres]:
    """A server as its package configures it."""
    if BINARIES is None:
        pytest.skip(NOT_INSTALLED)
    server = Postgres("wal_level = replica\nmax_replication_slots = 1\nmax_wal_senders = 1")
    yield server
    server.close()


def needs(url: str, **options: object) -> list[Need]:
    return check_source(CaptureOptions(source=url, **options))


def test_every_statement_gives_what_is_missing(bare: Postgres) -> None:
    bare.execute("create role reader login", "create role owner")
    url, reader = bare.database("Shop"), bare.url("Shop", "reader")
    execute(
        url,
        "create schema sales",
        'create table sales."Items" (id int primary key)',
        "create table sales.hidden (id int primary key)",
        "alter table sales.hidden enable row level security",
        "create table keyless (id int)",
        "create unlogged table fast (id int primary key)",
        'alter table sales."Items" owner to owner',
        "create type mood as enum ('fine')",
        "create type nothing as enum ()",
        "create domain good as mood",
    )
    found = needs(reader)
    assert len([need for need in found if not need.table]) == 8 and found[-1].table
    for need in found:
        statement = re.sub("-- .*|ALTER TABLE … [^;]*;|; or .*", "", need.statement).replace("(…)", "(id)")
        execute(url, *filter(None, map(str.strip, statement.split(";"))))
    bare.restart()
    assert needs(reader) == []
    assert [need.what for need in needs(reader, tables=("nope.*",))] == ["no table is named by nope.*"]


def test_a_slot_without_a_limit_is_advice(postgres_server: Postgres) -> None:
    url = postgres_server.database()
    execute(url, "create table t (id int primary key)")
    (need,) = needs(url)
    assert need.is_advice and "max_slot_wal_keep_size" in need.statement


def a_table(schema: str, name: str, number: int) -> SourceTable:
    return SourceTable(schema, name, f'{schema}."{name}"', number, (), ())


def test_folders() -> None:
    named = (
        ("b", "orders"),
        ("a", "orders"),
        ("a", "Orders"),
        ("a", "_x"),
        ("a", "x/y"),
        ("_b", "t"),
        ("a", "z.schema"),
    )
    tables = [a_table(*name, number) for number, name in enumerate(named, 1)]

    def names(**options: object) -> list[str]:
        found = table_folders(tables, CaptureOptions(source="postgresql://h/d", **options))
        return [str(found[each.id]) for each in tables]

    plain = names()
    assert plain[:2] == ["b.orders", "a.orders"]
    assert all(each.startswith("capture-table-name: ") for each in plain[2:]), plain
    assert "a.orders has the folder" in plain[2]
    flat = names(flat=True, renames={"a.orders": "old", 'a."Orders"': "third", "a._x": "x"})
    assert flat[:4] == ["orders", "old", "third", "x"] and flat[5] == "t"
    assert table_folders(tables, CaptureOptions(source="postgresql://h/d"))[("a", "_x")].hint == (  # type: ignore[union-attr]
        "Give it another name: --rename a._x=NAME."
    )


def test_tables_that_cannot_be_captured_stop_alone(postgres_server: Postgres, tmp_path: Path) -> None:
    url = postgres_server.database()
    execute(url, "create table good (id int primary key)", "create table keyless (id int)",
            "create table _hidden (id int primary key)", "create table log (id int)",
            "alter table log replica identity full")  # fmt: skip
    options = CaptureOptions(source=url, insert_only=("*.log",))

    def captured() -> CapturedTables:
        with connected(options) as connection:
            return CapturedTables(Landing(tmp_path), read_tables(connection, options), options)

    tables = captured()
    assert {table.name for table in tables.followed} == {"public.good", "public.log"}
    assert {key[1]: error.code for key, error in tables.refused.items()} == {
        "keyless": "capture-no-key", "_hidden": "capture-table-name",
    }  # fmt: skip
    execute(url, "alter table good drop constraint good_pkey")
    assert [table.name for table in captured().followed] == ["public.log"]


def test_tables_that_the_role_may_not_capture_stop_alone(postgres_server: Postgres, tmp_path: Path) -> None:
    url = postgres_server.database()
    database = url.rpartition("/")[2]
    role = f"owner_{database}"
    execute(url, f"create role {role} login replication", f"grant create on database {database} to {role}",
            f"create schema s; grant all on schema s to {role}", "create schema closed",
            "create table s.unread (id int primary key)", "create table s.theirs (id int primary key)",
            f"grant select on s.theirs to {role}", "create table closed.t (id int primary key)",
            "create table closed.u (id int primary key)")  # fmt: skip
    own = postgres_server.url(database, role)
    execute(own, "create table s.mine (id int primary key)")
    options = CaptureOptions(source=own)
    with connected(options) as connection:
        tables = CapturedTables(Landing(tmp_path), read_tables(connection, options), options)
    assert [table.name for table in tables.followed] == ["s.mine"]
    assert {error.code for error in tables.refused.values()} == {"capture-not-ready"}
    statements = [need.statement for need in needs(own) if not need.is_advice]
    assert len(set(statements)) == len(statements) and f"GRANT USAGE ON SCHEMA closed TO {role};" in statements
    for key, error in tables.refused.items():
        assert error.hint.removeprefix("Run in the source: ") in statements, key


def test_a_landing_zone_has_one_capture(postgres_server: Postgres, tmp_path: Path) -> None:
    url = postgres_server.database()
    execute(url, "create table t (id int primary key)", 'create table "T t" (id int primary key)')
    options = CaptureOptions(source=url)

    def captured() -> CapturedTables:
        with connected(options) as connection:
            return CapturedTables(Landing(tmp_path), read_tables(connection, options), options)

    tables = captured()
    tables.require_own(None, options)
    tables.require_own({"slot": options.slot}, options)
    with pytest.raises(LakemirrorError, match="another capture publishes into this database: lakemirror_x"):
        tables.require_own({"slot": "lakemirror_x"}, options)
    write_state(tables[("public", "t")].landing.place, TableState("postgresql", "other", "streaming"))
    with pytest.raises(LakemirrorError, match="database: other"):
        captured().require_own({"slot": options.slot}, options)
    assert tables.named(["all"]) == {"public.t", "public.T t"}
    assert tables.named(['public."T t"', "public.t"]) == {"public.t", "public.T t"}
    with pytest.raises(LakemirrorError, match="is no table of this capture"):
        tables.named(["public.x"])
