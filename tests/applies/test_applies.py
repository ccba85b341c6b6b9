"""Applies without a JVM: what the log holds, who may be faster, and what only Spark can do (contract section 9)."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import MARKER, declare, put
from tests.vectors import read_vector

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.delta import commit as direct_commit
from lakemirror.delta import log as delta_log
from lakemirror.delta.checkpoint import clean_up_log
from lakemirror.delta.checksum import next_checksum
from lakemirror.delta.deletion_vectors import bitmap, vector_path, write_vectors
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.schema import from_delta
from lakemirror.engines.kernels import add_files as adoption
from lakemirror.errors import SetupError
from lakemirror.mirror import next_batch as batch_module
from lakemirror.mirror.queue import ApplyQueue
from lakemirror.mirror.scheduler import InQueue, Scheduler
from lakemirror.settings.settings import Settings
from lakemirror.storage import LocalStorage


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any, **__: Any) -> Any:
        raise LakemirrorError("internal", "Spark was asked for")

    monkeypatch.setattr("lakemirror.spark_session.session.start", start)


def rows(table: Path) -> Counter[tuple[Any, ...]]:
    """The table's rows, read from the log, the data files and the vectors alone."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    found: Counter[tuple[Any, ...]] = Counter()
    for add in snapshot.files.values():
        gone = read_vector(table, add["deletionVector"]) if "deletionVector" in add else ()
        for number, row in enumerate(pq.ParquetFile(table / add["path"]).read().to_pylist()):
            if number not in gone:
                found[tuple(row.values())] += 1
    return found


def sync(database: Path, **settings: Any) -> None:
    result = MirroredDatabase(database, **settings).sync()
    assert not result.failed and not result.started_spark, result


def changes(ids: list[int], markers: list[int]) -> dict[str, Any]:
    return {"id": ids, MARKER: pa.array(markers, pa.int32())}


def test_a_table_is_made_changed_and_emptied(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3, 4]})
    sync(tmp_path)
    table = tmp_path / "Tables/t"
    assert rows(table) == {(1,): 1, (2,): 1, (3,): 1, (4,): 1}
    put(tmp_path, "t", 2, changes([2, 5], [2, 4]))
    put(tmp_path, "t", 3, changes([3, 3], [2, 2]))
    sync(tmp_path, batch_files=1)
    assert rows(table) == {(1,): 1, (4,): 1, (5,): 1}
    put(tmp_path, "t", 4, changes([1, 4, 5, 2], [2, 2, 2, 2]))
    sync(tmp_path)
    assert not rows(table)
    snapshot = read_snapshot(table)
    assert snapshot is not None and not snapshot.files and snapshot.version == 3
    assert snapshot.protocol.reader_features == {"deletionVectors"}


@pytest.mark.parametrize("partition", ["", "region=eu/"])
def test_a_refused_first_batch_leaves_no_folder_of_a_table(tmp_path: Path, partition: str) -> None:
    """A reader shall say that there is no table, and not that its log is empty."""
    declare(tmp_path, "t", ["id"], isPartitionEnabled=bool(partition))
    bad = put(tmp_path, "t", 1, {"id": [1, 2], MARKER: [0, 9]})
    if partition:
        (bad.parent / partition).mkdir()
        bad = bad.rename(bad.parent / partition / bad.name)
    (found,) = MirroredDatabase(tmp_path).sync().tables.values()
    assert found.error is not None and found.error.code == "row-marker-invalid"
    assert not (tmp_path / "Tables/t").exists()
    pq.write_table(pa.table({"id": [1], MARKER: [0]}), bad)
    sync(tmp_path)
    assert sum(rows(tmp_path / "Tables/t").values()) == 1


