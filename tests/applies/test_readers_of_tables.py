"""Readers that are declared for one table: it alone keeps to what they know (table features, section 6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, put
from tests.table_rows import read_table

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import read_snapshot
from lakemirror.mirror.declared_readers import DeclaredReaders
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.mirror.table_rules import allowed
from lakemirror.settings.settings import Settings, resolve
from lakemirror.storage import LocalStorage

OLD = "delta-rs@0.19"


def has_vectors(database: Path, table: str) -> bool:
    snapshot = read_snapshot(database / "Tables" / table)
    assert snapshot is not None
    return "deletionVectors" in features_of(snapshot.protocol)


def two_tables(database: Path) -> None:
    for table in ("t", "sales.u"):
        declare(database, table, ["id"])
        put(database, table, 1, {"id": [1, 2], MARKER: pa.array([4, 4], pa.int32())})


def test_new_tables(tmp_path: Path) -> None:
    (tmp_path / "mirroring.json").write_text(json.dumps({"lakemirror": {"readers": {"sales.u": [OLD]}}}))
    two_tables(tmp_path)
    put(tmp_path, "sales.u", 2, {"id": [3], "a b": [1]})
    failed = MirroredDatabase(tmp_path, engine="local", maintenance=False, batch_files=1).sync().failed
    assert {name: error.code for name, error in failed.items()} == {"sales.u": "column-name-invalid"}
    assert has_vectors(tmp_path, "t") and not has_vectors(tmp_path, "sales/u")


def test_tables_that_are_there(tmp_path: Path) -> None:
    two_tables(tmp_path)
    declare(tmp_path, "sales.u", ["id"], lakemirror={"history": "scd2"})
    scheduler = Scheduler(LocalStorage(tmp_path), Settings(engine="local", maintenance=False), lambda _: None)  # type: ignore[arg-type, return-value]
    scheduler.tick()
    scheduler.wait()
    readers = DeclaredReaders([f"sales.u={OLD}"], LocalStorage(tmp_path).uri)
    assert readers.step(scheduler, lambda: pytest.fail("nothing is rewritten"), again=True) == 2
    assert not readers.warnings and scheduler.stop()
    assert has_vectors(tmp_path, "t")
    assert not has_vectors(tmp_path, "sales/u") and not has_vectors(tmp_path, "sales/u__history")
    put(tmp_path, "sales.u", 2, {"id": [1, 3], "v": ["a", "b"], MARKER: pa.array([4, 4], pa.int32())})
    assert not MirroredDatabase(tmp_path, engine="local", maintenance=False).sync().failed
    assert read_table(tmp_path / "Tables/sales/u__history").num_rows == 4


@pytest.mark.parametrize(
    "given", [{"*": "duckdb", "sales.u": [OLD]}, ["duckdb", f"sales.u={OLD}"], f"duckdb,sales.u={OLD}"]
)
def test_every_spelling_says_the_same(given: Any) -> None:
    found = resolve({"lakemirror": {"readers": given}})
    assert found.readers == ("duckdb", f"sales.u={OLD}")
    assert allowed(found, "t").deletion_vectors and not allowed(found, "sales.u").deletion_vectors


def test_an_unknown_client_of_one_table_is_refused() -> None:
    with pytest.raises(LakemirrorError) as raised:
        allowed(Settings(readers=("t=nobody",)))
    assert raised.value.code == "client-unknown"
