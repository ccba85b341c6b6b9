"""`lakemirror tables`: paths, and lines to paste that work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import CommandRunner

import lakemirror
from lakemirror import MirroredDatabase
from lakemirror.cli import app
from lakemirror.publisher import Landing
from lakemirror.readers.table_readers import ReadableTable, readable_tables


def run(*arguments: str) -> tuple[int, str, str]:
    done = CommandRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("db") / "shop"
    orders = Landing(folder).table("orders", ["id"])
    orders.insert([{"id": number, "item": "cup"} for number in range(20_000)])
    Landing(folder).table("customers", ["id"], "sales").insert([{"id": 1}])
    MirroredDatabase(folder).sync()
    orders.delete([{"id": 1}])
    MirroredDatabase(folder).sync()
    (folder / "Tables/torn/_delta_log").mkdir(parents=True)
    (folder / "Tables/torn/_delta_log/00000000000000000000.json").write_text("{")
    return folder


def test_tables(shop: Path) -> None:
    found = {table.name: table for table in readable_tables(shop)}
    assert list(found) == ["orders", "sales.customers", "torn"]
    assert found["orders"].has_vectors and found["orders"].columns == ("id", "item")
    assert not found["sales.customers"].has_vectors and found["torn"].error
    status, out, _ = run("tables", str(shop))
    assert status == 0 and str(shop / "Tables/orders") in out and "import" not in out
    listed = json.loads(run("tables", str(shop), "--json")[1])
    assert [table["table"] for table in listed] == list(found) and listed[0]["deletionVectors"] is True


@pytest.mark.parametrize(("tool", "package"), [("polars", "polars"), ("pandas", "deltalake")])
def test_snippets_work(shop: Path, tool: str, package: str) -> None:
    pytest.importorskip(package)
    names: dict[str, object] = {}
    exec(readable_tables(shop)[0].snippets()[tool], names)
    assert len(names["orders"]) == 19_999  # type: ignore[arg-type]


def test_one_table(shop: Path, tmp_path: Path) -> None:
    status, out, _ = run("tables", str(shop), "sales.customers")
    assert status == 0 and "sales_customers = " in out and "# duckdb" in out
    assert run("tables", str(shop), "none")[0] == 3
    assert run("tables", str(tmp_path))[0] == 2


def test_the_version(tmp_path: Path) -> None:
    assert run("--version") == (0, f"lakemirror {lakemirror.__version__}\n", "")


def test_quotes_in_a_path_are_quoted() -> None:
    assert "delta_scan('/it''s/t')" in ReadableTable("t", "/it's/t").snippets()["duckdb"]
