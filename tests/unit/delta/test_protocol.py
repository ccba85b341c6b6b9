"""Which protocol metadata needs, what is not written here, and what features ask of a commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.delta.commit import commit as put_commit
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Action, Protocol, read_snapshot
from lakemirror.delta.protocol import (
    MAPPING,
    append_only_property,
    protocol_of,
    spark_checks,
    unsupported_reason,
)
from lakemirror.errors import LakemirrorError


def metadata(configuration: dict[str, str] | None = None, type_: Any = "long", **field: Any) -> dict[str, Any]:
    fields = [{"name": "a", "type": type_, "nullable": True, "metadata": {}, **field}]
    return {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
        "configuration": configuration or {}, "schemaString": json.dumps({"type": "struct", "fields": fields}),
    }  # fmt: skip


def on(*names: str) -> dict[str, str]:
    return {f"delta.enable{name}": "true" for name in names}


BASE = {"appendOnly", "invariants"}


@pytest.mark.parametrize(
    ("given", "before", "expected"),
    [
        (metadata(), None, Protocol(1, 2)),
        (metadata(on("DeletionVectors")), None,
         Protocol(3, 7, frozenset({"deletionVectors"}), frozenset({"deletionVectors", *BASE}))),
        (metadata(on("ChangeDataFeed")), None, Protocol(1, 7, None, frozenset({"changeDataFeed", *BASE}))),
        (metadata({"delta.constraints.c": "a > 0"}), None, Protocol(1, 3)),
        (metadata(), Protocol(2, 5), Protocol(2, 5)),
        (metadata(on("ChangeDataFeed")), Protocol(2, 5), Protocol(2, 5)),
        (metadata(on("DeletionVectors")), Protocol(2, 5),
         Protocol(3, 7, frozenset({"deletionVectors", "columnMapping"}),
                  frozenset({"deletionVectors", "columnMapping", "changeDataFeed", "generatedColumns",
                             "checkConstraints", *BASE}))),
        (metadata(on("RowTracking")), Protocol(1, 7, None, frozenset({"x"})),
         Protocol(1, 7, None, frozenset({"x", "rowTracking", "domainMetadata"}))),
        (metadata(type_="timestamp_ntz"), None,
         Protocol(3, 7, frozenset({"timestampNtz"}), frozenset({"timestampNtz", *BASE}))),
    ],
)  # fmt: skip
def test_the_least_protocol(given: dict[str, Any], before: Protocol | None, expected: Protocol) -> None:
    found = protocol_of(given, before)
    assert found == expected
    assert protocol_of(given, found) == found
    assert before is None or features_of(before) <= features_of(found)


@pytest.mark.parametrize(
    ("given", "protocol", "word"),
    [
        (metadata(), Protocol(4, 7), "protocol is (4, 7)"),
        (metadata(), Protocol(3, 7, frozenset({"catalogManaged"}), frozenset({"catalogManaged"})), "catalogManaged"),
        (metadata({"delta.universalFormat.enabledFormats": "iceberg"}), None, "other formats"),
        (metadata({"delta.compatibility.symlinkFormatManifest.enabled": "true"}), None, "manifest"),
        (metadata(metadata={"delta.generationExpression": "1"}), None, "generated"),
        (metadata(metadata={"delta.identity.start": 1}), None, "identity"),
        (metadata(metadata={"CURRENT_DEFAULT": "array()"}, type_={"type": "array"}), None, "column 'a' has a default"),
    ],
)
def test_what_is_not_written_here(given: dict[str, Any], protocol: Protocol | None, word: str) -> None:
    found = unsupported_reason(given, protocol)
    assert found is not None and word in found.reason and found.code == "table-feature-unsupported"
    assert unsupported_reason(metadata(), Protocol(1, 2)) is None


def test_constraints_and_appends() -> None:
    assert not spark_checks({}) and append_only_property(metadata()) is None
    assert spark_checks({"delta.constraints.c": "a > 0", "delta.appendOnly": "true"}) == {"c": "a > 0"}
    reason = append_only_property(metadata({"delta.appendOnly": "true"}))
    assert reason is not None and reason.code == "table-append-only" and "delta.appendOnly" in reason.reason


def add(path: str, rows: int) -> Action:
    stats = json.dumps({"numRecords": rows})
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True,
                    "stats": stats}}  # fmt: skip


def test_row_ids_and_commit_times(tmp_path: Path) -> None:
    """Features that another writer turned on stay true in commits of ours."""
    meta = metadata(on("RowTracking", "InCommitTimestamps"))
    info = {"commitInfo": {"operation": "WRITE", "timestamp": 1, "txnId": "x"}}
    for name in "abcd":
        (tmp_path / name).touch()
    put_commit(str(tmp_path), None, [protocol_of(meta).to_action(), {"metaData": meta}, info, add("a", 5)])
    far = 9_000_000_000_000
    first = tmp_path / "_delta_log" / f"{0:020}.json"
    lines = first.read_text().splitlines()
    assert "inCommitTimestamp" in json.loads(lines[0])["commitInfo"]
    moved = json.loads(lines[0])
    moved["commitInfo"]["inCommitTimestamp"] = far
    first.write_text("\n".join([json.dumps(moved), *lines[1:]]) + "\n")
    snapshot = read_snapshot(tmp_path)
    assert snapshot is not None
    again = {"add": {**next(iter(snapshot.files.values())), "size": 2}}
    put_commit(str(tmp_path), snapshot, [add("b", 3), again, info, add("c", 2)])
    second = [json.loads(line) for line in (tmp_path / "_delta_log" / f"{1:020}.json").read_text().splitlines()]
    assert second[0]["commitInfo"]["inCommitTimestamp"] == far + 1, "later than the commit before"
    ids = {a["add"]["path"]: (a["add"]["baseRowId"], a["add"]["defaultRowCommitVersion"]) for a in second if "add" in a}
    assert ids == {"b": (5, 1), "a": (0, 0), "c": (8, 1)}
    snapshot = read_snapshot(tmp_path)
    assert snapshot is not None
    assert json.loads(snapshot.domains["delta.rowTracking"]["configuration"]) == {"rowIdHighWaterMark": 9}
    checksum = json.loads((tmp_path / "_delta_log" / f"{0:020}.crc").read_text())
    assert checksum["inCommitTimestampOpt"] < far
    uncounted = add("d", 1)
    del uncounted["add"]["stats"]
    with pytest.raises(LakemirrorError) as raised:
        put_commit(str(tmp_path), snapshot, [info, uncounted])
    assert raised.value.code == "table-unreadable"


PAIRS = [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 5), (1, 6), (2, 6), (2, 2), (2, 3)]
PROPERTIES = {
    "delta.enableDeletionVectors": "deletionVectors", "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.appendOnly": "appendOnly", "delta.enableTypeWidening": "typeWidening",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
}  # fmt: skip


@settings(deadline=None)
@given(
    st.one_of(
        st.sampled_from([Protocol(*pair) for pair in PAIRS]),
        st.frozensets(st.sampled_from(["appendOnly", "invariants", "changeDataFeed", "domainMetadata"])).map(
            lambda names: Protocol(1, 7, None, names)
        ),
        st.frozensets(st.sampled_from(["deletionVectors", "appendOnly", "columnMapping"])).map(
            lambda names: Protocol(3, 7, names & {"deletionVectors", "columnMapping"}, names)
        ),
    ),
    st.frozensets(st.sampled_from(sorted(PROPERTIES))),
    st.booleans(),
)
def test_a_protocol_gets_what_is_needed_and_nothing_else(before: Protocol, on: frozenset[str], mapped: bool) -> None:
    meta = metadata({**dict.fromkeys(on, "true"), **({MAPPING: "name"} if mapped else {})})
    wanted = {PROPERTIES[name] for name in on} | ({"columnMapping"} if mapped else set())
    after = protocol_of(meta, before)
    assert features_of(after) == features_of(before) | wanted
    assert (after.reader, after.writer) >= (before.reader, before.writer) and after.writer >= before.writer
