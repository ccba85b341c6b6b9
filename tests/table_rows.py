"""The rows of a mirrored table as DuckDB reads them: a reader that shares no code with lakemirror and needs no JVM.

Tests whose point is what Spark reads use `tests.landing.table_bag`.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa

from tests.model import canonical


def table_rows(
    database: Path, table: str, columns: list[str] | None = None, version: int | None = None
) -> Counter[tuple[Any, ...]]:
    """How often the table has each row, by its newest version or that one."""
    found = read_table(database / "Tables" / table.replace(".", "/"), columns, version)
    return Counter(
        tuple(canonical(value) for value in row)
        for row in zip(*(column.to_pylist() for column in found.columns), strict=True)
    )


def read_table(path: Path, columns: list[str] | None = None, version: int | None = None) -> pa.Table:
    """The table at that path, complete or in those columns."""
    wanted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns or []) or "*"
    at = "" if version is None else f", version={version}"
    place = str(path).replace("'", "''")
    with _session().cursor() as session:
        return session.execute(f"SELECT {wanted} FROM delta_scan('{place}'{at})").to_arrow_table()


@cache
def _session() -> duckdb.DuckDBPyConnection:
    session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    session.execute(f"LOAD '{extension}'")
    session.execute("SET TimeZone = 'UTC'")
    return session
