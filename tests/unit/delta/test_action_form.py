"""Logs that no writer of Delta writes: each is `table-unreadable` with its line, and never another error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakemirror.delta.log import read_commit, read_snapshot
from lakemirror.delta.parsed_log import wrong_form
from lakemirror.errors import LakemirrorError

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(schema: Any) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return {"metaData": {"id": "t", "schemaString": text, "partitionColumns": [], "configuration": {}}}


def struct(*fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def written(table: Path, text: str) -> Path:
    path = table / f"_delta_log/{0:020}.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({"metaData": 3}, "metaData is not an object"),
        ({"commitInfo": []}, "commitInfo is not an object"),
        ({"add": {"size": 1}}, "add has no path"),
        ({"add": {"path": 5, "size": 1}}, "path of add is not a string"),
        ({"add": {"path": "a", "size": "1"}}, "size of add is not an integer"),
        ({"add": {"path": "a", "size": 1, "deletionVector": 7}}, "deletionVector of add is not an object"),
        ({"add": {"path": "a", "size": 1, "deletionVector": {}}}, "no storageType"),
        ({"remove": {"path": "a", "partitionValues": []}}, "partitionValues of remove is not an object"),
        ({"protocol": {"minReaderVersion": 1}}, "protocol has no minWriterVersion"),
        ({"protocol": {"minReaderVersion": 1e999, "minWriterVersion": 2}}, "not an integer"),
        ({"txn": {"appId": None, "version": 1}}, "txn has no appId"),
        ({"txn": {"appId": "a", "version": "x"}}, "version of txn is not an integer"),
        ({"domainMetadata": {}}, "domainMetadata has no domain"),
        (metadata("{}"), "is not a struct"),
        (metadata('"string"'), "is not a struct"),
        (metadata("{"), "is not JSON"),
        (metadata("[" * 100_000), "nested too deeply"),
        (metadata({"type": "struct"}), "struct without fields"),
        (metadata(struct({"name": 5, "type": "long"})), "field without name or type"),
        (metadata(struct({"name": "a", "type": "long", "metadata": 1})), "whose metadata is not an object"),
        (metadata(struct({"name": "a", "type": {"type": "array"}})), "unknown type"),
        (metadata(struct({"name": "a", "type": {"type": "map", "keyType": "string", "valueType": 5}})), "unknown type"),
    ],
)
def test_what_is_no_action(tmp_path: Path, action: dict[str, Any], reason: str) -> None:
    assert reason in str(wrong_form(action))
    written(tmp_path, "".join(json.dumps(each) + "\n" for each in (PROTOCOL, action)))
    with pytest.raises(LakemirrorError) as error:
        read_snapshot(tmp_path)
    assert error.value.code == "table-unreadable" and "line 2" in error.value.message
    assert reason in error.value.message


def test_a_line_that_is_nested_too_deeply(tmp_path: Path) -> None:
    path = written(tmp_path, "[" * 100_000)
    with pytest.raises(LakemirrorError, match="line 1 of"):
        read_commit(path)


def test_actions_that_are_null_or_unknown_are_none(tmp_path: Path) -> None:
    nested = {"type": "array", "elementType": {"type": "map", "keyType": "void", "valueType": struct()}}
    good = metadata(struct({"name": "a", "type": nested, "nullable": True, "metadata": {}}, {"name": "b", "type": "x"}))
    later = {"add": None, "remove": None, "txn": None, "cdc": 5, "new": []}
    written(tmp_path, "".join(json.dumps(each) + "\n" for each in (PROTOCOL, good, later)))
    snapshot = read_snapshot(tmp_path)
    assert snapshot is not None and not snapshot.files and not snapshot.added_since_checkpoint