def test_what_readers_are_told_is_true(tmp_path: Path) -> None:
    """Checksums equal what the log says at every version, and delta-rs reads a table without vectors."""
    declare(tmp_path, "t", ["id"])
    for number in range(1, 13):
        put(tmp_path, "t", number, changes([number, number - 1], [4, 2 if number % 3 else 4]))
        sync(tmp_path)
    table = tmp_path / "Tables/t"
    for version in range(12):
        snapshot = read_snapshot(table, version)
        assert snapshot is not None
        told = json.loads((table / f"_delta_log/{version:020}.crc").read_bytes())
        vectors = [add["deletionVector"] for add in snapshot.files.values() if "deletionVector" in add]
        assert told["numFiles"] == len(snapshot.files)
        assert told["tableSizeBytes"] == sum(add["size"] for add in snapshot.files.values())
        assert told["numDeletionVectorsOpt"] == len(vectors)
        assert told["numDeletedRecordsOpt"] == sum(vector["cardinality"] for vector in vectors)
        assert told["metadata"] == snapshot.metadata.value
        assert {"protocol": told["protocol"]} == snapshot.protocol.to_action()
        (txn,) = told["setTransactions"]
        assert txn["version"] == version + 1
    assert [path.name[:20] for path in (table / "_delta_log").glob("*.checkpoint.parquet")] == [f"{10:020}"]
    put(tmp_path, "plain", 1, {"id": [1, 2]})
    put(tmp_path, "plain", 2, {"id": [3], "more": ["x"]})
    sync(tmp_path, batch_files=1, deletion_vectors=False)
    mirror = deltalake.DeltaTable(str(tmp_path / "Tables/plain"))
    assert mirror.version() == 1 and mirror.protocol().min_reader_version == 1
    assert sorted(mirror.to_pyarrow_table().to_pylist(), key=str) == [
        {"id": 1, "more": None},
        {"id": 2, "more": None},
        {"id": 3, "more": "x"},
    ]


@pytest.mark.parametrize("place", ["apply.before-write", "apply.before-commit"])
def test_another_engine_is_faster(tmp_path: Path, meanwhile: Any, place: str) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    put(tmp_path, "t", 2, {"id": [2]})
    put(tmp_path, "t", 3, {"id": [3]})
    done = meanwhile(place, lambda: sync(tmp_path, batch_files=1))
    sync(tmp_path)
    assert done and rows(tmp_path / "Tables/t") == {(1,): 1, (2,): 1, (3,): 1}


def test_a_foreign_commit_takes_the_version(tmp_path: Path, meanwhile: Any) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    table = tmp_path / "Tables/t"
    put(tmp_path, "t", 2, {"id": [2]})
    foreign = table / f"_delta_log/{1:020}.json"
    content = json.dumps({"commitInfo": {"operation": "SET TBLPROPERTIES", "timestamp": 1}})
    meanwhile("apply.before-commit", lambda: foreign.write_text(content))
    sync(tmp_path)
    assert foreign.read_text() == content
    assert rows(table) == {(1,): 1, (2,): 1}
    snapshot = read_snapshot(table)
    assert snapshot is not None and snapshot.version == 2


@pytest.mark.parametrize("place", ["put_new", "write_checksum", "_write_checkpoint"])
def test_a_commit_that_another_engine_has_overwritten_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """As a rename does that looked for the version before ours was there: at every moment after our link."""
    for number in range(1, 11):
        put(tmp_path, "t", number, {"id": [number]})
    sync(tmp_path, batch_files=1)
    put(tmp_path, "t", 11, {"id": [11]})
    log = tmp_path / "Tables/t/_delta_log"
    metadata = json.loads((log / f"{9:020}.crc").read_bytes())["metadata"]
    configuration = {**metadata["configuration"], "delta.appendOnly": "false"}
    info = {"operation": "SET TBLPROPERTIES", "timestamp": 1, "txnId": "theirs"}
    other = [{"commitInfo": info}, {"metaData": {**metadata, "configuration": configuration}}]
    true, done = getattr(direct_commit, place), []

    def overwrite(*given: Any, **more: Any) -> Any:
        found = true(*given, **more)
        if not done:
            done.append(True)
            (log / "other").write_text("".join(json.dumps(action) + "\n" for action in other))
            (log / "other").replace(log / f"{10:020}.json")
        return found

    monkeypatch.setattr(direct_commit, place, overwrite)
    sync(tmp_path)
    assert done and "theirs" in (log / f"{10:020}.json").read_text()
    assert rows(tmp_path / "Tables/t") == {(number,): 1 for number in range(1, 12)}
    for version in (10, 11):
        replayed = read_snapshot(tmp_path / "Tables/t", version)
        assert replayed is not None and replayed.metadata.configuration == configuration
        assert len(replayed.files) == version
        told = log / f"{version:020}.crc"
        assert not told.exists() or json.loads(told.read_bytes())["metadata"] == replayed.metadata.value


