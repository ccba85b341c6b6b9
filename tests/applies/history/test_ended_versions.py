"""Open versions end where their rows go without a delete (history.md section 4): a folder made again, dropped, or an
option that was off for a while."""

from __future__ import annotations

import json
import shutil
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.applies.history.test_tables_of_versions import MICRO, at, begun, put_at, sync, versions
from tests.change_tables import marked
from tests.landing import declare, folder
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.errors import LakemirrorError
from lakemirror.mirror.history.history_tables import GAP
from lakemirror.publisher import Landing

WAYS: list[dict[str, Any]] = [{}, {"deletion_vectors": False, "change_data_feed": True}]


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("options", [{}, {"deletes": "ignore"}, {"deletes": "soft"}])
def test_a_folder_made_again_ends_the_versions_of_the_one_before(
    tmp_path: Path, settings: dict[str, Any], options: dict[str, Any]
) -> None:
    begun(tmp_path, **options)
    put_at(tmp_path, 1, 1, {"id": [1, 2, None], "v": ["a", "b", "c"]})
    sync(tmp_path, **settings)
    put_at(tmp_path, 2, 2, {"id": [1], "v": ["x"]})
    sync(tmp_path, **settings)
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path, **options)
    put_at(tmp_path, 1, 5, {"id": [2, 3], "v": ["b", "d"]})
    sync(tmp_path, **settings)
    end = at(5) - MICRO
    assert versions(tmp_path, "id", "v") == [
        (1, "a", at(1), at(2)), (1, "x", at(2), end), (2, "b", at(1), end), (2, "b", at(5), None),
        (3, "d", at(5), None), (None, "c", at(1), end),
    ]  # fmt: skip
    put_at(tmp_path, 2, 6, marked([4], id=[3], v=["e"]))
    sync(tmp_path, **settings)
    assert [row for row in versions(tmp_path, "id", "v") if row[0] == 3] == [
        (3, "d", at(5), at(6)), (3, "e", at(6), None),
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"sequence": "n"}], ids=str)
def test_versions_end_where_a_folder_is_made_again_without_them(tmp_path: Path, options: dict[str, Any]) -> None:
    begun(tmp_path, **options)
    put_at(tmp_path, 1, 1, {"id": [1, 2], "v": ["a", "b"], "n": [1, 7]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, 1, 5, {"id": [2], "v": ["x"], "n": [8]})
    sync(tmp_path)
    assert [row[:2] for row in versions(tmp_path, "id", "v") if row[-1] is None] == []
    declare(tmp_path, "t", ["id"], lakemirror={"history": "scd2", **options})
    put_at(tmp_path, 2, 6, marked([4], id=[3], v=["c"], n=[9]))
    sync(tmp_path)
    assert [row[:2] for row in versions(tmp_path, "id", "v") if row[-1] is None] == [(2, "x"), (3, "c")]
    assert len(versions(tmp_path, "id")) == 4


LAST: list[list[Any]] = [
    [date(9999, 12, 30), date.max], [2**63 - 2, 2**63 - 1], [Decimal("9" * 37 + "8"), Decimal("9" * 38)],
    [datetime.max - MICRO, datetime.max], [1.0, float("inf")],
]  # fmt: skip


@pytest.mark.parametrize("last", LAST, ids=str)
@pytest.mark.parametrize("settings", WAYS)
def test_no_version_is_lost_that_begins_at_the_last_value(
    tmp_path: Path, last: list[Any], settings: dict[str, Any]
) -> None:
    """Nothing is higher, so it ends where it begins."""
    least, most = last
    begun(tmp_path, sequence="n")
    put_at(tmp_path, 1, 1, pa.table({"id": [1, 2], "v": ["a", "b"], "n": pa.array(last)}))
    sync(tmp_path, zoneless="ntz", **settings)
    before, ended = len(feed(tmp_path / "Tables/t__history")), [(1, "a", least, most), (2, "b", most, most)]
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path, sequence="n")
    put_at(tmp_path, 1, 5, pa.table({"id": [2, 3], "v": ["x", "y"], "n": pa.array(last)}))
    sync(tmp_path, zoneless="ntz", **settings)
    assert versions(tmp_path, "id", "v") == [*ended, (2, "x", most, None), (3, "y", most, None)]
    if settings:
        both = ("update_postimage", "update_preimage")
        assert feed(tmp_path / "Tables/t__history")[before] == [(kind, key) for kind in both for key in (1, 2)]
    put_at(tmp_path, 2, 6, pa.table(marked([4], id=[3], v=["z"], n=pa.array([most]))))
    sync(tmp_path, zoneless="ntz", **settings)
    shutil.rmtree(folder(tmp_path, "t"))
    for _ in range(2):
        sync(tmp_path, drop_after=0, **settings)
    assert versions(tmp_path, "id", "v") == [*ended, (2, "x", most, most), (3, "z", most, most)]


