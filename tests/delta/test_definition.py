"""What `mirroring.json` and `_partnerEvents.json` say, also when they change (contract sections 1, 9 and 11)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.landing import MARKER, declare, folder, put
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase


def define(database: Path, **properties: Any) -> None:
    content = {"properties": {"target": {"typeProperties": properties}}}
    (database / "mirroring.json").write_text(json.dumps(content))


def test_a_table_moves_with_the_default_schema_and_goes_on(tmp_path: Path) -> None:
    declare(tmp_path, "orders", ["id"])
    declare(tmp_path, "sales.orders", ["id"])
    for table, first in (("orders", 1), ("sales.orders", 100)):
        put(tmp_path, table, 1, {"id": [first]})
        put(tmp_path, table, 2, {"id": [first + 1]})
    MirroredDatabase(tmp_path).sync()
    expected = {(1,): 1, (2,): 1}
    for number, schema in ((3, "dbo"), (4, "other"), (5, "")):
        define(tmp_path, **({"defaultSchema": schema} if schema else {}))
        status = {t.name: t.position for t in MirroredDatabase(tmp_path).status().tables}
        assert status["sales.orders"] == 2
        put(tmp_path, "orders", number, {"id": [number]})
        expected[(number,)] = 1
        for _ in range(3):  # long enough to drop what seems to have lost its folder
            result = MirroredDatabase(tmp_path).sync()
            assert (result.failed, result.dropped) == ({}, [])
        place = f"{schema}.orders" if schema else "orders"
        assert table_rows(tmp_path, place) == expected
        assert table_rows(tmp_path, "sales.orders") == {(100,): 1, (101,): 1}
    assert not (tmp_path / "Tables/dbo/orders").exists()


def test_a_schema_folder_is_not_taken_for_the_default(tmp_path: Path) -> None:
    put(tmp_path, "dbo.orders", 1, {"id": [1]})
    put(tmp_path, "orders", 1, {"id": [2]})
    MirroredDatabase(tmp_path).sync()
    failed = MirroredDatabase(tmp_path, default_schema="dbo").sync().failed
    assert {e.code for e in failed.values()} == {"table-name-ambiguous"}
    assert table_rows(tmp_path, "orders") == {(2,): 1}
    assert table_rows(tmp_path, "dbo.orders") == {(1,): 1}


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.1)


def test_a_running_engine_reads_the_definition_again(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": pa.array([1], pa.int32())})
    (tmp_path / "Files/LandingZone/_partnerEvents.json").write_text(
        json.dumps({"partnerName": "Acme", "sourceInfo": {"sourceType": "Postgres", "sourceVersion": "17"}})
    )
    database = MirroredDatabase(tmp_path, poll=0.05, poll_idle=0.05)
    stop = threading.Event()
    engine = threading.Thread(target=database.run, args=(stop,))
    engine.start()

    def status() -> dict[str, Any]:
        path = tmp_path / "Files/Monitoring/replicator.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def position() -> int:
        return MirroredDatabase(tmp_path).status().tables[0].position

    try:
        wait_for(lambda: position() == 1)
        (tmp_path / "mirroring.json").write_text("{")
        wait_for(lambda: status().get("errorCode") == "definition-invalid")
        put(tmp_path, "t", 2, {"id": [2**40], MARKER: pa.array([4], pa.int32())})
        (tmp_path / "mirroring.json").write_text(json.dumps({"lakemirror": {"on_type_change": "widen"}}))
        wait_for(lambda: position() == 2)
        wait_for(lambda: status().get("errorCode") == "")
        assert status()["partner"]["name"] == "Acme"
    finally:
        stop.set()
        engine.join(60)
    assert not engine.is_alive()
    assert table_rows(tmp_path, "t") == {(1,): 1, (2**40,): 1}
    partner = MirroredDatabase(tmp_path).status().partner
    assert partner is not None and (partner.name, partner.source_type) == ("Acme", "Postgres")
    (folder(tmp_path, "t").parent / "_partnerEvents.json").write_text("[")
    found = MirroredDatabase(tmp_path).status()
    assert (found.partner, [w.code for w in found.warnings]) == (None, ["partner-events-invalid"])