def test_a_table_that_leaves_its_place_meanwhile_is_not_made_anew(tmp_path: Path, meanwhile: Any) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    put(tmp_path, "t", 2, changes([1, 2], [2, 4]))
    table, aside = tmp_path / "Tables/t", tmp_path / "aside"
    done = meanwhile("apply.before-commit", lambda: table.rename(aside))
    MirroredDatabase(tmp_path).sync()
    assert done and not (table / f"_delta_log/{1:020}.json").exists()
    assert rows(aside) == {(1,): 1}


def test_another_table_at_the_same_place_meanwhile_stays_as_it_is(tmp_path: Path, meanwhile: Any) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    put(tmp_path, "t", 2, {"id": [2]})
    sync(tmp_path, batch_files=1)
    put(tmp_path, "t", 3, {"id": [3]})
    table = tmp_path / "Tables/t"

    def another() -> None:
        table.rename(tmp_path / "aside")
        (table / "_delta_log").mkdir(parents=True)
        (table / "_delta_log" / f"{0:020}.json").write_text("{}")

    assert meanwhile("apply.before-commit", another) == []
    assert MirroredDatabase(tmp_path).sync().failed
    assert [path.name for path in (table / "_delta_log").iterdir()] == [f"{0:020}.json"]


def test_a_running_engine_gathers_what_follows_a_commit(tmp_path: Path) -> None:
    scheduler = Scheduler(LocalStorage(tmp_path), Settings(), lambda _: None, in_queue=InQueue(ApplyQueue(), 3600.0))  # type: ignore[arg-type, return-value]
    for name in ("t", "u"):
        put(tmp_path, name, 1, {"id": [1]})
        scheduler.tick()
        assert scheduler.wait(60)
        assert rows(tmp_path / "Tables" / name) == {(1,): 1}, "another table does not wait"
        put(tmp_path, name, 2, {"id": [2]})
        scheduler.tick()
        assert scheduler.wait(60)
        assert rows(tmp_path / "Tables" / name) == {(1,): 1}
    scheduler.stop()


def test_what_follows_a_commit_is_applied_after_a_rest(tmp_path: Path) -> None:
    scheduler = Scheduler(LocalStorage(tmp_path), Settings(), lambda _: None, in_queue=InQueue(ApplyQueue(), 0.3))  # type: ignore[arg-type, return-value]
    put(tmp_path, "t", 1, {"id": [1]})
    scheduler.tick()
    assert scheduler.wait(60)
    put(tmp_path, "t", 2, {"id": [2]})
    scheduler.tick()
    assert scheduler.wait(60, within=0.3)
    scheduler.stop()
    assert rows(tmp_path / "Tables/t") == {(1,): 1, (2,): 1}