def test_versions_of_two_folders_in_one_file_stay_apart(tmp_path: Path) -> None:
    """Another writer's OPTIMIZE puts open and closed versions together."""
    begun(tmp_path, sequence="n")
    put_at(tmp_path, 1, 1, {"id": [1, 2], "v": ["a", "b"], "n": [5, 7]})
    sync(tmp_path, deletion_vectors=False)
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path, sequence="n")
    put_at(tmp_path, 1, 5, {"id": [1], "v": ["x"], "n": [3]})
    sync(tmp_path, deletion_vectors=False)
    assert DeltaTable(tmp_path / "Tables/t__history").optimize.compact()["numFilesRemoved"] == 2
    put_at(tmp_path, 2, 6, marked([4], id=[1], v=["z"], n=[20]))
    sync(tmp_path, deletion_vectors=False)
    assert versions(tmp_path, "id", "v") == [(1, "a", 5, 8), (1, "x", 8, 20), (1, "z", 20, None), (2, "b", 7, 8)]


def test_a_load_of_no_rows_is_a_truncate(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "v": ["a"]})
    (tmp_path / "Files/LandingZone").mkdir(parents=True)
    table = Landing(tmp_path).table("t", keys=["id"])
    table.declare(history="scd2")
    table.load(rows)
    sync(tmp_path)
    table.recreate()
    table.load(rows[:0])
    sync(tmp_path)
    ((key, value, start, end),) = versions(tmp_path, "id", "v")
    assert (key, value) == (1, "a") and end is not None and end >= start
    assert read_table(tmp_path / "Tables/t").num_rows == 0


def test_a_folder_made_again_may_lack_columns(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1], "v": ["a"], "w": [1]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path)
    put_at(tmp_path, 1, 5, {"id": [1], "v": ["b"]})
    sync(tmp_path)
    assert versions(tmp_path, "id", "v", "w") == [(1, "a", 1, at(1), at(5) - MICRO), (1, "b", None, at(5), None)]


def test_older_files_of_a_folder_made_again_do_not_take_time_back(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 10, {"id": [1, 2], "v": ["a", "b"]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path)
    put_at(tmp_path, 1, 5, {"id": [1], "v": ["a"]})
    sync(tmp_path)
    assert versions(tmp_path, "id", "v") == [
        (1, "a", at(10) + 2 * MICRO, None), (1, "a", at(10), at(10) + MICRO), (2, "b", at(10), at(10) + MICRO),
    ]  # fmt: skip


def test_a_resync_does_not_end_versions(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1, 2], "v": ["a", "b"]})
    sync(tmp_path)
    MirroredDatabase(tmp_path).resync("t")
    put_at(tmp_path, 2, 2, {"id": [1], "v": ["x"]})
    sync(tmp_path)
    assert versions(tmp_path, "id", "v") == [
        (1, "a", at(1), at(2)), (1, "x", at(2), None), (2, "b", at(1), None),
    ]  # fmt: skip


def test_a_dropped_table_ends_its_versions_and_gets_them_back(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1, 2], "v": ["a", "b"]})
    put_at(tmp_path, 2, 2, {"id": [1], "v": ["x"]})
    sync(tmp_path)
    kept = tmp_path / "kept"
    folder(tmp_path, "t").rename(kept)
    for _ in range(2):
        sync(tmp_path, drop_after=0)
    assert not (tmp_path / "Tables/t").exists()
    found = versions(tmp_path, "id", "v")
    assert len(found) == 3 and all(row[-1] is not None for row in found)
    kept.rename(folder(tmp_path, "t"))
    (resting,) = (tmp_path / "Files/_DroppedTables").glob("t-*")
    resting.rename(tmp_path / "Tables/t")
    put_at(tmp_path, 3, 3, {"id": [2], "v": ["y"]})
    sync(tmp_path)
    assert [row[:2] for row in versions(tmp_path, "id", "v") if row[-1] is None] == [(1, "x"), (2, "y")]
    assert not any(each.code == GAP for each in MirroredDatabase(tmp_path).status().tables[0].warnings)


