"""A table of changes (history.md section 3): every change of every file, as it came, once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.change_tables import UNCHANGED, expected, held, marked
from tests.commands import CommandRunner
from tests.landing import MARKER, declare, folder, put
from tests.table_rows import read_table, table_rows

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.cli.commands import command_line
from lakemirror.delta.log import read_snapshot
from lakemirror.mirror import apply
from lakemirror.mirror.table_log import read_table_log
from lakemirror.storage import LocalStorage
from lakemirror.verify.proof import Options, verify_database


def sync(database: Path, **settings: Any) -> None:
    result = MirroredDatabase(database, **settings).sync()
    assert not result.failed, result.failed


def failure(database: Path, table: str, **settings: Any) -> Any:
    return MirroredDatabase(database, **settings).sync().failed[table]


def begun(database: Path, keys: list[str] | None = None, **more: Any) -> None:
    declare(database, "t", ["id"] if keys is None else keys, lakemirror={"history": "changes"}, **more)


def test_every_change_is_kept_and_the_mirrored_table_has_the_net_effect(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
    put(tmp_path, "t", 2, marked([1, 2, 4, 4], id=[1, 2, 3, 3], v=["c", None, "x", "y"]))
    sync(tmp_path)
    put(tmp_path, "t", 3, marked([2, 0], id=[9, 10], v=[None, "z"]))
    sync(tmp_path)
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
    assert table_rows(tmp_path, "t") == {(1, "c"): 1, (3, "y"): 1, (10, "z"): 1}
    for table in ("t", "t__changes"):
        log = read_table_log(str(tmp_path / "Tables" / table))
        assert log is not None and log.position is not None and log.position.number == 3
    info = json.loads((tmp_path / f"Tables/t__changes/_delta_log/{1:020}.json").read_text().splitlines()[0])
    assert info["commitInfo"]["isBlindAppend"] is True


def test_a_table_whose_rows_stay_needs_no_deletion_vectors(tmp_path: Path) -> None:
    """Clients that do not know the feature can read it."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": ["changes", "scd2"], "sequence": "id2"})
    put(tmp_path, "t", 1, marked([4, 2], id=[1, 2], id2=[1, 2]))
    sync(tmp_path)
    found = {name: (tmp_path / f"Tables/{name}/_delta_log/{0:020}.json").read_text()
             for name in ("t", "t__history", "t__changes", "t__late")}  # fmt: skip
    assert [name for name, text in found.items() if "eletionVectors" in text] == ["t", "t__history"]


def test_columns_that_come_and_grow_and_partial_rows(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
    sync(tmp_path, on_type_change="widen")
    put(tmp_path, "t", 2, marked([4], id=[2**40], v=["c"], w=[1.5]))
    sync(tmp_path, on_type_change="widen")
    put(tmp_path, "t", 3, marked([1, 4], id=[1, 2], v=[None, "d"], w=[2.5, None]).append_column(
        UNCHANGED, pa.array([["v"], None])))  # fmt: skip
    put(tmp_path, "t", 4, marked([1], id=[1], w=[None]).append_column(UNCHANGED, pa.array([["w", "v"]])))
    sync(tmp_path, on_type_change="widen")
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
    assert table_rows(tmp_path, "t", ["id", "v", "w"]) == {(1, "a", 2.5): 1, (2, "d", None): 1, (2**40, "c", 1.5): 1}


def test_a_table_without_keys_and_rows_that_upsert_by_default(tmp_path: Path) -> None:
    declare(tmp_path, "k", [], lakemirror={"history": "changes"})
    put(tmp_path, "k", 1, {"a": [1, 1, None]})
    begun(tmp_path, isUpsertDefaultRowMarker=True)
    put(tmp_path, "t", 1, {"id": [1, 1]})
    sync(tmp_path)
    assert held(tmp_path, "k__changes") == expected(tmp_path, "k")
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t", default=4)


def test_names_that_delta_holds_by_column_mapping_and_partitions(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1], "a b": ["x"]})
    put(tmp_path, "t", 2, marked([1], **{"id": [1], "a b": ["y"], "c,d": [True]}))
    sync(tmp_path)
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")


