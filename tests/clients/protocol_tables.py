"""Small tables that differ in nothing but their features, made without any Delta client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.feature_names import LEGACY, lowest
from lakemirror.delta.log import Protocol
from lakemirror.features.catalogue import FEATURES, READER_FEATURES

IDS = [1, 2, 3, 4]
NUMBERS = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (1, 6), (2, 6)]


def make_all(folder: Path) -> dict[str, list[int]]:
    """One table for each pair of numbers and each feature, and `expected.json` with the ids of each."""
    for r, w in NUMBERS:
        make(folder / f"numbers-{r}-{w}", Protocol(r, w))
    for feature in FEATURES:
        names = {feature.name}
        while more := {need for f in FEATURES if f.name in names for need in f.requires} - names:
            names |= more
        protocol = lowest({"appendOnly", "invariants", *names}, READER_FEATURES)
        if protocol.writer < 7:
            protocol = Protocol(protocol.reader, 7, None, frozenset({"appendOnly", "invariants", *names}))
        make(folder / f"feature-{feature.name}", protocol)
    expected = {path.name: IDS for path in sorted(folder.iterdir()) if path.is_dir()}
    (folder / "expected.json").write_text(json.dumps(expected))
    return expected


def make(table: Path, protocol: Protocol, **configuration: str) -> Path:
    """One table of two files; mapped names where its protocol has column mapping."""
    listed = (protocol.reader_features or frozenset()) | (protocol.writer_features or frozenset())
    mapped = "columnMapping" in listed or (protocol.writer < 7 and protocol.reader >= LEGACY["columnMapping"][0])
    physical = "col-1" if mapped else "id"
    metadata: dict[str, Any] = {}
    if mapped:
        metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical}
        configuration = {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "1",
            **configuration,
        }
    log = table / "_delta_log"
    log.mkdir(parents=True)
    adds = []
    for number, ids in enumerate((IDS[:2], IDS[2:])):
        field = pa.field(physical, pa.int64(), metadata={"PARQUET:field_id": "1"} if mapped else None)
        path = table / f"part-{number}.parquet"
        pq.write_table(pa.table({physical: ids}, schema=pa.schema([field])), path)
        stats = {
            "numRecords": 2,
            "minValues": {physical: ids[0]},
            "maxValues": {physical: ids[-1]},
            "nullCount": {physical: 0},
        }
        add = {
            "path": path.name,
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        if "rowTracking" in listed:
            add |= {"baseRowId": 2 * number, "defaultRowCommitVersion": 0}
        adds.append({"add": add})
    field_json = {"name": "id", "type": "long", "nullable": True, "metadata": metadata}
    schema = json.dumps({"type": "struct", "fields": [field_json]})
    info: dict[str, Any] = {"timestamp": 1_700_000_000_000, "operation": "WRITE", "operationParameters": {}}
    if "inCommitTimestamp" in listed:
        info = {"inCommitTimestamp": 1_700_000_000_000, **info}
        configuration = {"delta.enableInCommitTimestamps": "true", **configuration}
    actions: list[dict[str, Any]] = [
        {"commitInfo": info},
        protocol.to_action(),
        {
            "metaData": {
                "id": "11111111-2222-3333-4444-555555555555",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": configuration,
                "createdTime": 1_700_000_000_000,
            }
        },
        *adds,
    ]
    if "rowTracking" in listed:
        value = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":3}', "removed": False}
        actions.append({"domainMetadata": value})
    if "clustering" in listed:
        columns = json.dumps({"clusteringColumns": [[physical]], "domainName": "delta.clustering"})
        actions.append({"domainMetadata": {"domain": "delta.clustering", "configuration": columns, "removed": False}})
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    return table
