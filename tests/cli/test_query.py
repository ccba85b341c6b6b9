"""`lakemirror query`: names, one version for a statement, cuts, formats, what DuckDB would read wrongly."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests import preloaded
from tests.landing import declare, put

from lakemirror.api import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.readers.table_query import QueriedTable, Query, tables_to_query


def lakemirror(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lakemirror.cli", *arguments]
    return preloaded.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("duckdb_extension_delta", reason="DuckDB's extension for Delta is not installed")
    database = tmp_path_factory.mktemp("query") / "it's a shop"
    for table in ("orders", "sales.orders"):
        declare(database, table, ["id"])
        put(database, table, 1, {"id": [1, 2, 3], "name": ["a", "b\x1b[31m", "c"], "__rowMarker__": [0] * 3})
    MirroredDatabase(database, engine="local").sync()
    put(database, "orders", 2, {"id": [1, 2], "name": ["x", ""], "__rowMarker__": [4, 2]})
    MirroredDatabase(database, engine="local").sync()
    return database


def test_tables_by_name_in_every_format(shop: Path, tmp_path: Path) -> None:
    statement = "select o.id, o.name, s.name as before from orders o join sales.orders s using (id) order by id;"
    expected = [{"id": 1, "name": "x", "before": "a"}, {"id": 3, "name": "c", "before": "c"}]
    ran = lakemirror("query", str(shop), statement, "--format", "json")
    assert json.loads(ran.stdout) == expected
    ran = lakemirror("query", str(shop), statement, "--format", "csv")
    assert list(csv.DictReader(io.StringIO(ran.stdout))) == [{**row, "id": str(row["id"])} for row in expected]
    ran = lakemirror("query", str(shop), statement, "--format", "parquet", "--to", str(tmp_path / "o.parquet"))
    assert ran.returncode == 0 and pq.read_table(tmp_path / "o.parquet").to_pylist() == expected
    ran = lakemirror("query", str(shop), "select name from sales.orders -- a comment")
    assert "b" in ran.stdout and "\x1b" not in ran.stdout


def test_the_tables_of_the_last_cut(shop: Path, tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.table("orders", ["id"]).insert([{"id": 1}])
    landing.cut()
    MirroredDatabase(tmp_path, engine="local").sync()
    landing.table("orders", ["id"]).insert([{"id": 2}])
    MirroredDatabase(tmp_path, engine="local").sync()
    for options, rows in (((), [{"id": 1}, {"id": 2}]), (("--cut", "last"), [{"id": 1}])):
        ran = lakemirror("query", str(tmp_path), "select id from orders order by id", "--format", "json", *options)
        assert json.loads(ran.stdout) == rows, ran.stderr


def test_what_is_wrong_is_said(shop: Path, tmp_path: Path) -> None:
    for arguments, code in (
        (("select * from nothing",), 1), (("selec",), 1), (("select 1", "--cut", "last"), 2),
        (("select 1", "--format", "parquet"), 2), (("select 1", "--to", "x"), 2),
    ):  # fmt: skip
        ran = lakemirror("query", str(shop), *arguments)
        assert ran.returncode == code, (arguments, ran.stderr)
        assert ran.stderr and "Traceback" not in ran.stderr
    assert lakemirror("query", str(tmp_path / "none"), "select 1").returncode != 0


def test_a_statement_sees_one_version_of_each_table(shop: Path) -> None:
    tables = tables_to_query(str(shop))
    put(shop, "orders", 3, {"id": [9], "name": ["later"], "__rowMarker__": [4]})
    MirroredDatabase(shop, engine="local").sync()
    with Query(tables) as query:
        assert "later" not in query.text("select * from orders")
    with Query(tables_to_query(str(shop))) as query:
        assert "later" in query.text("select * from orders")


def test_a_table_that_duckdb_would_read_wrongly_is_left_out(shop: Path) -> None:
    table = QueriedTable("orders", "/nowhere", 0, "it has partitions and column mapping, which DuckDB reads as NULL")
    with Query([table]) as query, pytest.raises(LakemirrorError, match="partitions and column mapping") as failed:
        query.text("select * from orders")
    assert failed.value.code == "query-failed"


def test_the_table_of_a_path_is_never_another_one(tmp_path: Path) -> None:
    pytest.importorskip("duckdb_extension_delta", reason="DuckDB's extension for Delta is not installed")
    for name in ("pct%41", "pctA", "Ünï", "日 本#?"):
        database = tmp_path / name
        declare(database, "Ünï", ["id"])
        put(database, "Ünï", 1, {"id": [1], "name": [name], "__rowMarker__": [0]})
        MirroredDatabase(database, engine="local").sync()
        with Query(tables_to_query(str(database))) as query:
            if "%" in name:
                with pytest.raises(LakemirrorError, match="percent sign"):
                    query.text('select name from "Ünï"')
            else:
                assert name in query.text('select name from "Ünï"')


def test_a_version_whose_log_is_gone_leaves_out_its_table_alone(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cleaned(table: object, version: int) -> None:
        raise LakemirrorError("table-unreadable", "its log begins later")

    monkeypatch.setattr("lakemirror.readers.table_query.read_snapshot", cleaned)
    tables = tables_to_query(str(shop))
    assert len(tables) == 2 and all("begins later" in each.reason for each in tables)
