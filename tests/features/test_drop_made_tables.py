"""Features that no engine at hand puts into a table, each beside every other feature: tables made by hand, no JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from protocol_tables import IDS
from tests.drop_machine import BASE, COLLATIONS, made

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Snapshot, read_commit, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalogue import BY_NAME, FEATURES, READER_FEATURES, dependents
from lakemirror.features.drop import Dropped, drop
from lakemirror.features.plan import Wish
from lakemirror.features.usage import walk

MADE = ["collations-preview", "collations", "coordinatedCommits-preview", "geospatial", "geospatial-dev"]
OTHERS = [f.name for f in FEATURES if f.drop in ("log", "rewrite") and f.name != "columnMapping"]
PAIRS = [
    (made, other) for made in MADE for other in OTHERS if other not in MADE or MADE.index(made) < MADE.index(other)
]


def snapshot(table: Path) -> Snapshot:
    found = read_snapshot(table)
    assert found is not None
    return found


def kept(now: Snapshot, gone: Iterable[str]) -> dict[str, Any]:
    owned = {key for name in gone for key in BY_NAME[name].properties}
    owned.add("delta.requireCheckpointProtectionBeforeVersion")
    schema = json.loads(json.dumps(now.metadata.schema))
    for _, field in walk(schema):
        if COLLATIONS & set(gone):
            field["metadata"].pop("__COLLATIONS", None)
    return {
        "schema": schema,
        "properties": {key: value for key, value in now.metadata.configuration.items() if key not in owned},
        "statistics": {path: add["stats"] for (path, _), add in now.files.items()},
        "mine": "mine" in now.domains and "domainMetadata" not in gone,
        "clustering": "delta.clustering" in now.domains and "clustering" not in gone,
        "row ids": [add.get("baseRowId") for add in now.files.values() if "rowTracking" not in gone],
    }


def check(old: Snapshot, gone: list[str], truncate: bool = False) -> None:
    new = snapshot(old.table)
    left = features_of(old.protocol) - set(gone)
    if (COLLATIONS | {"clustering"}) & set(gone) and not new.domains and not dependents("domainMetadata", left):
        left -= {"domainMetadata"}
    readers = READER_FEATURES & set(gone) and not truncate
    assert features_of(new.protocol) == left | ({"checkpointProtection"} if readers else set())
    assert kept(new, gone) == kept(old, gone)
    assert ("delta.collations" in new.domains) == bool(COLLATIONS & left)
    assert new.checkpoint is not None and (new.checkpoint.version, new.checkpoint.kind) == (new.version, "classic")
    if new.protocol.reader == 1:
        deltalake = pytest.importorskip("deltalake")
        assert sorted(deltalake.DeltaTable(str(old.table)).to_pyarrow_table().column("id").to_pylist()) == IDS


def moment_of(done: Dropped) -> datetime:
    assert done.waiting is not None
    return done.waiting


@pytest.mark.full  # `tests/drop_machine.py` draws from these pairs in every run
@pytest.mark.parametrize("first", MADE)
@pytest.mark.parametrize("kind", ["first", "second", "both", "both and history"])
def test_beside_every_other_feature(tmp_path: Path, first: str, kind: str) -> None:
    for one, other in PAIRS:
        truncate = "history" in kind
        if one != first or (truncate and not {one, other} & READER_FEATURES):
            continue
        old = made(tmp_path / other, one, other)
        gone = {"first": [one], "second": [other]}.get(kind, [one, other])
        wish = Wish(tuple(gone), truncate=truncate)
        if needing := [n for name in gone for n in dependents(name, features_of(old.protocol)) if n not in gone]:
            with pytest.raises(LakemirrorError, match=f"{needing[0]}.* stands? on"):
                drop(old.table, wish, confirmed=True)
            assert snapshot(old.table).version == 0
            continue
        done = drop(old.table, wish, confirmed=True)
        if done.waiting is not None:
            assert drop(old.table, wish, confirmed=True).commits == 0
            drop(old.table, wish, confirmed=True, now=partial(moment_of, done))
        check(old, gone, truncate)
        assert drop(old.table, wish, confirmed=True).commits == 0


@pytest.mark.parametrize("name", ["geospatial", "geospatial-dev"])
@pytest.mark.parametrize("kind", ["geometry(OGC:CRS84)", "geography(OGC:CRS84, spherical)"])
def test_columns_on_the_globe_stand_in_the_way(tmp_path: Path, name: str, kind: str) -> None:
    table = made(tmp_path / "t", name, "clustering").table
    log = table / "_delta_log" / f"{0:020}.json"
    actions = read_commit(log)
    for action in actions:
        if metadata := action.get("metaData"):
            schema = json.loads(metadata["schemaString"])
            inner = {"name": "place", "type": kind, "nullable": True, "metadata": {}}
            field = {"name": "x", "type": {"type": "struct", "fields": [inner]}, "nullable": True, "metadata": {}}
            metadata["schemaString"] = json.dumps({**schema, "fields": [*schema["fields"], field]})
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(LakemirrorError) as refused:
        drop(table, Wish((name, "clustering")))
    assert (refused.value.code, refused.value.hint) == (
        "feature-in-use",
        f"ALTER TABLE delta.`{table}` DROP COLUMN x.place;",
    )
    assert snapshot(table).version == 0
    drop(table, Wish(("clustering",)))
    assert features_of(snapshot(table).protocol) == {*BASE, name}


def test_a_coordinator_is_left_alone(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "coordinatedCommits-preview").table
    log = table / "_delta_log" / f"{0:020}.json"
    key = "delta.coordinatedCommits.commitCoordinator-preview"
    log.write_text(log.read_text().replace('"mine": "kept"', f'"mine": "kept", "{key}": "somebody"'))
    for names in (("coordinatedCommits-preview",), ("inCommitTimestamp", "coordinatedCommits-preview")):
        with pytest.raises(LakemirrorError) as refused:
            drop(table, Wish(names))
        assert refused.value.code == "features-unsafe" and "decided elsewhere" in refused.value.message
    assert snapshot(table).version == 0
