"""A table of versions (history.md section 3): each row with the time from which and until which it was so."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import change_tables
from tests.change_tables import UNCHANGED, expected_versions, held_versions, marked
from tests.commands import CommandRunner
from tests.landing import declare, folder, put
from tests.table_rows import read_table, table_rows

from lakemirror import MirroredDatabase
from lakemirror.cli.commands import command_line
from lakemirror.delta.log import read_snapshot
from lakemirror.engines import version_buckets
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.pipeline import Pipeline
from lakemirror.engines.row_work import ChangeUnit
from lakemirror.keys.spill import Spill
from lakemirror.maintenance.compaction import merge_small_files
from lakemirror.storage import LocalStorage
from lakemirror.storage.own_files import SPILLED
from lakemirror.verify.proof import Options, verify_database

DAY = datetime(2026, 3, 1, tzinfo=timezone.utc)
MICRO = timedelta(microseconds=1)
BOUNDS = ("__START_AT", "__END_AT")


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


@pytest.mark.parametrize("far", [-(2**63), 2**63 - 1], ids=["least", "greatest"])
@pytest.mark.parametrize("files", [1, 3])
def test_no_version_is_lost_whose_time_is_the_last_of_its_type(tmp_path: Path, far: int, files: int) -> None:
    begun(tmp_path)
    found = {
        "id": [1] * 3, "v": ["a", None, "c"], "__rowMarker__": [4, 2, 4],
        "__sourceTimestamp__": pa.array([far] * 3, pa.timestamp("us", "UTC")),
    }  # fmt: skip
    rows = pa.table(found)
    for number in range(files):
        put(tmp_path, "t", number + 1, rows.slice(number, 3 // files))
        sync(tmp_path)
    start, end = (read_table(tmp_path / "Tables/t__history")[name].cast(pa.int64()) for name in BOUNDS)
    (first, second), (until, none) = sorted(start.to_pylist()), sorted(end.to_pylist(), key=lambda each: each is None)
    assert first + 2 == until + 1 == second and none is None and (first > 0) is (far > 0)
    findings = verify_database(LocalStorage(tmp_path), (), Options(against_files=True)).findings
    assert not [each for each in findings if each.severity == "error"], findings


def test_an_insert_replaces_the_row_of_its_key(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1, 2, 1], "v": ["a", "b", "c"]})
    put_at(tmp_path, 2, 2, {"id": [2], "v": ["d"]})
    sync(tmp_path)
    put_at(tmp_path, 3, 3, marked([0, 0], id=[1, 1], v=["c", "e"]))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, "e"): 1, (2, "d"): 1}
    assert versions(tmp_path, "id", "v") == [
        (1, "a", at(1), at(1) + MICRO), (1, "c", at(1) + MICRO, at(3)), (1, "e", at(3), None),
        (2, "b", at(1), at(2)), (2, "d", at(2), None),
    ]  # fmt: skip


def test_partial_rows_and_columns_that_come_and_widen(tmp_path: Path) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
    sync(tmp_path, on_type_change="widen")
    put_at(tmp_path, 2, 2, marked([1, 1], id=[1, 1], v=[None, "x"], w=[1.5, None]).append_column(
        UNCHANGED, pa.array([["v"], ["w"]])))  # fmt: skip
    put_at(tmp_path, 3, 3, marked([4], id=[2**40], v=["c"], w=[None]))
    sync(tmp_path, on_type_change="widen")
    assert versions(tmp_path, "id", "v", "w") == [
        (1, "a", 1.5, at(2), at(2) + MICRO), (1, "a", None, at(1), at(2)), (1, "x", 1.5, at(2) + MICRO, None),
        (2**40, "c", None, at(3), None), (2, "b", None, at(1), None),
    ]  # fmt: skip


def test_columns_that_are_not_tracked_change_in_place(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["V"], "name": "past"}})
    put_at(tmp_path, 1, 1, {"id": [1], "v": ["a"], "w": [1]})
    put_at(tmp_path, 2, 2, marked([1], id=[1], v=["a"], w=[2]))
    sync(tmp_path)
    put_at(tmp_path, 3, 3, marked([1], id=[1], v=["a"], w=[3]))
    sync(tmp_path)
    assert versions(tmp_path, "id", "v", "w", table="past") == [(1, "a", 3, at(1), None)]
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["w"], "name": "past"}})
    put_at(tmp_path, 4, 4, marked([1], id=[1], v=["a"], w=[4]))
    failed = MirroredDatabase(tmp_path).sync().failed["t"]
    assert failed.code == "history-track-changed" and "by v, and" in failed.message
    (shown,) = MirroredDatabase(tmp_path).status().tables  # an error of an apply that has no file
    assert (shown.status, shown.error_code, shown.error_message) == ("Failed", failed.code, failed.message)
    assert [(each.name, each.status, each.error_code) for each in shown.history] == [("past", "Failed", failed.code)]
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["V"], "name": "past"}})
    sync(tmp_path)
    assert MirroredDatabase(tmp_path).status().tables[0].error_code == ""


def test_open_and_closed_versions_are_in_files_of_their_own(tmp_path: Path) -> None:
    begun(tmp_path)
    for number in range(1, 41):
        more = {f"c{place}": [1, number] for place in range(40)}
        put_at(tmp_path, number, number, marked([4, 4], id=[0, number], v=[f"{number}", "b"], **more))
        sync(tmp_path)
    while merge_small_files(str(tmp_path / "Tables/t__history")):
        pass
    snapshot = read_snapshot(tmp_path / "Tables/t__history")
    assert snapshot is not None
    nulls = [json.loads(add["stats"])["nullCount"]["__END_AT"] for add in snapshot.files.values()]
    counts = [json.loads(add["stats"])["numRecords"] for add in snapshot.files.values()]
    assert len(counts) < 32 and all(some in (0, count) for some, count in zip(nulls, counts, strict=True))
    assert sum(row[-1] is None for row in versions(tmp_path, "id")) == 41
    assert len(versions(tmp_path, "id")) == 40 + 40


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("options", [{}, {"sequence": "n"}])
def test_files_of_open_versions_are_merged_by_themselves(tmp_path: Path, options: dict[str, Any], wanted: bool) -> None:
    """Those of ended versions once there are eight: few applies read them."""
    begun(tmp_path, **options)
    change_tables.put_at(tmp_path, "t", 1, {"id": list(range(30)), "n": [1] * 30, "v": ["a"] * 30})
    for number in range(2, 18):
        ids = [(number * 7 + place) % 30 for place in range(5)]
        change_tables.put_at(
            tmp_path, "t", number, marked([4, 4, 4, 4, 2], id=ids, n=[number] * 5, v=[f"{number}"] * 5)
        )
        sync(tmp_path, batch_files=1, maintenance=wanted)
    target = tmp_path / "Tables/t__history"
    snapshot = read_snapshot(target)
    assert snapshot is not None
    nulls = [json.loads(add["stats"])["nullCount"]["__END_AT"] for add in snapshot.files.values()]
    assert (sum(map(bool, nulls)) <= 4) is wanted and (nulls.count(0) < 12) is wanted
    assert held_versions(tmp_path, "t__history") == expected_versions(
        tmp_path, "t", ["id"], {"history": "scd2", **options}
    )


def test_tables_without_vectors_and_with_a_change_feed(tmp_path: Path) -> None:
    begun(tmp_path)
    settings = {"deletion_vectors": False, "change_data_feed": True}
    put_at(tmp_path, 1, 1, {"id": [1, 2], "v": ["a", "b"]})
    sync(tmp_path, **settings)
    put_at(tmp_path, 2, 2, marked([1, 2, 4], id=[1, 2, 3], v=["x", None, "c"]))
    sync(tmp_path, **settings)
    assert versions(tmp_path, "id", "v") == [
        (1, "a", at(1), at(2)), (1, "x", at(2), None), (2, "b", at(1), at(2)), (3, "c", at(2), None),
    ]  # fmt: skip
    feed = [pq.read_table(path).to_pylist() for path in (tmp_path / "Tables/t__history/_change_data").glob("*")]
    assert sorted((row["id"], row["v"], row["_change_type"]) for rows in feed for row in rows) == [
        (1, "a", "update_postimage"), (1, "a", "update_preimage"), (1, "x", "insert"),
        (2, "b", "update_postimage"), (2, "b", "update_preimage"), (3, "c", "insert"),
    ]  # fmt: skip


def test_more_changes_than_fit_into_memory_are_done_by_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def both(database: Path) -> list[tuple[Any, ...]]:
        begun(database)
        put_at(database, 1, 1, {"id": list(range(500)), "v": [0] * 500})
        sync(database)
        put_at(database, 2, 2, marked([4] * 500 + [2], id=[*range(0, 1000, 2), 1], v=[1] * 501))
        sync(database)
        return versions(database, "id", "v")

    held = both(tmp_path / "held")
    monkeypatch.setattr(LocalEngine, "read_small", lambda *_: None)
    monkeypatch.setattr(version_buckets, "_COPIES", 1 << 20)
    read: list[int] = []

    def counted(file: ChangeUnit, *given: Any, **more: Any) -> Iterator[Any]:
        read.append(file.number)
        return read_changes(file, *given, **more)

    monkeypatch.setattr(version_buckets, "read_changes", counted)
    assert both(tmp_path / "buckets") == held and len(held) == 1000
    assert read == [1, 2], "each file is read once, however many buckets there are"
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith((SPILLED, "fold-"))]


@pytest.mark.parametrize("name", ["spill", "ranges", "partial"])
def test_rising_keys_are_done_by_change_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Then no key is in two parts of the batch: nothing is put on the disk in between. Other keys: as before."""
    first = [list(range(begin, begin + 100)) for begin in range(0, 800, 100)]
    if name == "spill":
        first[5][0] = first[4][-1]

    def both(database: Path) -> list[tuple[Any, ...]]:
        begun(database)
        for number, ids in enumerate(first, 1):
            put_at(database, number, number, {"id": ids, "v": [number] * 100})
        sync(database)
        for number, ids in enumerate(first, 9):
            partial = {UNCHANGED: ['["v"]', None] * 50} if name == "partial" else {}
            rows = marked([4, 2] * 50, id=ids, v=[number] * 100, **partial)
            put_at(database, number, number, rows)
        sync(database)
        snapshot = read_snapshot(database / "Tables/t__history")
        assert snapshot is not None and snapshot.version == 1, "one commit for each of the two batches"
        return versions(database, "id", "v")

    held = both(tmp_path / "held")
    monkeypatch.setattr(LocalEngine, "read_small", lambda *_: None)
    spilled: list[int] = []

    def spill(*given: Any) -> Spill:
        spilled.append(1)
        return Spill(*given)

    monkeypatch.setattr(version_buckets, "Spill", spill)
    assert both(tmp_path / "parts") == held and len(held) == (800 if name == "partial" else 1200)
    assert bool(spilled) == (name == "spill")


