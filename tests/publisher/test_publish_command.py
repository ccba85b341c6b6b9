"""`lakemirror publish`, as typed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from published_contents import change_files, changes, fold
from tests import preloaded
from tests.commands import CommandRunner
from typer.testing import Result

from lakemirror.cli.publish import publish

app = typer.Typer()
app.command()(publish)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "shop"


def run(db: Path, *arguments: str | Path, stdin: str | None = None) -> Result:
    return CommandRunner().invoke(app, [str(db), *(str(each) for each in arguments), "--create"], input=stdin)


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


@pytest.mark.parametrize("spelling", ["--types", "--column"])
def test_types_in_one_list(db: Path, spelling: str) -> None:
    given = "zip=text,price=decimal(10,2),first, last=string"
    done = run(
        db,
        "t",
        "--from",
        "-",
        "--format",
        "csv",
        "--delimiter",
        ";",
        spelling,
        given,
        stdin="zip;price;first, last\n1;2;3\n",
    )
    assert done.exit_code == 0, done.output
    ((_, row),) = changes(folder(db, "t"))
    assert (row["zip"], str(row["price"]), row["first, last"]) == ("1", "2.00", "3")


def test_the_reason_of_each_type_is_said_once(db: Path) -> None:
    text = "id,iccid,zip,price\n1,89490200001234567890,0123,2.50\n2,89490200001234567891,00123,19.00\n"
    done = run(db, "t", "--from", "-", "--format", "csv", "--keys", "iccid", stdin=text)
    assert done.stderr.splitlines() == [
        "id: bigint, whole numbers",
        "iccid: decimal(38,0), 20 digits",
        "zip: text, a leading zero, such as '0123'",
        "price: decimal(38,2), 2 digits behind the point",
    ]
    done = run(db, "t", "--from", "-", "--format", "csv", stdin=text)
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_preview_writes_nothing(db: Path, tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text("id,zip,price,none\n1,007,2.5,\n2,7,2.5,\n")
    before = sorted(tmp_path.rglob("*"))
    done = run(db, "orders", "--from", tmp_path / "o.csv", "--keys", "id", "--types", "price=double", "--preview")
    assert (done.exit_code, done.stdout.splitlines()) == (0, [
        "id     bigint   whole numbers",
        "zip    text     a leading zero, such as '007'",
        "price  double   named",
        "none   no type  no value yet",
    ])  # fmt: skip
    assert done.stderr == f"{tmp_path}/o.csv: 2 rows; nothing was published\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_preview_of_a_later_publish(db: Path, tmp_path: Path) -> None:
    run(db, "orders", "--from", "-", "--keys", "id", stdin='{"id": 1, "v": 2.5}')
    before = sorted((path, path.stat().st_mtime_ns) for path in db.rglob("*"))
    done = run(db, "orders", "--from", "-", "--preview", stdin='{"id": 1, "v": 7, "w": [1]}')
    anew = run(db, "orders", "--from", "-", "--preview", "--recreate", stdin='{"id": 1, "v": 7}')
    assert anew.stdout.splitlines()[1] == "v   bigint  whole numbers"
    assert done.stdout.splitlines() == [
        "id  bigint         as published before",
        "v   decimal(38,1)  as published before",
        "w   text           objects and arrays as JSON",
    ]
    done = run(db, "orders", "--from", "-", "--preview", stdin='{"id": 1, "v": 7.25}')
    assert (done.exit_code, done.stderr.startswith("value-invalid: -, line 1, column v")) == (3, True)
    done = run(db, "orders", "--from", "-", "--preview", stdin='{"v": 7.5}')
    assert (done.exit_code, done.stderr.startswith("key-column-absent")) == (3, True)
    assert sorted((path, path.stat().st_mtime_ns) for path in db.rglob("*")) == before


def test_a_preview_of_other_inputs(db: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1], pa.int16()), "op": [4]}), tmp_path / "o.parquet")
    done = run(db, "orders", "--from", tmp_path / "o.parquet", "--marker-column", "op", "--preview")
    assert done.stdout == "id  smallint  as the input has it\n"
    assert not db.exists()


def test_a_preview_of_a_query(db: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("create table t (id integer, price decimal(10,2))")
        connection.execute("insert into t values (1, 2.5)")
    sql = ["--from-sql", f"sqlite:///{tmp_path}/s.db", "--query", "select * from t", "--keys", "id", "--preview"]
    done = run(db, "orders", *sql)
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["id", "bigint"], ["price", "decimal(10,2)"]]
    assert not db.exists()


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


BAD = '{"id": 2, "v": 1}\n{"id": '


def made(db: Path) -> list[Path]:
    run(db, "orders", "--from", "-", "--keys", "id", stdin='{"id": 1, "v": 1}')
    return sorted(folder(db).rglob("*"))


@pytest.mark.parametrize("mode", ["load", "upsert", "snapshot"])
def test_an_input_that_is_refused_recreates_nothing(db: Path, tmp_path: Path, mode: str) -> None:
    before = made(db)
    for text, more in ((BAD, []), ('{"v": 2}', []), ('{"id": 1, "v": "x"}', ["--types", "v=int"])):
        done = run(db, "orders", "--from", "-", "--mode", mode, *more, "--recreate", stdin=text)
        assert done.exit_code != 0, done.output
        assert sorted(folder(db).rglob("*")) == before
    done = run(db, "orders", "--from", "-", "--mode", mode, "--recreate", stdin='{"id": 3, "v": "x"}')
    assert (done.exit_code, [row for _, row in changes(folder(db))]) == (0, [{"id": 3, "v": "x"}])
    assert not [path for path in db.rglob("_publishing*") if path.is_file()]


def test_a_second_file_that_is_refused_recreates_nothing(db: Path, tmp_path: Path) -> None:
    before = made(db)
    (tmp_path / "good.jsonl").write_text('{"id": 5, "v": "x"}')
    (tmp_path / "bad.jsonl").write_text(BAD)
    files = ["--from", tmp_path / "good.jsonl", "--from"]
    assert run(db, "orders", *files, tmp_path / "bad.jsonl", "--recreate").exit_code != 0
    assert sorted(folder(db).rglob("*")) == before
    done = run(db, "orders", *files, tmp_path / "good.jsonl", "--recreate")
    assert (done.exit_code, len(change_files(folder(db)))) == (0, 2), done.output


def test_a_preview_of_a_recreated_table_holds_no_type(db: Path) -> None:
    before = made(db)
    done = run(db, "orders", "--from", "-", "--types", "v=text", "--preview", "--recreate", stdin='{"id": 1, "v": "x"}')
    assert (done.exit_code, sorted(folder(db).rglob("*"))) == (0, before), done.output


@pytest.mark.parametrize("more", [[], ["--watermark", "v"], ["--mode", "upsert"]])
def test_a_query_that_fails_recreates_nothing(db: Path, tmp_path: Path, more: list[str]) -> None:
    before = made(db)
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("create table t (id integer, v integer)")
        connection.executemany("insert into t values (?, ?)", [(7, 1), (8, 2), (9, "no number")])
    sql = ["--from-sql", f"sqlite:///{tmp_path}/s.db", "--query"]
    assert run(db, "orders", *sql, "select * from t", *more, "--recreate").exit_code != 0
    assert run(db, "orders", *sql, "select * from none", *more, "--recreate").exit_code != 0
    assert sorted(folder(db).rglob("*")) == before
    good = "select * from t where id < 9"
    for _ in range(2):  # the second time the state of the first is no state
        done = run(db, "orders", *sql, good, *more, "--recreate")
        assert (done.exit_code, [row["id"] for _, row in changes(folder(db))]) == (0, [7, 8]), done.output


def test_recreate_with_other_keys_and_without_rows(db: Path) -> None:
    made(db)
    done = run(db, "orders", "--from", "-", "--keys", "v", "--recreate", stdin='{"id": 1, "v": "x"}')
    assert (done.exit_code, changes(folder(db))) == (0, [(4, {"id": 1, "v": "x"})]), done.output
    done = run(db, "orders", "--from", "-", "--format", "csv", "--types", "v=text", "--recreate", stdin="id,v\n")
    assert (done.exit_code, change_files(folder(db))) == (0, {}), done.output
    assert "v" in (folder(db) / "_metadata.json").read_text()


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
    assert done.stderr.splitlines() == [
        "warning: column tags of objects and arrays is published as a JSON string",
        "id: bigint, whole numbers",
        "tags: text, objects and arrays as JSON",
    ]


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
        ["--from", "-", "--types", "x=text,y"],
        ["--from", "-", "--types", "=text"],
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


def test_a_query_again_and_again(db: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    connection.execute("create table orders (id integer primary key, changed integer)")
    connection.execute("insert into orders values (1, 1)")
    script = "import typer; from lakemirror.cli.publish import publish; typer.run(publish)"
    command = preloaded.Popen(
        [
            sys.executable, "-c", script, str(db), "orders", "--from-sql", f"sqlite:///{tmp_path}/s.db",
            "--query", "select * from orders", "--keys", "id", "--watermark", "changed", "--every", "20ms", "--create",
        ],
        stdout=subprocess.PIPE, stderr=(tmp_path / "errors").open("w"), text=True,
    )  # fmt: skip
    try:
        _until(folder(db), 1)
        connection.execute("insert into orders values (2, 2)")
        _until(folder(db), 2)
        connection.execute("alter table orders rename to gone")  # for a while the query fails
        deadline = time.monotonic() + 30
        while "tried again" not in (tmp_path / "errors").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        connection.execute("alter table gone rename to orders")
        connection.execute("insert into orders values (3, 3)")
        _until(folder(db), 3)
    finally:
        command.terminate()
        out, _ = command.communicate(timeout=60)
        errors = (tmp_path / "errors").read_text()
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
