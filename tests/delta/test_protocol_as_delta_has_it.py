"""The protocol that our metadata needs is the one that Delta gives the same table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakemirror.delta.commit import commit as put_commit
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Snapshot, read_snapshot
from lakemirror.delta.protocol import protocol_of, unsupported_reason
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.target import target_of

PROPERTIES = {
    "vectors": "delta.enableDeletionVectors",
    "feed": "delta.enableChangeDataFeed",
    "widening": "delta.enableTypeWidening",
    "tracking": "delta.enableRowTracking",
    "timestamps": "delta.enableInCommitTimestamps",
    "append": "delta.appendOnly",
}


def snapshot(path: Path) -> Snapshot:
    found = read_snapshot(path)
    assert found is not None
    return found


def test_new_and_changed_tables(spark: Any, tmp_path: Path) -> None:
    wanted: list[tuple[str, ...]] = [
        (),
        ("mapping",),
        *((name,) for name in PROPERTIES),
        ("vectors", "feed", "mapping"),
    ]
    for names in wanted:
        path = tmp_path / "-".join(names or ("plain",))
        pairs = {PROPERTIES[name]: "true" for name in names if name != "mapping"}
        pairs |= {"delta.columnMapping.mode": "name"} if "mapping" in names else {}
        given = ", ".join(f"'{key}' = '{value}'" for key, value in pairs.items())
        ending = f"TBLPROPERTIES ({given})" if given else ""
        spark.sql(f"CREATE TABLE delta.`{path}` (n INT, s STRING) USING delta {ending}")
        made = snapshot(path)
        assert protocol_of(made.metadata.value) == made.protocol, names
        assert protocol_of(made.metadata.value, made.protocol) == made.protocol
        assert unsupported_reason(made.metadata.value, made.protocol) is None
        if names:  # the same turned on later
            later = tmp_path / f"later-{path.name}"
            spark.sql(f"CREATE TABLE delta.`{later}` (n INT, s STRING) USING delta")
            before = snapshot(later)
            spark.sql(f"ALTER TABLE delta.`{later}` SET TBLPROPERTIES ({given})")
            after = snapshot(later)
            ours = protocol_of(after.metadata.value, before.protocol)
            assert (ours.reader, features_of(ours)) == (after.protocol.reader, features_of(after.protocol)), names
            assert ours == after.protocol, names


def test_features_that_delta_turned_on_stay_true_in_our_commit(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (n BIGINT, s STRING) USING delta CLUSTER BY (n) TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true', "
        "'delta.checkpointPolicy' = 'v2', 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a'), (2, 'b')")
    before = snapshot(path)
    assert unsupported_reason(before.metadata.value, before.protocol) is None
    target = target_of(str(path), before.metadata.value, ("n",))
    adds = write_rows([pa.record_batch({"n": [3, 4, 5], "s": ["c", "d", "e"]})], target)
    info = {"timestamp": 1, "operation": "WRITE", "operationParameters": {"mode": "Append"}, "txnId": "t"}
    assert put_commit(str(path), before, [{"commitInfo": info}, *({"add": add} for add in adds)]) is not None
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (6, 'f')")
    rows = spark.sql(f"SELECT n, _metadata.row_id AS id FROM delta.`{path}` ORDER BY n").collect()
    assert [row["n"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert len({row["id"] for row in rows}) == 6, "a row id is given once"
    after = snapshot(path)
    assert json.loads(after.domains["delta.rowTracking"]["configuration"])["rowIdHighWaterMark"] == 5
    moments = [after.commit_infos[version]["inCommitTimestamp"] for version in (1, 2, 3)]
    assert moments == sorted(set(moments))
    assert "delta.clustering" in after.domains
    assert spark.sql(f"SELECT s FROM delta.`{path}` WHERE n = 4").collect()[0]["s"] == "d"
