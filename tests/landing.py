"""Writing landing zones for tests the way a foreign publisher does: pyarrow alone."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.model import canonical

MARKER = "__rowMarker__"


def folder(database: Path, table: str) -> Path:
    """The table folder; `schema.table` lies in a schema folder."""
    schema, _, name = table.rpartition(".")
    zone = database / "Files/LandingZone"
    return zone / f"{schema}.schema" / name if schema else zone / name


def declare(database: Path, table: str, keys: list[str] | None = None, **more: Any) -> None:
    """Writes `_metadata.json`."""
    place = folder(database, table)
    place.mkdir(parents=True, exist_ok=True)
    (place / "_metadata.json").write_text(json.dumps({"keyColumns": keys or [], **more}))


def put(database: Path, table: str, number: int, rows: pa.Table | dict[str, Any], **options: Any) -> Path:
    """Writes one change file under a temporary name and renames it."""
    place = folder(database, table)
    place.mkdir(parents=True, exist_ok=True)
    target = place / f"{number:020}.parquet"
    temporary = place / f"_writing-{number}-{os.getpid()}"
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), temporary, **options)
    temporary.replace(target)
    return target


def put_broken(database: Path, table: str, number: int, data: bytes = b"PAR1 not really", age: float = 120.0) -> Path:
    """Writes a file that is no Parquet file, as old as `age` seconds."""
    place = folder(database, table)
    place.mkdir(parents=True, exist_ok=True)
    target = place / f"{number:020}.parquet"
    target.write_bytes(data)
    then = time.time() - age
    os.utime(target, (then, then))
    return target


def table_bag(spark: Any, database: Path, table: str, columns: list[str] | None = None) -> Counter[tuple[Any, ...]]:
    """A mirrored table's rows, order-free."""
    frame = spark.read.format("delta").load(str(database / "Tables" / table.replace(".", "/")))
    names = columns or frame.columns
    return Counter(
        tuple(canonical(v) for v in row)
        for row in frame.select(*["`" + n.replace("`", "``") + "`" for n in names]).collect()
    )
