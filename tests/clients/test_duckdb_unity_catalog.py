"""Mirrored tables by name in DuckDB: its extension `unity_catalog` as it is on PyPI, in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from tests.clients.test_unity_client import environment, served, token_of
from tests.how_to_pages import blocks
from tests.landing import MARKER, declare, put

from lakemirror.api import MirroredDatabase
from lakemirror.service.auth.principals import Principals

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from running_service import until

pytestmark = pytest.mark.full

EXTENSIONS = ("httpfs", "azure", "delta", "unity-catalog")
SCRIPT = """
import importlib, json, sys
from pathlib import Path
import duckdb

folder, begin = sys.argv[1:]
session = duckdb.connect(config={"allow_unsigned_extensions": "true", "extension_directory": folder})
for name in ("httpfs", "azure", "delta", "unity_catalog"):
    package = Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent
    session.execute(f"install '{next(package.rglob('*.duckdb_extension'))}'")
session.execute("load azure;" + begin)
for line in sys.stdin:
    try:
        found = session.execute(line).fetchall()
    except Exception as error:
        found = str(error)
    print(json.dumps(found), flush=True)
"""
ODD = "odd name ü 100%#x"
INSTANT = 1_700_000_000_123_456  # microseconds
Ask: TypeAlias = Callable[[str], Any]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packages = (f"duckdb-extension-{name}==1.5.5" for name in EXTENSIONS)
    return environment(tmp_path_factory.mktemp("duckdb"), "duckdb==1.5.5", *packages)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """With tables of every kind that an apply makes."""
    database = tmp_path / "a root/sales/shop"
    for table in ("orders", "mapped", ODD, "crm.people"):
        declare(database, table, ["id"])
        put(database, table, 1, {"id": range(1000), "a b;" if table == "mapped" else "name": ["a"] * 1000})
    declare(database, "parts", ["id"], isPartitionEnabled=True)
    for year in ("2024", "2025"):
        put(database, f"parts/year={year}", 1, {"id": [int(year)]})
    declare(database, "types", ["d"])
    at = pa.array([INSTANT], pa.timestamp("us", "UTC"))
    put(database, "types", 1, pa.table({"t": at, "d": [date(2024, 2, 29)], "n": [Decimal("1.20")], "b": [b"x"]}))
    mirror = MirroredDatabase(database, engine="local")
    mirror.sync()
    put(database, "orders", 2, {"id": [1, 2], "name": ["z", None], MARKER: [4, 2]})
    mirror.sync()
    assert "deletionVector" in log(database, "orders", 1) and "columnMapping" in log(database, "mapped", 0)
    return database


def log(database: Path, table: str, version: int) -> str:
    return (database / "Tables" / table / f"_delta_log/{version:020}.json").read_text()


def begun(url: str, token: str, root: Path) -> str:
    """The statements of the page up to its queries."""
    (block,) = [each.code for each in blocks("how-to/share-tables") if "ATTACH" in each.code]
    block = block[: block.index("SELECT")].replace("https://localhost:8443", url)
    return block.replace("/srv/lake", str(root)).replace("…", token)


@contextmanager
def asked(python: Path, database: Path, *options: str) -> Iterator[Ask]:
    """What DuckDB answers to each statement: its rows, or the text of its error."""
    root = database.parents[1]
    issued, authority = Principals(root).add("analyst", ["sales=read"]), root / ".lakemirror/tls/ca.pem"
    with served(root, *options) as url:
        begin = begun(url, token_of(url, issued, authority), root)
        command = [str(python), "-W", "ignore", "-c", SCRIPT, str(root.parent / "extensions"), begin]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
            given, answers = session.stdin, session.stdout
            assert given is not None and answers is not None

            def ask(statement: str) -> Any:
                print(statement, file=given, flush=True)
                return json.loads(answers.readline())

            yield ask


def test_tables_are_listed_and_read_by_name(python: Path, database: Path) -> None:
    (torn := database / "Tables/torn/_delta_log").mkdir(parents=True)
    (torn / "00000000000000000000.json").write_text("{")
    with asked(python, database, "--file-locations") as ask:
        assert [row[1:4] for row in ask("show all tables")] == [
            ["shop", "mapped", ["id", "a b;"]], ["shop", ODD, ["id", "name"]], ["shop", "orders", ["id", "name"]],
            ["shop", "parts", ["id", "year"]], ["shop", "types", ["t", "d", "n", "b"]],
            ["shop:crm", "people", ["id", "name"]],
        ]  # fmt: skip
        assert ask("from sales.shop.orders order by id limit 3") == [[0, "a"], [1, "z"], [3, "a"]]
        assert ask('select id, "a b;" from sales.shop.mapped where id = 7') == [[7, "a"]]
        assert ask("from sales.shop.parts where year = '2025'") == [[2025, "2025"]]
        types = "select epoch_us(t), d::varchar, n::varchar, b::varchar from sales.shop.types"
        assert ask(types) == [[INSTANT, "2024-02-29", "1.20", "x"]]
        for name in (f'shop."{ODD}"', '"shop:crm".people'):
            assert ask(f"select count(*), max(name) from sales.{name}") == [[1000, "a"]]
        assert "read-only" in ask("insert into sales.shop.orders values (6000, 'x')")


def test_each_query_reads_the_newest_version(python: Path, database: Path) -> None:
    with asked(python, database, "--file-locations") as ask:
        query, joined = "select count(*), max(name) from sales.shop.orders", "from sales.shop.orders where id = 5001"
        assert ask(query) == [[999, "z"]]
        put(database, "orders", 3, {"id": [5, 5000], "name": [None, "zz"], MARKER: [2, 0]})
        until(lambda: ask(query) == [[999, "zz"]])
        put(database, "orders", 4, {"id": [5001], "name": ["zzz"], "more": ["m"]})
        until(lambda: ask(query) == [[1000, "zzz"]])
        assert ask(joined) == [[5001, "zzz"]]
        for statement in ("detach sales", "attach 'sales' as sales (type unity_catalog, read_only)"):
            ask(statement)
        assert ask(joined) == [[5001, "zzz", "m"]]


def test_locations_of_the_storage_endpoint_are_listed_alone(python: Path, database: Path) -> None:
    with asked(python, database) as ask:
        assert {row[2] for row in ask("show all tables")} == {"orders", "mapped", ODD, "parts", "types", "people"}
        found = ask("from sales.shop.orders")
        assert "did not match any known pattern for scheme: abfss" in found
