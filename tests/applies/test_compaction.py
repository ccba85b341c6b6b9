"""Small files become one: the same rows, sorted by key, without Spark and beside other engines."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from contextlib import nullcontext
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.applies.test_applies import changes, no_spark, rows, sync
from tests.landing import MARKER, declare, put
from tests.rounds import rounds

from lakemirror import failpoints
from lakemirror.delta import commit as delta_commit
from lakemirror.delta.commit import Overwritten, lines
from lakemirror.delta.deletion_vectors import vector_path
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels import compact as compact_kernel
from lakemirror.engines.kernels.compact import Cancelled, compact
from lakemirror.errors import LakemirrorError
from lakemirror.keys.look_up import LATELY_READ
from lakemirror.maintenance import compaction as small_files
from lakemirror.maintenance import policy as compaction
from lakemirror.maintenance.compaction import is_complete, merge_few, merge_small_files, merge_when_idle
from lakemirror.maintenance.policy import AT_LEAST

__all__ = ["no_spark"]


all_when_idle = partial(merge_when_idle, all_vectors=True)


def many(database: Path, count: int = AT_LEAST, **settings: Any) -> Path:
    declare(database, "t", ["id"])
    for number in range(1, count + 1):
        put(database, "t", number, changes([number, number * 7 % 20, 100 + number], [4, 2, 0]))
    sync(database, batch_files=1, **settings)
    return database / "Tables/t"


def newest_info(table: Path) -> Any:
    newest = max((table / "_delta_log").glob("*[0-9].json"))
    return json.loads(newest.read_text().splitlines()[0])["commitInfo"]


def stats(add: Any) -> Any:
    return json.loads(add["stats"])


def test_the_rows_stay_and_the_log_agrees(tmp_path: Path) -> None:
    table = many(tmp_path)
    before, version = rows(table), len(list((table / "_delta_log").glob("*[0-9].json")))
    assert merge_small_files(str(table)) == AT_LEAST
    assert rows(table) == before
    snapshot = read_snapshot(table)
    assert snapshot is not None and snapshot.version == version
    (add,) = snapshot.files.values()
    ids = pq.read_table(table / add["path"])["id"].to_pylist()
    assert ids == sorted(ids) and not add["dataChange"]
    told = json.loads((table / f"_delta_log/{version:020}.crc").read_bytes())
    assert (told["numFiles"], told["numDeletionVectorsOpt"], told["tableSizeBytes"]) == (1, 0, add["size"])
    assert merge_small_files(str(table)) == 0, "one is enough"
    put(tmp_path, "t", AT_LEAST + 1, changes([101, 500], [2, 4]))
    sync(tmp_path)
    before.subtract({(101,): 1, (500,): -1})
    assert rows(table) == +before
    then = read_snapshot(table, version - 1)
    assert then is not None and len(then.files) == AT_LEAST


def test_what_was_read_of_merged_files_is_forgotten(tmp_path: Path) -> None:
    """Else each small change costs memory for ever, until the cache is full of files that nobody reads any more."""
    table = many(tmp_path)

    def kept() -> set[str]:
        return {each for name in LATELY_READ._held if isinstance(name, tuple)
                for each in name[:2] if str(each).startswith(str(table))}  # fmt: skip

    assert len(kept()) > AT_LEAST // 2
    left = LATELY_READ._left
    assert merge_small_files(str(table)) == AT_LEAST
    assert merge_small_files(str(table)) == 0
    assert len(kept()) <= 1 and LATELY_READ._left > left


@settings(max_examples=rounds(10, 25), deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 2, 4])), min_size=1, max_size=4),
             min_size=1, max_size=6),
    st.booleans(),
)  # fmt: skip
def test_merged_or_not_the_table_is_the_same(
    tmp_path_factory: Any, files: list[list[tuple[int, int]]], when_idle: bool
) -> None:
    merged, plain = tmp_path_factory.mktemp("merged"), tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "AT_LEAST", 1)
        merge = all_when_idle if when_idle else merge_small_files
        for database in (merged, plain):
            declare(database, "t", ["id"])
            for number, rows_ in enumerate(files, 1):
                put(database, "t", number, changes([key for key, _ in rows_], [marker for _, marker in rows_]))
                sync(database)
                if database is merged:
                    merge(str(database / "Tables/t"))
    assert rows(merged / "Tables/t") == rows(plain / "Tables/t")


def test_every_type_and_columns_that_came_later(tmp_path: Path) -> None:
    moment = dt.datetime(2024, 2, 29, 12, 34, 56, 789123, tzinfo=dt.timezone.utc)
    full = {
        "s": pa.array(["ä", None]), "n": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "d": pa.array([moment.date(), None]), "t": pa.array([moment, None], pa.timestamp("us", "UTC")),
        "x": pa.array([float("nan"), -0.0]), "f": pa.array([1.5, None], pa.float32()), "b": pa.array([True, None]),
        "raw": pa.array([b"\x00", None]), "h": pa.array([1, None], pa.int16()),
    }  # fmt: skip
    for number in range(1, AT_LEAST + 1):
        put(tmp_path, "t", number, {"id": [1, None], **(full if number > 3 else {})})
    sync(tmp_path, batch_files=1)
    table = tmp_path / "Tables/t"
    columns = ["id", *full]

    def bag() -> list[str]:
        snapshot = read_snapshot(table)
        assert snapshot is not None
        parts = [pq.read_table(table / add["path"]).to_pylist() for add in snapshot.files.values()]
        return sorted(repr([row.get(column) for column in columns]) for part in parts for row in part)

    before = bag()
    assert merge_small_files(str(table)) == AT_LEAST
    assert bag() == before


@pytest.mark.parametrize(("gone", "written"), [(9, 0), (10, 1)])
def test_a_file_with_many_deleted_rows_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: int, written: int
) -> None:
    monkeypatch.setattr(compaction, "LARGEST", 0)
    put(tmp_path, "t", 1, {"id": list(range(100))})
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 2, changes(list(range(gone)), [2] * gone))
    sync(tmp_path, batch_files=1)
    table = tmp_path / "Tables/t"
    before = rows(table)
    assert sum(before.values()) == 100 - gone
    assert merge_small_files(str(table)) == written
    snapshot = read_snapshot(table)
    assert snapshot is not None and rows(table) == before
    assert [bool(add.get("deletionVector")) for add in snapshot.files.values()] == [not written]
    assert merge_small_files(str(table)) == 0


@pytest.mark.parametrize(("most", "written"), [(1 << 20, 1), (0, 0)])
def test_at_rest_no_vector_is_left_if_it_is_not_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, written: int
) -> None:
    monkeypatch.setattr(compaction, "LARGEST", 0)
    monkeypatch.setattr(compaction, "_MOST_AT_REST", most)
    put(tmp_path, "t", 1, {"id": list(range(100))})
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 2, changes([7], [2]))
    sync(tmp_path, batch_files=1)
    table = tmp_path / "Tables/t"
    before = rows(table)
    assert merge_small_files(str(table)) == 0
    assert merge_when_idle(str(table), all_vectors=True) == written
    snapshot = read_snapshot(table)
    assert snapshot is not None and rows(table) == before
    assert [bool(add.get("deletionVector")) for add in snapshot.files.values()] == [not written]
    assert merge_when_idle(str(table), all_vectors=True) == 0


def test_at_rest_as_many_commits_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = many(tmp_path)
    before, snapshot = rows(table), read_snapshot(table)
    assert snapshot is not None
    monkeypatch.setattr(compaction, "MOST_IN_PIECE", sum(add["size"] for add in snapshot.files.values()) // 3)
    counts = list(itertools.takewhile(bool, (merge_when_idle(str(table), all_vectors=True) for _ in range(10))))
    assert 2 <= len(counts) < 10
    snapshot = read_snapshot(table)
    assert snapshot is not None and rows(table) == before and len(snapshot.files) < AT_LEAST / 2


def test_the_last_commit_says_that_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = many(tmp_path)
    assert merge_small_files(str(table)) == AT_LEAST and not is_complete(newest_info(table))
    put(tmp_path, "t", AT_LEAST + 1, changes([1], [4]))
    sync(tmp_path)
    assert merge_when_idle(str(table), all_vectors=True) == 2 and is_complete(newest_info(table))
    put(tmp_path, "t", AT_LEAST + 2, changes([1], [4]))
    sync(tmp_path)
    seen: list[int] = []
    monkeypatch.setattr(compaction, "in_large_table", lambda adds: seen.append(len(adds)) or list(adds)[:1])
    assert merge_when_idle(str(table), all_vectors=True) == 2 and not is_complete(newest_info(table)), "there is more"
    assert seen == [1]


def test_much_becomes_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = many(tmp_path)
    before, snapshot = rows(table), read_snapshot(table)
    assert snapshot is not None
    size = sum(add["size"] for add in snapshot.files.values())
    monkeypatch.setattr(compaction, "_SMALLEST_FILE", size // 3)
    assert merge_small_files(str(table)) == AT_LEAST
    snapshot = read_snapshot(table)
    assert snapshot is not None and rows(table) == before and 1 < len(snapshot.files) <= 4
    bounds = sorted((each["minValues"]["id"], each["maxValues"]["id"]) for each in map(stats, snapshot.files.values()))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(bounds)), "by key"


@pytest.mark.parametrize("merge", [merge_small_files, all_when_idle])
def test_a_commit_in_between_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: Any) -> None:
    table = many(tmp_path)
    before, version, files = rows(table), AT_LEAST, set(table.glob("*.parquet"))
    content = json.dumps({"commitInfo": {"operation": "OPTIMIZE", "timestamp": 1}})

    def reach(name: str) -> None:
        if name == "merge.before-commit":
            (table / f"_delta_log/{version:020}.json").write_text(content)

    monkeypatch.setattr(failpoints, "reach", reach)
    assert merge(str(table)) == (0 if merge is merge_small_files else None)
    assert set(table.glob("*.parquet")) == files, "what was written for it is gone again"
    assert (table / f"_delta_log/{version:020}.json").read_text() == content
    assert rows(table) == before


def test_a_file_that_is_not_what_the_log_says_stays(tmp_path: Path) -> None:
    table = many(tmp_path)
    data = next(table.glob("part-*.parquet"))
    pq.write_table(pq.read_table(data).slice(0, 0), data)
    assert merge_small_files(str(table)) == 0
    data.unlink()
    assert merge_small_files(str(table)) == 0
    assert merge_small_files(str(tmp_path / "none")) == 0


@pytest.mark.parametrize("wanted", [True, False])
def test_it_happens_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    monkeypatch.setattr(small_files, "EVERY", 20)
    table = many(tmp_path, 22, maintenance=wanted)
    snapshot = read_snapshot(table)
    assert snapshot is not None and (len(snapshot.files) == 1) is wanted
    many_more = tmp_path / "again"
    table = many(many_more, 19)
    put(many_more, "t", 20, {"id": [1]})
    sync(many_more)
    put(many_more, "t", 21, {"id": [1]})
    sync(many_more)  # by another process: it has not seen the commits before
    snapshot = read_snapshot(table)
    assert snapshot is not None and len(snapshot.files) == 1


def test_it_is_due_sooner_where_few_small_files_make_a_table_slow_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(many(tmp_path, 9, maintenance=False))
    newest, due = 8, partial(small_files.is_due_sooner, table)
    assert not due(newest - 1, newest), "of a small table only every so many commits"
    assert small_files.is_due(31, 32) and small_files.is_due(30, 33) and not small_files.is_due(32, 33)
    assert merge_few(table) == 0
    monkeypatch.setattr(compaction, "_FEWEST_BYTES", 1)
    assert due(newest - 1, newest) and not due(newest, newest + 1)
    assert not due(newest + 3, newest + 4), "a version without a checksum file"
    before = rows(Path(table))
    assert merge_few(table) > 1 and rows(Path(table)) == before
    assert not due(7, 9), "a single file is left"


@pytest.mark.parametrize("options", [{"deletes": "soft"}, {"sequence": ["n"]}, {"deletes": "ignore"}])
def test_it_is_due_sooner_where_applies_read_old_rows(tmp_path: Path, options: dict[str, Any]) -> None:
    """However small the table is."""
    declare(tmp_path, "t", ["id"], lakemirror=options)
    for number in range(1, 10):
        put(tmp_path, "t", number, {"id": [number, 20], "n": [number, number], MARKER: pa.array([4, 4], pa.int32())})
    sync(tmp_path, batch_files=1, maintenance=False)
    table, reads = tmp_path / "Tables/t", options != {"deletes": "ignore"}
    newest = read_snapshot(table).version  # type: ignore[union-attr]
    due = next(version for version in (newest, newest - 1, newest - 2, newest - 3) if version % 4 == 0)
    assert small_files.is_due_sooner(str(table), due - 1, due) is reads
    before = rows(table)
    assert (merge_few(str(table)) > 1) is reads and rows(table) == before


@pytest.mark.parametrize("wanted", [True, False])
def test_few_files_are_merged_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    monkeypatch.setattr(compaction, "_FEWEST_BYTES", 1)
    snapshot = read_snapshot(many(tmp_path, 12, maintenance=wanted))
    assert snapshot is not None and (len(snapshot.files) < 6) is wanted


def test_rows_that_take_too_much_memory_are_written_in_the_files_order(tmp_path: Path) -> None:
    table = many(tmp_path)
    before = rows(table)
    assert merge_small_files(str(table), rewrite=partial(compact, memory=100)) == AT_LEAST
    snapshot = read_snapshot(table)
    assert snapshot is not None and rows(table) == before
    (add,) = snapshot.files.values()
    ids = pq.read_table(table / add["path"])["id"].to_pylist()
    assert ids != sorted(ids)
    assert stats(add)["numRecords"] == len(ids) and stats(add)["minValues"] == {"id": min(ids)}


def test_a_large_file_of_which_much_is_deleted_is_written_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Applies do not wait for it: it is given up when one comes."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": list(range(1000))})
    put(tmp_path, "t", 2, changes(list(range(0, 1000, 10)), [2] * 100))
    sync(tmp_path, batch_files=1)
    table = tmp_path / "Tables/t"
    before = rows(table)
    for name in ("LARGEST", "_LARGEST_WORN", "MOST_IN_PIECE"):
        monkeypatch.setattr(compaction, name, 0)
    monkeypatch.setattr(compaction, "_MOST_AT_REST", 0)
    held: list[str] = []

    def hold() -> Any:
        held.append("held")
        return nullcontext(True)

    with pytest.raises(Cancelled):
        merge_when_idle(str(table), all_vectors=True, rewrite=partial(compact, is_cancelled=lambda: True), hold=hold)
    assert rows(table) == before and len(list(table.glob("*.parquet"))) == 1
    assert merge_when_idle(str(table), all_vectors=True, hold=hold) == 1 and not held
    snapshot = read_snapshot(table)
    assert snapshot is not None and rows(table) == before
    assert [bool(add.get("deletionVector")) for add in snapshot.files.values()] == [False]
    assert merge_when_idle(str(table), all_vectors=True) == 0


def test_partitions_mapped_names_and_types_that_grew(tmp_path: Path) -> None:
    """Files of one partition become one; names and types in them are the table's."""
    fields = [
        {"name": "id", "type": "long", "nullable": True,
         "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1",
                      "delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}},
        {"name": "a b", "type": "string", "nullable": True,
         "metadata": {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "c2"}},
        {"name": "region", "type": "string", "nullable": True,
         "metadata": {"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "c3"}},
    ]  # fmt: skip
    table = tmp_path / "t"
    features = ["columnMapping", "typeWidening"]
    metadata = {
        "id": "m", "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["region"],
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "configuration": {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true",
                          "lakemirror.keyColumns": '["id"]'},
    }  # fmt: skip
    actions: list[Any] = [
        {"commitInfo": {"timestamp": 1, "txnId": "x"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
                      "writerFeatures": features}},
        {"metaData": metadata},
    ]  # fmt: skip
    expected = []
    for number in range(2 * AT_LEAST):
        region, kind = ("eu", None)[number % 2], (pa.int32(), pa.int64())[number // AT_LEAST]
        folder = table / f"c3={region}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{number:05}-x.c000.snappy.parquet"
        pq.write_table(pa.table({"c1": pa.array([100 - number], kind), "c2": [str(number)]}), path)
        expected.append((100 - number, str(number), region))
        actions.append({"add": {
            "path": f"c3={region}/{path.name}", "partitionValues": {"c3": region}, "size": path.stat().st_size,
            "modificationTime": 1, "dataChange": True, "stats": json.dumps({"numRecords": 1}),
        }})  # fmt: skip
    (table / "_delta_log").mkdir()
    (table / f"_delta_log/{0:020}.json").write_bytes(lines(actions))
    assert merge_small_files(str(table)) == 2 * AT_LEAST
    snapshot = read_snapshot(table)
    assert snapshot is not None and len(snapshot.files) == 2
    found = []
    for add in snapshot.files.values():
        part = pq.read_table(table / unquote(add["path"]), partitioning=None)
        assert part.schema.names == ["c1", "c2"] and part.schema.types == [pa.int64(), pa.string()]
        assert part["c1"].to_pylist() == sorted(part["c1"].to_pylist())
        found += [(row["c1"], row["c2"], add["partitionValues"]["c3"]) for row in part.to_pylist()]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_vector_that_is_cut_off_is_left_alone(tmp_path: Path) -> None:
    table = many(tmp_path)
    snapshot = read_snapshot(table)
    assert snapshot is not None
    vector = next(add["deletionVector"] for add in snapshot.files.values() if "deletionVector" in add)
    (table / vector_path(vector["pathOrInlineDv"])).write_bytes(b"\x01\x00")
    assert merge_small_files(str(table)) == 0


def test_what_was_written_before_an_error_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, true = many(tmp_path), compact_kernel.write_rows
    before = set(table.glob("*.parquet"))
    calls: list[int] = []

    def third(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise OSError("the disk is full")
        return true(*given, **named)

    monkeypatch.setattr(compact_kernel, "write_rows", third)
    monkeypatch.setattr(compaction, "_SMALLEST_FILE", 2)
    assert merge_when_idle(str(table), all_vectors=True) is None
    assert len(calls) >= 3 and set(table.glob("*.parquet")) == before


@pytest.mark.parametrize("place", ["sync_files", "put_new"])
def test_where_no_commit_can_be_made_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    table = many(tmp_path)
    before = set(table.glob("*.parquet"))

    def fails(*_: Any, **__: Any) -> Any:
        raise LakemirrorError("storage-unavailable", "input/output error")

    monkeypatch.setattr(delta_commit, place, fails)
    assert merge_when_idle(str(table), all_vectors=True) is None
    assert set(table.glob("*.parquet")) == before


@pytest.mark.parametrize(
    "error",
    [OSError("the disk went away behind the link"), LakemirrorError("table-unreadable", "the commit before is damaged"),
     Overwritten("concurrent-commit", "another engine replaced our commit")],
)  # fmt: skip
def test_what_a_commit_holds_is_never_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table, true = many(tmp_path), delta_commit.put_new
    before = rows(table)

    def put(*given: Any, **named: Any) -> None:
        true(*given, **named)
        raise error

    monkeypatch.setattr(delta_commit, "put_new", put)
    assert merge_when_idle(str(table), all_vectors=True) is None
    snapshot = read_snapshot(table)
    assert snapshot is not None and len(snapshot.files) == 1 and rows(table) == before


def test_days_by_the_legacy_calendar_stay_where_they_are(tmp_path: Path) -> None:
    table = many(tmp_path)
    snapshot = read_snapshot(table)
    assert snapshot is not None
    path = table / next(iter(snapshot.files.values()))["path"]
    rows_ = pq.read_table(path)
    pq.write_table(rows_.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), path)
    assert merge_small_files(str(table)) == 0


@pytest.mark.parametrize(
    ("info", "complete"),
    [({"operation": "OPTIMIZE"}, True), ({"operation": "OPTIMIZE", "operationParameters": None}, True),
     ({"operation": "OPTIMIZE", "engineInfo": "lakemirror", "operationParameters": {"auto": True}}, False),
     ({"operation": "OPTIMIZE", "engineInfo": "lakemirror", "operationParameters": {"auto": False}}, True),
     ({"operation": "OPTIMIZE", "engineInfo": "Spark", "operationParameters": {"auto": True}}, True),
     ({"operation": "OPTIMIZE", "engineInfo": "lakemirror", "operationParameters": "auto"}, True),
     ({"operation": "WRITE"}, False), ({}, False)],
)  # fmt: skip
def test_which_commits_end_a_compaction(info: Any, complete: bool) -> None:
    assert is_complete(info) is complete
