"""`verify` looks at the history tables of a table folder, too: their files, their position, their rows."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.landing import declare, put
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.maintenance.late_days import forget_old
from lakemirror.publisher import Landing, LandingTable
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options


@pytest.fixture
def orders(tmp_path: Path) -> LandingTable:
    table = Landing(tmp_path / "shop").table("orders", keys=["id"])
    table.declare(history="changes")
    table.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    sync(tmp_path)
    return table


def sync(folder: Path) -> None:
    result = MirroredDatabase(folder / "shop", engine="local", settle=0, deletion_vectors=False).sync()
    assert not result.failed, result.failed


def findings(folder: Path) -> set[tuple[str, str]]:
    report = verify_database(LocalStorage(folder / "shop"), (), Options(against_files=True))
    return {(each.table, each.code) for each in report.findings}


def test_every_table_of_the_folder_is_reported(orders: LandingTable, tmp_path: Path) -> None:
    report = verify_database(LocalStorage(tmp_path / "shop"), (), Options(against_files=True))
    assert [(each.table, each.rows, each.compared) for each in report.tables] == [
        ("orders", 2, 2), ("orders__changes", 2, 2),
    ]  # fmt: skip
    assert not report.findings


def test_a_row_that_is_gone_from_the_table_of_changes(orders: LandingTable, tmp_path: Path) -> None:
    orders.delete([{"id": 1}])
    sync(tmp_path)
    assert not findings(tmp_path)
    DeltaTable(tmp_path / "shop/Tables/orders__changes").delete("__operation = 'delete'")
    assert findings(tmp_path) == {
        ("orders__changes", "verify-row-missing"), ("orders__changes", "verify-changed-by-others"),
    }  # fmt: skip


def test_a_history_table_that_was_put_back_in_time(orders: LandingTable, tmp_path: Path) -> None:
    orders.upsert([{"id": 3, "v": "c"}])
    sync(tmp_path)
    log = tmp_path / "shop/Tables/orders__changes/_delta_log"
    for file in log.glob(f"{1:020}.*"):
        file.unlink()
    assert ("orders__changes", "verify-position-behind") in findings(tmp_path)


def test_history_that_began_later_lacks_no_file(tmp_path: Path) -> None:
    table = Landing(tmp_path / "shop").table("orders", keys=["id"])
    table.upsert([{"id": 1}])
    sync(tmp_path)
    table.declare(history="changes")
    table.upsert([{"id": 2}])
    sync(tmp_path)
    assert sum(table_rows(tmp_path / "shop", "orders__changes", ["id"]).values()) == 1
    assert not findings(tmp_path)


def test_versions_that_began_later_are_compared_once_they_are_built(tmp_path: Path) -> None:
    table = Landing(tmp_path / "shop").table("orders", keys=["id"])
    table.upsert([{"id": 1, "v": "a"}])
    sync(tmp_path)
    table.declare(history="scd2")
    table.upsert([{"id": 1, "v": "b"}])
    sync(tmp_path)
    _, history = verify_database(LocalStorage(tmp_path / "shop"), (), Options(against_files=True)).tables
    (finding,) = history.findings
    assert finding.code == "verify-impossible" and "history build DB TABLE --from-processed" in finding.advice
    MirroredDatabase(tmp_path / "shop", engine="local").build_history("orders")
    _, history = verify_database(LocalStorage(tmp_path / "shop"), (), Options(against_files=True)).tables
    assert history.compared == 2 and {each.code for each in history.findings} == {"verify-not-compared"}


def test_history_of_an_earlier_folder_is_not_compared(orders: LandingTable, tmp_path: Path) -> None:
    orders.recreate()
    orders.upsert([{"id": 9, "v": "z"}])
    sync(tmp_path)
    assert findings(tmp_path) == {("orders__changes", "verify-impossible")}


@pytest.fixture
def stock(tmp_path: Path) -> LandingTable:
    table = Landing(tmp_path / "shop").table("stock", keys=["id"])
    table.declare(history="scd2", sequence="n")
    table.upsert([{"id": 1, "n": 5, "v": "a"}, {"id": 2, "n": 3, "v": "b"}])
    table.delete([{"id": 1, "n": 7}])
    table.upsert([{"id": 2, "n": 1, "v": "late"}])
    sync(tmp_path)
    assert not findings(tmp_path)
    return table


LATE = "stock__late"


def late(folder: Path) -> DeltaTable:
    return DeltaTable(folder / "shop/Tables" / LATE)


def test_what_is_remembered_is_verified_and_may_be_forgotten(stock: LandingTable, tmp_path: Path) -> None:
    report = verify_database(LocalStorage(tmp_path / "shop"), (), Options(against_files=True))
    assert (LATE, 4, 4) in [(each.table, each.rows, each.compared) for each in report.tables]
    assert forget_old(str(tmp_path / "shop/Tables" / LATE), now=time.time() + 8 * 86_400)
    assert not findings(tmp_path)


@pytest.mark.parametrize(
    "row",
    [
        {"id": 9, "n": 9, "v": "of nobody", "__file": 3, "__row": 5},
        {"id": 2, "n": 1, "v": "late", "__file": 3, "__row": 0},
    ],
    ids=["of nobody", "twice"],
)
def test_a_change_that_no_file_has_or_that_is_there_twice(
    stock: LandingTable, tmp_path: Path, row: dict[str, Any]
) -> None:
    now = {"__operation": "upsert", "__applied_at": datetime.now(timezone.utc), "__deleted_at": None}
    table = late(tmp_path)
    write_deltalake(
        table, pa.Table.from_pylist([row | now], schema=pa.schema(table.schema().to_arrow())), mode="append"
    )
    assert (LATE, "verify-row-extra") in findings(tmp_path)


def test_a_remembered_change_that_was_altered(stock: LandingTable, tmp_path: Path) -> None:
    late(tmp_path).update(updates={"n": "6"}, predicate="__operation = 'delete'")
    assert LATE in {table for table, code in findings(tmp_path) if code != "verify-changed-by-others"}


def test_partial_rows_are_remembered_with_values_from_elsewhere(stock: LandingTable, tmp_path: Path) -> None:
    stock.update([{"id": 2, "n": 9, "v": None}], unchanged=["v"])
    sync(tmp_path)
    assert {code for _, code in findings(tmp_path)} <= {"verify-not-compared"}


def test_versions_that_depend_on_what_is_not_compared(tmp_path: Path) -> None:
    """Values that became text are not compared; by all columns, versions begin with them."""
    declare(tmp_path / "shop", "orders", ["id"], lakemirror={"history": "scd2", "sequence": "n"})
    for number, values in enumerate([[1], [1, 2]], start=1):
        put(tmp_path / "shop", "orders", number, {"id": [1], "n": [number], "v": [values]})
    sync(tmp_path)
    assert sum(table_rows(tmp_path / "shop", "orders__history", ["id"]).values()) == 2
    assert ("orders__history", "verify-impossible") in findings(tmp_path)
    assert "verify-row-extra" not in {code for _, code in findings(tmp_path)}
