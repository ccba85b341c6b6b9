"""`lakemirror publish`, as typed."""

from __future__ import annotations

import importlib.util
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from published_contents import change_files, changes, fold
from typer.testing import CliRunner, Result

from lakemirror.cli.publish import publish

app = typer.Typer()
app.command()(publish)
has_sqlite = pytest.mark.skipif(
    not importlib.util.find_spec("adbc_driver_sqlite"), reason="the sql extra is not installed"
)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "shop"


def run(db: Path, *arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(db), *(str(each) for each in arguments), "--create"], input=stdin)


def folder(db: Path, table: str = "orders") -> Path:
    return db / "Files" / "LandingZone" / table


def test_a_file(db: Path, tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text("id,name\n1,a\n2,b\n")
    done = run(db, "orders", "--from", tmp_path / "o.csv", "--keys", "id")
    assert (done.exit_code, done.stdout) == (0, "orders: 00000000000000000001.parquet, 2 rows\n")
    assert changes(folder(db)) == [(4, {"id": 1, "name": "a"}), (4, {"id": 2, "name": "b"})]


def test_standard_input_and_a_schema(db: Path) -> None:
    done = run(db, "sales.lines", "--from", "-", "--keys", "order, line", stdin='{"order": 1, "line": 2}\n')
    assert done.exit_code == 0, done.output
    assert changes(folder(db, "sales.schema/lines")) == [(4, {"order": 1, "line": 2})]


def test_modes_and_markers(db: Path, tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text("id,op\n1,0\n2,4\n")
    path = tmp_path / "o.csv"
    assert run(db, "orders", "--from", path, "--keys", "id", "--mode", "load").exit_code == 0
    assert run(db, "orders", "--from", path, "--mode", "delete").exit_code == 0  # keys are known from the folder
    assert run(db, "orders", "--from", path, "--marker-column", "op").exit_code == 0
    assert [marker for marker, _ in changes(folder(db))] == [None, None, 2, 2, 0, 4]


def test_snapshots(db: Path, tmp_path: Path) -> None:
    path = tmp_path / "o.csv"
    for text in ("id,v\n1,a\n2,b\n", "id,v\n2,B\n3,c\n"):
        path.write_text(text)
        assert run(db, "orders", "--from", path, "--keys", "id", "--mode", "snapshot").exit_code == 0
    assert fold(changes(folder(db)), ["id"]) == [{"id": 2, "v": "B"}, {"id": 3, "v": "c"}]
    again = run(db, "orders", "--from", path, "--mode", "snapshot")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "orders: nothing new\n")


def test_columns_and_delimiter(db: Path) -> None:
    done = run(
        db, "t", "--from", "-", "--format", "csv", "--delimiter", ";", "--column", "zip=string",
        "--column", "price=decimal(10,2)", stdin="zip;price\n00123;1.5\n",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    ((_, row),) = changes(folder(db, "t"))
    assert (row["zip"], str(row["price"])) == ("00123", "1.50")


def test_recreate(db: Path) -> None:
    for text in ("id,v\n1,1\n", "id,v\na,b\n"):
        done = run(db, "orders", "--from", "-", "--format", "csv", "--keys", "id", "--recreate", stdin=text)
        assert done.exit_code == 0, done.output
    assert changes(folder(db)) == [(4, {"id": "a", "v": "b"})]


def test_a_file_that_is_missing_recreates_nothing(db: Path, tmp_path: Path) -> None:
    run(db, "orders", "--from", "-", "--keys", "id", stdin='{"id": 1}')
    done = run(db, "orders", "--from", tmp_path / "none.csv", "--recreate")
    assert (done.exit_code, "no such file" in done.stderr) == (2, True)
    assert len(change_files(folder(db))) == 1


def test_errors_have_code_hint_and_exit_code(db: Path) -> None:
    run(db, "orders", "--from", "-", "--keys", "id", stdin='{"id": 1}')
    done = run(db, "orders", "--from", "-", "--keys", "other", stdin='{"other": 1}')
    assert done.exit_code == 3
    assert done.stderr.startswith("key-columns-changed: orders: the key columns are id, not other\n")
    assert len(done.stderr.splitlines()) == 2
    assert done.stdout == ""


def test_warnings_are_one_line_on_stderr(db: Path) -> None:
    done = run(db, "orders", "--from", "-", "--keys", "id", stdin='{"id": 1, "tags": ["a"]}')
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: orders: column tags of type ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--from", "-", "--from-sql", "sqlite:///x", "--query", "select 1"],
        ["--from-sql", "sqlite:///x"],
        ["--from", "-", "--query", "select 1"],
        ["--from", "-", "--watermark", "x"],
        ["--from", "-", "--every", "10s"],
        ["--from", "-", "--mode", "load", "--marker-column", "op"],
        ["--from-sql", "sqlite:///x", "--query", "select 1", "--mode", "load", "--watermark", "x"],
        ["--from-sql", "sqlite:///x", "--query", "select 1", "--format", "csv"],
        ["--from-sql", "sqlite:///x", "--query", "select 1", "--every", "soon"],
        ["--from", "-", "--column", "x"],
        ["--from", "-", "--column", "x=nothing"],
        ["--from", "-", "--mode", "merge"],
        ["--from", "-", "--format", "xml"],
    ],
    ids=" ".join,
)
def test_usage(db: Path, arguments: list[str]) -> None:
    done = run(db, "orders", *arguments, stdin='{"id": 1}')
    assert done.exit_code == 2, done.output
    assert not list(folder(db).glob("*.parquet"))


@has_sqlite
def test_a_query_again_and_again(db: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    connection.execute("create table orders (id integer primary key, changed integer)")
    connection.execute("insert into orders values (1, 1)")
    script = "import typer; from lakemirror.cli.publish import publish; typer.run(publish)"
    command = subprocess.Popen(
        [
            sys.executable, "-c", script, str(db), "orders", "--from-sql", f"sqlite:///{tmp_path}/s.db",
            "--query", "select * from orders", "--keys", "id", "--watermark", "changed", "--every", "20ms", "--create",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _until(folder(db), 1)
        connection.execute("insert into orders values (2, 2)")
        _until(folder(db), 2)
        connection.execute("alter table orders rename to gone")  # for a while the query fails
        time.sleep(0.3)
        connection.execute("alter table gone rename to orders")
        connection.execute("insert into orders values (3, 3)")
        _until(folder(db), 3)
    finally:
        command.terminate()
        out, errors = command.communicate(timeout=20)
        connection.close()
    assert command.returncode == 0, errors
    assert [row["id"] for _, row in changes(folder(db))] == [1, 2, 3]
    assert len(out.splitlines()) == 3
    assert "sql-failed" in errors and "tried again in 20ms" in errors


def _until(table: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    while len(change_files(table) if table.is_dir() else {}) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@has_sqlite
def test_a_query_once(db: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    connection.execute("create table orders (id integer primary key)")
    connection.execute("insert into orders values (1)")
    connection.close()
    sql = ["--from-sql", f"sqlite:///{tmp_path}/s.db", "--keys", "id", "--query"]
    assert run(db, "orders", *sql, "select * from orders").exit_code == 0
    done = run(db, "orders", *sql, "select * from nope")
    assert (done.exit_code, done.stderr.startswith("sql-failed: ")) == (1, True)
    assert changes(folder(db)) == [(None, {"id": 1})]
