"""`lakemirror history build`: the same history as if it had been there from the first file on, or a refusal."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.change_tables import UNCHANGED, marked
from tests.commands import CommandRunner
from tests.landing import declare, folder, put
from tests.table_rows import read_table, table_rows

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.cli.commands import command_line
from lakemirror.delta import commit as delta
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.schema import Column, from_delta, to_delta
from lakemirror.mirror.history import build as history_build
from lakemirror.mirror.history.applied_files import HistoryFiles
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options

BOTH = {"history": ["scd2", "changes"]}
DAY = datetime(2026, 3, 1, tzinfo=timezone.utc)


def sync(database: Path, **settings: Any) -> None:
    done = MirroredDatabase(database, **settings).sync()
    assert not done.failed, done.failed


def put_at(database: Path, number: int, rows: Any) -> None:
    put(database, "t", number, rows)
    moment = (DAY + timedelta(hours=number, microseconds=7 * number)).timestamp()
    os.utime(folder(database, "t") / f"{number:020}.parquet", (moment, moment))


def published(database: Path, numbers: range) -> None:
    files = {
        1: {"id": pa.array([1, 2, 3], pa.int32()), "v": ["a", "b", "c"]},
        2: marked([1, 2, 4], id=[1, 2, 4], v=["x", None, "d"]),
        3: marked([4, 4], id=[2, 2], v=["y", "z"]),
        4: marked([1], id=[3], v=[None], w=[1.5]).append_column(UNCHANGED, pa.array([["v"]])),
        5: marked([2, 4], id=[4, 2**40], v=[None, "e"], w=[None, 2.5]),
        6: marked([1], id=[1], v=["x2"], w=[None]),
    }
    for number in numbers:
        put_at(database, number, files[number])


def history(database: Path) -> tuple[list[Any], list[Any]]:
    found = []
    for name in ("t__history", "t__changes"):
        rows = read_table(database / "Tables" / name).to_pylist()
        found.append(sorted((sorted((k, v) for k, v in r.items() if k != "__applied_at") for r in rows), key=repr))
    return found[0], found[1]


def late(database: Path, wide: dict[str, Any], **options: Any) -> None:
    """A table whose history is switched on once three files, and then two, are applied."""
    declare(database, "t", ["id"])
    published(database, range(1, 4))
    sync(database, **wide)
    published(database, range(4, 6))
    sync(database, **wide)
    declare(database, "t", ["id"], lakemirror={**BOTH, **options})


@pytest.fixture
def whole(tmp_path: Path) -> tuple[list[Any], list[Any]]:
    """The history that was there from the beginning on."""
    database = tmp_path / "whole"
    declare(database, "t", ["id"], lakemirror=BOTH)
    published(database, range(1, 7))
    sync(database, on_type_change="widen")
    return history(database)


WIDE: dict[str, Any] = {"on_type_change": "widen"}


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("settings", [{}, {"deletion_vectors": False, "change_data_feed": True}, {"batch_files": 1}])
def test_a_built_history_is_the_one_that_was_always_there(
    tmp_path: Path, whole: tuple[list[Any], list[Any]], begun: bool, settings: dict[str, Any]
) -> None:
    wide, database = {**WIDE, **settings}, tmp_path / "late"
    late(database, wide)
    if begun:
        sync(database, **wide)
        assert history(database) != whole
    act = MirroredDatabase(database, **wide).build_history("t")
    assert act.files == 5 and "t__history" in act.text
    published(database, range(6, 7))
    sync(database, **wide)
    assert history(database) == whole
    MirroredDatabase(database, **wide).build_history("t")
    assert history(database) == whole
    assert not verify_database(LocalStorage(database), (), Options(against_files=True)).exit_code


ORDERED: dict[str, Any] = {"sequence": "n", "history": ["scd2", "changes"]}
CHANGES = [  # marker, key, sequence, value: in the order of arrival
    (4, 1, 5, "a"), (4, 1, 9, "c"), (4, 2, 3, "x"), (4, 1, 7, "a"), (4, 1, 6, "b"), (2, 2, 8, None), (4, 2, 4, "y"),
    (2, 1, 8, None), (4, 2, 1, "x"), (4, 1, 4, "a"),
]  # fmt: skip


def put_ordered(database: Path, numbers: range) -> None:
    for number in numbers:
        mark, key, at, value = CHANGES[number - 1]
        put_at(database, number, marked([mark], id=[key], n=[at], v=[value]))


EVERY_WAY = [
    pytest.param(deletes, files, marks=[] if (deletes == "soft") is (files == 4) else pytest.mark.full)
    for deletes in ("hard", "soft", "ignore")
    for files in (1, 4)
]


@pytest.mark.parametrize(("deletes", "batch_files"), EVERY_WAY)
def test_versions_with_a_sequence_are_built(tmp_path: Path, deletes: str, batch_files: int) -> None:
    """Late changes find their place, also after the build."""
    found = []
    for is_late in (False, True):
        database = tmp_path / str(is_late)
        options = {**ORDERED, "deletes": deletes}
        declare(database, "t", ["id"], lakemirror={**options, "history": []} if is_late else options)
        put_ordered(database, range(1, 9))
        sync(database, batch_files=batch_files)
        if is_late:
            declare(database, "t", ["id"], lakemirror=options)
            assert MirroredDatabase(database, batch_files=batch_files).build_history("t").files == 8
        found.append(history(database))
        put_ordered(database, range(9, 11))
        sync(database)
        found.append(history(database))
        assert not verify_database(LocalStorage(database), (), Options(against_files=True)).exit_code
    assert found[:2] == found[2:]


def test_a_sequence_that_came_later_than_the_first_files_is_refused(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, 1, marked([4], id=[1], n=[5], v=["a"]))
    put_at(tmp_path, 2, marked([4], id=[1], n=[3], v=["b"]))
    sync(tmp_path)
    declare(tmp_path, "t", ["id"], lakemirror=ORDERED)
    database = MirroredDatabase(tmp_path)
    with pytest.raises(LakemirrorError) as failure:
        database.build_history("t")
    assert failure.value.code == "history-incomplete" and "not the newest by the sequence" in failure.value.message
    assert not (tmp_path / "Tables/t__history").exists()
    database.resync("t")
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, 5, "a"): 1}
    assert [row["__END_AT"] for row in read_table(tmp_path / "Tables/t__history").to_pylist()] in ([5, None], [None, 5])


def test_a_column_that_only_waiting_files_have_is_tracked_later(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["v"]}})
    put(tmp_path, "t", 1, marked([4], id=[1], v=["a"]))
    sync(tmp_path)
    put(tmp_path, "t", 2, marked([4], id=[1], v=["a"], w=["new"]))
    wider = {"history": {"mode": "scd2", "track": ["v", "w"]}}
    declare(tmp_path, "t", ["id"], lakemirror=wider)
    assert MirroredDatabase(tmp_path).sync().failed["t"].code == "history-track-changed"
    with pytest.raises(LakemirrorError) as failure:
        MirroredDatabase(tmp_path).build_history("t")
    assert "take w out of it until a file with this column is applied" in (failure.value.hint or "")
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["v"]}})
    sync(tmp_path)
    declare(tmp_path, "t", ["id"], lakemirror=wider)
    MirroredDatabase(tmp_path).build_history("t")
    rows = read_table(tmp_path / "Tables/t__history").to_pylist()
    assert sorted((row["v"], row["w"] or "", row["__END_AT"] is None) for row in rows) == [
        ("a", "", False), ("a", "new", True),
    ]  # fmt: skip


def test_another_track_is_built(tmp_path: Path) -> None:
    late(tmp_path, WIDE)
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["v"]}})
    sync(tmp_path, **WIDE)
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["w"]}})
    published(tmp_path, range(6, 7))
    failed = MirroredDatabase(tmp_path, **WIDE).sync().failed["t"]
    assert failed.code == "history-track-changed" and "history build" in (failed.hint or "")
    MirroredDatabase(tmp_path, **WIDE).build_history("t")
    sync(tmp_path, **WIDE)
    rows = read_table(tmp_path / "Tables/t__history").to_pylist()
    assert sorted(((row["id"], row["v"], row["w"], row["__END_AT"] is None) for row in rows), key=repr) == [
        (1, "x2", None, True), (2**40, "e", 2.5, True), (2, "b", None, False), (2, "z", None, True),
        (3, "c", 1.5, True), (3, "c", None, False), (4, "d", None, False),
    ]  # fmt: skip


def test_what_is_not_everything_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    def refused(why: str) -> None:
        before = sorted(str(path) for path in (tmp_path / "Tables").rglob("*"))
        with pytest.raises(LakemirrorError) as failure:
            MirroredDatabase(tmp_path, **WIDE).build_history("t")
        assert failure.value.code == "history-incomplete" and why in failure.value.message
        assert sorted(str(path) for path in (tmp_path / "Tables").rglob("*")) == before

    late(tmp_path, WIDE)
    processed = folder(tmp_path, "t") / "_ProcessedFiles"
    second = processed / f"{2:020}.parquet"
    content = second.read_bytes()
    second.unlink()
    refused("1 of 5 applied files are gone, first number 2")
    second.write_bytes(content)
    MirroredDatabase(tmp_path, **WIDE).resync("t")
    sync(tmp_path, **WIDE)
    refused("made again or resynced")
    declare(tmp_path, "t", ["id"])
    refused("no history is declared")


def test_options_that_are_not_known_any_more_are_refused_where_changes_would_say_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemirror.mirror.history.row_options._MOST_EARLIER", 1)
    for number, upserts in enumerate((True, False, True), 1):
        declare(tmp_path, "t", ["id"], isUpsertDefaultRowMarker=upserts)
        put_at(tmp_path, number, {"id": [1], "v": [number]})
        sync(tmp_path)
    declare(tmp_path, "t", ["id"], isUpsertDefaultRowMarker=True, lakemirror=BOTH)
    with pytest.raises(LakemirrorError) as failure:
        MirroredDatabase(tmp_path).build_history("t")
    assert failure.value.code == "history-incomplete" and "up to number 2 are not known" in failure.value.message
    assert not (tmp_path / "Tables/t__history").exists()
    declare(tmp_path, "t", ["id"], isUpsertDefaultRowMarker=True, lakemirror={"history": "scd2"})
    MirroredDatabase(tmp_path).build_history("t")
    rows = read_table(tmp_path / "Tables/t__history").to_pylist()
    assert sorted((row["v"], row["__END_AT"] is None) for row in rows) == [(1, False), (2, False), (3, True)]


def test_a_time_that_is_not_known_is_refused_unless_the_rows_have_it(tmp_path: Path) -> None:
    late(tmp_path, WIDE)
    first = tmp_path / "Tables/t/_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    manifest = json.loads(lines[0]["commitInfo"]["userMetadata"])
    assert len(manifest["lakemirror"].pop("times")) == 2
    lines[0]["commitInfo"]["userMetadata"] = json.dumps(manifest)
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(LakemirrorError) as failure:
        MirroredDatabase(tmp_path, **WIDE).build_history("t")
    assert failure.value.code == "history-incomplete" and "when number 1 was written" in failure.value.message
    declare(tmp_path, "t", ["id"], lakemirror={"history": "changes"})
    MirroredDatabase(tmp_path, **WIDE).build_history("t")  # changes need no such time


def test_rows_with_times_of_their_own_need_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, "t", ["id"])
    for number in range(1, 4):
        moment = pa.array([DAY + timedelta(hours=number)], pa.timestamp("us", "UTC"))
        put(tmp_path, "t", number, marked([4], id=[1], v=[number]).append_column("__sourceTimestamp__", moment))
    sync(tmp_path)
    declare(tmp_path, "t", ["id"], lakemirror={"history": "scd2"})
    monkeypatch.setattr("lakemirror.mirror.history.applied_files.known_times", lambda *_: {})
    MirroredDatabase(tmp_path).build_history("t")
    starts = sorted(row["__START_AT"] for row in read_table(tmp_path / "Tables/t__history").to_pylist())
    assert starts == [DAY + timedelta(hours=number) for number in range(1, 4)]
    none = pa.nulls(1, pa.timestamp("us", "UTC"))
    put(tmp_path, "t", 4, marked([4], id=[1], v=[4]).append_column("__sourceTimestamp__", none))
    put(tmp_path, "t", 5, marked([4], id=[1], v=[5]).append_column("__sourceTimestamp__", moment))
    sync(tmp_path)
    with pytest.raises(LakemirrorError, match="when number 4 was written"):
        MirroredDatabase(tmp_path).build_history("t")


def test_a_build_that_dies_leaves_the_old_history_and_is_repeated(
    tmp_path: Path, whole: tuple[list[Any], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "late"
    late(database, WIDE)
    sync(database, **WIDE)
    before = history(database)

    class Killed(BaseException):
        pass

    def dies(*_: Any, **__: Any) -> int:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(history_build.delta, "commit", dies)
        with pytest.raises(Killed):
            MirroredDatabase(database, **WIDE).build_history("t")
    assert history(database) == before
    MirroredDatabase(database, **WIDE).build_history("t")
    published(database, range(6, 7))
    sync(database, **WIDE)
    assert history(database) == whole


def test_an_engine_that_commits_meanwhile_is_caught_up_with(
    tmp_path: Path, whole: tuple[list[Any], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    database, made = tmp_path / "late", delta.commit
    late(database, WIDE)
    sync(database, **WIDE)
    published(database, range(6, 7))

    def first_an_engine(path: str, *rest: Any, **more: Any) -> int:
        if str(path).startswith(str(database)):
            monkeypatch.setattr(delta, "commit", made)
            sync(database, **WIDE)
        return made(path, *rest, **more)

    monkeypatch.setattr(delta, "commit", first_an_engine)
    MirroredDatabase(database, **WIDE).build_history("t")
    assert history(database) == whole and table_rows(database, "t")


def test_a_file_that_an_engine_sets_aside_meanwhile_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"history": "scd2"})
    for number in (1, 2):
        put_at(tmp_path, number, marked([4], id=[1], v=[number]))
    sync(tmp_path)
    expected, last = table_rows(tmp_path, "t__history"), folder(tmp_path, "t") / f"{2:020}.parquet"
    read = HistoryFiles._footer

    def moved(self: HistoryFiles, entry: Any) -> Any:
        if last.exists():
            last.rename(last.parent / "_ProcessedFiles" / last.name)
        return read(self, entry)

    monkeypatch.setattr(HistoryFiles, "_footer", moved)
    MirroredDatabase(tmp_path).build_history("t")
    assert not last.exists() and table_rows(tmp_path, "t__history") == expected


def test_versions_of_an_earlier_folder_are_not_lost(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror=BOTH)
    published(tmp_path, range(1, 3))
    settings = {"drop_after": 0, "settle": 0, **WIDE}
    sync(tmp_path, **settings)
    shutil.rmtree(folder(tmp_path, "t"))
    for _ in range(3):
        sync(tmp_path, **settings)
    declare(tmp_path, "t", ["id"], lakemirror=BOTH)
    published(tmp_path, range(1, 2))
    sync(tmp_path, **settings)
    with pytest.raises(LakemirrorError) as failure:
        MirroredDatabase(tmp_path).build_history("t")
    assert failure.value.code == "history-incomplete" and "earlier table folder" in failure.value.message
    MirroredDatabase(tmp_path).drop_history("t")
    MirroredDatabase(tmp_path).build_history("t")
    assert read_table(tmp_path / "Tables/t__history").num_rows == 3


def test_delimited_text(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], fileFormat="CSV", fileExtension="csv")
    for number in range(1, 4):
        (folder(tmp_path, "t") / f"{number:020}.csv").write_text(f"id,v,__rowMarker__\n1,{number},4\n")
        moment = (DAY + timedelta(hours=number)).timestamp()
        os.utime(folder(tmp_path, "t") / f"{number:020}.csv", (moment, moment))
    sync(tmp_path)
    declare(tmp_path, "t", ["id"], fileFormat="CSV", fileExtension="csv", lakemirror=BOTH)
    MirroredDatabase(tmp_path).build_history("t")
    rows = read_table(tmp_path / "Tables/t__history").to_pylist()
    assert sorted(row["__START_AT"] for row in rows) == [DAY + timedelta(hours=n) for n in range(1, 4)]
    names = {row["__file"] for row in read_table(tmp_path / "Tables/t__changes").to_pylist()}
    assert all("_ProcessedFiles" not in name and "_Staged" not in name for name in names) and len(names) == 3
    assert not list((tmp_path / "Files/_Staged").rglob("*.parquet"))


def test_values_of_another_writer_are_not_lost(tmp_path: Path) -> None:
    late(tmp_path, WIDE)
    sync(tmp_path, **WIDE)
    path = tmp_path / "Tables/t__history"
    snapshot = read_snapshot(path)
    assert snapshot is not None
    value = dict(snapshot.metadata.value)
    value["schemaString"] = to_delta(
        (*from_delta(value["schemaString"]), Column("note", "string")), value["schemaString"]
    )
    delta.commit(str(path), snapshot, [{"commitInfo": {"operation": "ADD COLUMNS"}}, {"metaData": value}])
    before = history(tmp_path)
    with pytest.raises(LakemirrorError) as failure:
        MirroredDatabase(tmp_path, **WIDE).build_history("t")
    assert failure.value.code == "history-incomplete" and "'note'" in failure.value.message
    assert history(tmp_path)[0] == before[0]


def test_the_command_says_what_it_did_or_why_not(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror=BOTH)
    published(tmp_path, range(1, 2))
    sync(tmp_path)
    words = ["history", "build", str(tmp_path), "t"]
    assert CommandRunner().invoke(command_line("history"), words).exit_code == 2
    done = CommandRunner().invoke(command_line("history"), [*words, "--from-processed"])
    assert done.exit_code == 0 and "made again from 1 change file\n" in done.output
    (folder(tmp_path, "t") / f"{1:020}.parquet").unlink()
    refused = CommandRunner().invoke(command_line("history"), [*words, "--from-processed"])
    assert refused.exit_code == 3 and "history-incomplete" in refused.output
