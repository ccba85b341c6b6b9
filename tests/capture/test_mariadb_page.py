"""The page about MariaDB, pasted line by line."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests import how_to_pages as pages
from tests.mariadb import MariaDb, execute
from tests.table_rows import read_table

PAGE = "how-to/mirror-a-mariadb-database"


@pytest.mark.full
def test_every_line_of_the_page_about_mariadb(mariadb_server: MariaDb, tmp_path: Path) -> None:
    if shutil.which("mariadb") is None:
        pytest.skip("the client mariadb is not installed")
    mariadb_server.database("shop")
    execute(
        mariadb_server.url(),
        "create user shop@'%' identified by 'tulip'",
        "grant all on shop.* to shop@'%'",
        "grant replication slave, binlog monitor on *.* to shop@'%'",
    )
    variables = pages.environment(tmp_path)
    variables["MYSQL_TCP_PORT"] = str(urlsplit(mariadb_server.url()).port)
    for example in pages.examples(PAGE):
        if pages.missing(example):
            continue
        pages.run(example, tmp_path, variables)
    rows = sorted(read_table(tmp_path / "lake/Tables/shop/orders").to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(1, 11))
    assert [float(row["price"]) for row in rows[:3]] == [2, 3, 4.5]
