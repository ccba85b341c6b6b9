"""What a table holds, as a few sums that two different tables hardly share and the order of rows does not change.

The same SQL runs in Spark, DataFusion and DuckDB: integers alone, nothing that engines round differently.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("id", "amount", "price", "name", "changed")

SUMS = (
    "count(*)",
    "sum(id)",
    "sum(amount)",
    "sum((id % 1009) * (amount % 1013))",
    "sum((id % 997) * length(name))",
    "sum((id % 991) * cast(round(price * 100) as bigint))",
    "sum((id % 983) * (extract(hour from changed) * 60 + extract(minute from changed)))",
)


UUIDS = "ids are uuids"
"""Among `extra`: ids are text as `data.uuids` makes it."""


def sql(source: str, extra: Sequence[str] = ()) -> str:
    """The query over a table or view; `extra` names integer columns that a scenario adds."""
    if UUIDS in extra:
        columns = ", ".join(COLUMNS[1:])
        source = f"(select cast(substr(id, 25) as bigint) as id, {columns} from {source}) as t"
        extra = [name for name in extra if name != UUIDS]
    more = [part for name in extra for part in (f"count({name})", f"sum({name} * (id % 977))")]
    return f"select {', '.join([*SUMS, *more])} from {source}"


def numbers(row: Sequence[Any]) -> list[int]:
    """A result row as integers, the sum over nothing as 0."""
    return [int(value or 0) for value in row]


def duckdb_with(extension: str) -> Any:
    """A connection with an extension that was installed as a package, never fetched here."""
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    spec = importlib.util.find_spec(f"duckdb_extension_{extension}")
    if spec is None or spec.origin is None:
        raise ImportError(f"the extension {extension} is not installed")
    connection.execute(f"load '{next(Path(spec.origin).parent.rglob('*.duckdb_extension'))}'")
    connection.execute("set TimeZone = 'UTC'")
    return connection


def expected(load: Sequence[Path], changes: Sequence[Path], extra: Sequence[str] = ()) -> list[int]:
    """What every right table holds after these files: the last change of an id counts. Reckoned by DuckDB."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    parts = []
    if changes:
        connection.execute(
            f"create view raw as select * from read_parquet({_list(changes)}, "
            "union_by_name = true, filename = true, file_row_number = true)"
        )
        connection.execute(
            "create table last as select * from raw qualify row_number() over "
            "(partition by id order by filename desc, file_row_number desc) = 1"
        )
        parts.append("select * exclude (__rowMarker__, filename, file_row_number) from last where __rowMarker__ <> 2")
    if load:
        rest = " where id not in (select id from last)" if changes else ""
        parts.append(f"select * from read_parquet({_list(load)}){rest}")
    row = connection.execute(sql(f"({' union all by name '.join(parts)})", extra)).fetchone()
    assert row is not None
    return numbers(row)


def _list(files: Sequence[Path]) -> str:
    return "[" + ", ".join(f"'{file}'" for file in files) + "]"
