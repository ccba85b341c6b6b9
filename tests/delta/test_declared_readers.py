"""Tables stay open to the clients that their owner has named (table features, declared readers)."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, put
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.compatibility import find_clients, verdicts

OLD = "delta-rs@0.19"


def markers(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def can_read(database: Path, table: str, client: str = OLD) -> set[str]:
    snapshot = read_snapshot(str(database / "Tables" / table))
    assert snapshot is not None
    return {found.read for found in verdicts(snapshot, find_clients(client))}


def test_new_tables_use_only_what_the_readers_can_read(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "mirroring.json").parent.mkdir(exist_ok=True)
    (tmp_path / "mirroring.json").write_text(json.dumps({"lakemirror": {"readers": [OLD, "duckdb"]}}))
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    put(tmp_path, "t", 2, {"id": [2, 3], "v": ["B", ""], MARKER: markers(4, 2)})
    declare(tmp_path, "odd", [])
    put(tmp_path, "odd", 1, {"a b": [1]})
    result = MirroredDatabase(tmp_path, spark=spark, batch_files=1).sync()
    assert {t: e.code for t, e in result.failed.items()} == {"odd": "column-name-invalid"}
    assert "declared reader" in result.failed["odd"].message
    assert table_rows(tmp_path, "t") == {(1, "a"): 1, (2, "B"): 1}
    assert can_read(tmp_path, "t") == {"yes"}


def test_existing_tables_are_brought_down_and_the_mirror_goes_on(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    put(tmp_path, "t", 2, {"id": [2], "v": ["B"], MARKER: markers(4)})
    MirroredDatabase(tmp_path, spark=spark, batch_files=1).sync()
    assert can_read(tmp_path, "t") == {"no"}
    result = MirroredDatabase(tmp_path, spark=spark, readers=[OLD]).sync()
    assert not result.failed
    assert can_read(tmp_path, "t") == {"yes"}
    assert table_rows(tmp_path, "t") == {(1, "a"): 1, (2, "B"): 1, (3, "c"): 1}
    before = len(list((tmp_path / "Tables/t/_delta_log").glob("*.json")))
    MirroredDatabase(tmp_path, spark=spark, readers=[OLD]).sync()
    assert len(list((tmp_path / "Tables/t/_delta_log").glob("*.json"))) == before, "a second time commits nothing"
    put(tmp_path, "t", 3, {"id": [1, 9], "v": ["A", "z"], MARKER: markers(1, 0)})
    assert not MirroredDatabase(tmp_path, spark=spark, readers=[OLD]).sync().failed
    assert table_rows(tmp_path, "t") == {(1, "A"): 1, (2, "B"): 1, (3, "c"): 1, (9, "z"): 1}
    assert can_read(tmp_path, "t") == {"yes"}


def test_what_cannot_be_dropped_is_reported_with_its_reason(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", [])
    put(tmp_path, "t", 1, {"a b": [1]})
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    MirroredDatabase(tmp_path, spark=spark, readers=[OLD]).sync()
    warned = [w for w in MirroredDatabase(tmp_path).status().warnings if w.code == "readers-unmet"]
    assert [w.file for w in warned] == ["Tables/t"] and "a b" in warned[0].message
    assert table_rows(tmp_path, "t") == {(1,): 1}


def test_a_running_mirror_holds_one_table_back_and_goes_on(spark: Any, tmp_path: Path) -> None:
    for table in ("t", "other"):
        declare(tmp_path, table, ["id"])
        put(tmp_path, table, 1, {"id": [1, 2, 3]})
        put(tmp_path, table, 2, {"id": [2], MARKER: markers(2)})
    MirroredDatabase(tmp_path, spark=spark, batch_files=1).sync()
    database = MirroredDatabase(tmp_path, spark=spark, poll=0.05, poll_idle=0.05, readers=[OLD])
    stop = threading.Event()
    engine = threading.Thread(target=database.run, args=(stop,))
    engine.start()
    try:
        for number in range(3, 12):
            for table in ("t", "other"):
                put(tmp_path, table, number, {"id": [number, 1], MARKER: markers(4, 4)})
            time.sleep(0.5)
        until = time.monotonic() + 90
        while any(can_read(tmp_path, t) != {"yes"} for t in ("t", "other")) and time.monotonic() < until:
            time.sleep(0.3)
    finally:
        stop.set()
        engine.join(90)
    assert not engine.is_alive()
    assert not MirroredDatabase(tmp_path, spark=spark, readers=[OLD]).sync().failed
    for table in ("t", "other"):
        assert can_read(tmp_path, table) == {"yes"}
        assert table_rows(tmp_path, table) == {(n,): 1 for n in (1, 3, *range(3, 12))}


def test_a_client_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(LakemirrorError) as raised:
        MirroredDatabase(tmp_path, readers=["excel@5"])
    assert raised.value.code == "client-unknown"