def test_a_paused_table_does_not_begin_and_is_applied_after_the_pause(tmp_path: Path) -> None:
    scheduler = Scheduler(LocalStorage(tmp_path), Settings(), lambda _: None)  # type: ignore[arg-type, return-value]
    put(tmp_path, "t", 1, {"id": [1]})
    scheduler.tick()
    assert scheduler.wait(60)
    (name,) = scheduler.states
    put(tmp_path, "t", 2, {"id": [2]})
    with scheduler.paused(name) as is_free:
        scheduler.tick()
        assert is_free and not scheduler.wait(0.5)
        assert rows(tmp_path / "Tables/t") == {(1,): 1}
    assert scheduler.wait(60)
    scheduler.stop()
    assert rows(tmp_path / "Tables/t") == {(1,): 1, (2,): 1}


def test_data_files_say_that_their_days_are_those_of_the_calendar(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    (file,) = (tmp_path / "Tables/t").glob("part-*.parquet")
    assert pq.read_metadata(file).metadata[b"org.apache.spark.version"] >= b"3"


def test_optional_parts_of_a_checksum_that_are_not_known_stay_out() -> None:
    first = next_checksum({}, [
        {"metaData": {"configuration": {}}}, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"txn": {"appId": "a", "version": 1}}, {"add": {"size": 5}},
    ])  # fmt: skip
    assert (first["numFiles"], first["setTransactions"]) == (1, [{"appId": "a", "version": 1}])
    lacking = {key: first[key] for key in first if key not in ("setTransactions", "numDeletionVectorsOpt")}
    then = next_checksum(lacking, [{"txn": {"appId": "b", "version": 1}}, {"add": {"size": 7}}])
    assert (then["numFiles"], then["tableSizeBytes"]) == (2, 12)
    assert "setTransactions" not in then and "numDeletionVectorsOpt" not in then and "numDeletedRecordsOpt" in then
    many = [{"txn": {"appId": str(number), "version": 1}} for number in range(101)]
    assert "setTransactions" not in next_checksum(first, many)
    expiring = {"metaData": {"configuration": {"delta.setTransactionRetentionDuration": "interval 1 day"}}}
    assert "setTransactions" not in next_checksum(first, [expiring])


def test_retention_follows_the_settings_in_a_form_that_spark_reads(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path, retention_in_days=1.3)
    put(tmp_path, "t", 2, {"id": [2]})

    def told() -> tuple[str, str]:
        snapshot = read_snapshot(tmp_path / "Tables/t")
        assert snapshot is not None
        of = snapshot.metadata.configuration
        return of["delta.deletedFileRetentionDuration"], of["delta.logRetentionDuration"]

    assert told() == ("interval 112320 seconds",) * 2
    sync(tmp_path, retention_in_days=30)
    assert told() == ("interval 720 hours",) * 2


def test_one_table_that_needs_spark_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any, **__: Any) -> Any:
        raise SetupError("java-missing", "there is no Java here")

    monkeypatch.setattr("lakemirror.spark_session.session.start", start)
    for name in ("good", "zebra", "needy"):
        put(tmp_path, name, 1, {"id": [1]})
    sync(tmp_path)
    constrain(tmp_path / "Tables/needy", {"delta.constraints.c": "id > 0"})
    for name in ("good", "zebra", "needy"):
        put(tmp_path, name, 2, {"id": [2]})
    for engine, code in (("auto", "java-missing"), ("local", "spark-needed")):
        result = MirroredDatabase(tmp_path, engine=engine).sync()
        assert {name: error.code for name, error in result.failed.items()} == {"needy": code}
    assert rows(tmp_path / "Tables/good") == rows(tmp_path / "Tables/zebra") == {(1,): 1, (2,): 1}


