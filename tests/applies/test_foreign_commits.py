"""What other writers did since our last apply: what is passed over, what is reported, what stops the table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import MARKER, declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.landing_zone.zone import TableName, scan
from lakemirror.mirror.position import Position
from lakemirror.mirror.step import Conflict, Replicator
from lakemirror.mirror.table_log import judge
from lakemirror.settings.settings import Settings
from lakemirror.storage import LocalStorage

Commit = tuple[int, list[dict[str, Any]]]


def commit(number: int, operation: str, *, data: bool = True, writer: str = "Other/1", **given: Any) -> Commit:
    info = {"operation": operation, "engineInfo": writer, "timestamp": 86_400_000, "operationParameters": given}
    return number, [{"commitInfo": info}, {"add": {"path": "a", "dataChange": data}}]


OPTIMIZE = commit(6, "OPTIMIZE", data=False)


@pytest.mark.parametrize(
    ("newer", "restored", "changed"),
    [
        ([], None, []),
        ([OPTIMIZE, commit(5, "WRITE", writer="lakemirror")], None, []),
        ([commit(7, "DELETE"), OPTIMIZE], None, [7]),
        ([commit(6, "RESTORE", version="3")], 6, []),
        ([commit(6, "RESTORE", version="4"), commit(5, "DELETE")], None, []),
        ([commit(7, "RESTORE", version=5), commit(6, "DELETE"), commit(5, "WRITE")], None, [5]),
        ([commit(7, "RESTORE", version="5"), commit(6, "DELETE"), commit(5, "RESTORE", version="2")], 5, []),
        ([commit(7, "RESTORE", version="4"), commit(6, "RESTORE", version="2")], None, []),
        ([commit(6, "RESTORE", version="", timestamp="2020-01-01")], 6, []),
        ([commit(6, "CREATE OR REPLACE TABLE AS SELECT")], 6, []),
        ([(6, [{"txn": {"appId": "lakemirror:1:id", "version": 1}}])], 6, []),
    ],
)
def test_the_verdict(newer: list[Commit], restored: int | None, changed: list[int]) -> None:
    found = judge(newer, 4, Position("id", 1, 5))
    assert (found.restored.version if found.restored else None) == restored
    assert [change.version for change in found.changes] == changed
    for warning in found.warnings:
        assert warning.code == "changed-by-others"
        assert "by Other/1 at 1970-01-02T00:00:00+00:00" in warning.message


def test_a_restore_without_our_commit_in_the_log() -> None:
    assert judge([commit(60, "RESTORE", version="59")], None, None).restored is not None
    assert not judge([commit(60, "WRITE")], None, None).restored


def sync(database: Path) -> Any:
    return MirroredDatabase(database, maintenance=False).sync()


def codes(database: Path) -> tuple[str, list[str]]:
    (table,) = MirroredDatabase(database, maintenance=False).status().tables
    return table.error_code, [warning.code for warning in table.warnings]


def test_nothing_is_applied_on_top_of_a_restore(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2]})
    assert not sync(tmp_path).failed
    put(tmp_path, "t", 2, {"id": [3], MARKER: pa.array([4], pa.int32())})
    assert not sync(tmp_path).failed
    table = tmp_path / "Tables/t"
    deltalake.write_deltalake(table, pa.table({"id": [9]}), mode="append")
    put(tmp_path, "t", 3, {"id": [4]})
    assert not sync(tmp_path).failed
    deltalake.write_deltalake(table, pa.table({"id": [10]}), mode="append")
    assert codes(tmp_path) == ("", ["changed-by-others"] * 2), "both are said for a day"
    deltalake.DeltaTable(table).restore(0)
    put(tmp_path, "t", 4, {"id": [5]})
    version = deltalake.DeltaTable(table).version()
    assert sync(tmp_path).failed and codes(tmp_path)[0] == "table-restored"
    assert deltalake.DeltaTable(table).version() == version
    for path in sorted(folder(tmp_path, "t").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder(tmp_path, "t").rmdir()
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    assert codes(tmp_path)[0] == "", "a new folder takes the table's place"
    assert json.loads((table / "_delta_log" / f"{version:020}.json").read_text().splitlines()[0])


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (
            lambda table: deltalake.write_deltalake(table, pa.table({"id": [9]}), mode="append"),
            ("", ["changed-by-others"]),
        ),
        (lambda table: deltalake.DeltaTable(table).restore(0), ("table-restored", [])),
    ],
)
def test_what_others_do_behind_the_look_is_not_covered_by_an_apply(
    tmp_path: Path, change: Callable[[Path], object], seen: tuple[str, list[str]]
) -> None:
    """An apply on top of it would hide it from every later look."""
    for number in (1, 2):
        put(tmp_path, "t", number, {"id": [number]})
        assert not sync(tmp_path).failed
    put(tmp_path, "t", 3, {"id": [3]})
    storage, name = LocalStorage(tmp_path), TableName("", "t")
    replicator = Replicator(storage, name, Settings())
    look = replicator.observe(scan(storage).tables[name])
    change(tmp_path / "Tables/t")
    version = deltalake.DeltaTable(tmp_path / "Tables/t").version()
    _, done = replicator.step(look, lambda name: pytest.fail(name))
    assert isinstance(done, Conflict)
    assert deltalake.DeltaTable(tmp_path / "Tables/t").version() == version
    assert codes(tmp_path) == seen


def forget_transactions(table: Path) -> None:
    """Another writer's checkpoint without `txn` actions, as Delta allows it for a table with this property."""
    deltalake.DeltaTable(table).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    )
    deltalake.DeltaTable(table).create_checkpoint()
    snapshot = read_snapshot(table)
    assert snapshot is not None and not snapshot.transactions