@pytest.mark.parametrize("settings", WAYS)
def test_an_option_that_was_off_ends_the_versions_that_are_no_rows(tmp_path: Path, settings: dict[str, Any]) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]})
    sync(tmp_path, **settings)
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, 2, 2, marked([2, 4, 4], id=[1, 2, 5], v=[None, "x", "e"]))
    sync(tmp_path, **settings)
    begun(tmp_path)
    put_at(tmp_path, 3, 3, marked([4, 2], id=[3, 4], v=["z", None]))
    sync(tmp_path, **settings)
    gap = at(3) - MICRO
    assert versions(tmp_path, "id", "v") == [
        (1, "a", at(1), gap), (2, "b", at(1), gap), (2, "x", gap, None), (3, "c", at(1), at(3)), (3, "z", at(3), None),
        (4, "d", at(1), at(3)), (5, "e", gap, None),
    ]  # fmt: skip


def test_buckets_end_each_version_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.mirror.history.open_versions._ROWS", 10)
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": list(range(100)), "v": [0] * 100})
    sync(tmp_path)
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, 2, 2, marked([4] * 50 + [2], id=[*range(50), 99], v=[1] * 51))
    sync(tmp_path)
    begun(tmp_path)
    put_at(tmp_path, 3, 3, {"id": [200], "v": [7]})
    sync(tmp_path)
    found = versions(tmp_path, "id", "v")
    assert len(found) == 151 and sum(row[-1] is None for row in found) == 100
    assert {row[0]: row[1] for row in found if row[-1] is None} == {
        **dict.fromkeys(range(50), 1), **dict.fromkeys(range(50, 99), 0), 200: 7,
    }  # fmt: skip


def test_a_conflict_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1], "v": ["a"]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path)
    put_at(tmp_path, 1, 5, {"id": [2], "v": ["b"]})

    def fails(*_: Any, **__: Any) -> None:
        raise LakemirrorError("storage-unavailable", "no space")

    before = len(list((tmp_path / "Tables/t__history").glob("*.parquet")))
    with monkeypatch.context() as patched:
        patched.setattr("lakemirror.mirror.history.open_versions.delete_rows", fails)
        assert MirroredDatabase(tmp_path).sync().failed["t"].code == "storage-unavailable"
    assert len(list((tmp_path / "Tables/t__history").glob("*.parquet"))) == before
    sync(tmp_path)
    assert versions(tmp_path, "id") == [(1, at(1), at(5) - MICRO), (2, at(5), None)]


def test_types_of_a_folder_made_again_while_history_was_off(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1, 2], "w": [2**40, 2]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, 1, 5, {"id": pa.array([1, 9], pa.int32()), "w": pa.array([1, 9], pa.int32())})
    sync(tmp_path)
    begun(tmp_path)
    put_at(tmp_path, 2, 6, marked([4], id=pa.array([9], pa.int32()), w=pa.array([3], pa.int32())))
    sync(tmp_path)
    gap, end = at(6) - MICRO, at(5) - MICRO
    assert versions(tmp_path, "id", "w") == [
        (1, 1, gap, None), (1, 2**40, at(1), end), (2, 2, at(1), end), (9, 3, at(6), None), (9, 9, gap, at(6)),
    ]  # fmt: skip


def test_a_type_that_the_history_cannot_take_is_said(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1], "w": ["a"]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, 1, 5, {"id": [1], "w": [5]})
    sync(tmp_path)
    begun(tmp_path)
    put_at(tmp_path, 2, 6, {"id": [2], "w": [6]})
    failed = MirroredDatabase(tmp_path).sync().failed["t"]
    assert failed.code == "type-changed" and "t__history" in failed.message


