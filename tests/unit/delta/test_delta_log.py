"""The log reader against logs written by hand and by another client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.delta.log import file_key, latest_commits, read_snapshot
from lakemirror.delta.log_folder import list_log
from lakemirror.errors import LakemirrorError

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA = {
    "metaData": {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {"a": "1"},
    }
}


def add(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **more}}


def commit(table: Path, version: int, *actions: dict[str, Any]) -> Path:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    path = log / f"{version:020}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


def paths(table: Path, version: int | None = None) -> list[str]:
    snapshot = read_snapshot(table, version)
    assert snapshot is not None
    return sorted(path for path, _ in snapshot.files)


def checkpoint_file(path: Path, actions: list[dict[str, Any]]) -> None:
    strings = pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        {
            "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
            "metaData": pa.struct(
                {
                    "id": pa.string(),
                    "format": pa.struct({"provider": pa.string(), "options": strings}),
                    "schemaString": pa.string(),
                    "partitionColumns": pa.list_(pa.string()),
                    "configuration": strings,
                }
            ),
            "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
            "add": pa.struct({"path": pa.string(), "partitionValues": strings, "size": pa.int64()}),
            "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64()}),
            "sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64()}),
        }
    )
    rows = [{name: _maps(action.get(name)) for name in schema.names} for action in actions]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def _maps(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    maps = {"options", "partitionValues", "configuration"}
    return {k: list(v.items()) if k in maps else _maps(v) for k, v in value.items()}


def test_no_table(tmp_path: Path) -> None:
    assert read_snapshot(tmp_path) is None
    (tmp_path / "_delta_log").mkdir()
    assert read_snapshot(tmp_path) is None
    assert list(latest_commits(tmp_path)) == []


def test_commits_are_replayed_in_order(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, METADATA, add("a"), add("b"))
    commit(tmp_path, 1, {"txn": {"appId": "x", "version": 7, "lastUpdated": 5}}, remove("a"), add("c"))
    commit(tmp_path, 2, {"commitInfo": {"operation": "W"}}, add("a"), {"txn": {"appId": "x", "version": 8}})
    snapshot = read_snapshot(f"file://{tmp_path}")
    assert snapshot is not None
    assert snapshot.version == 2
    assert paths(tmp_path) == ["a", "b", "c"] and not snapshot.tombstones
    assert paths(tmp_path, 1) == ["b", "c"]
    assert (snapshot.transactions["x"].version, snapshot.transactions["x"].last_updated) == (8, None)
    assert snapshot.commit_infos == {2: {"operation": "W"}}
    assert snapshot.metadata.configuration == {"a": "1"}
    assert snapshot.metadata.schema["fields"][0]["name"] == "id"


def test_a_deletion_vector_makes_another_file(tmp_path: Path) -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "abc", "offset": 1, "sizeInBytes": 1, "cardinality": 1}
    commit(tmp_path, 0, PROTOCOL, METADATA, add("a"))
    commit(tmp_path, 1, remove("a"), add("a", deletionVector=vector))
    snapshot = read_snapshot(tmp_path)
    assert snapshot is not None
    assert list(snapshot.files) == [("a", "uabc@1")]
    assert list(snapshot.tombstones) == [("a", "")]
    assert file_key({"path": "a", "deletionVector": {**vector, "offset": None}}) == ("a", "uabc")


def test_domains_live_until_removed(tmp_path: Path) -> None:
    domain = {"domain": "d", "configuration": "{}", "removed": False}
    commit(tmp_path, 0, PROTOCOL, METADATA, {"domainMetadata": domain})
    commit(tmp_path, 1, {"domainMetadata": {**domain, "removed": True}})
    first, second = read_snapshot(tmp_path, 0), read_snapshot(tmp_path)
    assert first is not None and second is not None
    assert list(first.domains) == ["d"] and not second.domains


@pytest.mark.parametrize("kind", ["classic", "multi-part", "v2-parquet", "v2-json"])
def test_every_kind_of_checkpoint(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "_delta_log"
    state = [PROTOCOL, METADATA, {"txn": {"appId": "x", "version": 3, "lastUpdated": 1}}]
    files = [add("a"), add("b"), remove("z")]
    name, uuid = f"{2:020}.checkpoint", "6374b053-df23-479b-b2cf-c9c550132b49"
    if kind == "classic":
        checkpoint_file(log / f"{name}.parquet", state + files)
    elif kind == "multi-part":
        checkpoint_file(log / f"{name}.0000000001.0000000002.parquet", state + files[:1])
        checkpoint_file(log / f"{name}.0000000002.0000000002.parquet", files[1:])
    else:
        checkpoint_file(log / "_sidecars" / "one side.parquet", files[1:])
        sidecar = {"sidecar": {"path": "one%20side.parquet", "sizeInBytes": 1}}
        if kind == "v2-parquet":
            checkpoint_file(log / f"{name}.{uuid}.parquet", [*state, files[0], sidecar])
        else:
            lines = [*state, files[0], sidecar]
            (log / f"{name}.{uuid}.json").write_text("\n".join(json.dumps(line) for line in lines))
    commit(tmp_path, 3, remove("b"), add("c"))
    snapshot = read_snapshot(tmp_path)
    assert snapshot is not None and snapshot.checkpoint is not None
    assert snapshot.checkpoint.kind == kind.split("-p")[0].split("-j")[0] or kind == "multi-part"
    assert paths(tmp_path) == ["a", "c"]
    assert sorted(path for path, _ in snapshot.tombstones) == ["b", "z"]
    assert snapshot.transactions["x"].version == 3
    assert snapshot.metadata.configuration == {"a": "1"}
    assert paths(tmp_path, 2) == ["a", "b"]
    with pytest.raises(LakemirrorError, match="commit 1 is missing"):
        read_snapshot(tmp_path, 1)


def test_half_a_multi_part_checkpoint_does_not_count(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, METADATA, add("a"))
    checkpoint_file(tmp_path / "_delta_log" / f"{0:020}.checkpoint.0000000001.0000000002.parquet", [PROTOCOL])
    log = list_log(tmp_path)
    assert log is not None and log.checkpoints == ()
    assert paths(tmp_path) == ["a"]


def test_a_damaged_checkpoint_falls_back_to_the_commits(tmp_path: Path) -> None:
    first = commit(tmp_path, 0, PROTOCOL, METADATA, add("a"))
    (tmp_path / "_delta_log" / f"{0:020}.checkpoint.parquet").write_bytes(b"PAR1 torn")
    assert paths(tmp_path) == ["a"]
    first.unlink()
    commit(tmp_path, 1, add("b"))
    with pytest.raises(LakemirrorError, match="damaged") as error:
        read_snapshot(tmp_path)
    assert error.value.code == "table-unreadable"


def test_what_only_repeats_the_log_is_not_believed(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, METADATA, add("a"))
    log = tmp_path / "_delta_log"
    (log / "_last_checkpoint").write_text('{"version": 99}')
    (log / f"{0:020}.crc").write_text('{"numFiles": 12}')
    (log / f"{0:020}.{1:020}.compacted.json").write_text(json.dumps(add("wrong")))
    assert paths(tmp_path) == ["a"]


def test_gaps_and_torn_commits_are_errors(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, METADATA)
    commit(tmp_path, 2, add("b"))
    with pytest.raises(LakemirrorError, match="commit 1 is missing"):
        read_snapshot(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_bytes(b"")
    assert paths(tmp_path) == ["b"]
    (tmp_path / "_delta_log" / f"{1:020}.json").write_bytes(b'{"add": {"pa')
    with pytest.raises(LakemirrorError, match=r"line 1 of 0{19}1\.json") as error:
        read_snapshot(tmp_path)
    assert error.value.code == "table-unreadable"
    with pytest.raises(LakemirrorError, match="no version 3"):
        read_snapshot(tmp_path, 3)


def test_a_log_without_metadata_is_an_error(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL)
    with pytest.raises(LakemirrorError, match="no metadata"):
        read_snapshot(tmp_path)


def test_latest_commits_come_newest_first_and_lazily(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, METADATA)
    commit(tmp_path, 1, add("a"))
    (tmp_path / "_delta_log" / f"{0:020}.json").write_bytes(b"torn {")
    assert next(latest_commits(tmp_path)) == (1, (add("a"),))
    with pytest.raises(LakemirrorError):
        list(latest_commits(tmp_path))
    commit(tmp_path, 0, PROTOCOL)
    assert [version for version, _ in latest_commits(tmp_path)] == [1, 0]


def test_agrees_with_another_client(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = str(tmp_path / "t")
    for n in range(12):
        rows = pa.table({"id": pa.array([n], pa.int64()), "p": [f"a b/{n % 3}"]})
        mode = "overwrite" if n == 4 else "append"
        deltalake.write_deltalake(table, rows, mode=mode, partition_by=["p"])
        if n in (5, 9):
            deltalake.DeltaTable(table).create_checkpoint()
    for version in (4, 6, 9, 11):
        other = deltalake.DeltaTable(table, version=version)
        snapshot = read_snapshot(table, version)
        assert snapshot is not None
        ours = {add["path"]: add["partitionValues"] for add in snapshot.files.values()}
        theirs = pa.table(other.get_add_actions()).to_pylist()
        assert len(ours) == len(theirs) == len(other.file_uris()) > 0
        assert sorted(v["p"] for v in ours.values()) == sorted(row["partition"]["p"] for row in theirs)
        assert snapshot.metadata.id == str(other.metadata().id)
        if version == 11:
            assert all(json.loads(add["stats"])["numRecords"] == 1 for add in snapshot.files.values())
