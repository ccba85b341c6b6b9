"""A first publish that is refused leaves nothing: no folder that waits for its first file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Buffer, Landing, LandingTable
from lakemirror.publisher.sql import publish_sql

pytestmark = pytest.mark.usefixtures("door")

ROWS = pa.table({"id": [1, 2, 2], "v": [0.5, 1.0, 1.5]})
LATE = [ROWS.to_batches()[0], pa.record_batch({"id": [3], "v": [1.25]})]


def late() -> pa.RecordBatchReader:
    """Rows whose last batch does not fit."""
    return pa.RecordBatchReader.from_batches(ROWS.schema, LATE)


def table(db: Path, **given: Any) -> LandingTable:
    return Landing(db).table("t", given.pop("keys", ["id"]), "sales", **given)


ONE_DIGIT = pa.schema([("v", pa.decimal128(5, 1))])
REFUSED: dict[str, Callable[[Path], Any]] = {
    "a value": lambda db: table(db).insert([{"id": 1, "v": "a"}, {"id": 2, "v": 5}]),
    "a value of the last batch": lambda db: table(db, columns=ONE_DIGIT).upsert(late()),
    "a value of a load": lambda db: table(db, columns=ONE_DIGIT).load(late()),
    "a value of a snapshot": lambda db: table(db, columns=ONE_DIGIT).publish_snapshot(late()),
    "a value that is prepared": lambda db: table(db, columns=ONE_DIGIT).prepare(late()),
    "a repeated key": lambda db: table(db).publish_snapshot(ROWS),
    "no keys": lambda db: table(db, keys=None).update(ROWS),
    "no keys of a snapshot": lambda db: table(db, keys=None).publish_snapshot(ROWS),
    "no key column": lambda db: table(db, keys=["k"]).upsert(ROWS),
    "a marker": lambda db: table(db).changes(ROWS.append_column("__rowMarker__", pa.array([0, 1, 9]))),
    "a type": lambda db: table(db).load(pa.table({"id": [1], "v": pa.array([None], pa.month_day_nano_interval())})),
    "gathered": lambda db: table(db, buffer=Buffer(rows=5), columns=ONE_DIGIT).insert(late()),
    "a query": lambda db: publish_sql(table(db), f"sqlite:///{db}/a.db", "select * from nothing"),
    "a value of a query": lambda db: publish_sql(table(db), f"sqlite:///{db}/a.db", "select 1 as id union select 'a'"),
    "a watermark": lambda db: publish_sql(table(db), f"sqlite:///{db}/a.db", "select 1 as id", watermark="at"),
}


@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
@pytest.mark.parametrize("what", REFUSED)
def test_nothing_is_left(tmp_path: Path, what: str) -> None:
    (tmp_path / "a.db").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(LakemirrorError):
        REFUSED[what](tmp_path)
    left = [path for path in sorted(tmp_path.rglob("*")) if path not in before]
    assert [path for path in left if path.suffix == ".schema" or path.name == "t"] == []
    assert [path for path in left if path.is_file()] == []


def test_nothing_comes_of_no_rows(tmp_path: Path) -> None:
    for method in (table(tmp_path).insert, table(tmp_path).delete):
        assert method(ROWS.slice(0, 0)) is None
    assert not list(tmp_path.rglob("t"))


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    folder = tmp_path / "Files/LandingZone/sales.schema/t"
    folder.mkdir(parents=True)
    for what in ("a value", "a value of the last batch", "a repeated key"):
        with pytest.raises(LakemirrorError):
            REFUSED[what](tmp_path)
    assert folder.is_dir() and not list(folder.iterdir())
    assert table(tmp_path).insert(ROWS) is not None
    (folder / f"{1:020d}.parquet").unlink()
    with pytest.raises(LakemirrorError):
        REFUSED["a repeated key"](tmp_path)
    assert (folder / "_metadata.json").is_file()