def test_a_name_in_a_schema_and_another_name(tmp_path: Path) -> None:
    declare(tmp_path, "s.t", ["id"], lakemirror={"history": {"mode": "changes", "name": "Log"}})
    put(tmp_path, "s.t", 1, {"id": [1]})
    sync(tmp_path)
    assert held(tmp_path, "s.Log") == expected(tmp_path, "s.t")


def test_more_rows_than_are_held_and_files_that_are_taken_as_they_are(tmp_path: Path) -> None:
    """Inserts alone are copied into the mirrored table; the table of changes reads them."""
    begun(tmp_path)
    rows = pa.table({"id": range(300_000), "v": [f"text {number}" for number in range(300_000)]})
    put(tmp_path, "t", 1, rows, compression="none")
    sync(tmp_path)
    found = read_table(tmp_path / "Tables/t__changes").sort_by("__row")
    assert found.select(["id", "v"]).equals(rows) and found["__row"].equals(rows["id"])
    put(tmp_path, "t", 2, marked([4] * 3000, id=list(range(3000)), v=["new"] * 3000))
    sync(tmp_path, memory=1 << 20)
    found = read_table(tmp_path / "Tables/t__changes").filter(pc.field("__operation") == "upsert").sort_by("__row")
    assert found["id"].to_pylist() == found["__row"].to_pylist() == list(range(3000))


@pytest.mark.parametrize("name", ["__operation", "__FILE", "__deleted", "__END_AT"])
def test_a_column_of_a_reserved_name_stops_its_table(tmp_path: Path, name: str) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1], name: ["x"]})
    error = failure(tmp_path, "t")
    assert error.code == "column-name-reserved" and name in error.message and error.column == name
    assert not (tmp_path / "Tables/t/_delta_log").exists()
    declare(tmp_path, "t", ["id"])
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, "x"): 1}


def test_a_bad_row_ends_the_batch_before_it_in_all_tables(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1]})
    put(tmp_path, "t", 2, marked([0, 7], id=[2, 3]))
    error = failure(tmp_path, "t")
    assert error.code == "row-marker-invalid" and f"{2:020}" in error.message
    assert sum(held(tmp_path, "t__changes").values()) == 1
    assert table_rows(tmp_path, "t") == {(1,): 1}
    left = {str(path) for path in (tmp_path / "Tables").rglob("*.parquet")}
    named = {
        str(tmp_path / "Tables" / table / add["path"])
        for table in ("t", "t__changes")
        for snapshot in [read_snapshot(tmp_path / "Tables" / table)]
        if snapshot is not None
        for add in snapshot.files.values()
    }
    assert left == named


def test_a_folder_that_is_made_again_goes_on_in_the_table_of_changes(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
    sync(tmp_path)
    first = held(tmp_path, "t__changes")
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [5], "x": [True]})
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(5, True): 1}
    assert held(tmp_path, "t__changes") == first + expected(tmp_path, "t")


