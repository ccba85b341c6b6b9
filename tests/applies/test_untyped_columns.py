"""Key columns that no file has typed yet; partition columns that a file typed before (contract sections 3, 4, 6)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.applies.test_applies import no_spark
from tests.landing import MARKER, declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.target import target_of
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options

__all__ = ["no_spark"]


def code(database: Path, **settings: Any) -> str:
    failed = MirroredDatabase(database, engine="local", maintenance=False, **settings).sync().failed
    return failed["t"].code if failed else ""


def rows(table: Path) -> Counter[tuple[Any, ...]]:
    """The rows as complete tuples, in the order of the table's columns."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    target = target_of(str(table), snapshot.metadata.value)
    parts = [part for add in snapshot.files.values() for part in live_rows(add, target)]
    return Counter(tuple(row[column.name] for column in target.columns) for part in parts for row in part.to_pylist())


def markers(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def proved(database: Path) -> bool:
    report = verify_database(LocalStorage(database), (), Options(against_files=True))
    return not [finding for finding in report.findings if finding.severity == "error"]


@pytest.mark.parametrize("way", ["at once", "passes"])
@pytest.mark.parametrize("feed", [False, True])
def test_a_key_that_is_null_in_every_row_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, feed: bool
) -> None:
    """All rows have one key, NULL. A file that types the column changes nothing of that."""
    if way == "passes":
        monkeypatch.setattr(LocalEngine, "read_small", lambda *_: None)
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": pa.nulls(3), "v": [1, 2, 3], MARKER: markers(4, 4, 0)})
    assert code(tmp_path, change_data_feed=feed) == ""
    assert rows(tmp_path / "Tables/t") == Counter({(2,): 1, (3,): 1})
    put(tmp_path, "t", 2, {"id": pa.nulls(1), "v": [5], MARKER: markers(1)})
    assert code(tmp_path) == ""
    assert rows(tmp_path / "Tables/t") == Counter({(5,): 1}) and proved(tmp_path)
    put(tmp_path, "t", 3, {"id": pa.array([7, 8], pa.int64()), "v": [7, 8], MARKER: markers(4, 4)})
    assert code(tmp_path) == ""
    assert rows(tmp_path / "Tables/t") == Counter({(5, None): 1, (7, 7): 1, (8, 8): 1}) and proved(tmp_path)
    put(tmp_path, "t", 4, {"id": pa.nulls(1), "v": [6], MARKER: markers(4)})
    assert code(tmp_path) == ""
    assert rows(tmp_path / "Tables/t") == Counter({(6, None): 1, (7, 7): 1, (8, 8): 1}) and proved(tmp_path)


def test_one_of_two_keys_has_no_type_yet(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["a", "b"])
    put(tmp_path, "t", 1, {"a": [1, 2, 1], "b": pa.nulls(3), "v": ["x", "y", "z"], MARKER: markers(4, 4, 4)})
    assert code(tmp_path) == ""
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert snapshot is not None and "b" not in snapshot.metadata.value["schemaString"].split('"name":"')
    assert rows(tmp_path / "Tables/t") == Counter({(1, "z"): 1, (2, "y"): 1}) and proved(tmp_path)
    put(tmp_path, "t", 2, {"a": [1, 2], "b": ["new", None], "v": ["p", "q"], MARKER: markers(4, 2)})
    assert code(tmp_path) == ""
    assert rows(tmp_path / "Tables/t") == Counter({(1, "z", None): 1, (1, "p", "new"): 1}) and proved(tmp_path)


def test_a_key_that_is_in_no_file_is_absent(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": pa.nulls(1), "v": [1], MARKER: markers(4)})
    put(tmp_path, "t", 2, {"v": [1], MARKER: markers(4)})
    assert code(tmp_path) == "key-column-absent"
    assert rows(tmp_path / "Tables/t") == Counter({(1,): 1})


def partitioned(database: Path, number: int, place: str, table: dict[str, Any]) -> None:
    path = folder(database, "t") / place / f"{number:020}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), path)


def test_a_folder_gives_a_column_that_a_file_typed(tmp_path: Path) -> None:
    """The folder's text is read as the column's type."""
    declare(tmp_path, "t", ["id"], isPartitionEnabled=True)
    partitioned(tmp_path, 1, "year=2024", {"id": [1], "year": [2024]})
    partitioned(tmp_path, 2, "year=2024", {"id": [2]})
    assert code(tmp_path) == ""
    partitioned(tmp_path, 1, "year=2025", {"id": [3], MARKER: markers(4)})
    partitioned(tmp_path, 1, "year=__HIVE_DEFAULT_PARTITION__", {"id": [4]})
    assert code(tmp_path) == ""
    assert rows(tmp_path / "Tables/t") == Counter({(1, 2024): 1, (2, 2024): 1, (3, 2025): 1, (4, None): 1})
    assert proved(tmp_path)
    partitioned(tmp_path, 1, "year=next", {"id": [5]})
    assert code(tmp_path) == "value-invalid"
