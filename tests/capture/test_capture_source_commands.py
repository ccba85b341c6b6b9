"""`lakemirror capture check, status, drop`, and where passwords are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import CommandRunner
from tests.postgres import Postgres, execute

from lakemirror.cli import app
from lakemirror.publisher import Landing
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_position import CaptureState, TableState

pytest.importorskip("psycopg")


@pytest.fixture
def source(postgres_server: Postgres) -> Iterator[str]:
    url = postgres_server.database()
    execute(url, "create table t (id int primary key)", "create table keyless (id int)")
    yield url


def run(*words: str) -> tuple[int, str]:
    done = CommandRunner().invoke(app, ["capture", *words])
    return done.exit_code, done.output


def test_check_shows_statements(source: str) -> None:
    code, said = run("check", "--from", source)
    assert code == 3 and "ALTER TABLE public.keyless ADD PRIMARY KEY" in said
    code, said = run("check", "--from", source, "--exclude", "*.keyless", "--json")
    assert code == 0 and [each["is_advice"] for each in json.loads(said)] == [True]
    code, said = run("check", "--from", source, "--insert-only", "public.keyless")
    assert code == 3 and "ALTER TABLE public.keyless REPLICA IDENTITY FULL" in said


def test_status_needs_no_source(source: str, tmp_path: Path) -> None:
    code, said = run("status", str(tmp_path))
    assert code == 2 and "no capture publishes" in said
    state_of(tmp_path, source)
    code, said = run("status", str(tmp_path), "--json")
    found = json.loads(said)
    assert code == 3, "one table has stopped"
    assert {name: found[name] for name in found if name != "tables"} == {
        "source": "postgresql", "name": "shop", "slot": "own", "logKeptBackBytes": None, "walStatus": None,
    }  # fmt: skip
    assert found["tables"][0] == {
        "table": "public.bad", "phase": "stopped", "rowsLoaded": 0, "position": 0, "secondsBehind": None, "files": 0,
        "errorCode": "capture-no-key", "errorMessage": "public.bad has no key",
    }  # fmt: skip
    assert "public.t    streaming, 1,234 rows loaded" in run("status", str(tmp_path))[1]


def test_status_with_the_source_says_what_it_keeps_back(source: str, tmp_path: Path) -> None:
    state_of(tmp_path, source)
    assert json.loads(run("status", str(tmp_path), "--from", source, "--json")[1])["walStatus"] == "gone"
    execute(source, "select pg_create_logical_replication_slot('own', 'pgoutput')")
    execute(source, "insert into t select generate_series(1, 1000)")
    found = json.loads(run("status", str(tmp_path), "--from", source, "--json")[1])
    assert found["walStatus"] == "reserved" and found["logKeptBackBytes"] > 50_000
    assert found["tables"][1]["secondsBehind"] > 0 and found["tables"][0]["secondsBehind"] is None
    assert "MiB of log kept back" in run("status", str(tmp_path), "--from", source)[1]
    execute(source, "select pg_drop_replication_slot('own')")


def test_drop_gives_back_what_the_source_keeps(source: str) -> None:
    slot = CaptureOptions(source).slot
    execute(source, f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')", f"create publication {slot}")
    code, said = run("drop", "shop", "--from", source)
    assert code == 3 and "--yes" in said
    code, said = run("drop", "shop", "--from", source, "--yes")
    assert (code, said) == (0, f"dropped: slot {slot}\ndropped: publication {slot}\n")
    assert execute(source, "select count(*) from pg_replication_slots where database = current_database()") == [(0,)]
    assert "has no slot" in run("drop", "shop", "--from", source, "--yes")[1]


def test_a_slot_that_is_read_is_not_dropped(source: str) -> None:
    from lakemirror.publisher.capture.postgresql.source_sessions import connected

    options = CaptureOptions(source)
    with connected(options, replication=True) as connection:
        made = connection.pgconn.exec_(f"CREATE_REPLICATION_SLOT {options.slot} TEMPORARY LOGICAL pgoutput".encode())
        assert made.get_value(0, 0)
        code, said = run("drop", "shop", "--from", source, "--yes")
    assert code == 4 and "capture-taken" in said


def test_no_message_has_the_password(postgres_server: Postgres, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret-of-file\n")
    for url in (
        f"postgresql://bob:s3cret@127.0.0.1:{postgres_server.port}/nope",
        "postgresql://bob:s3cret@127.0.0.1:1/db?connect_timeout=1", "postgresql://bob:s3cret@[/db",
        f"postgresql://nobody@127.0.0.1:{postgres_server.port}/nope?password=s3cret",
    ):  # fmt: skip
        for more in ((), ("--password-file", str(file))):
            code, said = run("check", "--from", url, *more)
            assert code and "s3cret" not in said, said


def state_of(folder: Path, source: str) -> None:
    """What a capture writes into the landing zone."""
    state = CaptureState(
        Landing(folder).folder("Files/LandingZone"), {"source": "postgresql", "name": "shop", "slot": "own"}, print
    )
    state.set(
        ("public", "bad"), TableState("postgresql", "shop", "stopped", 0, 0, "capture-no-key", "public.bad has no key")
    )
    state.set(("public", "t"), TableState("postgresql", "shop", "streaming", 77, 1234))
    state.write(78, {})