def test_the_history_stays_when_the_folder_is_dropped(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    for _ in range(2):
        sync(tmp_path, drop_after=0.0)
    assert not (tmp_path / "Tables/t").exists()
    assert sum(held(tmp_path, "t__changes").values()) == 1


def test_a_folder_of_the_name_of_a_history_table_and_the_other_way_round(tmp_path: Path) -> None:
    """The later one is refused; the other goes on."""
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    declare(tmp_path, "t__changes", ["id"])
    put(tmp_path, "t__changes", 1, {"id": [7]})
    put(tmp_path, "t", 2, {"id": [2]})
    assert failure(tmp_path, "t__changes").code == "table-name-ambiguous"
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
    declare(tmp_path, "u__changes", ["id"])
    put(tmp_path, "u__changes", 1, {"id": [7]})
    MirroredDatabase(tmp_path).sync()
    declare(tmp_path, "u", ["id"], lakemirror={"history": "changes"})
    put(tmp_path, "u", 1, {"id": [1]})
    error = failure(tmp_path, "u")
    assert error.code == "table-name-ambiguous" and "Tables/u__changes" in error.message
    assert table_rows(tmp_path, "u__changes") == {(7,): 1} and not (tmp_path / "Tables/u").exists()


def test_two_folders_do_not_share_a_history_table(tmp_path: Path) -> None:
    for table in ("a", "b"):
        declare(tmp_path, table, ["id"], lakemirror={"history": {"mode": "changes", "name": "log"}})
        put(tmp_path, table, 1, {"id": [1]})
        MirroredDatabase(tmp_path).sync()
    error = failure(tmp_path, "b")
    assert error.code == "table-name-ambiguous" and "of a," in error.message
    assert sum(held(tmp_path, "log").values()) == 1


def test_a_name_that_another_table_has_in_other_case(tmp_path: Path) -> None:
    for name in ("log", "Log"):
        declare(tmp_path, "a", ["id"], lakemirror={"history": {"mode": "changes", "name": name}})
        put(tmp_path, "a", 1 if name == "log" else 2, {"id": [1]})
        if name == "log":
            sync(tmp_path)
    error = failure(tmp_path, "a")
    assert error.code == "table-name-ambiguous" and "Tables/Log and Tables/log" in error.message
    assert error.file == "Files/LandingZone/a/_metadata.json" and not (tmp_path / "Tables/Log").exists()
    assert "Take another name" in error.hint, "the other table may be that of another folder"
    declare(tmp_path, "a", ["id"], lakemirror={"history": {"mode": "changes", "name": "log"}})
    sync(tmp_path)
    assert sum(held(tmp_path, "log").values()) == 2
    declare(tmp_path, "a", ["id"], lakemirror={"history": {"mode": "changes", "name": "Log"}})
    MirroredDatabase(tmp_path).drop_history("a")
    sync(tmp_path)
    assert (tmp_path / "Tables/Log").exists()


@pytest.mark.parametrize("name", ["t", "T", "a/b", "other.t", "_x"])
def test_a_name_that_a_history_table_cannot_have(tmp_path: Path, name: str) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "changes", "name": name}})
    put(tmp_path, "t", 1, {"id": [1]})
    error = failure(tmp_path, "t")
    assert error.code == "metadata-invalid" and "lakemirror.history.name" in error.message


def test_a_table_that_lakemirror_did_not_make_is_left_alone(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "Tables/t__changes", pa.table({"x": [1]}))
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1]})
    error = failure(tmp_path, "t")
    assert error.code == "target-foreign" and "t__changes" in error.message
    assert read_table(tmp_path / "Tables/t__changes").to_pylist() == [{"x": 1}]


def test_delimited_text_and_files_found_by_their_times(tmp_path: Path) -> None:
    begun(tmp_path, fileDetectionStrategy="LastUpdateTimeFileDetection")
    for name, ids in (("one", [1, 2]), ("two", [3])):
        put(tmp_path, "t", 1, {"id": ids}).rename(folder(tmp_path, "t") / f"{name}.parquet")
        sync(tmp_path)
    names = {row[0] for row in held(tmp_path, "t__changes")}
    assert names == {"one.parquet", "two.parquet"} and sum(held(tmp_path, "t__changes").values()) == 3
    declare(tmp_path, "c", ["id"], lakemirror={"history": "changes"}, FileFormat="CSV", fileExtension="csv",
            SchemaDefinition={"Columns": [{"Name": "id", "DataType": "Int64"}, {"Name": "v", "DataType": "String"}]},
            )  # fmt: skip
    (folder(tmp_path, "c") / f"{1:020}.csv").write_text(f"id,v,{MARKER}\r\n1,a,0\r\n1,b,1\r\n")
    sync(tmp_path, settle=0.0)
    found = [(row[1], row[2], dict(row[4])) for row in sorted(held(tmp_path, "c__changes"))]
    assert [(number, operation) for number, operation, _ in found] == [(0, "insert"), (1, "update")]


