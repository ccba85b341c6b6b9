"""`lakemirror verify` on the command line, and the comparison with a source."""

from __future__ import annotations

import datetime
import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import CommandRunner
from tests.landing import MARKER, declare, put

from lakemirror import MirroredDatabase
from lakemirror.cli import app

ROWS = {"id": [1, 2, 3], "v": ["a", None, "c"]}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A table whose rows are ROWS, after an update and a delete."""
    declare(tmp_path / "db", "t", ["id"])
    put(tmp_path / "db", "t", 1, {"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]})
    put(tmp_path / "db", "t", 2, {"id": [2, 4], "v": [None, None], MARKER: pa.array([1, 2], pa.int32())})
    assert not MirroredDatabase(tmp_path / "db").sync().failed
    return tmp_path / "db"


def run(*words: Any) -> tuple[int, str]:
    result = CommandRunner().invoke(app, ["verify", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def sources(folder: Path, rows: dict[str, list[Any]]) -> list[list[str]]:
    """The rows as a file, a folder, a Delta table and a query."""
    import deltalake

    table = pa.table(rows, pa.schema([("id", pa.int64()), ("v", pa.string())]))
    (folder / "many").mkdir(parents=True)
    pq.write_table(table, folder / "one.parquet")
    pq.write_table(table.slice(0, 1), folder / "many/a.parquet")
    pq.write_table(table.slice(1), folder / "many/b.parquet")
    deltalake.write_deltalake(str(folder / "delta"), table)
    with sqlite3.connect(folder / "s.db") as connection:
        connection.execute("create table s (id integer, v text)")
        connection.executemany("insert into s values (?, ?)", list(zip(rows["id"], rows["v"], strict=True)))
    places = [[str(folder / name)] for name in ("one.parquet", "many", "delta")]
    return [*places, [f"sqlite:///{folder}/s.db", "--query", "select * from s"]]


def test_a_sound_database(database: Path) -> None:
    code, out = run(database)
    assert code == 0 and out.startswith("t: sound (version 0, 1 file, 3 rows")
    code, out = run(database, "t", "--against-files", "--json")
    report = json.loads(out)
    assert code == 0 and report["sound"] and report["tables"][0]["compared"] == 6
    assert run(database, "--quick")[0] == 0


def test_equal_and_different_sources(database: Path, tmp_path: Path) -> None:
    for place in sources(tmp_path / "equal", ROWS):
        code, out = run(database, "t", "--against", *place)
        assert code == 0 and "compared with 3" in out, (place, out)
    different = {"id": [1, 2, 5], "v": ["a", "b", "e"]}
    for place in sources(tmp_path / "different", different):
        code, out = run(database, "t", "--json", "--against", *place)
        found = {(f["code"], f["message"].partition(":")[0]) for f in json.loads(out)["tables"][0]["findings"]}
        assert code == 3, place
        assert found == {
            ("verify-row-differs", "id=2"), ("verify-row-extra", "id=3"), ("verify-row-missing", "id=5"),
        }, place  # fmt: skip


def test_other_columns_are_named(database: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "w": [1, 2, 3]}), tmp_path / "other.parquet")
    code, out = run(database, "t", "--against", tmp_path / "other.parquet")
    assert code == 0
    assert "column 'v' is not compared: the source does not have it" in out
    assert "column 'w' is not compared: the table does not have it" in out


def test_no_column_of_our_own_is_shown(tmp_path: Path) -> None:
    """A query over dates that may be infinite has a helper column, which says so."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "s.duckdb")) as connection:
        connection.execute("create table s as select 1 id, date '2024-01-01' d union all select 2, 'infinity'::date")
    declare(tmp_path / "db", "t", ["id"])
    days = [datetime.date(2024, 1, 1), datetime.date(9999, 12, 31)]
    put(tmp_path / "db", "t", 1, {"id": pa.array([1, 2], pa.int32()), "d": days})
    assert not MirroredDatabase(tmp_path / "db").sync().failed
    code, out = run(tmp_path / "db", "t", "--json", "--against", f"duckdb:///{tmp_path}/s.duckdb", "--query", "from s")
    assert code == 0 and "__lakemirror" not in out, out
    assert json.loads(out)["tables"][0]["compared"] == 2 and not json.loads(out)["tables"][0]["findings"]


def test_a_damaged_table(database: Path) -> None:
    next((database / "Tables/t").glob("part-*.parquet")).unlink()
    code, out = run(database)
    assert code == 3 and "error verify-file-missing" in out and "Restore the file" in out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["t", "--against", "nowhere.parquet"], 1),
        (["t", "--against", "sqlite:///nowhere.db", "--query", "select 1"], 1),
        (["t", "--against", "sqlite:///nowhere.db"], 1),
        (["unknown"], 2),
        (["--against", "x.parquet"], 2),
        (["t", "--quick", "--against-files"], 2),
    ],
)
def test_what_cannot_be_verified(database: Path, words: list[str], code: int) -> None:
    assert run(database, *words)[0] == code


def test_no_database(tmp_path: Path) -> None:
    assert run(tmp_path)[0] == 2