@pytest.mark.parametrize("keys", [["id", "k2"], ["k2"]])
def test_a_key_column_that_no_file_has_yet_is_null(
    tmp_path: Path, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(database: Path) -> list[tuple[Any, ...]]:
        declare(database, "t", keys, lakemirror={"history": "scd2"})
        put_at(database, 1, 1, {"id": [1, 2], "v": ["a", "b"]})
        sync(database)
        put_at(database, 2, 3, marked([4, 4], id=[1, 2], k2=[None, 5], v=["y", "b"]))
        sync(database)
        return versions(database, "id", "k2", "v")

    found = both(tmp_path / "held")
    assert [row[:3] for row in found if row[-1] is None] == [
        (1, None, "y"), (2, 5, "b"), *([(2, None, "b")] if "id" in keys else []),
    ]  # fmt: skip
    monkeypatch.setattr(LocalEngine, "read_small", lambda *_: None)
    assert both(tmp_path / "buckets") == found


def test_a_tracked_column_that_no_file_has_is_refused(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["prize"]}})
    put_at(tmp_path, 1, 1, {"id": [1], "price": [1]})
    failed = MirroredDatabase(tmp_path).sync().failed["t"]
    assert failed.code == "metadata-invalid" and "'prize'" in failed.message
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["Price"]}})
    sync(tmp_path)
    assert versions(tmp_path, "price") == [(1, at(1), None)]


def test_other_types_of_a_folder_made_again_have_a_way_out(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1], "w": ["a"]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path)
    put_at(tmp_path, 1, 5, {"id": [1], "w": [5]})
    failed = MirroredDatabase(tmp_path).sync().failed["t"]
    assert failed.code == "type-changed" and "Move that table away" in str(failed.hint)
    shutil.rmtree(tmp_path / "Tables/t__history")
    sync(tmp_path)
    assert versions(tmp_path, "id", "w") == [(1, 5, at(5), None)]


def feed(path: Path) -> list[list[tuple[Any, ...]]]:
    """Of each commit with files of the change data feed, its rows: type of the change, id."""
    found = []
    for log in sorted((path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        parts = [pq.read_table(path / each["cdc"]["path"]).to_pylist() for each in actions if "cdc" in each]
        if parts:
            found.append(sorted((row["_change_type"], row["id"]) for part in parts for row in part))
    return found


@pytest.mark.parametrize("vectors", [True, False])
def test_the_change_feed_has_what_ends(tmp_path: Path, vectors: bool) -> None:
    """And no row that only was written again."""
    settings: dict[str, Any] = {"deletion_vectors": vectors, "change_data_feed": True}
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1, 2], "v": ["a", "b"]})
    put_at(tmp_path, 2, 2, marked([2], id=[2], v=[None]))
    sync(tmp_path, **settings)
    put_at(tmp_path, 3, 3, {"id": [3], "v": ["c"]})
    sync(tmp_path, **settings)
    before = len(feed(tmp_path / "Tables/t__history"))
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path)
    put_at(tmp_path, 1, 5, {"id": [9], "v": ["x"]})
    sync(tmp_path, **settings)
    ended = feed(tmp_path / "Tables/t__history")[before]
    assert ended == [(kind, key) for kind in ("update_postimage", "update_preimage") for key in (1, 3)]


@pytest.mark.parametrize("has_dead", [True, False])
def test_the_change_feed_has_the_deleted_rows_that_are_removed(tmp_path: Path, has_dead: bool) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft"})
    put_at(tmp_path, 1, 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    if has_dead:
        put_at(tmp_path, 2, 2, marked([2], id=[2], v=[None]))
    sync(tmp_path, change_data_feed=True)
    before = len(feed(tmp_path / "Tables/t"))
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "hard"})
    MirroredDatabase(tmp_path).resync("t", purge_deleted=True)
    assert feed(tmp_path / "Tables/t")[before:] == ([[("delete", 2)]] if has_dead else [])
    newest = max((tmp_path / "Tables/t/_delta_log").glob("*.json")).read_text()
    changed = ['"dataChange":true' in line for line in newest.splitlines() if line.startswith('{"add"')]
    assert changed == [has_dead], "rows without our columns are the same rows"