def test_the_history_is_switched_on_later_and_off_for_a_while(tmp_path: Path) -> None:
    """It begins at once, at the position of the mirrored table; what came while it was off is a lasting warning."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    begun(tmp_path)
    sync(tmp_path)
    assert not held(tmp_path, "t__changes")
    put(tmp_path, "t", 2, {"id": [2], "new": ["x"]})
    sync(tmp_path)
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t", since=2)
    first = held(tmp_path, "t__changes")
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 3, {"id": [3]})
    sync(tmp_path)
    begun(tmp_path)
    put(tmp_path, "t", 4, marked([4], id=[1], new=["y"]))
    sync(tmp_path)
    sync(tmp_path)
    assert held(tmp_path, "t__changes") == first + expected(tmp_path, "t", since=4)
    (warned,) = MirroredDatabase(tmp_path).status().tables[0].warnings
    assert warned.code == "history-gap" and "after number 2 up to number 3" in warned.message


def test_another_name_begins_another_table_and_the_old_one_stays(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "changes", "name": "log"}})
    put(tmp_path, "t", 2, {"id": [2]})
    sync(tmp_path)
    assert held(tmp_path, "log") == expected(tmp_path, "t", since=2)
    assert sum(held(tmp_path, "t__changes").values()) == 1


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_resync_adds_nothing_to_the_table_of_changes(tmp_path: Path, partitioned: bool) -> None:
    begun(tmp_path, isPartitionEnabled=partitioned)
    place = folder(tmp_path, "t") / ("p=a" if partitioned else "")
    place.mkdir(exist_ok=True)
    for number in (1, 2, 3):
        put(tmp_path, "t", number, {"id": [number]}).rename(place / f"{number:020}.parquet")
    sync(tmp_path)
    before = held(tmp_path, "t__changes")
    assert sum(before.values()) == 3
    for number in (4, 5):
        MirroredDatabase(tmp_path).resync("t")
        sync(tmp_path, batch_files=1)
        assert held(tmp_path, "t__changes") == before
        findings = verify_database(LocalStorage(tmp_path), (), Options(against_files=True)).findings
        assert not [each for each in findings if each.severity == "error"], "it knows the folder under its earlier name"
        put(tmp_path, "t", number, {"id": [number]}).rename(place / f"{number:020}.parquet")
        sync(tmp_path, batch_files=2)
        before = held(tmp_path, "t__changes")
        assert sum(before.values()) == number and len(table_rows(tmp_path, "t")) == number


def test_a_late_file_has_no_place_in_a_history(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, marked([7], id=[1]))
    put(tmp_path, "t", 2, {"id": [2]})
    MirroredDatabase(tmp_path, on_bad_file="quarantine").sync()
    with pytest.raises(LakemirrorError) as refused:
        MirroredDatabase(tmp_path).replay("t")
    assert refused.value.code == "history-has-no-place"
    assert sum(held(tmp_path, "t__changes").values()) == 1


def test_the_status_shows_each_table_with_its_position(tmp_path: Path) -> None:
    declare(tmp_path, "s.t", ["id"], lakemirror={"history": "changes"})
    put(tmp_path, "s.t", 1, {"id": [1]})
    sync(tmp_path)
    sync(tmp_path)
    (row,) = json.loads((tmp_path / "Files/Monitoring/tables.json").read_text())["tables"]
    assert row["targets"] == [
        {"name": "s.t", "mode": "current", "position": 1, "status": "Replicating", "errorCode": ""},
        {"name": "s.t__changes", "mode": "changes", "position": 1, "status": "Replicating", "errorCode": ""},
    ]
    text = CommandRunner().invoke(command_line("status"), ["status", str(tmp_path)]).output
    assert "s.t has s.t__changes (changes): Replicating, position 1" in text, text


def test_a_history_table_that_cannot_be_written_stops_its_folder_alone(tmp_path: Path) -> None:
    """Another writer's constraint: the error names the history table, nothing is committed, other tables go on."""
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1]})
    put(tmp_path, "u", 1, {"id": [1]})
    sync(tmp_path)
    log = tmp_path / "Tables/t__changes/_delta_log"
    metadata = json.loads(next(line for line in (log / f"{0:020}.json").read_text().splitlines() if "metaData" in line))
    metadata["metaData"]["configuration"]["delta.constraints.positive"] = "id > 0"
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                             "writerFeatures": ["deletionVectors", "checkConstraints"]}}  # fmt: skip
    lines = [{"commitInfo": {"operation": "ADD CONSTRAINT", "timestamp": 1}}, metadata, protocol]
    (log / f"{1:020}.json").write_text("".join(json.dumps(line) + chr(10) for line in lines))
    put(tmp_path, "t", 2, {"id": [2]})
    put(tmp_path, "u", 2, {"id": [2]})
    error = failure(tmp_path, "t")
    assert error.code == "table-feature-unsupported" and "t__changes" in error.message
    assert table_rows(tmp_path, "t") == {(1,): 1} and table_rows(tmp_path, "u") == {(1,): 1, (2,): 1}
    (row,) = [each for each in json.loads((tmp_path / "Files/Monitoring/tables.json").read_text())["tables"]
              if each["sourceTableName"] == "t"]  # fmt: skip
    assert [each["errorCode"] for each in row["targets"]] == ["", "table-feature-unsupported"]