def test_a_position_that_a_checkpoint_lacks_is_found_in_the_log(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    for number in (1, 2):
        put(tmp_path, "t", number, {"id": [number]})
        assert not sync(tmp_path).failed
    forget_transactions(tmp_path / "Tables/t")
    put(tmp_path, "t", 3, {"id": [3], MARKER: pa.array([4], pa.int32())})
    assert not sync(tmp_path).failed
    (table,) = MirroredDatabase(tmp_path).status().tables
    assert (table.position, table.processed_rows) == (3, 3)


def test_a_position_that_is_lost_stops_the_table(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    assert not sync(tmp_path).failed
    forget_transactions(tmp_path / "Tables/t")
    for each in (tmp_path / "Tables/t/_delta_log").glob("*.json"):
        each.unlink()
    put(tmp_path, "t", 2, {"id": [2]})
    error = sync(tmp_path).failed["t"]
    assert error.code == "table-restored" and "position" in error.message and "Move Tables/t away" in error.hint
    (tmp_path / "Tables/t").rename(tmp_path / "away")
    shutil.rmtree(folder(tmp_path, "t"))
    put(tmp_path, "t", 1, {"id": [7]})
    assert not sync(tmp_path).failed and codes(tmp_path) == ("", [])


def test_lost_positions_of_partitions_apply_nothing_twice(tmp_path: Path) -> None:
    declare(tmp_path, "t", isPartitionEnabled=True)
    place = folder(tmp_path, "t") / "region=eu"
    place.mkdir()
    pq.write_table(pa.table({"id": [1]}), place / f"{1:020}.parquet")
    assert not sync(tmp_path).failed
    forget_transactions(tmp_path / "Tables/t")
    error = sync(tmp_path).failed["t"]
    assert error.code == "table-feature-unsupported" and "setTransactionRetentionDuration" in error.message


def test_a_table_that_may_not_lose_rows(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2]})
    assert not sync(tmp_path).failed
    table = deltalake.DeltaTable(tmp_path / "Tables/t")
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    put(tmp_path, "t", 2, {"id": [2], MARKER: pa.array([2], pa.int32())})
    failed = sync(tmp_path)
    assert failed.failed["t"].code == "table-append-only", failed


def test_a_history_that_may_not_lose_rows_leaves_no_files_of_an_apply(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"history": "scd2"})
    put(tmp_path, "t", 1, {"id": [1, 2], "v": [1, 2]})
    assert not sync(tmp_path).failed
    deltalake.DeltaTable(tmp_path / "Tables/t__history").alter.set_table_properties({"delta.appendOnly": "true"})
    before = sorted((tmp_path / "Tables").rglob("*"))
    put(tmp_path, "t", 2, {"id": [2], "v": [None], MARKER: pa.array([2], pa.int32())})
    assert sync(tmp_path).failed["t"].code == "table-append-only"
    assert sorted((tmp_path / "Tables").rglob("*")) == before


def test_checksum_files_go_on_after_a_writer_that_makes_none(tmp_path: Path) -> None:
    table = tmp_path / "Tables/t"
    put(tmp_path, "t", 1, {"id": [1]})
    assert not sync(tmp_path).failed
    deltalake.DeltaTable(table).alter.set_table_properties({"owner": "somebody"}, raise_if_not_exists=False)
    for number in range(2, 20):
        put(tmp_path, "t", number, {"id": [number]})
        assert not sync(tmp_path).failed
    found = {int(file.stem) for file in (table / "_delta_log").glob("*.crc")}
    held = read_snapshot(str(table))
    assert held is not None and held.version in found
    assert not {1, 2} & found
    told = json.loads((table / "_delta_log" / f"{held.version:020}.crc").read_text())
    assert told["numFiles"] == len(held.files)
    assert told["metadata"]["configuration"]["owner"] == "somebody"