def test_a_change_file_that_is_damaged_before_its_keys_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits as any file that is not complete, and those before it are applied."""
    begun(tmp_path)
    for number in (1, 2):
        put_at(tmp_path, number, number, {"id": [number], "v": [number]})
    monkeypatch.setattr(LocalEngine, "read_small", lambda *_: None)
    parts = version_buckets._parts

    def damaged(*given: Any) -> Any:
        path = folder(tmp_path, "t") / f"{2:020}.parquet"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        return parts(*given)

    monkeypatch.setattr(version_buckets, "_parts", damaged)
    found = MirroredDatabase(tmp_path).sync()
    assert not found.failed and found.tables["t"].files == 1
    assert versions(tmp_path, "id", "v") == [(1, 1, at(1), None)]


def test_switched_on_later_the_rows_are_the_first_versions(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft"})
    put_at(tmp_path, 1, 1, marked([4, 4, 4], id=[1, 2, 3], v=["a", "b", "c"]))
    put_at(tmp_path, 2, 2, marked([2], id=[3], v=[None]))
    sync(tmp_path)
    begun(tmp_path, deletes="soft")
    put_at(tmp_path, 3, 3, marked([4, 2], id=[1, 2], v=["x", None]))
    sync(tmp_path)
    assert versions(tmp_path, "id", "v") == [
        (1, "a", at(3) - MICRO, at(3)), (1, "x", at(3), None), (2, "b", at(3) - MICRO, at(3)),
    ]  # fmt: skip


@pytest.mark.parametrize("sequence", [None, "v"])
def test_a_history_that_began_later_says_since_when(tmp_path: Path, sequence: str | None) -> None:
    """In `tables.json`, the command line and the properties; one that was always there, or is built, does not."""

    def said(*names: str) -> list[str | None]:
        (row,) = json.loads((tmp_path / "Files/Monitoring/tables.json").read_text())["tables"]
        found = {each["name"]: each.get("since") for each in row["targets"]}
        for name in names:
            snapshot = read_snapshot(tmp_path / "Tables" / name)
            assert snapshot is not None and snapshot.metadata.configuration.get("lakemirror.began") == found[name]
        text = CommandRunner().invoke(command_line("status"), ["status", str(tmp_path)]).output
        assert (f", since {(at(3) - MICRO):%Y-%m-%dT%H:%M:%S}Z" in text) is any(found.values())
        return [found[name] for name in names]

    begun(tmp_path, history="changes", sequence=sequence)
    put_at(tmp_path, 1, 1, marked([4, 4], id=[1, 2], v=["a", "b"]))
    sync(tmp_path)
    assert said("t__changes") == [None]
    begun(tmp_path, history=["changes", "scd2"], sequence=sequence)
    for number in (3, 4):
        put_at(tmp_path, number - 1, number, marked([4], id=[1], v=["x" * number]))
        sync(tmp_path)
        assert said("t__changes", "t__history") == [None, "2026-03-01T02:59:59.9999990Z"]
    MirroredDatabase(tmp_path).build_history("t")
    sync(tmp_path)
    assert said("t__changes", "t__history") == [None, None]


@pytest.mark.parametrize("failing", ["_mirrored", "_write_history"])
def test_a_table_that_fails_while_the_other_is_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    begun(tmp_path)
    put_at(tmp_path, 1, 1, {"id": [1, 2], "v": ["a", "b"]})
    sync(tmp_path)
    put_at(tmp_path, 2, 2, marked([4, 2], id=[1, 2], v=["A", None]))
    other = {"_mirrored": "_write_history", "_write_history": "_mirrored"}[failing]
    is_written, has_failed, written_late = threading.Event(), threading.Event(), list[int]()
    write = getattr(Pipeline, other)

    def fails(*_: Any) -> None:
        assert is_written.wait(60)
        has_failed.set()
        raise OSError("broken")

    def writes_late(self: Any, work: Any, shared: Any, held: Any, written: list[Any]) -> Any:
        is_written.set()
        assert has_failed.wait(60)
        found = write(self, work, shared, held, written)
        written_late.append(len(written))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, failing, fails)
        patch.setattr(Pipeline, other, writes_late)
        patch.setattr(os, "cpu_count", lambda: 2)
        patch.setattr("lakemirror.engines.units.ONE_THREAD_BYTES", 0)
        patch.setattr("lakemirror.engines.engine._local_engines", {})
        result = MirroredDatabase(tmp_path).sync()
    assert result.failed and written_late and all(written_late)
    for name in ("t", "t__history"):
        snapshot = read_snapshot(tmp_path / "Tables" / name)
        assert snapshot is not None and len(snapshot.files) == 1
        named = [add["path"] for add in snapshot.files.values()]
        assert [path.name for path in (tmp_path / "Tables" / name).glob("*.parquet")] == named
    sync(tmp_path)
    assert table_rows(tmp_path, "t", ["id", "v"]) == {(1, "A"): 1}
    assert versions(tmp_path, "id", "v") == [(1, "A", at(2), None), (1, "a", at(1), at(2)), (2, "b", at(1), at(2))]