def constrain(table: Path, properties: dict[str, str], protocol: dict[str, Any] | None = None) -> None:
    """A commit of another writer that sets properties, and a protocol."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    metadata = dict(snapshot.metadata.value)
    metadata["configuration"] = {**metadata["configuration"], **properties}
    actions: list[Any] = [{"commitInfo": {"operation": "SET TBLPROPERTIES", "timestamp": 1}}, {"metaData": metadata}]
    if protocol is not None:
        actions.append({"protocol": protocol})
    path = table / f"_delta_log/{snapshot.version + 1:020}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


NESTED = {"l": [[1], [2, 3], None], "m": [{"a": 1}, None, {"a": None}]}


@pytest.mark.parametrize(
    "given",
    [
        {"u": [uuid.UUID(int=7).bytes] * 3},
        NESTED,
        {"t": [datetime.time(1, 2, 3)] * 3},
        {"c": pa.array(["x", "y", "x"]).dictionary_encode()},
        {"k": [1.5, float("nan"), None]},
        {"odd name": [1, 2, 3]},
    ],
)
def test_few_rows_of_any_type_start_no_jvm(tmp_path: Path, given: dict[str, Any]) -> None:
    key = next(iter(given))
    keys = [] if given is NESTED else [key]
    declare(tmp_path, "t", keys)
    put(tmp_path, "t", 1, {**given, "v": [1, 2, 3]})
    if keys:
        put(tmp_path, "t", 2, {**given, "v": [4, 5, 6], MARKER: [4, 4, 4]})
    sync(tmp_path)
    assert len(list((tmp_path / "Tables/t").rglob("*.parquet"))) == 1


def test_a_bad_marker_starts_no_jvm(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    put(tmp_path, "t", 2, changes([1, 2], [0, 7]))
    result = MirroredDatabase(tmp_path).sync()
    assert not result.started_spark
    (error,) = result.failed.values()
    assert (error.code, error.row) == ("row-marker-invalid", 2)
    assert rows(tmp_path / "Tables/t") == {(1,): 1}, "the file before it is applied"


@pytest.mark.parametrize("features", [{}, {"change_data_feed": True}, {"deletion_vectors": False}])
def test_a_recreated_folder_replaces_the_table_in_one_commit(tmp_path: Path, features: dict[str, Any]) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1], "old": ["x"]})
    sync(tmp_path, **features)
    before = read_snapshot(tmp_path / "Tables/t")
    shutil.rmtree(tmp_path / "Files/LandingZone/t")
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, {"k": ["a"], "new name": [1.5]})
    sync(tmp_path, **features)
    after = read_snapshot(tmp_path / "Tables/t")
    assert before is not None and after is not None and after.version == before.version + 1
    assert [column.name for column in from_delta(after.metadata.value["schemaString"])] == ["k", "new name"]
    assert rows(tmp_path / "Tables/t") == {("a", 1.5): 1}


def test_a_table_that_may_only_grow_says_so(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    constrain(tmp_path / "Tables/t", {"delta.appendOnly": "true"})
    put(tmp_path, "t", 2, {"id": [2]})
    sync(tmp_path)
    put(tmp_path, "t", 3, changes([1], [2]))
    (error,) = MirroredDatabase(tmp_path).sync().failed.values()
    assert error.code == "table-append-only"
    constrain(tmp_path / "Tables/t", {"delta.appendOnly": "false"})
    sync(tmp_path)
    assert rows(tmp_path / "Tables/t") == {(2,): 1}


def test_a_feature_that_nobody_knows_says_so(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    sync(tmp_path)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "somethingNew"]}
    constrain(tmp_path / "Tables/t", {}, {"minReaderVersion": 3, "minWriterVersion": 7, **features})
    put(tmp_path, "t", 2, {"id": [2]})
    (error,) = MirroredDatabase(tmp_path).sync().failed.values()
    assert error.code == "table-feature-unsupported" and "somethingNew" in str(error)


def test_a_footer_that_lies_about_markers_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2]})
    put(tmp_path, "t", 2, changes([1], [2]))
    monkeypatch.setattr(batch_module, "_inserts_only", lambda item, upsert, trust: trust)
    sync(tmp_path)
    assert rows(tmp_path / "Tables/t") == {(2,): 1}


def test_what_a_lost_race_wrote_is_removed(tmp_path: Path, meanwhile: Any) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2]})
    sync(tmp_path)
    put(tmp_path, "t", 2, changes([1, 5], [2, 4]))
    done = meanwhile("apply.before-commit", lambda: constrain(tmp_path / "Tables/t", {"x": "y"}))
    sync(tmp_path)
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert done and snapshot is not None and rows(tmp_path / "Tables/t") == {(2,): 1, (5,): 1}
    assert len(list((tmp_path / "Tables/t").glob("*.parquet"))) == len(snapshot.files)
    assert len(list((tmp_path / "Tables/t").rglob("*.bin"))) == 1


def test_vectors_of_any_size_come_back(tmp_path: Path) -> None:
    sets = [{0}, set(range(100_000)), {7, 70_000, 2**33}, set(range(0, 200_000, 3))]
    vectors = write_vectors(tmp_path, [bitmap(pa.array(sorted(each))) for each in sets])
    assert [set(read_vector(tmp_path, vector)) for vector in vectors] == sets
    assert len(list(tmp_path.iterdir())) == 1
    path = tmp_path / vector_path(vectors[0]["pathOrInlineDv"])
    data = bytearray(path.read_bytes())
    data[vectors[2]["offset"] + 10] ^= 1
    path.write_bytes(data)
    for wrong in (vectors[2], {**vectors[0], "cardinality": 2}, {**vectors[0], "storageType": "i"}):
        with pytest.raises(ValueError, match=r"vector|rows"):
            read_vector(tmp_path, wrong)


def test_an_old_log_is_cleaned_up_to_what_young_versions_need(tmp_path: Path) -> None:
    for number in range(1, 36):
        put(tmp_path, "t", number, {"id": [number]})
    sync(tmp_path, batch_files=1, maintenance=False)
    log = tmp_path / "Tables/t/_delta_log"
    old = time.time() - 31 * 86_400
    for path in log.iterdir():
        if path.name[:20].isdigit() and int(path.name[:20]) <= 25:
            os.utime(path, (old, old))
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert snapshot is not None and clean_up_log(snapshot) > 0
    assert min(int(p.name[:20]) for p in log.iterdir() if p.name[:20].isdigit()) >= 10
    for version in range(20, 35):
        then = read_snapshot(tmp_path / "Tables/t", version)
        assert then is not None and len(then.files) == version + 1
    put(tmp_path, "t", 36, {"id": [36]})
    sync(tmp_path)
    assert len(rows(tmp_path / "Tables/t")) == 36


def test_an_apply_reads_no_tombstones_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, "t", ["id"])
    for number in range(1, 13):  # every one removes a file, and there is a checkpoint at 10
        put(tmp_path, "t", number, changes([1], [4]))
    sync(tmp_path, batch_files=1)
    asked: list[str] = []
    true = delta_log._checkpoint_files
    monkeypatch.setattr(delta_log, "_checkpoint_files", lambda *given: (asked.append(given[2]), true(*given))[1])
    put(tmp_path, "t", 13, changes([1], [4]))
    sync(tmp_path)
    assert set(asked) == {"add"}
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert snapshot is not None and snapshot.checkpoint is not None and snapshot.checkpoint.version == 10
    assert len(snapshot.files) == 1 and len(snapshot.tombstones) >= 2


@pytest.mark.parametrize("trusted", [True, False])
def test_footers_are_trusted_only_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    monkeypatch.setattr(adoption, "_SMALLEST_OF_FEW", 0)
    put(tmp_path, "t", 1, {"id": list(range(10_000))})
    (file,) = (tmp_path / "Files/LandingZone/t").glob("*.parquet")
    data = bytearray(file.read_bytes())
    data[1000:1200] = bytes(200)
    file.write_bytes(data)
    result = MirroredDatabase(tmp_path, trust_footers=trusted).sync()
    assert [error.code for error in result.failed.values()] == ([] if trusted else ["file-unreadable"])
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert (snapshot is not None) is trusted
