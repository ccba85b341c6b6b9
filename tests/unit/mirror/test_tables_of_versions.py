"""A table of versions (history.md section 3): each row with the time from which and until which it was so."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.change_tables import marked
from tests.landing import declare, folder, put
from tests.table_rows import read_table

from lakemirror import MirroredDatabase

DAY = datetime(2026, 3, 1, tzinfo=timezone.utc)
MICRO = timedelta(microseconds=1)


def sync(database: Path, **settings: Any) -> None:
    result = MirroredDatabase(database, **settings).sync()
    assert not result.failed, result.failed


def begun(database: Path, **options: Any) -> None:
    declare(database, "t", ["id"], lakemirror={"history": "scd2", **options})


def at(hours: float) -> datetime:
    return DAY + timedelta(hours=hours)


def put_at(database: Path, number: int, hours: float, rows: Any) -> None:
    """A change file that was written so many hours after DAY."""
    put(database, "t", number, rows)
    moment = at(hours).timestamp()
    os.utime(folder(database, "t") / f"{number:020}.parquet", (moment, moment))


def versions(database: Path, *names: str, table: str = "t__history") -> list[tuple[Any, ...]]:
    rows = read_table(database / "Tables" / table).to_pylist()
    columns = [*names, "__START_AT", "__END_AT"]
    return sorted((tuple(row[name] for name in columns) for row in rows), key=repr)


def test_each_change_of_a_row_is_a_version(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    sync(tmp_path)
    assert versions(tmp_path, "id", "v") == [(n, v, at(1), None) for n, v in ((1, "a"), (2, "b"), (3, "c"))]
    put_at(tmp_path, 2, 2, marked([1, 2, 4, 4], id=[1, 2, 4, 4], v=["x", None, "d", "e"]))
    sync(tmp_path)
    assert versions(tmp_path, "id", "v") == [
        (1, "a", at(1), at(2)), (1, "x", at(2), None), (2, "b", at(1), at(2)), (3, "c", at(1), None),
        (4, "d", at(2), at(2) + MICRO), (4, "e", at(2) + MICRO, None),
    ]  # fmt: skip
    put_at(tmp_path, 3, 3, marked([4, 0, 2], id=[2, 3, 9], v=["b", "c", None]))
    sync(tmp_path)
    assert [row for row in versions(tmp_path, "id", "v") if row[0] in (2, 3, 9)] == [
        (2, "b", at(1), at(2)), (2, "b", at(3), None), (3, "c", at(1), None),
    ]  # fmt: skip
