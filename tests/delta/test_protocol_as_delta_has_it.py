"""The protocol that our metadata needs is the one that Delta gives the same table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakemirror.delta.log import Snapshot, read_snapshot
from lakemirror.delta.protocol import features_of, protocol_of, unsupported_reason

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