@pytest.mark.parametrize("other", ["t", "t__changes"])
def test_another_writer_commits_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """To the mirrored table or to the table of changes, before the first commit or between the two."""
    for at in (0, 1):
        database = tmp_path / str(at)
        begun(database)
        put(database, "t", 1, {"id": [1]})
        sync(database)
        put(database, "t", 2, marked([4, 4], id=[1, 2]))
        commits = [0]

        def foreign(*given: Any, place: Path = database / "Tables" / other, when: int = at, **more: Any) -> Any:
            if commits[0] == when:  # noqa: B023
                log = place / "_delta_log"
                number = len(list(log.glob("*.json")))
                info = {"commitInfo": {"operation": "OPTIMIZE", "timestamp": 1}}
                (log / f"{number:020}.json").write_text(json.dumps(info) + chr(10))
            commits[0] += 1  # noqa: B023
            return commit(*given, **more)  # noqa: B023

        commit = apply.delta.commit
        monkeypatch.setattr(apply.delta, "commit", foreign)
        sync(database)
        monkeypatch.undo()
        assert commits[0] > 2 or (at, other) == (1, "t__changes")
        assert held(database, "t__changes") == expected(database, "t"), at
        assert table_rows(database, "t") == {(1,): 1, (2,): 1}


def test_small_files_of_a_table_of_changes_are_merged(tmp_path: Path) -> None:
    begun(tmp_path)
    for number in range(1, 40):
        put(tmp_path, "t", number, marked([4], id=[number % 5]))
    sync(tmp_path, batch_files=1)
    snapshot = read_snapshot(tmp_path / "Tables/t__changes")
    assert snapshot is not None and len(snapshot.files) < 20
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")


def test_the_history_is_dropped_by_a_command(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    declare(tmp_path, "t", ["id"])
    done = CommandRunner().invoke(command_line("history"), ["history", "drop", str(tmp_path), "t"])
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "Tables/t__changes").exists() and list((tmp_path / "Files/_DroppedTables").iterdir())
    assert table_rows(tmp_path, "t") == {(1,): 1}
    again = CommandRunner().invoke(command_line("history"), ["history", "drop", str(tmp_path), "t"])
    assert again.exit_code and "table-unknown" in again.output
